"""Owns the decisions: (target, adapter, format reading) -> wiring plan and findings. Pure, without torch or SGLang."""

from __future__ import annotations

import attrs

from eagle3_adapters import draft_classes
from eagle3_adapters.boundaries import Ids
from eagle3_adapters.engine_version import version_numbers
from eagle3_adapters.planning import config_checks
from eagle3_adapters.planning import math as math_checks
from eagle3_adapters.planning.engine_config import engine_config
from eagle3_adapters.planning.ids import injected_of, listed_boundaries, states_of, tell_order
from eagle3_adapters.planning.routes import canonical_draft, routes_of, unfilled_parameters
from eagle3_adapters.planning.tensors import tensors_complete
from eagle3_adapters.planning.vocabulary import head_rows_of, read_map
from eagle3_adapters.registry import Adapter
from eagle3_adapters.report import Report
from eagle3_adapters.values import CaptureLayers, DraftModel, FormatReading, TargetModel
from eagle3_adapters.wiring import Planning, WiringPlan

#: Public EAGLE-3 drafts have one to four layers.
_DEEPEST_DRAFT = 4


def plan_wiring(
    *,
    target: TargetModel,
    reading: FormatReading,
    adapter: Adapter,
    engine: str,
    boundaries: Ids | None = None,
    context_length: int | None = None,
) -> Planning:
    """The plan of one pair. ``boundaries`` overrides the file's ids: one for each column block of fc, in their order.

    ``context_length`` is the served one, where it is not the target's own.

    Every fault that can be seen is reported; the plan is there only where none of them is an error.
    """
    report = Report()
    report.extend(reading.findings)
    capture: CaptureLayers = adapter.capture_layers(target)
    named = canonical_draft(reading, report)
    draft = named.draft
    reading = attrs.evolve(reading, draft=draft)
    stock = draft_classes.class_of(draft)
    if not config_checks.config_complete(draft, stock.fields, report):
        return Planning(findings=report.findings, plan=None)
    draft = attrs.evolve(draft, config=config_checks.sizes(target, draft, report))
    config_checks.rope(target, draft.config, draft.config_file, report)
    config_checks.context(target, draft, context_length, stock.positions, report)
    config_checks.window(draft, report)
    draft = attrs.evolve(draft, config=config_checks.respelled_rope(draft, report))
    config, method = config_checks.quantization(draft, report)
    draft = attrs.evolve(draft, config=config)
    told = math_checks.plain_weights(draft, method, report)
    math_checks.biases_declared(draft, report)
    math = math_checks.flags_of_tensors(draft, math_checks.flags_match_tensors(reading, report))
    math_checks.states_used(draft, report)
    math_checks.norm_output_meaning(reading, report)
    if reading.embedding_trained:
        draft = attrs.evolve(draft, config={**draft.config, draft_classes.TRAINED_EMBEDDING: True})
    states = states_of(target, draft, report)
    bypassed = states is not None and states * target.hidden_size == draft.config["hidden_size"]
    trained = bool(reading.embedding_trained) and not draft_classes.is_wider(draft.config)
    draft_class = draft_classes.serving(stock, math, bypassed=bypassed, trained_embedding=trained)
    told |= math_checks.math_served(draft, math, stock, draft_class, report)
    math_checks.subclass_told(draft, draft_class, report, bypassed=bypassed, trained_embedding=trained)
    joined = draft.config.get("use_aux_hidden_state") is not False or "fc.weight" in draft.tensors
    # Trained without joined states: there are no ids to read. That this is not served was told.
    listed = listed_boundaries(reading, target, capture, boundaries, states, engine, report) if joined else None
    vocabulary, encoding = read_map(draft, adapter.vocab_map, report)
    draft = attrs.evolve(draft, vocab_encoding=encoding)
    head_rows = head_rows_of(draft, vocabulary, target, report)
    num_layers = _depth(draft, target, draft_class, report)
    shapes = draft_classes.shapes(
        draft_class,
        draft.config,
        num_layers=num_layers,
        states=states or len(listed or ()) or 1,
        math=math,
        head_rows=head_rows,
    )
    if not joined:
        shapes = {name: shape for name, shape in shapes.items() if name != "fc.weight"}
    shapes = {name: shape for name, shape in shapes.items() if name not in named.misnamed}
    tensors_complete(draft, shapes, states_known=states is not None, excused=told, report=report)
    key_map = adapter.weight_key_map(draft)
    if report.failed() or listed is None or states is None:
        return Planning(findings=report.findings, plan=None)

    ascending = tuple(sorted(listed))
    order = tuple(listed.index(k) for k in ascending)
    tell_order(order, reading.ids_where if boundaries is None else "--eagle3-boundaries", listed, report)
    routes = routes_of(named.names, key_map, order, draft.vocab_encoding, report)
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
        injected=injected_of(ascending, capture, engine),
        column_order=order,
        state_width=target.hidden_size,
        routes=routes,
        unfilled=unfilled_parameters(draft, num_layers, head_rows),
        vocab_encoding=None if vocabulary is None else draft.vocab_encoding,
        target_vocab_size=target.vocab_size,
        draft_vocab_size=head_rows or target.vocab_size,
        math=math,
        capture=capture.site_in(version_numbers(engine)),
        embed=adapter.embed_capture(target),
        config=engine_config(draft, target, capture, ascending, num_layers, head_rows, math, draft_class),
    )
    return Planning(findings=report.findings, plan=None if report.failed() else plan)


def _depth(draft: DraftModel, target: TargetModel, served: draft_classes.DraftClass, report: Report) -> int:
    """Layers present; the config is corrected to them."""
    layers = sorted({int(name.split(".")[1]) for name in draft.tensors if name.startswith("layers.")})
    depth = len(layers) or 1
    if layers and layers[-1] != depth - 1:
        report.error(
            "weight-missing",
            f"{draft.path}: layers.{layers[-1]}",
            f"layers numbered from 0 to {depth - 1}",
            f"numbers up to {layers[-1]}",
            remedy="export the draft again with its trainer's own export",
        )
    if depth > _DEEPEST_DRAFT and depth == target.num_layers:
        report.error(
            "draft-is-target",
            str(draft.path),
            "a draft of a few layers",
            f"{depth} layers, as many as the target has",
            why="every draft token would cost as much as a target token",
            remedy="--speculative-draft-model-path DRAFT",
        )
    elif served.depth is not None and depth > served.depth:
        report.error(
            "draft-depth",
            f"{draft.path}: layers.{served.depth}",
            f"{served.depth} layer(s), which SGLang's {served.name} has",
            f"{depth} layers",
            why="the class refuses the others, and with latent attention there is no other class",
            remedy="this draft cannot be served with its training-time math yet",
        )
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
