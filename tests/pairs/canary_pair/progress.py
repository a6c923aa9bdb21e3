"""Elapsed time: progress lines, and a learning rate that ends with its time budget on any machine."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import attrs
import torch


@attrs.frozen
class Clock:
    """Prints lines that start with the seconds since it was made."""

    started: float = attrs.field(factory=time.monotonic)

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def say(self, message: str) -> None:
        """Print one progress line at once."""
        print(f"[{self.elapsed():6.1f} s] {message}", flush=True)


def scheduled(optimizer: torch.optim.Optimizer, *, peak: float, steps: int, seconds: float) -> Iterator[int]:
    """Yield step numbers, setting the learning rate: linear warm-up, then a cosine down to 1% of ``peak``.

    The cosine follows whichever of ``steps`` and ``seconds`` is further used up, and the loop ends with it, so that a
    slow machine makes fewer steps but still finishes its schedule.
    """
    started = time.monotonic()
    warm_up = max(1, min(200, steps // 10))
    for step in range(steps):
        done = max(step / steps, (time.monotonic() - started) / seconds)
        if done >= 1.0:
            return
        scale = min(1.0, (step + 1) / warm_up) * (0.01 + 0.99 * 0.5 * (1.0 + math.cos(math.pi * done)))
        for group in optimizer.param_groups:
            group["lr"] = peak * scale
        yield step


def adamw(module: torch.nn.Module, rate: float) -> torch.optim.AdamW:
    """AdamW that decays matrices and leaves norm weights alone."""
    matrices = [parameter for parameter in module.parameters() if parameter.ndim >= 2]
    vectors = [parameter for parameter in module.parameters() if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95))
