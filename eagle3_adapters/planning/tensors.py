"""Owns the check that a draft has exactly the tensors that its class needs, in their shapes."""

from __future__ import annotations

from collections.abc import Mapping

from eagle3_adapters import draft_classes
from eagle3_adapters.report import Report
from eagle3_adapters.values import DraftModel


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
