"""Owns the checks that open tensors: norms, embeddings, the head's map. Seconds on a large draft; needs torch.

Everything else in the package plans from headers; this is what ``check --deep`` adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from eagle3_adapters import draft_classes
from eagle3_adapters.checkpoint import read_tensors
from eagle3_adapters.embedding import TARGET_EMBEDDINGS, differing_rows
from eagle3_adapters.errors import Finding, FindingsError
from eagle3_adapters.report import Report
from eagle3_adapters.values import TensorInfo
from eagle3_adapters.wiring import WiringPlan

if TYPE_CHECKING:
    import torch


def check_tensors(plan: WiringPlan) -> tuple[Finding, ...]:
    """Findings of the tensors of a planned pair: weight-nan, weight-zero, trained-embedding."""
    report = Report()
    tensors = read_tensors(plan.draft_path)
    for name, tensor in _opened(plan, tensors):
        where = f"{plan.draft_path}: {name}"
        if tensor.is_floating_point() and bool(tensor.isnan().any()):
            report.error(
                "weight-nan",
                where,
                "numbers",
                f"{int(tensor.isnan().sum())} NaN of {tensor.numel()}",
                why="every proposal would be token 0",
                remedy="take an earlier checkpoint of the training run",
            )
        elif tensor.is_floating_point() and not bool(tensor.any()):
            report.error(
                "weight-zero",
                where,
                "trained numbers",
                "zeros throughout",
                why="the tensor was never filled; what passes it is lost",
                remedy="export the draft again with its trainer's own export",
            )
    _embedding(plan, tensors, report)
    return report.findings


def _opened(plan: WiringPlan, tensors: Mapping[str, TensorInfo]) -> Iterator[tuple[str, torch.Tensor]]:
    """Norms and the embedding, one at a time."""
    for route in plan.routes:
        if route.canonical.endswith(("norm.weight", "layernorm.weight", draft_classes.EMBEDDING)):
            yield route.source, _read(tensors, route.source)


def _read(tensors: Mapping[str, TensorInfo], name: str) -> torch.Tensor:
    from safetensors import safe_open  # noqa: PLC0415 - brings torch

    with safe_open(tensors[name].file, framework="pt") as checkpoint:
        tensor: torch.Tensor = checkpoint.get_tensor(name)
    return tensor


def _embedding(plan: WiringPlan, tensors: Mapping[str, TensorInfo], report: Report) -> None:
    """The draft's own embedding beside the target's, which SGLang puts in its place."""
    own = [route for route in plan.routes if route.canonical == draft_classes.EMBEDDING and route.target is None]
    if not own:
        return
    try:
        theirs = read_tensors(plan.target_path)
    except FindingsError as error:
        report.extend(error.findings)
        return
    embedding = next((name for name in TARGET_EMBEDDINGS if name in theirs), None)
    if embedding is None:
        return
    mine, target = _read(tensors, own[0].source), _read(theirs, embedding)
    # A target may pad its vocabulary.
    rows = min(len(mine), len(target))
    different = differing_rows(mine[:rows], target[:rows])
    if different:
        report.error(
            "trained-embedding",
            f"{plan.draft_path}: {own[0].source}",
            f"the target's embedding ({embedding}), which SGLang puts in its place",
            f"{different} of {rows} rows differ",
            why="a trained embedding would be overwritten; a random one that training never read does no harm",
            remedy=draft_classes.EMBEDDING_REMEDY,
        )
