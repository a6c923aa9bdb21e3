"""A plugin of SGLang for tests alone: writes down what every forward of the target hands to the draft.

Before each forward it runs the same batch with other boundaries, the next of $RECORDER_SETS, all of them injected where
it says so, so that sets are switched while the engine runs; then with the plan's own, whose output SGLang goes on with.
A second run writes the same keys and values into the same slots. $RECORDER_INJECT=1 has the plan's own boundaries
injected too. Its folder stands ahead on the path, so it runs before eagle3_adapters registers anything.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import torch

from eagle3_adapters.sglang import capture, compat, draft, overlay
from eagle3_adapters.wiring import WiringPlan

FOLDER = Path(__file__).parent
#: Of a batch: slots of Mamba states that a run empties or fills from the prefix cache, and then forgets.
STAGED = ("mamba_clear_indices", "mamba_cow_src_indices", "mamba_cow_dst_indices")


def watch() -> None:
    plan = os.environ.get(overlay.PLAN_VARIABLE)
    if plan is None:
        return
    recorder = Recorder(
        WiringPlan.from_json(Path(plan).read_text(encoding="utf-8")), Path(os.environ["RECORDER_OUTPUT"])
    )
    inject = os.environ.get("RECORDER_INJECT") == "1"
    configure, account = capture.TargetCapture.after_configure, draft.DraftLoader._account

    def after_configure(self: capture.TargetCapture, result: Any, **kwargs: Any) -> None:
        configure(self, result, **kwargs)
        if inject and kwargs["eagle_use_aux_hidden_state"]:
            self.assign(kwargs["model"], attrs.evolve(recorder.plan, injected=recorder.plan.boundaries))
        recorder.capture = self

    def after_account(self: draft.DraftLoader, model: Any, seen: set[str]) -> None:
        account(self, model, seen)
        torch.save(model.model.fc.weight.data.cpu().clone(), recorder.output / "fc.pt")

    capture.TargetCapture.after_configure = after_configure  # type: ignore[method-assign]  # a test's own look
    draft.DraftLoader._account = after_account  # type: ignore[method-assign]  # as above
    compat._register("sglang.srt.model_executor.model_runner.ModelRunner.forward", recorder.around_forward, "AROUND")


class Recorder:
    """One file a forward of the target: boundaries, requests, positions, tokens, states."""

    def __init__(self, plan: WiringPlan, output: Path) -> None:
        self.plan = plan
        self.output = output
        self.capture: capture.TargetCapture | None = None
        # Empty where graphs are replayed: they deliver what was assigned when they were recorded.
        self._sets: Iterator[tuple[list[int], bool]] = itertools.cycle(json.loads(os.environ["RECORDER_SETS"]))
        self._count = itertools.count()
        #: What the class captures by itself, of the target's boundaries.
        self._injected = plan.injected

    def around_forward(self, original: Callable[..., Any], runner: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        # Warming up serves no request.
        if runner.is_draft_worker or self.capture is None or not batch.rids or not len(batch.input_ids):
            return original(runner, batch, *args, **kwargs)
        other = next(self._sets, None)
        if other is None:
            output = original(runner, batch, *args, **kwargs)
            self._write(self.plan.boundaries, batch, output)
            return output
        rewind = _rewinding(runner, batch)
        for boundaries, inject in ((tuple(other[0]), other[1]), (self.plan.boundaries, False)):
            injected = tuple(k for k in boundaries if inject or k in self._injected)
            plan = attrs.evolve(self.plan, boundaries=boundaries, injected=injected)
            self.capture.assign(runner.model, plan)
            output = original(runner, batch, *args, **kwargs)
            self._write(boundaries, batch, output, inject=inject)
            if boundaries is not self.plan.boundaries:
                rewind()
        return output

    def _write(self, boundaries: tuple[int, ...], batch: Any, output: Any, *, inject: bool = False) -> None:
        states: torch.Tensor = output.logits_output.hidden_states
        rows, requests = len(batch.input_ids), list(batch.rids)
        prompt = batch.forward_mode.is_extend_without_speculative()
        lengths = list(batch.extend_seq_lens_cpu) if prompt else [rows // len(requests)] * len(requests)
        # A graph's output may be padded behind.
        rows = sum(lengths)
        assert rows <= min(len(batch.input_ids), len(states)), (lengths, len(batch.input_ids), len(states))
        record = {
            "prompt": prompt,
            "graph": bool(output.can_run_graph),
            "boundaries": boundaries,
            "injected": inject,
            "requests": requests,
            "lengths": lengths,
            "positions": batch.positions[:rows].tolist(),
            "tokens": batch.input_ids[:rows].tolist(),
            "states": states[:rows].float().cpu().clone(),
        }
        torch.save(record, self._folder() / f"{next(self._count):05d}.pt")

    def _folder(self) -> Path:
        """The first rank's records, and each other rank's beneath."""
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        folder = self.output / f"rank{rank}" if rank else self.output
        folder.mkdir(exist_ok=True)
        return folder


def _rewinding(runner: Any, batch: Any) -> Callable[[], None]:
    """How to put back what a run moves on: the states of Mamba layers, and what it copied into them beforehand."""
    pool = getattr(runner.req_to_token_pool, "mamba_pool", None)
    if pool is None:
        return lambda: None
    live = [*pool.mamba_cache.conv, pool.mamba_cache.temporal]
    kept = [state.clone() for state in live]
    staged = {name: getattr(batch, name) for name in STAGED}

    def rewind() -> None:
        for state, before in zip(live, kept, strict=True):
            state.copy_(before)
        for name, indices in staged.items():
            setattr(batch, name, indices)

    return rewind
