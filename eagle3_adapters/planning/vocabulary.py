"""Owns the vocabulary side of a plan: the map from draft to target tokens, and the draft's own head."""

from __future__ import annotations

import json
from collections.abc import Callable

import attrs

from eagle3_adapters.errors import FindingsError, VocabMapError
from eagle3_adapters.report import Report
from eagle3_adapters.values import DraftModel, TargetModel
from eagle3_adapters.vocab import VocabEncoding, VocabMap

#: How a draft's map is read: an adapter's hook, or the core's own answer to it. Raises VocabMapError, FindingsError.
Decode = Callable[[DraftModel], VocabMap | None]


def read_map(draft: DraftModel, decode: Decode, report: Report) -> tuple[VocabMap | None, VocabEncoding]:
    """The draft's map, validated, and its true encoding; no map where there is none or a finding says what is wrong.

    A file whose offsets are no map while its numbers are one as target ids holds target ids: true offsets of
    neighbouring tokens repeat, so they are never distinct. Where both readings are maps and no mask decides, that is an
    error. ``decode`` reads the map in the encoding that the draft is marked with.
    """
    try:
        result = decode(draft)
    except FindingsError as error:
        report.extend(error.findings)
        return None, draft.vocab_encoding
    except VocabMapError as error:
        absolute = _as_target_ids(draft, decode)
        if absolute is not None:
            report.info(
                "vocab-map-absolute",
                f"{draft.path}: d2t",
                "offsets from draft id to target id",
                "target ids; made offsets",
                why="read as offsets every proposed token would be another one",
            )
            return absolute, VocabEncoding.ABSOLUTE
        report.error(
            error.code,
            f"{draft.path}: d2t",
            error.expected,
            error.found,
            why="every proposed token would be another one",
            remedy="export the draft again with its vocabulary map",
        )
        return None, draft.vocab_encoding
    undecided = draft.vocab_encoding is VocabEncoding.OFFSET and "t2d" not in draft.tensors
    if result is not None and undecided and reads_both_ways(result):
        report.error(
            "vocab-map-absolute",
            f"{draft.path}: d2t",
            "offsets, of which neighbouring tokens share some",
            f"{len(result.target_ids)} distinct numbers, a map as offsets and as target ids",
            why="one of the two readings proposes other tokens throughout, and nothing in the file decides",
            remedy="export t2d beside d2t; it decides",
        )
    return result, draft.vocab_encoding


def reads_both_ways(vocabulary: VocabMap) -> bool:
    """Whether the offsets of a map are one as target ids too, so that only a mask beside them decides."""
    offsets = vocabulary.encode(VocabEncoding.OFFSET)
    in_range = 0 <= min(offsets) <= max(offsets) < vocabulary.target_vocab_size
    return in_range and len(set(offsets)) == len(offsets) > 1


def _as_target_ids(draft: DraftModel, decode: Decode) -> VocabMap | None:
    """The map that ``d2t`` is when its numbers are target ids; None where they are none."""
    if draft.vocab_encoding is not VocabEncoding.OFFSET:
        return None
    try:
        return decode(attrs.evolve(draft, vocab_encoding=VocabEncoding.ABSOLUTE))
    except (FindingsError, VocabMapError):
        return None


def head_rows_of(draft: DraftModel, vocabulary: VocabMap | None, target: TargetModel, report: Report) -> int | None:
    """Rows of the draft's own lm_head, None where the target's head is shared."""
    head, declared = draft.tensors.get("lm_head.weight"), draft.config.get("draft_vocab_size")
    carrier = "t2d" if draft.vocab_encoding is VocabEncoding.MASK else "d2t"
    has_map = carrier in draft.tensors
    rows = head.shape[0] if head is not None and head.shape else None
    if draft.config.get("tie_word_embeddings") and declared not in (None, target.vocab_size) and head is None:
        report.error(
            "tied-head",
            f"{draft.config_file}: tie_word_embeddings",
            "false, or an lm_head.weight of its own",
            "true with a reduced vocabulary and no lm_head",
            why="logits would be cut to the first rows of the target's head",
            remedy="export the draft with its lm_head",
        )
    elif draft.config.get("tie_word_embeddings") and head is not None:
        report.info(
            "tied-head",
            f"{draft.config_file}: tie_word_embeddings",
            "false, since lm_head.weight is there",
            "true; set to false",
        )
    if declared is not None and rows is not None and declared != rows:
        report.error(
            "vocab-size",
            f"{draft.config_file}: draft_vocab_size",
            f"{rows}, the rows of lm_head.weight",
            json.dumps(declared),
            remedy=f'set "draft_vocab_size": {rows}',
        )
    scored = next(size for size in (rows, declared, target.vocab_size) if size is not None)
    if vocabulary is not None and len(vocabulary.target_ids) != scored:
        report.error(
            "vocab-map-length",
            f"{draft.path}: d2t",
            f"{scored} entries, the rows of the head",
            str(len(vocabulary.target_ids)),
            remedy="export the draft again with its vocabulary map",
        )
    reduced = rows if rows is not None else declared
    if reduced is not None and reduced != target.vocab_size and not has_map:
        report.error(
            "vocab-map-missing",
            f"{draft.path}: d2t",
            f"a map from {reduced} draft tokens into {target.vocab_size}",
            f"no {carrier}",
            why="SGLang would take draft ids for target ids; accept length about 1.0",
            remedy="export the draft with its map; some trainers keep it in a file beside the checkpoint",
        )
    if rows is None and (reduced is None or reduced == target.vocab_size):
        if draft.config["hidden_size"] != target.hidden_size:
            report.error(
                "hidden-size",
                f"{draft.config_file}: hidden_size",
                f"{target.hidden_size}, since the draft has no lm_head and shares the target's",
                str(draft.config["hidden_size"]),
                why="the target's head reads another width",
                remedy="export the draft with its lm_head",
            )
        return None
    return rows if rows is not None else reduced
