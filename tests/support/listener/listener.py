"""A plugin of SGLang for tests alone: writes down the logits of every forward of the draft, to $LISTENER_OUTPUT.

$LISTENER_STOCK=1 has SGLang's own draft class serve, whatever the plan says. Its folder stands ahead on the path, so it
runs before eagle3_adapters registers anything.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import torch

from eagle3_adapters.sglang import compat, draft, overlay
from eagle3_adapters.wiring import WiringPlan


def watch() -> None:
    if os.environ.get(overlay.PLAN_VARIABLE) is None:
        return
    if os.environ["LISTENER_STOCK"] == "1":
        planned = draft.DraftLoader.__init__

        def stock(self: draft.DraftLoader, plan: WiringPlan) -> None:
            planned(self, attrs.evolve(plan, draft_class=plan.draft_architecture))

        draft.DraftLoader.__init__ = stock  # type: ignore[method-assign]  # a test's own mistake
    listener = Listener(Path(os.environ["LISTENER_OUTPUT"]))
    compat._register("sglang.srt.model_executor.model_runner.ModelRunner.forward", listener.around_forward, "AROUND")


class Listener:
    """One file a forward of the draft: whether it reads its own output, positions, tokens, logits."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self._count = itertools.count()

    def around_forward(self, original: Callable[..., Any], runner: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        output = original(runner, batch, *args, **kwargs)
        if not runner.is_draft_worker or not len(batch.input_ids):
            return output
        mode = batch.forward_mode
        record = {
            "mode": mode.name,
            "positions": batch.positions.tolist(),
            "tokens": batch.input_ids.tolist(),
            "logits": output.logits_output.next_token_logits.float().cpu().clone(),
        }
        torch.save(record, self.output / f"{next(self._count):05d}.pt")
        return output
