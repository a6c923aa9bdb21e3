"""What is tried, in which order it is measured, and what the numbers come to. No torch."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import attrs
import pytest

from eagle3_adapters.diagnosis.advice import Advice, Edit, advice
from eagle3_adapters.diagnosis.search import BETTER_TOKENS, COARSE, Measured, Ranking, Search
from eagle3_adapters.diagnosis.statistics import Estimate, accept_length, gain
from eagle3_adapters.diagnosis.verdict import COVERED, WEAK_BELOW, Kind, judge
from eagle3_adapters.diagnosis.wirings import Surroundings, Wiring, alternatives, read_by
from eagle3_adapters.values import DraftMath
from eagle3_adapters.vocab import VocabEncoding

DECLARED = Wiring(boundaries=(0, 2, 5), math=DraftMath(), rope_theta=10000.0, encoding=VocabEncoding.OFFSET)
AROUND = Surroundings(num_layers=8, target_theta=5e5)
OTHER = attrs.evolve(DECLARED, boundaries=(1, 3, 6), said={"boundaries": "other"})


# Alternatives.


def test_every_kind_of_confusion_is_among_the_alternatives() -> None:
    around = attrs.evolve(AROUND, readings=(("read", (6, 1, 3)),), encodings=(VocabEncoding.ABSOLUTE,))
    tried = alternatives(DECLARED, around)
    boundaries = {one.boundaries for one in tried}
    assert {(1, 3, 6), (5, 0, 2), (2, 4, 5), (3, 5, 6), (0, 3, 6), (0, 2, 4), (6, 1, 3)} <= boundaries
    assert {one.rope_theta for one in tried} == {10000.0, 5e5}
    assert {one.encoding for one in tried} == {VocabEncoding.OFFSET, VocabEncoding.ABSOLUTE}
    for flag in ("norm_output", "norm_before_residual", "double_norm"):
        assert any(getattr(one.math, flag) for one in tried)


def test_alternatives_are_possible_distinct_and_never_the_declared_one() -> None:
    tried = alternatives(DECLARED, AROUND)
    assert len(set(tried)) == len(tried)
    assert DECLARED not in tried
    assert all(len(set(one.boundaries)) == 3 and min(one.boundaries) >= 0 for one in tried)
    assert max(k for one in tried for k in one.boundaries) <= AROUND.num_layers


def test_only_recorded_states_are_asked_for() -> None:
    kept = read_by(DECLARED, AROUND)
    around = attrs.evolve(AROUND, recorded=kept)
    assert alternatives(DECLARED, around) == alternatives(DECLARED, AROUND)
    assert all(kept.issuperset(one.boundaries) for one in alternatives(OTHER, around))


def test_a_deep_target_keeps_few_of_its_states() -> None:
    base = attrs.evolve(DECLARED, boundaries=(2, 30, 58))
    assert len(read_by(base, Surroundings(num_layers=61))) <= 18


def test_many_states_are_moved_one_at_a_time() -> None:
    base = attrs.evolve(DECLARED, boundaries=(0, 2, 4, 6, 8, 10))
    assert len(alternatives(base, Surroundings(num_layers=12))) < 40


def test_a_second_change_is_told_beside_the_first_and_replaces_its_own_kind() -> None:
    flagged = next(one for one in alternatives(OTHER, AROUND) if one.math.norm_output)
    assert flagged.name.startswith("other, norm_output true")
    moved = next(one for one in alternatives(OTHER, AROUND) if one.boundaries == (1, 3, 5))
    assert "other" not in moved.name


# Statistics.


def test_accept_length_is_the_ratio_of_sums_with_the_error_of_the_reference() -> None:
    from eagle3_adapters.reference import AcceptLength, Counts  # noqa: PLC0415 - torch, for this test alone

    tallies = [(15, 10), (18, 7), (2, 31), (13, 12)]
    known = AcceptLength.from_counts([Counts(accepted=accepted, verifies=verifies) for accepted, verifies in tallies])
    found = accept_length(tallies)
    assert (found.value, found.error) == pytest.approx((known.value, known.standard_error))
    assert math.isnan(accept_length(tallies[:1]).error)


def test_a_gain_on_the_same_prompts_is_surer_than_two_samples() -> None:
    easy = [(10 * (k + 1), 10) for k in range(8)]
    better = [(accepted + 1, verifies) for accepted, verifies in easy]
    assert gain(better, easy).value == pytest.approx(0.1)
    assert gain(better, easy).error == pytest.approx(0.0)
    assert accept_length(easy).error > 0.5


def test_the_error_of_a_gain_is_that_of_many_draws() -> None:
    """The spread over draws is what one draw says of itself."""

    def draw(seed: int) -> Estimate:
        drawn = random.Random(seed)  # noqa: S311 - no secret
        common = [drawn.gauss(15, 4) for _ in range(24)]
        left, right = ([(round(one + drawn.gauss(shift, 1)), 10) for one in common] for shift in (1, 0))
        return gain(left, right)

    draws = [draw(seed) for seed in range(200)]
    mean = sum(one.value for one in draws) / len(draws)
    spread = math.sqrt(sum((one.value - mean) ** 2 for one in draws) / len(draws))
    assert sum(one.error for one in draws) / len(draws) == pytest.approx(spread, rel=0.15)


# The order of measuring.


class Draft:
    """Accepts by wiring; every measurement is noted."""

    def __init__(self, accepted: dict[Wiring, int], otherwise: int = 0) -> None:
        self.accepted, self.otherwise = accepted, otherwise
        self.asked: list[tuple[Wiring, tuple[int, ...]]] = []

    def measure(self, wiring: Wiring, prompts: tuple[int, ...]) -> Sequence[tuple[int, int]]:
        self.asked.append((wiring, prompts))
        return [(self.accepted.get(wiring, self.otherwise) + prompt % 2, 10) for prompt in prompts]


def never() -> bool:
    return False


def test_the_true_wiring_comes_first_and_is_measured_on_all_prompts() -> None:
    ranking = Search(Draft({OTHER: 15}).measure, 12, never).run(DECLARED, AROUND)
    assert (ranking.measured[0].wiring, ranking.measured[0].prompts) == (OTHER, 12)
    assert ranking.best == ranking.measured[0]
    assert ranking.untried == ranking.close == ()


def test_most_wirings_see_a_few_prompts_alone_and_none_twice() -> None:
    draft = Draft({DECLARED: 15})
    ranking = Search(draft.measure, 12, never).run(DECLARED, AROUND)
    assert ranking.best.wiring == DECLARED
    assert sum(one.prompts == COARSE for one in ranking.measured) > len(ranking.measured) / 2
    seen = [(wiring, prompt) for wiring, prompts in draft.asked for prompt in prompts]
    assert len(seen) == len(set(seen))


def test_two_faults_are_found_one_after_the_other() -> None:
    right = attrs.evolve(OTHER, math=DraftMath(norm_output=True))
    ranking = Search(Draft({OTHER: 8, right: 15}).measure, 8, never).run(DECLARED, AROUND)
    assert ranking.best.wiring == right


def test_without_time_the_declared_wiring_is_measured_and_the_rest_is_named() -> None:
    ranking = Search(Draft({OTHER: 15}).measure, 8, lambda: True).run(DECLARED, AROUND)
    assert [one.wiring for one in ranking.measured] == [DECLARED]
    assert len(ranking.untried) == len(alternatives(DECLARED, AROUND))


def test_equals_rank_behind_the_declared_one_and_are_named() -> None:
    ranking = Search(Draft({DECLARED: 15, OTHER: 15}).measure, 8, never).run(DECLARED, AROUND)
    assert ranking.measured[0].wiring == DECLARED
    assert [name.split(" (")[0] for name in ranking.close] == ["boundaries 1,3,6"]


# Verdicts.


def measured(wiring: Wiring, length: float, gained: float = 0.0, error: float = 0.01) -> Measured:
    return Measured(
        wiring=wiring,
        length=Estimate(value=length, error=error),
        gain=Estimate(value=gained, error=error if gained else 0.0),
        prompts=12,
    )


def ranked(*found: Measured) -> Ranking:
    return Ranking(measured=found, declared=DECLARED)


@pytest.mark.parametrize(
    ("gained", "error", "better"),
    [
        (0.5, 0.12, True),
        (0.5, 0.13, False),
        (BETTER_TOKENS, 0.0, True),
        (BETTER_TOKENS - 0.001, 0.0, False),
        (1.0, math.nan, False),
        (-1.0, 0.0, False),
    ],
)
def test_a_wiring_is_better_beyond_four_errors_and_where_it_matters(gained: float, error: float, better: bool) -> None:  # noqa: FBT001 - of a table
    assert measured(OTHER, 2.0, gained, error).better is better


@pytest.mark.parametrize(
    ("ranking", "advised", "coverage", "kind"),
    [
        (ranked(measured(DECLARED, 2.0)), Advice(), 1.0, Kind.DECLARED),
        (ranked(measured(DECLARED, 2.0)), Advice(boundaries=(0, 2, 5)), 1.0, Kind.UNDECIDED),
        (ranked(measured(OTHER, 2.0, 1.0), measured(DECLARED, 1.0)), Advice(), 1.0, Kind.BETTER),
        (ranked(measured(OTHER, 2.0, 0.02), measured(DECLARED, 1.98)), Advice(), 1.0, Kind.DECLARED),
        (ranked(measured(OTHER, 2.0, 0.3, 0.1), measured(DECLARED, 1.7)), Advice(), 1.0, Kind.SUSPECT),
        (ranked(measured(OTHER, 2.0, 1.0, 0.3), measured(DECLARED, 1.0)), Advice(), 1.0, Kind.SUSPECT),
        (ranked(measured(OTHER, 2.0, 0.2, 0.1), measured(DECLARED, 1.8)), Advice(), 1.0, Kind.DECLARED),
        (ranked(measured(DECLARED, WEAK_BELOW - 0.01)), Advice(), COVERED, Kind.WEAK),
        (ranked(measured(DECLARED, WEAK_BELOW - 0.01)), Advice(), COVERED - 0.01, Kind.TEXT),
        (ranked(measured(DECLARED, WEAK_BELOW)), Advice(), COVERED - 0.01, Kind.DECLARED),
    ],
)
def test_each_verdict_has_its_own_ground(ranking: Ranking, advised: Advice, coverage: float, kind: Kind) -> None:
    verdict = judge(ranking, advised, coverage=coverage)
    assert verdict.kind is kind
    assert verdict.exit_code == (kind is not Kind.DECLARED)


def test_the_expected_length_moves_what_is_weak() -> None:
    ranking = ranked(measured(DECLARED, 2.0))
    assert judge(ranking, Advice(), coverage=1.0, expected=2.5).kind is Kind.WEAK


def test_the_verdict_carries_gain_advice_and_what_is_not_told_apart() -> None:
    ranking = attrs.evolve(ranked(measured(OTHER, 2.0, 1.0), measured(DECLARED, 1.0)), close=("twin",))
    verdict = judge(ranking, Advice(boundaries=(1, 3, 6)), coverage=1.0)
    assert "better than the declared wiring by 1.000 ± 0.020: 2.000 ± 0.020" in verdict.text
    assert verdict.text.endswith("do not tell it from: twin")
    assert verdict.steps == ("--eagle3-boundaries 1,3,6",)


# Advice.


def test_nothing_is_advised_where_the_files_say_it() -> None:
    assert advice(DECLARED, DECLARED, config={}, format_="sglang") == Advice()


def test_boundaries_are_advised_as_an_option() -> None:
    assert advice(OTHER, DECLARED, config={}, format_="sglang").boundaries == (1, 3, 6)


def test_a_flag_is_edited_where_it_stands() -> None:
    wiring = attrs.evolve(DECLARED, math=DraftMath(norm_output=True))
    flat = advice(wiring, DECLARED, config={}, format_="sglang")
    assert flat.edits == (Edit(path=("norm_output",), value=True),)
    section = {"eagle_config": {"norm_output": False}}
    nested = advice(wiring, DECLARED, config=section, format_="sglang")
    assert nested.edits == (Edit(path=("eagle_config", "norm_output"), value=True),)
    assert nested.lines == ('write "norm_output": true in eagle_config of the draft\'s config.json',)


def test_what_the_files_leave_open_is_advised_also_where_it_is_as_declared() -> None:
    found = advice(
        DECLARED,
        DECLARED,
        config={},
        format_="speculators",
        undecided=frozenset({"boundaries", "norm_before_residual", "encoding"}),
    )
    assert found.boundaries == DECLARED.boundaries
    assert found.edits == (Edit(path=("norm_before_residual",), value=False),)
    assert found.encoding is VocabEncoding.OFFSET


@pytest.mark.parametrize(
    ("config", "paths"),
    [
        ({}, [("rope_theta",)]),
        ({"rope_parameters": {"rope_theta": 1.0}}, [("rope_parameters", "rope_theta")]),
        (
            {"transformer_layer_config": {"rope_theta": 1.0, "rope_parameters": {"rope_theta": 1.0}}},
            [
                ("transformer_layer_config", "rope_parameters", "rope_theta"),
                ("transformer_layer_config", "rope_theta"),
            ],
        ),
    ],
)
def test_the_rotary_base_is_edited_wherever_it_is_stated(
    config: dict[str, object], paths: list[tuple[str, ...]]
) -> None:
    wiring = attrs.evolve(DECLARED, rope_theta=5e5)
    found = advice(wiring, DECLARED, config=config, format_="sglang")
    assert [edit.path for edit in found.edits] == paths


@pytest.mark.parametrize(("twice", "value"), [(True, True), (False, None)])
def test_double_norm_is_a_key_of_modelopts_files(twice: bool, value: bool | None) -> None:  # noqa: FBT001 - of a table
    declared = attrs.evolve(DECLARED, math=DraftMath(double_norm=not twice))
    wiring = attrs.evolve(DECLARED, math=DraftMath(double_norm=twice))
    found = advice(wiring, declared, config={}, format_="modelopt")
    assert found.edits == (Edit(path=("eagle_config", "next_layer_regular"), value=value),)
    elsewhere = advice(wiring, declared, config={}, format_="sglang")
    assert (elsewhere.edits, len(elsewhere.lines)) == ((), 1)
