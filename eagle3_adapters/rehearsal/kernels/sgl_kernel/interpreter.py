"""What SGLang's own Triton kernels ask of a device when Triton's interpreter runs them on a machine without a GPU.

The interpreter (`TRITON_INTERPRET=1`, set by `eagle3_adapters.rehearsal.engine`) takes CPU tensors as they are. Two
questions around the kernels still go to a GPU: which of a kernel's tunings is the fastest, and which device a launch is
for. Here no tuning is faster than another, and there is one device.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Untimed:
    """A Triton driver that has every tuning take no time, without a run: the first one is taken."""

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Stand in for `triton.testing.do_bench`."""
        return _no_time


def _no_time(_kernel_call: Callable[[], object], *, quantiles: Sequence[float], **_kwargs: object) -> list[float]:
    return [0.0 for _ in quantiles]


def interpreted(cpu: Any, driver: Any) -> None:  # noqa: ANN401 - modules
    """Answer both questions.

    Args:
        cpu: `torch.cpu`, which gets a `device` as `torch.cuda` has one.
        driver: `triton.runtime.driver`, which gets an active driver.
    """
    cpu.device = _only_one
    driver.set_active(Untimed())


def _only_one(_index: int | None) -> contextlib.AbstractContextManager[None]:
    """Stand in for `torch.cuda.device`."""
    return contextlib.nullcontext()
