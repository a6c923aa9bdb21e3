"""Acceptance at each depth against counting by hand."""

from __future__ import annotations

import math
import random

import pytest
import torch

from eagle3_adapters.reference import Continuation, depth_acceptance

STEPS = 3


def by_hand(continuations: list[Continuation], proposals: list[torch.Tensor]) -> list[tuple[int, int]]:
    """(positions reached, positions) at depths 0 to STEPS."""
    reached, positions = [0] * (STEPS + 1), 0
    for continuation, guesses in zip(continuations, proposals, strict=True):
        for row in range(continuation.prompt_length - 1, len(continuation.tokens)):
            truth = continuation.tokens[row + 2 : row + 2 + STEPS]
            if len(truth) < STEPS:
                continue
            positions += 1
            right = [guess == said for guess, said in zip(guesses[row].tolist(), truth, strict=True)]
            for depth in range(STEPS + 1):
                reached[depth] += all(right[:depth])
    return [(count, positions) for count in reached]


@pytest.mark.parametrize("seed", range(10))
def test_depths_are_counted_over_every_position_of_the_continuation(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
    continuations, proposals = [], []
    for _ in range(4):
        length = chance.randint(12, 30)
        tokens = tuple(chance.randrange(3) for _ in range(length))
        continuations.append(Continuation(tokens=tokens, prompt_length=chance.randint(2, 6)))
        proposals.append(torch.tensor([[chance.randrange(3) for _ in range(STEPS)] for _ in range(length - 1)]))
    found, counted = depth_acceptance(continuations, proposals), by_hand(continuations, proposals)
    for depth in range(1, STEPS + 1):
        above, below = counted[depth]
        assert found.accepted[depth - 1].value == pytest.approx(above / below)
        before = counted[depth - 1][0]
        if before:
            assert found.conditional[depth - 1].value == pytest.approx(above / before)
        else:
            assert math.isnan(found.conditional[depth - 1].value)
    assert found.accept_length.value == pytest.approx(1 + sum(share.value for share in found.accepted))
    conditional = [share.value for share in found.conditional]
    assert math.prod(conditional) == pytest.approx(found.accepted[-1].value) or math.isnan(conditional[-1])


def test_the_standard_error_is_the_spread_over_samples() -> None:
    chance = random.Random(2)  # noqa: S311 - reproducible, not secret

    def sample() -> tuple[float, float]:
        continuations, proposals = [], []
        for _ in range(16):
            tokens = tuple(chance.randrange(2) for _ in range(30))
            continuations.append(Continuation(tokens=tokens, prompt_length=2))
            proposals.append(torch.tensor([[chance.randrange(2) for _ in range(2)] for _ in range(29)]))
        found = depth_acceptance(continuations, proposals).accept_length
        return found.value, found.standard_error

    samples = [sample() for _ in range(200)]
    mean = sum(value for value, _ in samples) / len(samples)
    spread = math.sqrt(sum((value - mean) ** 2 for value, _ in samples) / len(samples))
    assert sum(error for _, error in samples) / len(samples) == pytest.approx(spread, rel=0.15)


def test_one_request_has_no_standard_error() -> None:
    found = depth_acceptance([Continuation(tokens=tuple(range(9)), prompt_length=2)], [torch.zeros(8, 2)])
    assert found.accept_length.value == 1.0
    assert math.isnan(found.accept_length.standard_error)
