"""Owns the decisions: (target, adapter, format reading) -> wiring plan and findings. Pure, without torch or SGLang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from eagle3_adapters import canonical, checks, draft_classes
from eagle3_adapters.boundaries import Ids, describe_all
from eagle3_adapters.errors import ConventionError, KeyMapError, UnmappedKeyError, VocabMapError
from eagle3_adapters.keymap import Drop, KeyMap
from eagle3_adapters.registry import Adapter
from eagle3_adapters.report import Report
from eagle3_adapters.values import CaptureLayers, DraftMath, DraftModel, FormatReading, IdReading, TargetModel
from eagle3_adapters.vocab import VocabEncoding, VocabMap
from eagle3_adapters.wiring import Planning, TensorRoute, Transform, Unfilled, WiringPlan

#: Config keys of SGLang's draft classes that the plan decides; the rest of the canonical config passes through.
_DECIDED = ("use_aux_hidden_state", "norm_before_residual", "norm_before_fc", "fc_norm", "use_aux_norm", "norm_output")


def resolve_reading(reading: IdReading, target: TargetModel, capture: CaptureLayers) -> Ids:
    """Boundaries of one reading of the ids, in the order of the file's list. Raises ConventionError."""
    if reading.ids is None:
        return capture.default if reading.default is None else reading.default(target.num_layers)
    return (reading.convention or capture.id_rule).to_boundaries(reading.ids, target.num_layers)


def plan_wiring(
    *,
    target: TargetModel,
    reading: FormatReading,
    adapter: Adapter,
    engine: str,
    boundaries: Ids | None = None,
) -> Planning:
    """The plan of one pair. ``boundaries`` overrides the file's ids: one for each column block of fc, in their order.

    Every fault that can be seen is reported; the plan is there only where none of them is an error.
    """
    report = Report()
    report.extend(reading.findings)
    capture: CaptureLayers = adapter.ask.capture_layers(target=target)
    draft, keys = _canonical_draft(reading, report)
    reading = attrs.evolve(reading, draft=draft)
    if not checks.config_complete(draft, report):
        return Planning(findings=report.findings, plan=None)
    checks.sizes(target, draft, report)
    checks.rope(target, draft.config, draft.config_file, report)
    told = checks.extra_tensors(draft, report)
    math = checks.flags_match_tensors(reading, report)
    draft_class = draft_classes.class_of(draft)
    if draft_class is None:
        report.error(
            "draft-architecture",
            str(draft.path),
            "a Llama-shaped draft",
            "latent (MLA) attention",
            remedy="not served by this version",
        )
        return Planning(findings=report.findings, plan=None)
    checks.math_served(attrs.evolve(reading, math=math), draft_class.math, report)
    if draft.config.get("use_aux_hidden_state") is False:
        report.error(
            "aux-disabled",
            f"{draft.config_file}: use_aux_hidden_state",
            "true",
            "false: the draft reads the target's last normed state",
            remedy="this draft cannot be served with its training-time math yet",
        )
    states = _states(target, draft, report)
    listed = _listed_boundaries(reading, target, capture, boundaries, states, report)
    vocabulary = _vocabulary(draft, adapter, report)
    head_rows = _head_rows(draft, vocabulary, target, report)
    if states is not None:
        num_layers = _depth(draft, report)
        shapes = draft_classes.llama_shapes(
            draft.config, num_layers=num_layers, states=states, math=math, head_rows=head_rows
        )
        optional = {*canonical.VOCABULARY, draft_classes.EMBEDDING, *told}
        optional |= {f"layers.{layer}.input_layernorm.weight" for layer in range(1, num_layers)}
        checks.tensors_complete(draft, shapes, optional, report)
    _embedding(reading, report)
    key_map: KeyMap | None = adapter.ask.weight_key_map(draft=draft)
    if report.failed() or listed is None or states is None or key_map is None:
        return Planning(findings=report.findings, plan=None)

    ascending = tuple(sorted(listed))
    order = tuple(listed.index(k) for k in ascending)
    _tell_order(order, reading.ids_where, listed, report)
    routes = _routes(keys, key_map, order, draft.vocab_encoding, report)
    plan = WiringPlan(
        adapter=adapter.registration.name,
        adapter_origin=adapter.registration.origin,
        format=reading.format,
        engine=engine,
        target_path=target.path,
        target_architecture=target.architecture,
        num_layers=target.num_layers,
        draft_path=draft.path,
        draft_class=draft_class.name,
        boundaries=ascending,
        column_order=order,
        state_width=target.hidden_size,
        routes=routes,
        unfilled=_unfilled(draft, num_layers, head_rows),
        vocab_encoding=None if vocabulary is None else draft.vocab_encoding,
        target_vocab_size=target.vocab_size,
        draft_vocab_size=head_rows or target.vocab_size,
        math=math,
        capture=capture.site,
        embed=adapter.ask.embed_capture(target=target),
        config=_engine_config(draft, target, capture, ascending, num_layers, head_rows, math, draft_class.name),
    )
    return Planning(findings=report.findings, plan=None if report.failed() else plan)


def _canonical_draft(reading: FormatReading, report: Report) -> tuple[DraftModel, Mapping[str, str]]:
    """The draft under canonical names, and file name -> canonical name of every tensor that a rule takes."""
    names: dict[str, str] = {}
    taken: dict[str, str] = {}
    for name in reading.draft.tensors:
        try:
            canonical_name = reading.keys.apply(name)
        except UnmappedKeyError as error:
            report.error(
                "weight-unmapped",
                f"{reading.draft.path}: {name}",
                f"a name that {error.owner} knows",
                "no rule takes it",
                why="it would be dropped in silence",
                remedy="name the format that wrote it: --eagle3-format NAME",
            )
            continue
        if isinstance(canonical_name, Drop):
            continue
        if canonical_name in taken:
            report.error(
                "weight-collision",
                f"{reading.draft.path}: {name}",
                f"one tensor for {canonical_name}",
                f"{taken[canonical_name]} too",
                remedy="remove the stale tensor from the checkpoint",
            )
            continue
        taken[canonical_name] = name
        names[name] = canonical_name
    draft = attrs.evolve(reading.draft, tensors=canonical.rename_tensors(reading.draft, names))
    if draft.config.get("target_hidden_size", 0) is None:
        config = {key: value for key, value in draft.config.items() if key != "target_hidden_size"}
        report.info(
            "hidden-size", f"{draft.config_file}: target_hidden_size", "a number or no such key", "null; key removed"
        )
        draft = attrs.evolve(draft, config=config)
    return draft, names


def _states(target: TargetModel, draft: DraftModel, report: Report) -> int | None:
    """Number of states that fc reads, by its columns."""
    fc = draft.tensors.get("fc.weight")
    if fc is None:
        return None  # weight-missing is told where all shapes are known
    columns = fc.shape[-1] if fc.shape else 0
    states, rest = divmod(columns, target.hidden_size)
    if rest or not states:
        report.error(
            "aux-count",
            f"{draft.path}: fc.weight",
            f"a multiple of {target.hidden_size} columns, the hidden size of {target.path}",
            f"{columns} columns",
            remedy="check that this draft was trained for this target",
        )
        return None
    if states == 1:
        report.error(
            "fc-bypass",
            f"{draft.path}: fc.weight",
            "at least two states",
            "one: SGLang skips fc where its input is as wide as the embedding",
            why="measured: accept length 1.33 instead of 2.63",
            remedy="this draft cannot be served with its training-time math yet",
        )
    return states


def _listed_boundaries(
    reading: FormatReading,
    target: TargetModel,
    capture: CaptureLayers,
    override: Ids | None,
    states: int | None,
    report: Report,
) -> Ids | None:
    """Boundary of each column block of fc, in the order of the blocks."""
    if override is not None:
        listed, where = override, "--eagle3-boundaries"
    else:
        where = reading.ids_where
        resolved = _read_ids(reading, target, capture, report)
        if resolved is None:
            return None
        listed = resolved if reading.listed_order else tuple(sorted(resolved))
    checks.boundaries_possible(listed, where, target, capture, report)
    if states is not None and states != len(listed):
        report.error(
            "aux-count",
            where,
            f"{states} states, as fc.weight has columns for",
            f"{len(listed)} boundaries {list(listed)}",
            why="fc would read another number of states than it was trained on",
            remedy="name one boundary for each: --eagle3-boundaries " + ",".join("K" * states),
        )
        return None
    return listed


def _read_ids(reading: FormatReading, target: TargetModel, capture: CaptureLayers, report: Report) -> Ids | None:
    """The declared reading, with a finding where another reading gives another plan."""
    candidates: list[tuple[IdReading, Ids]] = []
    for id_reading in reading.id_readings:
        try:
            candidates.append((id_reading, resolve_reading(id_reading, target, capture)))
        except ConventionError as error:
            report.error("layer-ids-out-of-range", reading.ids_where, "ids with a meaning", str(error))
            return None
    declared = candidates[0][1]
    others = [candidate for candidate in candidates[1:] if set(candidate[1]) != set(declared)]
    if others:
        lines = [
            f"{list(k)} = {describe_all(k, target.num_layers)} ({candidate.meaning}): "
            f"--eagle3-boundaries {','.join(map(str, k))}"
            for candidate, k in (candidates[0], *others)
        ]
        tell = report.warning if reading.first_reading_decides else report.error
        tell(
            "layer-ids-reading" if reading.first_reading_decides else "format-ambiguous",
            reading.ids_where,
            "ids with one meaning",
            f"{len(lines)} readings: " + "; ".join(lines),
            why="a state one layer off is served without a word and accepts little",
            remedy=("the first is used; select another" if reading.first_reading_decides else "select one")
            + " with the option printed beside it",
        )
    if candidates[0][0].ids is None:
        report.info(
            "layer-ids-missing",
            reading.ids_where,
            "layer ids",
            f"none; the default that this format trains with: {list(declared)} = "
            f"{describe_all(declared, target.num_layers)}",
        )
    return declared


def _tell_order(order: Ids, where: str, listed: Ids, report: Report) -> None:
    if order != tuple(range(len(order))):
        report.info(
            "layer-ids-unordered",
            where,
            "ascending boundaries, the order in which SGLang concatenates",
            f"{list(listed)}; column blocks of fc reordered {list(order)}",
        )


def _vocabulary(draft: DraftModel, adapter: Adapter, report: Report) -> VocabMap | None:
    try:
        result: VocabMap | None = adapter.ask.vocab_map(draft=draft)
    except VocabMapError as error:
        report.error(
            error.code,
            f"{draft.path}: d2t",
            error.expected,
            error.found,
            why="every proposed token would be another one",
            remedy="export the draft again with its vocabulary map",
        )
        return None
    return result


def _head_rows(draft: DraftModel, vocabulary: VocabMap | None, target: TargetModel, report: Report) -> int | None:
    """Rows of the draft's own lm_head, None where the target's head is shared."""
    head, declared = draft.tensors.get("lm_head.weight"), draft.config.get("draft_vocab_size")
    has_map = "d2t" in draft.tensors or "t2d" in draft.tensors
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
    if declared is not None and rows is not None and declared != rows:
        report.error(
            "vocab-size",
            f"{draft.config_file}: draft_vocab_size",
            f"{rows}, the rows of lm_head.weight",
            str(declared),
            remedy=f'set "draft_vocab_size": {rows}',
        )
    if vocabulary is not None and rows is not None and len(vocabulary.target_ids) != rows:
        report.error(
            "vocab-map-length",
            f"{draft.path}: d2t",
            f"{rows} entries, the rows of lm_head.weight",
            str(len(vocabulary.target_ids)),
            remedy="export the draft again with its vocabulary map",
        )
    reduced = rows if rows is not None else declared
    if reduced is not None and reduced != target.vocab_size and not has_map:
        report.error(
            "vocab-map-missing",
            f"{draft.path}: d2t",
            f"a map from {reduced} draft tokens into {target.vocab_size}",
            "neither d2t nor t2d",
            why="SGLang would take draft ids for target ids; accept length about 1.0",
            remedy="export the draft with its map; some trainers keep it in a file beside the checkpoint",
        )
    if rows is None and (reduced is None or reduced == target.vocab_size):
        return None
    return rows if rows is not None else reduced


def _depth(draft: DraftModel, report: Report) -> int:
    """Layers present; the config is corrected to them."""
    layers = {int(name.split(".")[1]) for name in draft.tensors if name.startswith("layers.")}
    depth = max(layers, default=0) + 1
    declared = draft.config.get("num_hidden_layers")
    if declared != depth:
        report.info(
            "draft-depth",
            f"{draft.config_file}: num_hidden_layers",
            f"{depth}, the layers that have tensors",
            f"{declared}; set to {depth}",
            why="SGLang would build the others with random weights",
        )
    return depth


def _embedding(reading: FormatReading, report: Report) -> None:
    draft = reading.draft
    if reading.embedding_trained and not draft_classes.owns_embedding(draft.config):
        report.error(
            "trained-embedding",
            f"{draft.config_file}: embed_requires_grad",
            "the target's embedding, which SGLang puts in its place",
            "an embedding of the draft's own",
            why="the trained embedding would be overwritten",
            remedy="this draft cannot be served with its training-time math yet",
        )


def _routes(
    keys: Mapping[str, str], key_map: KeyMap, order: Ids, encoding: VocabEncoding, report: Report
) -> tuple[TensorRoute, ...]:
    routes: list[TensorRoute] = []
    taken: dict[str, str] = {}
    # State j of the file becomes state p of SGLang where order[p] == j.
    position = {state: p for p, state in enumerate(order)}
    permuted = order != tuple(range(len(order)))
    for source, canonical_name in keys.items():
        name = canonical_name
        if permuted and name.startswith("fc_norm."):
            name = f"fc_norm.{position[int(name.split('.')[1])]}.weight"
        try:
            target = key_map.apply(name)
        except KeyMapError as error:
            report.error("weight-unmapped", source, "a rule for every tensor", str(error))
            continue
        if canonical_name == "t2d" and encoding is VocabEncoding.MASK:
            target = "d2t"
        if isinstance(target, Drop):
            routes.append(TensorRoute(source=source, target=None, reason=target.reason))
            continue
        if target in taken:
            report.error("weight-collision", source, f"one tensor for {target}", f"{taken[target]} too")
            continue
        taken[target] = source
        routes.append(TensorRoute(source=source, target=target, transform=_transform(target, name, permuted)))
    return tuple(routes)


def _transform(target: str, canonical_name: str, permuted: bool) -> Transform:  # noqa: FBT001 - one fact, one caller
    if target == "d2t":
        return "offsets"
    return "columns" if permuted and canonical_name in ("fc.weight", "input_norm.weight") else "none"


def _unfilled(draft: DraftModel, num_layers: int, head_rows: int | None) -> tuple[Unfilled, ...]:
    shared: list[Unfilled] = []
    if not draft_classes.owns_embedding(draft.config):
        shared.append(Unfilled(parameter=f"model.{draft_classes.EMBEDDING}", reason=draft_classes.SHARED_EMBEDDING))
    if head_rows is None:
        shared.append(Unfilled(parameter="lm_head.weight", reason="SGLang shares the target's head with the draft"))
    shared.extend(
        Unfilled(
            parameter=f"model.layers.{layer}.input_layernorm.weight",
            reason="built by the class, read in the first layer only",
        )
        for layer in range(1, num_layers)
        if f"layers.{layer}.input_layernorm.weight" not in draft.tensors
    )
    return tuple(shared)


def _engine_config(
    draft: DraftModel,
    target: TargetModel,
    capture: CaptureLayers,
    boundaries: Ids,
    num_layers: int,
    head_rows: int | None,
    math: DraftMath,
    draft_class: str,
) -> dict[str, Any]:
    """config.json for SGLang's draft class. The ids in it only size buffers: the capture itself is assigned."""
    try:
        ids = capture.id_rule.to_ids(boundaries, target.num_layers)
    except ConventionError:
        ids = boundaries
    config = {key: value for key, value in draft.config.items() if key not in _DECIDED}
    return config | {
        "architectures": [draft_class],
        "model_type": "llama",
        "num_hidden_layers": num_layers,
        "num_aux_hidden_states": len(boundaries),
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": list(ids),
            "use_aux_hidden_state": True,
            "norm_before_fc": math.norm_before_fc,
        },
        "fc_norm": math.fc_norm,
        "norm_output": math.norm_output,
        "tie_word_embeddings": False,
        "draft_vocab_size": head_rows,
        "vocab_size": target.vocab_size,
    }
