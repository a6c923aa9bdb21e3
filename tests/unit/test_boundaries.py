"""Layer ids of each convention against what SGLang's setters make of them."""

from __future__ import annotations

import pytest

from eagle3_adapters.boundaries import (
    CONVENTIONS,
    DEEPSEEK_RULE,
    GPT_OSS_RULE,
    INPUT_OF_LAYER,
    OUTPUT_OF_LAYER,
    Convention,
    default_boundaries,
    describe,
    describe_all,
)
from eagle3_adapters.errors import ConventionError


@pytest.mark.parametrize(
    ("convention", "layers", "ids", "boundaries"),
    [
        pytest.param(INPUT_OF_LAYER, 61, (0, 30, 60), (0, 30, 60), id="input"),
        pytest.param(OUTPUT_OF_LAYER, 61, (-1, 29, 60), (0, 30, 61), id="output reaches embedding and N"),
        pytest.param(DEEPSEEK_RULE, 61, (1, 29, 57), (2, 30, 58), id="deepseek shifts a list that starts with 1"),
        pytest.param(DEEPSEEK_RULE, 61, (2, 30, 58), (2, 30, 58), id="deepseek leaves other lists"),
        pytest.param(DEEPSEEK_RULE, 61, (29, 1, 57), (29, 1, 57), id="deepseek reads the first id, not the smallest"),
        pytest.param(GPT_OSS_RULE, 24, (1, 11, 20), (2, 12, 21), id="gpt-oss shifts"),
        pytest.param(GPT_OSS_RULE, 24, (24, 2, 12), (24, 2, 12), id="gpt-oss leaves a list that reaches N anywhere"),
        pytest.param(GPT_OSS_RULE, 24, (2, 12, 23), (3, 13, 24), id="gpt-oss shifts a list that reaches N-1"),
    ],
)
def test_ids_become_the_boundaries_that_the_class_captures(
    convention: Convention, layers: int, ids: tuple[int, ...], boundaries: tuple[int, ...]
) -> None:
    assert convention.to_boundaries(ids, layers) == boundaries


def test_deepseek_ids_for_boundary_1_do_not_start_with_1() -> None:
    assert DEEPSEEK_RULE.to_ids((1, 30, 58), 61) == (30, 1, 58)


def test_deepseek_rule_cannot_name_boundary_1_alone() -> None:
    with pytest.raises(ConventionError, match="sglang-deepseek") as caught:
        DEEPSEEK_RULE.to_ids((1,), 61)
    assert caught.value.values == (1,)
    assert DEEPSEEK_RULE.to_ids((2,), 61) == (2,)


def test_gpt_oss_ids_for_the_last_boundary_are_not_shifted() -> None:
    assert GPT_OSS_RULE.to_ids((2, 12, 24), 24) == (2, 12, 24)
    assert GPT_OSS_RULE.to_ids((2, 12, 23), 24) == (1, 11, 22)


def test_gpt_oss_rule_refuses_a_list_that_would_be_read_one_layer_lower() -> None:
    # The id for N + 1 would be N, which turns the shift off: 2, 12 would be captured at 1, 11.
    with pytest.raises(ConventionError):
        GPT_OSS_RULE.to_ids((2, 12, 25), 24)


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda convention: convention.name)
def test_an_empty_list_is_refused_in_both_directions(convention: Convention) -> None:
    with pytest.raises(ConventionError, match=convention.name):
        convention.to_boundaries((), 8)
    with pytest.raises(ConventionError, match=convention.name):
        convention.to_ids((), 8)


@pytest.mark.parametrize(("layers", "expected"), [(61, (2, 30, 58)), (32, (2, 16, 29))])
def test_default_is_sglangs_low_middle_high(layers: int, expected: tuple[int, ...]) -> None:
    assert default_boundaries(layers) == expected


def test_a_boundary_is_described_by_the_layer_before_it() -> None:
    assert describe(0, 61) == "embedding"
    assert "layer 2" in describe(3, 61)
    assert "60" in describe(61, 61)
    assert "before" in describe(61, 61)
    assert "last" not in describe(60, 61)


def test_a_list_is_described_in_its_own_order_with_the_depth() -> None:
    text = describe_all((31, 0), 61)
    assert text.index("layer 30") < text.index("embedding") < text.index("61")
