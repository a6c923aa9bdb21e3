"""Owns where every tensor goes: file name -> canonical name -> name of SGLang's draft class, or nowhere, and why."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import attrs

from eagle3_adapters import canonical, draft_classes
from eagle3_adapters.boundaries import Ids
from eagle3_adapters.errors import KeyMapError, UnmappedKeyError
from eagle3_adapters.keymap import Drop, KeyMap
from eagle3_adapters.planning.math import is_scale
from eagle3_adapters.report import Report
from eagle3_adapters.values import DraftModel, FormatReading
from eagle3_adapters.vocab import VocabEncoding
from eagle3_adapters.wiring import TensorRoute, Transform, Unfilled


def canonical_draft(reading: FormatReading, report: Report) -> tuple[DraftModel, Mapping[str, str]]:
    """The draft under canonical names, and file name -> canonical name of every tensor that a rule takes."""
    names: dict[str, str] = {}
    taken: dict[str, str] = {}
    for name in reading.draft.tensors:
        try:
            canonical_name = reading.keys.apply(name)
        except UnmappedKeyError as error:
            if is_scale(name):
                names[name] = name  # told as draft-quantized, under its own name
                continue
            report.error(
                "weight-unmapped",
                f"{reading.draft.path}: {name}",
                f"a name that {error.owner} knows",
                "no rule takes it",
                why="it would be dropped in silence",
                remedy=_nearest(name, reading.keys) + "or name the format that wrote it: --eagle3-format NAME",
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


def _nearest(name: str, keys: KeyMap) -> str:
    """A name that the format knows and that was perhaps meant."""
    known = [rule.source.replace("{layer}", "0").replace("{state}", "0") for rule in keys.rules]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"rename it if it is {close[0]}, " if close else "rename it as the format does, "


def routes_of(
    keys: Mapping[str, str], key_map: KeyMap, order: Ids, encoding: VocabEncoding, report: Report
) -> tuple[TensorRoute, ...]:
    """A route for every tensor of ``keys`` (file name -> canonical name), states counted in SGLang's order."""
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
            routes.append(TensorRoute(source=source, canonical=canonical_name, target=None, reason=target.reason))
            continue
        if target in taken:
            report.error("weight-collision", source, f"one tensor for {target}", f"{taken[target]} too")
            continue
        taken[target] = source
        transform = _transform(target, name, permuted)
        routes.append(TensorRoute(source=source, canonical=canonical_name, target=target, transform=transform))
    return tuple(routes)


def _transform(target: str, canonical_name: str, permuted: bool) -> Transform:  # noqa: FBT001 - one fact, one caller
    if target == "d2t":
        return "offsets"
    return "columns" if permuted and canonical_name in ("fc.weight", "input_norm.weight") else "none"


def unfilled_parameters(draft: DraftModel, num_layers: int, head_rows: int | None) -> tuple[Unfilled, ...]:
    """Parameters of the draft class that no tensor fills, rightly."""
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
