"""Owns the checks of one pair that need no decision: each reads facts and reports findings.

Decisions (which boundaries, which order, which map) are the plan's; a check only says what is wrong with what is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from eagle3_adapters import draft_classes
from eagle3_adapters.boundaries import Ids, describe_all
from eagle3_adapters.report import Report
from eagle3_adapters.values import CaptureLayers, DraftMath, DraftModel, FormatReading, TargetModel

_REQUIRED = ("hidden_size", "num_attention_heads", "intermediate_size", "vocab_size", "rms_norm_eps")
#: Flag -> where it lives in words, and what ignoring it would do.
_UNSERVED = {
    "norm_before_residual": "the first layer's residual would be the un-normed state",
    "norm_before_fc": "the states would reach fc without input_norm",
    "fc_norm": "the states would reach fc without fc_norm",
    "norm_output": "later draft steps would continue from another tensor than in training",
}


def config_complete(draft: DraftModel, report: Report) -> bool:
    """Every number that the draft class is built from is there: no default is invented."""
    complete = True
    for key in _REQUIRED:
        value = draft.config.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            report.error(
                "config-unreadable",
                f"{draft.config_file}: {key}",
                "a positive number",
                repr(value),
                why="the draft class is built from it",
                remedy=f'write "{key}" as the training run had it',
            )
            complete = False
    return complete


def sizes(target: TargetModel, draft: DraftModel, report: Report) -> None:
    """Hidden size and vocabulary fit the target."""
    config, file = draft.config, draft.config_file
    reads = config.get("target_hidden_size") or config["hidden_size"]
    if reads != target.hidden_size:
        key = "target_hidden_size" if config.get("target_hidden_size") else "hidden_size"
        report.error(
            "hidden-size",
            f"{file}: {key}",
            f"{target.hidden_size}, the hidden size of {target.path}",
            str(reads),
            why="fc would read states of another width",
            remedy="check that this draft was trained for this target",
        )
    if config["vocab_size"] != target.vocab_size:
        report.error(
            "vocab-size",
            f"{file}: vocab_size",
            f"{target.vocab_size}, the vocabulary of {target.path}",
            str(config["vocab_size"]),
            why="draft ids would be mapped into another vocabulary",
            remedy="check that this draft was trained for this target",
        )


def nameable(boundaries: Ids, target: TargetModel) -> bool:
    """Whether every boundary exists in the target and none stands twice."""
    return len(set(boundaries)) == len(boundaries) and all(0 <= k <= target.num_layers for k in boundaries)


def boundaries_possible(
    boundaries: Ids, where: str, target: TargetModel, capture: CaptureLayers, report: Report, *, default: bool
) -> None:
    """Within 0..N, distinct, and deliverable by the class."""
    n = target.num_layers
    outside = [k for k in boundaries if not 0 <= k <= n]
    if outside:
        report.error(
            "layer-ids-out-of-range",
            where,
            f"boundaries in 0..{n} (of {n} layers)",
            f"{outside} in {list(boundaries)}",
            why="no such state exists in this target",
            remedy="check that the draft was trained for this target, or name boundaries: --eagle3-boundaries K,K,K",
        )
        return
    if len(set(boundaries)) != len(boundaries):
        report.error(
            "layer-ids-degenerate" if default else "layer-ids-duplicate",
            where,
            "distinct boundaries",
            str(list(boundaries)),
            why="SGLang captures a boundary once, so fc would read too few states",
            remedy="name boundaries: --eagle3-boundaries K,K,K",
        )
    unreachable = sorted({k for k in boundaries if k not in capture.native})
    if unreachable:
        report.error(
            "boundary-unreachable",
            where,
            f"boundaries in {capture.native.start}..{capture.native.stop - 1}, which {target.architecture} can deliver",
            describe_all(unreachable, n),
            why="the class never captures it and says nothing",
            remedy="train the draft on other states; no injected capture exists for this class yet",
        )


def math_served(reading: FormatReading, honoured: DraftMath, report: Report) -> None:
    """Every flag of the draft's math is one that the draft class honours."""
    wanted = attrs.asdict(reading.math)
    for flag, why in _UNSERVED.items():
        if wanted[flag] and not getattr(honoured, flag):
            report.error(
                flag.replace("_", "-"),
                f"{reading.draft.config_file}: {flag}",
                "math that SGLang's draft class computes",
                f"{flag} true",
                why=why,
                remedy="this draft cannot be served with its training-time math yet",
            )


def extra_tensors(draft: DraftModel, report: Report) -> set[str]:
    """Tensors that stand for math the stock class drops. Returns their names, so that they are not told twice."""
    told: set[str] = set()
    for names, code, what in (
        (("q_norm", "k_norm"), "qk-norm", "normed queries and keys"),
        (("q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias"), "projection-bias", "attention biases"),
        (("mlp.gate_proj.bias", "mlp.up_proj.bias", "mlp.down_proj.bias"), "mlp-bias", "MLP biases"),
    ):
        found = [name for name in draft.tensors if any(part in name for part in names)]
        if found:
            told.update(found)
            report.error(
                code,
                f"{draft.path}: {found[0]}",
                "math that SGLang's draft class computes",
                what,
                why="the class has no parameter for them and would drop them in silence",
                remedy="this draft cannot be served with its training-time math yet",
            )
    return told


def flags_match_tensors(reading: FormatReading, report: Report) -> DraftMath:
    """fc_norm and input_norm: the tensors decide. Returns the math that they stand for."""
    tensors, math = reading.draft.tensors, reading.math
    for flag, present in (
        ("norm_before_fc", "input_norm.weight" in tensors),
        ("fc_norm", "fc_norm.0.weight" in tensors),
    ):
        declared = getattr(math, flag)
        tensor = "input_norm.weight" if flag == "norm_before_fc" else "fc_norm.0.weight"
        where = f"{reading.draft.config_file}: {flag}"
        if present and not declared:
            report.info("norm-tensor-without-flag", where, f"true, since {tensor} is there", "false; set to true")
            math = attrs.evolve(math, **{flag: True})
        elif declared and not present:
            report.error(
                "norm-flag-without-tensor",
                where,
                f"{tensor} among the tensors",
                "no such tensor",
                why="the norm would run with weights that were never trained",
                remedy=f'set "{flag}": false if training had no such norm, else export the tensor',
            )
    return math


def tensors_complete(
    draft: DraftModel,
    shapes: Mapping[str, draft_classes.Shape],
    *,
    states_known: bool,
    excused: set[str],
    report: Report,
) -> None:
    """Exactly the tensors that the class needs, in exactly their shapes.

    ``excused`` were told elsewhere. Where the number of states is not known, tensors whose shape hangs on it are not
    judged: that it is unknown was told.
    """
    for name, shape in shapes.items():
        tensor = draft.tensors.get(name)
        if tensor is None:
            report.error(
                "weight-missing",
                f"{draft.path}: {name}",
                f"a tensor of shape {list(shape)}",
                "none",
                why="SGLang would serve with random numbers in its place",
                remedy="export the draft again with its trainer's own export",
            )
        elif tensor.shape != shape and (states_known or not _hangs_on_states(name)):
            report.error(
                "weight-shape",
                f"{draft.path}: {name}",
                f"shape {list(shape)} by {draft.config_file.name}",
                str(list(tensor.shape)),
                remedy=f"correct {draft.config_file} (sizes, heads, head_dim) or export the draft again",
            )
    for name in draft.tensors:
        known = name in shapes or name in excused or draft_classes.is_optional(name)
        if not known and (states_known or not _hangs_on_states(name)):
            report.error(
                "weight-unmapped",
                f"{draft.path}: {name}",
                "tensors that the draft class has a parameter for",
                "no parameter takes it",
                why="SGLang would drop it in silence",
                remedy="name the format that wrote it: --eagle3-format NAME",
            )


def _hangs_on_states(name: str) -> bool:
    return name == "fc.weight" or name.startswith(("fc_norm.", "input_norm."))


def rope(target: TargetModel, config: Mapping[str, Any], where: object, report: Report) -> None:
    """A rotary base that is missing or unlike the target's is legal and suspect."""
    own, theirs = _theta(config), _theta(target.text)
    if own is None:
        report.warning(
            "rope-base",
            f"{where}: rope_theta",
            f"the base that the draft was trained with (the target has {theirs})",
            "none; SGLang uses 10000",
            remedy='write "rope_theta" as the training run had it',
        )
    elif theirs is not None and own != theirs:
        report.warning(
            "rope-base",
            f"{where}: rope_theta",
            f"{theirs}, as the target's",
            str(own),
            why="right only where the trainer used this base; some train at 10000 whatever the config says",
        )


def _theta(config: Mapping[str, Any]) -> object:
    parameters = config.get("rope_parameters")
    nested = parameters.get("rope_theta") if isinstance(parameters, dict) else None
    return nested if nested is not None else config.get("rope_theta")
