"""Kernels that SGLang names and a rehearsal never calls: functions that say their name when they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable


def absent(name: str) -> Callable[..., NoReturn]:
    """Make a function that raises `NotImplementedError(name)`, whatever it is called with."""

    def missing(*_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(name)

    return missing
