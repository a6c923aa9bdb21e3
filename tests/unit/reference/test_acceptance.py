"""Offline acceptance against a loop that decodes as a server does."""

from __future__ import annotations

import math
import random

import pytest
import torch

from eagle3_adapters.reference import (
    AcceptLength,
    Continuation,
    Counts,
    DraftMath,
    ReferenceDraft,
    chain_proposals,
    is_finished,
    replay,
    simulate,
    tokens_needed,
)

STEPS = 3


def serve(tokens: list[int], prompt_length: int, proposals: list[list[int]], max_new_tokens: int) -> Counts:
    """Token by token: the output grows by accepted drafts and the target's own token until it is long enough."""
    output = [tokens[prompt_length]]
    verifies = accepted = 0
    while len(output) < max_new_tokens:
        verifies += 1
        known = prompt_length + len(output)
        for guess in proposals[known - 2]:
            if guess != tokens[prompt_length + len(output)]:
                break
            output.append(guess)
            accepted += 1
        output.append(tokens[prompt_length + len(output)])  # the target's own token, a bonus after a full chain
    assert output == tokens[prompt_length : prompt_length + len(output)]
    return Counts(verifies=verifies, accepted=accepted)


@pytest.mark.parametrize("seed", range(40))
def test_simulation_equals_serving(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
    prompt_length, max_new_tokens = chance.randint(2, 6), chance.randint(2, 30)
    tokens = [chance.randrange(3) for _ in range(tokens_needed(prompt_length, max_new_tokens, STEPS) + 1)]
    proposals = [[chance.randrange(3) for _ in range(STEPS)] for _ in range(len(tokens) - 1)]
    continuation = Continuation(tokens=tuple(tokens), prompt_length=prompt_length)
    counts = simulate(continuation, torch.tensor(proposals), max_new_tokens=max_new_tokens)
    assert counts == serve(tokens, prompt_length, proposals, max_new_tokens)


def test_a_perfect_draft_overruns_the_limit_and_is_counted_in_full() -> None:
    tokens = tuple(range(100, 100 + tokens_needed(4, 6, STEPS)))
    perfect = torch.tensor(tokens + (0,) * STEPS).unfold(0, STEPS, 1)[2:]
    counts = simulate(Continuation(tokens=tokens, prompt_length=4), perfect, max_new_tokens=6)
    assert counts == Counts(verifies=2, accepted=6)  # 1 + 4 + 4 tokens for a limit of 6


def test_one_new_token_needs_no_verify_step() -> None:
    continuation = Continuation(tokens=tuple(range(6)), prompt_length=3)
    assert simulate(continuation, torch.zeros(5, STEPS, dtype=torch.int64), max_new_tokens=1) == Counts(
        verifies=0, accepted=0
    )
    assert is_finished(1, 1)
    assert not is_finished(5, 6)


def test_a_sequence_without_room_for_the_overrun_is_refused() -> None:
    continuation = Continuation(tokens=tuple(range(10)), prompt_length=4)
    with pytest.raises(ValueError, match="need 12 known tokens, found 10"):
        simulate(continuation, torch.zeros(9, STEPS, dtype=torch.int64), max_new_tokens=6)


def test_accept_length_is_a_ratio_of_sums_with_its_standard_error() -> None:
    counts = [Counts(verifies=10, accepted=20), Counts(verifies=30, accepted=30), Counts(verifies=20, accepted=10)]
    length = AcceptLength.from_counts(counts)
    assert length.value == 2.0
    residuals = [20 - 10, 30 - 30, 10 - 20]
    assert length.standard_error == pytest.approx(math.sqrt(3 / 2 * sum(r**2 for r in residuals)) / 60)


def test_the_standard_error_is_the_spread_over_samples() -> None:
    chance = random.Random(5)  # noqa: S311 - reproducible, not secret

    def sample() -> AcceptLength:
        verifies = [chance.randint(20, 40) for _ in range(24)]
        return AcceptLength.from_counts(
            [Counts(verifies=n, accepted=sum(chance.random() < 0.5 for _ in range(2 * n))) for n in verifies]
        )

    samples = [sample() for _ in range(400)]
    mean = sum(s.value for s in samples) / len(samples)
    spread = math.sqrt(sum((s.value - mean) ** 2 for s in samples) / len(samples))
    assert sum(s.standard_error for s in samples) / len(samples) == pytest.approx(spread, rel=0.1)


def test_one_request_has_no_standard_error_and_none_has_no_accept_length() -> None:
    assert math.isnan(AcceptLength.from_counts([Counts(verifies=4, accepted=2)]).standard_error)
    with pytest.raises(ValueError, match="no verify step"):
        AcceptLength.from_counts([Counts(verifies=0, accepted=0)])


def test_replay_of_prompts_of_different_lengths_equals_each_alone() -> None:
    torch.manual_seed(0)
    draft = ReferenceDraft(
        hidden_size=8,
        target_hidden_size=8,
        states=1,
        intermediate_size=8,
        num_heads=2,
        num_kv_heads=1,
        head_dim=4,
        rms_norm_eps=1e-5,
        rope_theta=100.0,
        vocab_size=4,
        draft_vocab_size=3,
        math=DraftMath(),
    )
    embedding, ids = torch.randn(4, 8), torch.tensor([3, 0, 1])
    continuations, features = [], []
    for prompt_length in (2, 5, 9):
        length = tokens_needed(prompt_length, 12, STEPS)
        tokens = tuple(torch.randint(0, 4, (length,)).tolist())
        continuations.append(Continuation(tokens=tokens, prompt_length=prompt_length))
        features.append(torch.randn(length, 8))
    together = replay(
        draft,
        continuations=continuations,
        features=features,
        embedding=embedding,
        draft_to_target=ids,
        steps=STEPS,
        max_new_tokens=12,
    )
    for continuation, feature, counts in zip(continuations, features, together, strict=True):
        proposals = chain_proposals(
            draft,
            features=feature[None, :-1],
            tokens=torch.tensor([continuation.tokens]),
            embedding=embedding,
            draft_to_target=ids,
            steps=STEPS,
        )
        assert simulate(continuation, proposals[0], max_new_tokens=12) == counts
    assert sum(counts.accepted for counts in together) > 0
