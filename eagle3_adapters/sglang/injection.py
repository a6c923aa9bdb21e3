"""Owns the capture of boundaries that a target's class does not deliver: at the layers' inputs and the final norm.

What is captured joins the states that the body returns, inside the body's own forward. So it travels as SGLang's other
states do: a CUDA graph records it, a replay refreshes it and runs no Python, torch.compile traces it in one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from eagle3_adapters.sglang import target_class
from eagle3_adapters.sglang.refuse import refused
from eagle3_adapters.sglang.wrapping import WrappedForward, before
from eagle3_adapters.values import CaptureSite


def keep_stream(layer: Any, kept: dict[int, torch.Tensor], boundary: int) -> WrappedForward:
    """Have every forward of a decoder layer leave the residual stream at its input in ``kept[boundary]``."""
    read = target_class.residual_stream(layer)

    def look(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        kept[boundary] = read(args, kwargs)

    return before(layer, look)


class Injection:
    """Wrapped forwards of a loaded target's layers, body and logits processor, and a final norm's hook.

    States of layers stand before those that the class captures by itself, the last one behind them: whoever injects
    boundaries between 0 and N has the class capture none.
    """

    def __init__(self, model: Any, site: CaptureSite, boundaries: Sequence[int], num_layers: int) -> None:
        """Inject ``boundaries``, ascending. Raises AttributeError where a place is not there."""
        self._body = target_class.at(model, site.body)
        self._inner = [k for k in boundaries if k < num_layers]
        self._last = num_layers in boundaries
        #: Of the forward that is running, by boundary.
        self._states: dict[int, torch.Tensor] = {}
        self._num_layers = num_layers
        layers, norm = target_class.at(self._body, site.layers), target_class.at(self._body, site.final_norm)
        processor = target_class.at(model, site.logits_processor)
        self._undo: list[Callable[[], None]] = []
        for k in self._inner:
            self._undo.append(keep_stream(layers[k], self._states, k).remove)
        if self._last:
            self._undo.append(norm.register_forward_hook(self._after_norm).remove)
        self._undo.append(WrappedForward(self._body, self._joining).remove)
        if not site.capture_flags:
            # The class has no word for states: what its body returns goes to the processor as it is.
            self._undo.append(WrappedForward(processor, _splitting).remove)

    def remove(self) -> None:
        """Leave the target as it was found."""
        for undo in reversed(self._undo):
            undo()

    def _after_norm(self, norm: Any, args: tuple[Any, ...], output: Any) -> None:
        self._states[self._num_layers] = target_class.normed_stream(args, output)

    def _joining(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            self._states.clear()
            output = original(*args, **kwargs)
            inner = [self._states.pop(k, None) for k in self._inner]
            last = self._states.pop(self._num_layers, None)
            if any(state is None for state in inner):
                raise _passed_by("layers", "the states at their inputs are captured there")
            if self._last and last is None:
                last = self._without_norm(output, args, kwargs)
            return target_class.with_states(output, inner, last, torch.cat)

        return forward

    def _without_norm(self, output: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An idle batch ends before the norm; its states count as the others' do."""
        if not target_class.is_idle(self._body, args, kwargs):
            raise _passed_by("final norm", "the last boundary is captured there")
        return output[0] if isinstance(output, tuple) else output


def _splitting(original: Callable[..., Any]) -> Callable[..., Any]:
    """A logits processor's forward that takes a body's (hidden, states) for hidden."""
    split = target_class.split_states(original)

    def forward(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = split(args, kwargs)
        return original(*args, **kwargs)

    return forward


def _passed_by(place: str, why: str) -> Exception:
    return refused(
        "capture-mismatch",
        f"the target's {place}",
        f"a call in every forward: {why}",
        "none",
        why="the draft would read one state too few",
    )
