"""Owns where every tensor goes: file name -> canonical name -> name of SGLang's draft class, or nowhere, and why."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

import attrs

from eagle3_adapters import canonical, draft_classes
from eagle3_adapters.boundaries import Ids, is_reordered
from eagle3_adapters.errors import KeyMapError
from eagle3_adapters.keymap import Drop, KeyMap
from eagle3_adapters.planning.math import is_scale
from eagle3_adapters.report import Report
from eagle3_adapters.values import DraftModel, FormatReading
from eagle3_adapters.vocab import VocabEncoding
from eagle3_adapters.wiring import TensorRoute, Transform, Unfilled

#: Prefixes of one dialect -> of another: what half a conversion leaves behind.
_SPELLINGS = (("midlayer.", "layers.0."), ("model.midlayer.", "layers.0."), ("model.", ""))


@attrs.frozen
class Named:
    """A draft under canonical names, and how the names of its file lead there."""

    draft: DraftModel
    #: File name -> canonical name of every tensor that a rule takes.
    names: Mapping[str, str]
    #: Canonical names whose tensors are there under a name that no rule takes: told once, and not as missing too.
    misnamed: frozenset[str]


def canonical_draft(reading: FormatReading, report: Report) -> Named:
    """The draft under canonical names; names that no rule takes are findings."""
    names: dict[str, str] = {}
    strangers: list[str] = []
    for name in reading.draft.tensors:
        if reading.keys.takes(name):
            canonical_name = reading.keys.apply(name)
            if isinstance(canonical_name, str):
                names[name] = canonical_name
        elif is_scale(name):
            names[name] = name  # told as draft-quantized, under its own name
        else:
            strangers.append(name)
    misnamed = _tell_strangers(reading, strangers, set(names.values()), report)
    draft = attrs.evolve(reading.draft, tensors=canonical.rename_tensors(reading.draft, names))
    if draft.config.get("target_hidden_size", 0) is None:
        config = {key: value for key, value in draft.config.items() if key != "target_hidden_size"}
        report.info(
            "hidden-size", f"{draft.config_file}: target_hidden_size", "a number or no such key", "null; key removed"
        )
        draft = attrs.evolve(draft, config=config)
    return Named(draft, names, misnamed)


def _tell_strangers(reading: FormatReading, strangers: list[str], taken: set[str], report: Report) -> frozenset[str]:
    """One finding for each spelling of another dialect, one for each other name. Returns what they stand for."""
    misnamed: set[str] = set()
    spelt: dict[tuple[str, str], list[str]] = {}
    for name in strangers:
        spelling = next((one for one in _SPELLINGS if _respelled(name, one, reading.keys)), None)
        if spelling is not None:
            spelt.setdefault(spelling, []).append(name)
            misnamed.add(_respelled(name, spelling, reading.keys))
            continue
        nearest = _nearest(name, reading.keys, taken)
        if nearest:
            misnamed.add(str(reading.keys.apply(nearest)))
        report.error(
            "weight-unmapped",
            f"{reading.draft.path}: {name}",
            f"a name that {reading.keys.owner} knows",
            "no rule takes it",
            why="it would be dropped in silence",
            remedy=f"rename it to {nearest}, if that is what it is"
            if nearest
            else "name the format that wrote it: --eagle3-format NAME; remove it if it is left over",
        )
    for (old, new), names in spelt.items():
        report.error(
            "weight-unmapped",
            f"{reading.draft.path}: {names[0]}",
            f"names that {reading.keys.owner} knows",
            f"{len(names)} tensors whose names begin with {old!r}, another dialect's",
            why="names and config.json come from two dialects; the tensors would be dropped in silence",
            remedy=f"rename {old}* to {new}*, or take the config.json that belongs to these names",
        )
    return frozenset(misnamed)


def _respelled(name: str, spelling: tuple[str, str], keys: KeyMap) -> str:
    """Canonical name under another spelling of the prefix; empty where that is none either."""
    old, new = spelling
    if not name.startswith(old) or not keys.takes(new + name.removeprefix(old)):
        return ""
    canonical_name = keys.apply(new + name.removeprefix(old))
    return canonical_name if isinstance(canonical_name, str) else ""


def _nearest(name: str, keys: KeyMap, taken: set[str]) -> str:
    """A name that the format knows, that no tensor has and that was perhaps meant; empty where none is near."""
    layer = re.search(r"(?<=layers\.)\d+", name)
    known = [rule.source.replace("{layer}", layer[0] if layer else "0").replace("{state}", "0") for rule in keys.rules]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return close[0] if close and keys.apply(close[0]) not in taken else ""


def routes_of(
    keys: Mapping[str, str], key_map: KeyMap, order: Ids, encoding: VocabEncoding, report: Report
) -> tuple[TensorRoute, ...]:
    """A route for every tensor of ``keys`` (file name -> canonical name), states counted in SGLang's order."""
    routes: list[TensorRoute] = []
    taken: dict[str, str] = {}
    # State j of the file becomes state p of SGLang where order[p] == j.
    position = {state: p for p, state in enumerate(order)}
    permuted = is_reordered(order)
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
