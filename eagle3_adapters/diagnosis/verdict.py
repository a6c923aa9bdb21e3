"""Owns what a ranking comes to: one verdict, in words that carry its numbers. Pure."""

from __future__ import annotations

import enum

import attrs

from eagle3_adapters.diagnosis.advice import Advice
from eagle3_adapters.diagnosis.search import Ranking

#: A draft that reaches less in its best wiring proposes hardly anything: miswired drafts were measured at 1.0 to 1.3
#: tokens a verify step, the weakest that were served for their speed at 1.6 (three steps, topk 1).
WEAK_BELOW = 1.5
#: Trainers choose the draft's vocabulary to hold 95 % and more of the tokens of their text. Text of which it holds less
#: than this was not among them.
COVERED = 0.85


class Kind(enum.Enum):
    """What was found."""

    DECLARED = "declared-best"
    BETTER = "better-wiring"
    UNDECIDED = "undecided"
    SUSPECT = "more-prompts-needed"
    WEAK = "weak-draft"
    TEXT = "other-text"


@attrs.frozen(kw_only=True)
class Verdict:
    """The answer. ``text`` is one sentence; ``steps`` what to do, in order."""

    kind: Kind
    text: str
    steps: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 where the declared wiring is best and works, 1 for a finding."""
        return int(self.kind is not Kind.DECLARED)


def judge(ranking: Ranking, advised: Advice, *, coverage: float, expected: float = WEAK_BELOW) -> Verdict:
    """The verdict on a ranking; ``advised`` selects its best wiring.

    ``coverage`` is the share of the continuations' tokens that the draft's vocabulary holds, ``expected`` the accept
    length below which the draft is called weak.
    """
    best = ranking.best
    length = f"{best.length} tokens a verify step"
    if best.wiring != ranking.declared:
        text = f"{best.wiring.name} is better than the declared wiring by {best.gain}: {length}"
        return Verdict(kind=Kind.BETTER, text=text + _close(ranking), steps=advised.lines)
    if ranking.suspects:
        one = ranking.suspects[0]
        text = f"{one.wiring.name} seems better than the declared wiring by {one.gain}, on too few prompts to be sure"
        return Verdict(kind=Kind.SUSPECT, text=text, steps=("diagnose with more prompts, or more --new-tokens",))
    if best.length.value < expected:
        return _weak(length, coverage, len(ranking.measured))
    if advised.lines:
        text = f"the files leave the wiring open; {best.wiring.name} is best: {length}"
        return Verdict(kind=Kind.UNDECIDED, text=text + _close(ranking), steps=advised.lines)
    text = f"the declared wiring is best of {len(ranking.measured)}: {length}"
    return Verdict(kind=Kind.DECLARED, text=text + _close(ranking))


def _weak(length: str, coverage: float, tried: int) -> Verdict:
    if coverage < COVERED:
        text = (
            f"the text is not what the draft was trained on: its vocabulary holds {coverage:.0%} of the target's "
            f"tokens here, and no wiring of {tried} does better than {length}"
        )
        return Verdict(kind=Kind.TEXT, text=text, steps=("diagnose with prompts of the kind it was trained on",))
    text = f"the draft is weak, not miswired: no wiring of {tried} does better than {length}"
    steps = (
        "diagnose with prompts of the kind that the draft was trained on",
        "suspect the training, or an export that damaged tensors: eagle3-adapters check --deep",
    )
    return Verdict(kind=Kind.WEAK, text=text, steps=steps)


def _close(ranking: Ranking) -> str:
    """What an honest reader must know of the others."""
    return f"; these prompts do not tell it from: {', '.join(ranking.close)}" if ranking.close else ""
