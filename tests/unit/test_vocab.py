"""Vocabulary maps: each code with the smallest input that raises it and a near miss that must pass."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eagle3_adapters.errors import VocabMapError
from eagle3_adapters.vocab import VocabEncoding, VocabMap

OFFSET, ABSOLUTE, MASK = VocabEncoding.OFFSET, VocabEncoding.ABSOLUTE, VocabEncoding.MASK
INT64_MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("values", "encoding"),
    [([1, 2, 4], OFFSET), ([1, 3, 6], ABSOLUTE), ([0, 1, 0, 1, 0, 0, 1, 0], MASK)],
)
def test_every_encoding_of_one_map_gives_the_same_target_ids(values: Sequence[int], encoding: VocabEncoding) -> None:
    assert list(VocabMap.decode(values, encoding, 8).target_ids) == [1, 3, 6]


def test_offsets_of_an_unsorted_map_may_be_negative() -> None:
    assert list(VocabMap.decode([5, 0, -2], OFFSET, 8).target_ids) == [5, 1, 0]


@pytest.mark.parametrize(
    ("values", "encoding", "size", "code", "facts"),
    [
        pytest.param([], ABSOLUTE, 8, "vocab-map-length", (), id="no draft token"),
        pytest.param([0, 0, 0], MASK, 3, "vocab-map-length", (), id="empty mask"),
        pytest.param([1, 0], MASK, 3, "vocab-map-length", ("3", "2"), id="mask of another length"),
        pytest.param([0, 8], ABSOLUTE, 8, "vocab-map-range", ("7", "draft token 1", "8"), id="one too far"),
        pytest.param([3, -1], ABSOLUTE, 8, "vocab-map-range", ("draft token 1", "-1"), id="below zero"),
        pytest.param([0, 7], OFFSET, 8, "vocab-map-range", ("draft token 1", "8"), id="offset one too far"),
        pytest.param([-1, 0], OFFSET, 8, "vocab-map-range", ("draft token 0", "-1"), id="offset below zero"),
        pytest.param([0, INT64_MAX], OFFSET, 8, "vocab-map-range", ("draft token 1",), id="offset of damaged bytes"),
        pytest.param([5, 2, 5], ABSOLUTE, 8, "vocab-map-duplicate", ("0", "2", "5"), id="same id twice"),
        pytest.param([1, 0], OFFSET, 8, "vocab-map-duplicate", ("0", "1"), id="offsets that meet"),
        pytest.param([0, 0, 0], OFFSET, 8, "vocab-map-unfilled", ("3",), id="zeros for a reduced vocabulary"),
    ],
)
def test_a_map_that_is_not_one_is_refused_with_its_code(
    values: Sequence[int], encoding: VocabEncoding, size: int, code: str, facts: Sequence[str]
) -> None:
    with pytest.raises(VocabMapError) as caught:
        VocabMap.decode(values, encoding, size)
    assert caught.value.code == code
    assert code in str(caught.value)
    for fact in facts:
        assert fact in f"{caught.value.expected} {caught.value.found}"


@pytest.mark.parametrize(
    ("values", "encoding", "size"),
    [
        pytest.param([0, 7], ABSOLUTE, 8, id="the last token"),
        pytest.param([0, 6], OFFSET, 8, id="the last token by offset"),
        pytest.param([0, 0, 0], OFFSET, 3, id="zeros for the whole vocabulary"),
        pytest.param([0, 0, 1], OFFSET, 8, id="zeros but one"),
    ],
)
def test_near_misses_are_maps(values: Sequence[int], encoding: VocabEncoding, size: int) -> None:
    assert len(VocabMap.decode(values, encoding, size).target_ids) == len(values)


def test_a_mask_cannot_be_written_for_an_unsorted_map() -> None:
    with pytest.raises(VocabMapError) as caught:
        VocabMap([3, 1], 8).encode(MASK)
    assert caught.value.code == "vocab-map-mask"
    assert list(VocabMap([1, 3], 5).encode(MASK)) == [0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("mask", "facts"),
    [
        pytest.param([0, 1, 0, 1, 1], ("first 4", "t2d alone"), id="mask has one more"),
        pytest.param([0, 1, 0, 0, 0], ("first 3", "d2t alone"), id="mask has one less"),
        pytest.param([0, 1, 1, 0, 0], ("2 differ", "first 2"), id="mask has another"),
        pytest.param([0, 1, 0, 1], ("5", "4"), id="mask of another length"),
    ],
)
def test_d2t_and_t2d_that_disagree_are_refused_with_the_first_token(mask: Sequence[int], facts: Sequence[str]) -> None:
    with pytest.raises(VocabMapError) as caught:
        VocabMap([1, 3], 5).check_mask(mask)
    assert caught.value.code == "vocab-map-mask"
    for fact in facts:
        assert fact in str(caught.value)


def test_a_mask_says_nothing_about_the_order_of_d2t() -> None:
    VocabMap([3, 1], 5).check_mask([0, 1, 0, 1, 0])
