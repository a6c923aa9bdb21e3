"""What some model classes ask of CUDA on whatever device they run: nothing, on a machine without a GPU.

SGLang's draft class for latent attention (`set_embed` and `set_embed_and_head` of `Eagle3DeepseekV2ForCausalLM`, and
DeepSeek's target classes) waits for the GPU after it has shared the target's embedding. PyTorch raises there without a
driver, although nothing is left to wait for; `torch.cuda.empty_cache` is harmless already.
"""

from __future__ import annotations

from typing import Any

import torch


def without_a_gpu(cuda: Any) -> None:  # noqa: ANN401 - a module
    """Make `cuda.synchronize` return at once, if there is no GPU that could be behind.

    Args:
        cuda: `torch.cuda`.
    """
    if not cuda.is_available():
        cuda.synchronize = _nothing_to_wait_for


def _nothing_to_wait_for(device: torch.device | str | int | None = None) -> None:
    """Stand in for `torch.cuda.synchronize`."""
