"""A module's forward is wrapped and comes back, in whatever order wrappers go."""

from __future__ import annotations

import functools
import inspect
import itertools
from typing import Any

import pytest
from torch import nn

from eagle3_adapters.sglang.wrapping import WrappedForward, before


class Module(nn.Module):
    def forward(self, hidden_states: int, residual: int = 0) -> int:
        return hidden_states + residual


def adding(amount: int) -> Any:
    return lambda original: lambda *args, **kwargs: original(*args, **kwargs) + amount


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_wrappers_go_in_any_order_and_nothing_is_left(order: tuple[int, ...]) -> None:
    module = Module()
    wrappers = [WrappedForward(module, adding(10**place)) for place in range(3)]
    expected = 111 + 3
    assert module(1, residual=2) == expected
    for place in order:
        wrappers[place].remove()
        expected -= 10**place
        assert module(1, residual=2) == expected
    assert "forward" not in vars(module)


def test_another_s_forward_is_put_back_and_one_on_top_stays() -> None:
    module = Module()
    theirs: Any = lambda hidden_states: 7  # noqa: E731 - as SGLang assigns it
    module.forward = theirs  # type: ignore[method-assign]  # as above
    first = WrappedForward(module, adding(1))
    assert module(0) == 8
    inner = module.forward

    @functools.wraps(inner)
    def copied(*args: Any, **kwargs: Any) -> int:
        return 100 + inner(*args, **kwargs)

    module.forward = copied  # type: ignore[method-assign]  # it has our attributes now, and is not ours
    first.remove()
    assert vars(module)["forward"] is copied
    assert module(0) == 107
    module.forward = theirs  # type: ignore[method-assign]  # as above
    WrappedForward(module, adding(1)).remove()
    assert vars(module)["forward"] is theirs


def test_the_signature_is_the_class_s_own_and_arguments_are_shown_as_given() -> None:
    module, seen = Module(), list[Any]()
    own = inspect.signature(module.forward)
    wrapper = before(module, lambda args, kwargs: seen.append((args, kwargs)))
    assert inspect.signature(module.forward) == own
    assert module.forward(1, residual=2) == module(1, residual=2) == 3
    assert seen == [((1,), {"residual": 2})] * 2
    wrapper.remove()
    assert module(1) == 1
    assert len(seen) == 2
