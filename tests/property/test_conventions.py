"""Conventions name the same boundaries in both directions, and give up only where no list of ids exists."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_adapters.boundaries import (
    DEEPSEEK_RULE,
    GPT_OSS_RULE,
    INPUT_OF_LAYER,
    OUTPUT_OF_LAYER,
    Convention,
)
from eagle3_adapters.errors import ConventionError

Case = tuple[int, tuple[int, ...]]
constant = pytest.mark.parametrize("convention", [INPUT_OF_LAYER, OUTPUT_OF_LAYER], ids=lambda c: c.name)
sglang_rule = pytest.mark.parametrize("convention", [DEEPSEEK_RULE, GPT_OSS_RULE], ids=lambda c: c.name)


def lists(low: int, *, longest: int = 6, deepest: int = 100) -> st.SearchStrategy[Case]:
    """N, and a list of distinct numbers in low..N in any order."""

    def of(layers: int) -> st.SearchStrategy[Case]:
        numbers = st.lists(st.integers(low, layers), min_size=1, max_size=longest, unique=True)
        return st.tuples(st.just(layers), numbers.map(tuple))

    return st.one_of(st.integers(1, 6), st.integers(1, deepest)).flatmap(of)


@constant
@given(layers=st.integers(1, 100), ids=st.lists(st.integers(-1000, 1000), min_size=1))
def test_constant_conventions_give_back_the_same_ids(convention: Convention, layers: int, ids: list[int]) -> None:
    assert convention.to_ids(convention.to_boundaries(ids, layers), layers) == tuple(ids)


@sglang_rule
@given(case=lists(0))
def test_written_ids_name_the_boundaries_that_were_asked_for(convention: Convention, case: Case) -> None:
    layers, boundaries = case
    try:
        ids = convention.to_ids(boundaries, layers)
    except ConventionError:
        return
    assert len(ids) == len(boundaries)
    assert set(convention.to_boundaries(ids, layers)) == set(boundaries)


@sglang_rule
@given(case=lists(-1))
def test_ids_that_were_read_can_be_written_again(convention: Convention, case: Case) -> None:
    layers, ids = case
    boundaries = convention.to_boundaries(ids, layers)
    again = convention.to_boundaries(convention.to_ids(boundaries, layers), layers)
    assert set(again) == set(boundaries)


@sglang_rule
@given(case=lists(0, longest=3, deepest=5))
def test_ids_are_refused_only_where_no_list_of_that_length_exists(convention: Convention, case: Case) -> None:
    layers, boundaries = case
    wanted = set(boundaries)
    exists = any(
        set(convention.to_boundaries(ids, layers)) == wanted
        for ids in itertools.product(range(-1, layers + 1), repeat=len(boundaries))
    )
    if exists:
        convention.to_ids(boundaries, layers)
    else:
        with pytest.raises(ConventionError):
            convention.to_ids(boundaries, layers)
