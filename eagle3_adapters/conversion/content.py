"""Owns what a draft says, free of any dialect: from a format's reading to what another format is asked to write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs

from eagle3_adapters import canonical, defaults, draft_classes
from eagle3_adapters.boundaries import Ids, default_boundaries, describe_all
from eagle3_adapters.checkpoint import read_integers
from eagle3_adapters.errors import ConventionError
from eagle3_adapters.formats.names import depth_of
from eagle3_adapters.planning import config_checks
from eagle3_adapters.planning.ids import nameable, ordered, read_ids
from eagle3_adapters.planning.math import flags_match_tensors
from eagle3_adapters.planning.routes import canonical_draft
from eagle3_adapters.planning.vocabulary import read_map
from eagle3_adapters.report import Report
from eagle3_adapters.values import CaptureLayers, DraftContent, DraftModel, FormatReading, TargetModel
from eagle3_adapters.vocab import VocabEncoding, VocabMap


@attrs.frozen(kw_only=True)
class Beside:
    """What the user said beside the draft: a target with what SGLang's class of it captures, boundaries."""

    target: TargetModel | None = None
    target_name: str | None = None
    capture: CaptureLayers | None = None
    #: Boundary of each column block of fc, in their order: overrides what the ids mean.
    boundaries: Ids | None = None


@attrs.frozen(kw_only=True)
class Understood:
    """A draft that was read whole: nothing in it is undecided."""

    reading: FormatReading
    #: Under canonical names, the map's true encoding set.
    draft: DraftModel
    #: File name -> canonical name.
    names: Mapping[str, str]
    content: DraftContent
    #: None where draft ids are target ids.
    vocabulary: VocabMap | None


def understand(reading: FormatReading, beside: Beside, report: Report) -> Understood | None:
    """What a draft says, or None where a finding stops."""
    report.extend(reading.findings)
    named = canonical_draft(reading, report)
    draft = named.draft
    draft_class = draft_classes.class_of(draft)
    if not config_checks.config_complete(draft, draft_class.fields, report):
        return None
    listed = boundaries_of(reading, beside, report)
    _states_match(draft, listed, reading, report)
    vocabulary, encoding = read_map(draft, padded_map, report)
    draft = attrs.evolve(draft, vocab_encoding=encoding)
    _head_rows(draft, vocabulary, report)
    math = flags_match_tensors(attrs.evolve(reading, draft=draft), report)
    if report.failed():
        return None
    content = DraftContent(
        config=_config(draft, vocabulary),
        math=math,
        boundaries=listed,
        target=beside.target,
        target_name=beside.target_name,
        id_rule=beside.capture.id_rule if beside.capture else None,
        tensors=frozenset(draft.tensors),
        states=_states(draft),
        depth=depth_of(draft.tensors),
        latent=draft_class is draft_classes.LATENT,
        embedding_trained=reading.embedding_trained,
    )
    identity = vocabulary is not None and list(vocabulary.target_ids) == list(range(vocabulary.target_vocab_size))
    return Understood(
        reading=reading,
        draft=draft,
        names=named.names,
        content=content,
        vocabulary=None if identity else vocabulary,
    )


def boundaries_of(reading: FormatReading, beside: Beside, report: Report) -> Ids | None:
    """Boundary of each column block of fc, in their order; None for the default triple, where no target gives it N."""
    if beside.boundaries is not None:
        return beside.boundaries
    if beside.target is None or beside.capture is None:
        return _without_target(reading, report)
    resolved = read_ids(reading, beside.target, beside.capture, report)
    if resolved is None:
        return None
    default = reading.id_readings[0].ids is None
    if not nameable(resolved, beside.target):
        report.error(
            "layer-ids-out-of-range",
            reading.ids_where,
            f"distinct boundaries in 0..{beside.target.num_layers}",
            str(list(resolved)),
            why="no such states exist in this target",
            remedy="check that the draft was trained for this target, or name boundaries: --boundaries K,K,K",
        )
        return None
    usual = default_boundaries(beside.target.num_layers)
    if default and resolved == usual == beside.capture.default:
        return None  # every dialect leaves this triple unsaid
    return ordered(reading, resolved, beside.target.num_layers, report)


def _without_target(reading: FormatReading, report: Report) -> Ids | None:
    """As far as the ids alone go: shifts need no N, SGLang's class rules and older defaults do."""
    candidates: list[tuple[str, Ids | None]] = []
    for one in reading.id_readings if not reading.first_reading_decides else reading.id_readings[:1]:
        older = one.ids is None and one.default not in (None, default_boundaries)
        if older or (one.ids is not None and one.convention is None):
            report.error(
                "target-needed",
                reading.ids_where,
                "--target, whose class and layers decide what the ids mean",
                f"{'no ids' if one.ids is None else list(one.ids)} ({one.meaning}) and no target",
                remedy="--target TARGET, or name one boundary for each block of fc: --boundaries K,K,K",
            )
            return None
        try:
            found = None if one.ids is None or one.convention is None else one.convention.to_boundaries(one.ids, 0)
        except ConventionError as error:
            report.error("layer-ids-out-of-range", reading.ids_where, "ids with a meaning", str(error))
            return None
        candidates.append((one.meaning, found))
    if len({found for _, found in candidates}) > 1:
        report.error(
            "format-ambiguous",
            reading.ids_where,
            "ids with one meaning",
            "; ".join(
                f"{describe_all(found, None)} ({meaning}): --boundaries {','.join(map(str, found))}"
                for meaning, found in candidates
                if found is not None
            ),
            why="a state one layer off is served without a word and accepts little",
            remedy="select one with the option printed beside it",
        )
        return None
    found = candidates[0][1]
    return None if found is None else ordered(reading, found, None, report)


def padded_map(draft: DraftModel) -> VocabMap | None:
    """The draft's map; a ``t2d`` that ends before the target's vocabulary does says False for the rest of it."""
    mask, size = draft.tensors.get("t2d"), draft.config["vocab_size"]
    short = mask is not None and draft.vocab_encoding is not VocabEncoding.MASK and mask.shape < (size,)
    if not short or mask is None or "d2t" not in draft.tensors:
        return defaults.vocab_map(draft)
    values = list(read_integers(mask))
    without = {name: tensor for name, tensor in draft.tensors.items() if name != "t2d"}
    result = defaults.vocab_map(attrs.evolve(draft, tensors=without))
    if result is not None:
        result.check_mask(values + [0] * (size - len(values)))
    return result


def _width(draft: DraftModel) -> int:
    """Width of one state."""
    width: int = draft.config.get("target_hidden_size") or draft.config["hidden_size"]
    return width


def _states(draft: DraftModel) -> int:
    """Number of states that fc reads; one where there is no fc, which is told elsewhere."""
    fc = draft.tensors.get("fc.weight")
    return max(1, fc.shape[-1] // _width(draft)) if fc is not None and fc.shape else 1


def _states_match(draft: DraftModel, listed: Ids | None, reading: FormatReading, report: Report) -> None:
    wanted = 3 if listed is None else len(listed)
    fc = draft.tensors.get("fc.weight")
    if fc is None or not fc.shape:
        report.error(
            "weight-missing",
            f"{draft.path}: fc.weight",
            "a matrix that joins the states",
            "none" if fc is None else f"shape {list(fc.shape)}",
            remedy="export the draft again with its trainer's own export",
        )
        return
    width = _width(draft)
    if fc.shape[-1] != wanted * width:
        report.error(
            "aux-count",
            reading.ids_where,
            f"a state for each {width} columns of fc.weight, which has {fc.shape[-1]}",
            f"{wanted} states",
            why="fc would read another number of states than it was trained on",
            remedy="correct the ids in the config, or name one boundary for each: --boundaries K,K,K",
        )


def _head_rows(draft: DraftModel, vocabulary: VocabMap | None, report: Report) -> None:
    """A row of the head for each draft token, or one for each token of the target, from which the map chooses."""
    head = draft.tensors.get(canonical.LM_HEAD)
    if head is None or not head.shape:
        return
    rows, size = head.shape[0], draft.config["vocab_size"]
    tokens = size if vocabulary is None else len(vocabulary.target_ids)
    if rows in (tokens, size if vocabulary is not None else tokens):
        return
    report.error(
        "vocab-map-missing" if vocabulary is None else "vocab-map-length",
        f"{draft.path}: {canonical.LM_HEAD}",
        f"{tokens} rows, one for each draft token",
        str(rows),
        why="a row would be taken for another token's",
        remedy="export the draft again with the head and the map that belong together",
    )


def _config(draft: DraftModel, vocabulary: VocabMap | None) -> dict[str, Any]:
    """The canonical config with the sizes that the tensors show."""
    config = {key: value for key, value in draft.config.items() if key not in ("architectures", "model_type")}
    config["num_hidden_layers"] = depth_of(draft.tensors)
    tokens = config["vocab_size"] if vocabulary is None else len(vocabulary.target_ids)
    if config.get("draft_vocab_size") != tokens:
        config["draft_vocab_size"] = tokens
    if canonical.LM_HEAD in draft.tensors and config.get("tie_word_embeddings"):
        # Tied, the head of its own would be dropped by whoever loads it.
        config["tie_word_embeddings"] = False
    return config


def is_unread(name: str) -> bool:
    """A norm that classes build in deeper layers and never read."""
    return re.fullmatch(r"layers\.[1-9]\d*\.input_layernorm\.weight", name) is not None
