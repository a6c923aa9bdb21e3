"""Owns putting another forward in place of a module's own, and taking it away again.

Unlike a hook of torch's it also runs where SGLang calls ``forward`` itself, as it does with bodies and some layers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class WrappedForward:
    """``module.forward`` as ``wrap(its forward)``, with the signature of its class's, until :meth:`remove`."""

    def __init__(self, module: Any, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._module = module
        #: Where somebody had put another in place of the class's.
        self.replaced = vars(module).get("forward")
        self._original: Callable[..., Any] = module.forward
        self._ours = wrap(self._original)
        self.active = True

        # SGLang reads the signature of a body's forward.
        @functools.wraps(self._original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            return (self._ours if self.active else self._original)(*args, **kwargs)

        self.forward = forward
        forward.wrapped_by = self  # type: ignore[attr-defined]  # how the next one finds what to clear away
        module.forward = forward

    def remove(self) -> None:
        """Leave the module as it was found; what was put on top since then stays, and goes on without this."""
        self.active = False
        top: Any = vars(self._module).get("forward")
        while (one := _on_top(top)) is not None and not one.active:
            top = one.replaced
            if top is None:
                del vars(self._module)["forward"]
            else:
                self._module.forward = top


def _on_top(forward: Any) -> WrappedForward | None:
    """Whose a forward is; None for another's, even one that copied our attributes."""
    one: WrappedForward | None = getattr(forward, "wrapped_by", None)
    return one if one is not None and one.forward is forward else None


def before(module: Any, look: Callable[[tuple[Any, ...], dict[str, Any]], None]) -> WrappedForward:
    """Have ``look(args, kwargs)`` run before every forward of ``module``."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            look(args, kwargs)
            return original(*args, **kwargs)

        return forward

    return WrappedForward(module, wrap)
