"""Owns the capture of boundaries that a target's class does not deliver: 0 at the first layer, N at the final norm.

What is captured joins the states that the body returns, inside the body's own forward. So it travels as SGLang's other
states do: a CUDA graph records it, a replay refreshes it and runs no Python, torch.compile traces it in one piece.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from eagle3_adapters.sglang import compat
from eagle3_adapters.sglang.refuse import refused
from eagle3_adapters.values import CaptureSite


class Injection:
    """Hooks on a loaded target's first layer, final norm and body, until they are removed."""

    def __init__(self, model: Any, site: CaptureSite, *, first: bool, last: bool) -> None:
        """Inject boundary 0 (``first``), N (``last``) or both. Raises AttributeError where a place is not there."""
        self._body = compat.at(model, site.body)
        self._last = last
        #: Of the forward that is running.
        self._states: dict[str, torch.Tensor] = {}
        layers, norm = compat.at(self._body, site.layers), compat.at(self._body, site.final_norm)
        self._input = compat.layer_input(layers[0])
        self._handles: list[Any] = []
        if first:
            self._handles.append(layers[0].register_forward_pre_hook(self._before_layers, with_kwargs=True))
        if last:
            self._handles.append(norm.register_forward_hook(self._after_norm))
        #: The body's forward where somebody had put another in place of its class's.
        self._replaced = vars(self._body).get("forward")
        self._body.forward = self._joining(self._body.forward)

    def remove(self) -> None:
        """Leave the target as it was found."""
        for handle in self._handles:
            handle.remove()
        del vars(self._body)["forward"]
        if self._replaced is not None:
            self._body.forward = self._replaced

    def _before_layers(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # A clone: the layer makes this very tensor its residual, and kernels add to that in place.
        self._states["first"] = self._input(args, kwargs).clone()

    def _after_norm(self, norm: Any, args: tuple[Any, ...], output: Any) -> None:
        self._states["last"] = compat.normed_stream(args, output)

    def _joining(self, original: Any) -> Any:
        # SGLang reads the signature of a body's forward, and calls it without the module's own call.
        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            self._states.clear()
            output = original(*args, **kwargs)
            first, last = self._states.pop("first", None), self._states.pop("last", None)
            if self._last and last is None:
                last = self._without_norm(output, args, kwargs)
            return compat.with_states(output, first, last, torch.cat)

        return forward

    def _without_norm(self, output: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An idle batch ends before the norm; its states count as the others' do."""
        if not compat.is_idle(self._body, args, kwargs):
            raise refused(
                "capture-mismatch",
                "the target's final norm",
                "a call in every forward: the last boundary is captured there",
                "none",
                why="the draft would read one state too few",
            )
        return output[0] if isinstance(output, tuple) else output
