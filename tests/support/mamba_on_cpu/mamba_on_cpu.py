"""A plugin of SGLang for tests alone: what its Mamba layers lack on a CPU and nothing else, so that a real target runs.

SGLang 0.5.23 binds the layers' Triton convolution on CUDA and XPU only, and calls it everywhere: here it is the same
function, which Triton's interpreter runs as it runs the layers' other kernels. The launchers that keep the states of
the accepted tokens after a verify step refuse a CPU's tensors: here they are what their docstrings say, in PyTorch.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from eagle3_adapters.sglang import compat

KEEPERS = "sglang.kernels.ops.mamba.mamba_state_scatter_triton"


def bind() -> None:
    layer: Any = importlib.import_module("sglang.srt.layers.attention.mamba.mamba")
    convolution: Any = importlib.import_module("sglang.kernels.ops.mamba.causal_conv1d_triton")
    layer.causal_conv1d_fn_triton = convolution.causal_conv1d_fn
    layer.causal_conv1d_update_triton = convolution.causal_conv1d_update
    for name in ("fused_mamba_state_scatter_with_mask", "fused_conv_window_scatter_with_mask"):
        compat._register(f"{KEEPERS}.{name}", keep, "REPLACE")


def keep(
    states: torch.Tensor,
    steps: torch.Tensor,
    slots: torch.Tensor,
    accepted: torch.Tensor,
    rows: torch.Tensor | None = None,
) -> None:
    """Into each request's slot of ``states`` its state after the last accepted step; a negative step is none.

    ``states``: [layers, slots, *state]. ``steps``: [layers, rows, steps, *state]. ``rows`` of the requests; None: all.
    """
    rows = torch.arange(len(accepted)) if rows is None else rows
    valid = accepted >= 0
    states[:, slots[valid].long()] = steps[:, rows[valid].long(), accepted[valid].long()]
