"""Owns comparing two copies of one token embedding. Needs torch, which it does not import by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: Names under which targets keep their token embedding, wrapper classes included.
TARGET_EMBEDDINGS = (
    "model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
)
#: Two copies of one embedding may differ by a rounding to bf16 (2^-8), relative to the largest entry of a row.
_ROUNDING = 2.0**-7
#: Rows that are compared at once.
_ROWS = 4096


def differing_rows(left: torch.Tensor, right: torch.Tensor) -> int:
    """Rows [tokens, hidden] that differ by more than a rounding; all of them where the widths differ."""
    if left.shape != right.shape:
        return max(len(left), len(right))
    # A few rows at a time: on a GPU this runs when the key-value cache has taken its part of the memory.
    return sum(
        _differing(left[start : start + _ROWS].to(right.device), right[start : start + _ROWS])
        for start in range(0, len(right), _ROWS)
    )


def _differing(left: torch.Tensor, right: torch.Tensor) -> int:
    first, second = left.float(), right.float()
    return int(((first - second).abs().amax(dim=-1) > _ROUNDING * second.abs().amax(dim=-1)).sum())
