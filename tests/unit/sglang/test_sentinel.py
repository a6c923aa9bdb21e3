"""When the sentinel speaks and when it does not, without SGLang."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from eagle3_adapters.errors import Finding, Severity
from eagle3_adapters.sglang import compat
from eagle3_adapters.sglang.sentinel import FLOOR, REQUESTS, WINDOW, WINDOW_BATCHES, WINDOWS, Sentinel, repeats

TOKENS = WINDOW * WINDOWS


def sentinel() -> Sentinel:
    return Sentinel("/models/my target", "/models/draft")


def drafts(length: float, seed: int, steps: int = 3) -> int:
    """Accepted drafts of one verify step, drawn so that the mean accept length is about ``length``."""
    chance = (length - 1) / length
    accepted = 0
    draw = random.Random(seed)  # noqa: S311 - no secret
    while accepted < steps and draw.random() < chance:
        accepted += 1
    return accepted


def feed(
    watched: Sentinel, length: float, tokens: int, *, batch: int = 8, seed: int = 0, steps: int = 9
) -> list[Finding]:
    """What is said while about ``tokens`` tokens are verified at an accept length."""
    found, verified, step = [], 0, seed * 1_000_000
    while verified < tokens:
        accepted = 0
        for _ in range(batch):
            accepted += drafts(length, step, steps)
            step += 1
        verified += batch + accepted
        finding = watched.verified(batch, accepted)
        found += [finding] if finding else []
    return found


@pytest.mark.parametrize("length", [1.0, 1.05, 1.1, 1.15])
@pytest.mark.parametrize("batch", [1, 8, 64])
def test_a_miswired_pair_is_told_once_with_the_next_command(length: float, batch: int) -> None:
    (finding,) = feed(sentinel(), length, 6 * TOKENS, batch=batch)
    assert (finding.code, finding.severity, finding.where) == ("acceptance-floor", Severity.ERROR, "/models/draft")
    assert finding.remedy == "eagle3-adapters check --target '/models/my target' --draft /models/draft"
    assert abs(float(finding.found.split()[0]) - length) < 0.05


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("length", [1.3, 1.6, 2.5, 4.0])
def test_a_weak_draft_and_a_good_pair_are_left_alone(length: float, seed: int) -> None:
    assert feed(sentinel(), length, 5 * TOKENS, seed=seed) == []


def test_an_idle_server_and_a_short_run_say_nothing() -> None:
    assert feed(sentinel(), 1.0, 0) == []
    assert feed(sentinel(), 1.0, TOKENS - WINDOW) == []


def test_the_first_steps_of_a_large_batch_are_not_enough() -> None:
    watched = sentinel()
    said = [watched.verified(1024, 0) for _ in range(WINDOWS * WINDOW_BATCHES - 1)]
    assert not any(said)
    assert watched.verified(1024, 0)


def test_a_bad_start_that_recovers_is_no_floor() -> None:
    watched = sentinel()
    assert feed(watched, 1.0, TOKENS - WINDOW) == []
    assert feed(watched, 2.0, 2 * TOKENS) == []


def test_hard_text_on_a_pair_that_did_well_before_is_no_floor() -> None:
    watched = sentinel()
    assert feed(watched, 2.5, 3 * TOKENS) == []
    assert feed(watched, 1.05, 2 * TOKENS) == []


def test_the_floor_lies_between_what_is_broken_and_what_is_weak() -> None:
    assert 1.15 < FLOOR < 1.3


# Outputs.


def text(seed: int, length: int = 200) -> list[int]:
    draw = random.Random(seed)  # noqa: S311 - no secret
    return [draw.randrange(1000) for _ in range(length)]


LOOP = [7, 9] * 100


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (LOOP, True),
        ([5] * 64, True),
        ([*range(50), *LOOP], True),
        (list(range(16)) * 8, True),
        (list(range(17)) * 8, False),
        ([*LOOP, 1], False),
        ([*range(150), *LOOP], False),
        (text(0), False),
    ],
)
def test_an_output_repeats_where_most_of_it_is_one_short_cycle(tokens: list[int], expected: bool) -> None:  # noqa: FBT001 - a table
    assert repeats(tokens) is expected


def finish(watched: Sentinel, outputs: Sequence[list[int]], *, accepted: int = 150, steps: int = 50) -> list[Finding]:
    said = [watched.finished(tokens, steps, accepted) for tokens in outputs]
    return [finding for finding in said if finding]


MOST = REQUESTS // 2 + 1


def test_a_benchmark_that_repeats_itself_is_told_once() -> None:
    outputs = [LOOP] * MOST + [text(seed) for seed in range(REQUESTS - MOST)]
    (finding,) = finish(sentinel(), outputs * 5)
    assert (finding.code, finding.severity) == ("output-loop", Severity.WARNING)
    assert finding.found == f"{MOST} of {REQUESTS} answers repeat at most 16 tokens, accept length 4.00"


@pytest.mark.parametrize(
    "outputs",
    [
        [LOOP] * (REQUESTS - 1),
        [LOOP, text(1)] * REQUESTS,
        [LOOP[:60]] * 50,
        [text(seed) for seed in range(50)],
        [],
    ],
    ids=["few", "half", "short", "text", "none"],
)
def test_few_short_or_honest_outputs_are_left_alone(outputs: list[list[int]]) -> None:
    assert finish(sentinel(), outputs) == []


def test_repetition_that_nobody_takes_for_a_pass_is_left_to_the_floor() -> None:
    assert finish(sentinel(), [LOOP] * 50, accepted=0) == []


def test_requests_without_speculation_are_left_alone() -> None:
    assert finish(sentinel(), [LOOP] * 50, accepted=0, steps=0) == []


# What the seams hand over.


def reporter(draft_steps: int | None) -> SimpleNamespace:
    worker = SimpleNamespace() if draft_steps is None else SimpleNamespace(speculative_num_steps=draft_steps)
    return SimpleNamespace(scheduler=SimpleNamespace(draft_worker=worker))


@pytest.mark.parametrize("draft_steps", [3, None])
def test_counts_are_read_by_place_and_by_name(draft_steps: int | None) -> None:
    assert compat.verify_counts((reporter(draft_steps), 8, 3), {"num_accept_tokens": 11}) == (8, 3)
    assert compat.verify_counts((reporter(draft_steps),), {"bs": 8, "num_correct_drafts": 3}) == (8, 3)


def test_batches_for_which_the_draft_rests_count_for_nothing() -> None:
    """SGLang's adaptive speculation drafts nothing for large batches; each of them would count as 1.00."""
    watched = sentinel()
    for _ in range(10 * TOKENS):
        assert watched.verified(*compat.verify_counts((reporter(0), 64, 0), {})) is None
    assert feed(watched, 2.0, 2 * TOKENS) == []


@pytest.mark.parametrize("done", [True, False])
def test_a_request_counts_only_where_it_is_done(done: bool) -> None:  # noqa: FBT001 - a table
    request = SimpleNamespace(
        finished=lambda: done, output_ids=[1, 2], spec_verify_ct=1, spec_num_correct_drafts=1, kv=None
    )
    expected = ([1, 2], 1, 1) if done else None
    assert compat.finished_request((request, "tree"), {}) == expected
    assert compat.finished_request((), {"req": request}) == expected
