"""Owns a whole diagnosis of a recorded pair: measure, rank, judge, advise."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from eagle3_adapters.diagnosis.advice import Advice, advice
from eagle3_adapters.diagnosis.declared import Declared
from eagle3_adapters.diagnosis.evaluate import Evaluator
from eagle3_adapters.diagnosis.prompts import DiagnosisError
from eagle3_adapters.diagnosis.search import COARSE, Ranking, Search
from eagle3_adapters.diagnosis.statistics import Tallies
from eagle3_adapters.diagnosis.target import Recording
from eagle3_adapters.diagnosis.verdict import WEAK_BELOW, Verdict, judge
from eagle3_adapters.diagnosis.wirings import Wiring


@attrs.frozen(kw_only=True)
class Diagnosis:
    """Everything that both forms of the output are made of."""

    ranking: Ranking
    verdict: Verdict
    #: Selects the best wiring.
    advice: Advice
    #: Share of the target's own tokens that the draft's vocabulary holds.
    coverage: float


def diagnose(
    found: Declared,
    recording: Recording,
    *,
    steps: int,
    device: str = "cpu",
    expected: float = WEAK_BELOW,
    out_of_time: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda count: None,
) -> Diagnosis:
    """Find the best wiring of a draft on what its target said. Raises DiagnosisError where that is too little."""
    if len(recording.prompts) < COARSE:
        msg = (
            f"expected {COARSE} or more prompts that the target continues, found {len(recording.prompts)}: fewer say "
            "nothing about the next one"
        )
        raise DiagnosisError(msg)
    evaluator = Evaluator(found.plan, recording, steps=steps, device=device)
    measured: set[Wiring] = set()

    def measure(wiring: Wiring, prompts: tuple[int, ...]) -> Tallies:
        tallies = evaluator.measure(wiring, prompts)
        progress(int(wiring not in measured))
        measured.add(wiring)
        return tallies

    ranking = Search(measure, len(recording.prompts), out_of_time).run(found.wiring, found.around)
    best = ranking.best.wiring
    advised = advice(best, found.wiring, config=found.config, format_=found.plan.format, undecided=found.undecided)
    coverage = evaluator.coverage(best)
    return Diagnosis(
        ranking=ranking,
        verdict=judge(ranking, advised, coverage=coverage, expected=expected),
        advice=advised,
        coverage=coverage,
    )
