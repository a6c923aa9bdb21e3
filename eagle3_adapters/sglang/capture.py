"""Owns the target in a child process: it captures exactly the planned boundaries, and the first forward proves it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from eagle3_adapters.boundaries import describe
from eagle3_adapters.sglang import compat, target_class
from eagle3_adapters.sglang.injection import Injection, keep_stream
from eagle3_adapters.sglang.refuse import refused
from eagle3_adapters.sglang.wrapping import before
from eagle3_adapters.wiring import WiringPlan

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

#: Largest relative error of a captured state against our own snapshot of the same boundary. Both are one sum of the
#: same two tensors, equal to the bit or rounded once more (bf16: 2^-8); neighbouring boundaries lie above 0.2.
TOLERANCE = 0.02
#: Prompts that are watched before giving up, where some runner of SGLang's shows no layers.
ATTEMPTS = 4
EAGER = "start once with --disable-cuda-graph to verify them"


class TargetCapture:
    """Assigns the planned boundaries and watches the first prompt."""

    def __init__(self, plan: WiringPlan) -> None:
        self._plan = plan
        self._injection: Injection | None = None

    def after_configure(self, result: Any, **kwargs: Any) -> None:
        """AFTER configure_aux_hidden_state_capture: loading is done, graphs are not captured yet."""
        if not kwargs["eagle_use_aux_hidden_state"]:
            return
        model, plan = kwargs["model"], self._plan
        names = [cls.__name__ for cls in type(model).__mro__]
        if plan.target_architecture not in names:
            raise refused(
                "capture-mismatch", "the loaded target", f"a {plan.target_architecture}", type(model).__name__
            )
        with self._places():
            self.assign(model, plan)
        if compat.is_first_rank():
            log.info("eagle3-adapters: %s", plan.summary())

    @contextlib.contextmanager
    def _places(self) -> Iterator[None]:
        """Within, a place of the target that is not there is told as the adapter's."""
        try:
            yield
        except AttributeError as error:
            raise refused(
                "capture-mismatch",
                f"adapter {self._plan.adapter} ({self._plan.adapter_origin})",
                "the places that the adapter names",
                str(error),
            ) from error

    def assign(self, model: Any, plan: WiringPlan) -> None:
        """Make a loaded target deliver exactly the plan's boundaries, whatever it delivered before.

        Raises AttributeError naming a place of the plan that the target has not.
        """
        if self._injection is not None:
            self._injection.remove()
            self._injection = None
        target_class.assign_capture(model, plan.capture, plan.native)
        if plan.injected:
            self._injection = Injection(model, plan.capture, plan.injected, plan.num_layers)

    def after_load_model(self, result: Any, runner: Any, *args: Any, **kwargs: Any) -> None:
        """AFTER ModelRunner.load_model: watch the target's first prompt of two tokens or more, once."""
        if runner.is_draft_worker:
            return
        with self._places():
            target_class.supply_methods(runner.model, self._plan.embed.module, self._plan.capture.head)
        if compat.ranks_differ(runner):
            log.warning("eagle3-adapters: captured states are not verified under DP attention")
            return
        original: Callable[..., Any] = runner.forward
        attempts = 0

        def forward(forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal attempts
            if compat.token_count(forward_batch) < 2:
                return original(forward_batch, *args, **kwargs)
            attempts += 1
            with compat.eager_prompts(runner), Observer(runner.model, self._plan) as observer:
                output = original(forward_batch, *args, **kwargs)
            if observer.complete or attempts == ATTEMPTS:
                # Back to the class's own method: nothing of ours stays on the path of later batches.
                del runner.forward
            if observer.complete:
                observer.verify()
            elif attempts == ATTEMPTS:
                log.warning("eagle3-adapters: captured states are not verified: no layer ran in sight; %s", EAGER)
            return output

        runner.forward = forward


class Observer:
    """Snapshots of the planned boundaries, taken by ourselves during one forward, beside what the target handed out."""

    def __init__(self, model: Any, plan: WiringPlan) -> None:
        self._plan = plan
        self._model = model
        self._undo: list[Callable[[], None]] = []
        self._snapshots: dict[int, torch.Tensor] = {}
        self._captured: Any = None
        self._called = False

    def __enter__(self) -> Self:
        try:
            self._hook()
        except BaseException:
            self._unhook()
            raise
        return self

    def _unhook(self) -> None:
        for undo in reversed(self._undo):
            undo()

    def _hook(self) -> None:
        site = self._plan.capture
        body = target_class.at(self._model, site.body)
        layers = target_class.at(body, site.layers)
        for boundary in self._plan.boundaries:
            if boundary == self._plan.num_layers:
                norm = target_class.at(body, site.final_norm)
                self._undo.append(norm.register_forward_pre_hook(self._before_norm).remove)
                continue
            if boundary == 0 and not self._plan.embed.merged:
                embedding = target_class.at(self._model, self._plan.embed.module)
                self._undo.append(embedding.register_forward_hook(self._embedding).remove)
                continue
            self._undo.append(keep_stream(layers[boundary], self._snapshots, boundary).remove)
        processor = target_class.at(self._model, site.logits_processor)
        self._undo.append(before(processor, self._capture(processor)).remove)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unhook()

    def _embedding(self, module: Any, args: tuple[Any, ...], output: Any) -> None:
        self._snapshots[0] = output * self._plan.embed.scale

    def _before_norm(self, norm: Any, args: tuple[Any, ...]) -> None:
        self._snapshots[self._plan.num_layers] = target_class.before_norm(args)

    def _capture(self, processor: Any) -> Callable[[tuple[Any, ...], dict[str, Any]], None]:
        split = target_class.split_states(processor.forward)

        def look(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._captured = target_class.captured_states(processor, *split(args, kwargs))
            self._called = True

        return look

    @property
    def complete(self) -> bool:
        """Whether the layers ran in Python: a graph replay shows nothing."""
        return self._called and len(self._snapshots) == len(self._plan.boundaries)

    def verify(self) -> None:
        """Each captured chunk is the planned boundary. Raises WiringRefusedError (capture-mismatch)."""
        plan = self._plan
        chunks = self._chunks()
        worst = 0.0
        for position, (boundary, chunk) in enumerate(zip(plan.boundaries, chunks, strict=True)):
            error = relative_error(chunk, self._snapshots[boundary])
            worst = max(worst, error)
            if not error <= TOLERANCE:
                raise refused(
                    "capture-mismatch",
                    f"captured chunk {position}",
                    f"boundary {boundary} ({describe(boundary, plan.num_layers)}), relative error <= {TOLERANCE}",
                    f"relative error {error:.3g}",
                    why="the draft would read another state than it was trained on",
                )
        log.info("eagle3-adapters: captured states verified, largest relative error %.2g", worst)

    def _chunks(self) -> list[torch.Tensor]:
        plan, captured = self._plan, self._captured
        count, width = len(plan.boundaries), plan.state_width
        if captured is not None and not isinstance(captured, list | tuple):
            widths = [captured.shape[-1]]
            chunks = list(captured.split(width, dim=-1)) if captured.shape[-1] == count * width else None
        else:
            chunks = list(captured or ())
            widths = [chunk.shape[-1] for chunk in chunks]
            chunks = chunks if widths == [width] * count else None
        if chunks is None:
            raise refused(
                "capture-mismatch",
                "the target's captured states",
                f"{count} states of width {width}",
                f"widths {widths}",
                why="the draft would read another number of states than it was trained on",
            )
        return chunks


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Norm of the difference over the norm of ``expected``, in float32; 0 where both are zero."""
    if found.shape != expected.shape:
        return float("inf")
    difference = (found.float() - expected.float()).norm()
    return float(difference / expected.float().norm()) if bool(difference) else 0.0
