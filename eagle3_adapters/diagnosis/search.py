"""Owns the order of measuring: all wirings on a few prompts, the best few on all, then around a better one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs

from eagle3_adapters.diagnosis.statistics import Estimate, Tallies, accept_length, gain
from eagle3_adapters.diagnosis.wirings import Surroundings, Wiring, alternatives

#: Prompts of the first pass: the fewest whose spread says anything about the next ones.
COARSE = 4
#: Wirings that the second pass measures on all prompts, the declared one beside them.
KEPT = 4
#: How often a better wiring becomes the one around which others are tried: for two or three faults at once.
ROUNDS = 3
#: A wiring is better where its gain is this many standard errors. Some 60 wirings are held against the declared one,
#: and prompts are few: 4 keeps the chance that any of them is better by luck at about 1 % with a dozen prompts.
BETTER_ERRORS = 4.0
#: And where it gains this many tokens a verify step: less changes no one's mind.
BETTER_TOKENS = 0.02
#: A gain of this many errors is more than the best of 60 wirings that are no better reaches by luck as a rule: the
#: prompts are too few to decide.
SUSPECT_ERRORS = 2.5

#: (wiring, numbers of prompts) -> tallies of those prompts.
Measure = Callable[[Wiring, tuple[int, ...]], Tallies]


@attrs.frozen(kw_only=True)
class Measured:
    """One wiring's accept length, and its gain over the declared one on the same prompts."""

    wiring: Wiring
    length: Estimate
    gain: Estimate
    prompts: int

    @property
    def better(self) -> bool:
        """Whether it beats the declared wiring beyond its error."""
        return self.gain.value >= BETTER_TOKENS and self.gain.value > BETTER_ERRORS * self.gain.error

    @property
    def suspect(self) -> bool:
        """Whether more prompts may show that it beats the declared wiring."""
        return self.gain.value >= BETTER_TOKENS and self.gain.value > SUSPECT_ERRORS * self.gain.error


@attrs.frozen(kw_only=True)
class Ranking:
    """Wirings, best first: those measured on all prompts before those that the first pass left behind."""

    measured: tuple[Measured, ...]
    declared: Wiring
    #: Names of the wirings that these prompts do not tell from the best one.
    close: tuple[str, ...] = ()
    #: Names of the wirings for which no time was left.
    untried: tuple[str, ...] = ()

    @property
    def best(self) -> Measured:
        """The best wiring beyond error: the declared one, unless another beats it."""
        own = next(one for one in self.measured if one.wiring == self.declared)
        first = self.measured[0]
        return first if first.better else own

    @property
    def suspects(self) -> tuple[Measured, ...]:
        """Wirings that seem better than the best one, though these prompts are too few to say so."""
        return tuple(one for one in self.measured if one.suspect and one.length.value > self.best.length.value)


class Search:
    """Measures wirings of one draft and remembers what it saw. ``out_of_time`` is asked before each one."""

    def __init__(self, measure: Measure, prompts: int, out_of_time: Callable[[], bool]) -> None:
        self._measure, self._prompts, self._out_of_time = measure, prompts, out_of_time
        self._coarse = tuple(range(min(COARSE, prompts)))
        self._all = tuple(range(prompts))
        self._seen: dict[Wiring, dict[int, tuple[int, int]]] = {}
        self._untried: list[str] = []

    def run(self, declared: Wiring, around: Surroundings) -> Ranking:
        """Rank the declared wiring and its alternatives."""
        self._take([declared], self._all, forced=True)
        center = declared
        for _ in range(ROUNDS):
            self._around(center, around, declared)
            best = self._ranking(declared).best.wiring
            if best == center:
                break
            center = best
        return self._ranking(declared)

    def _around(self, center: Wiring, around: Surroundings, declared: Wiring) -> None:
        tried = [one for one in alternatives(center, around) if one not in self._seen]
        self._take(tried, self._coarse)
        coarse = sorted((one for one in tried if one in self._seen), key=self._coarse_value, reverse=True)
        self._take(coarse[:KEPT], self._all, forced=True)

    def _coarse_value(self, wiring: Wiring) -> float:
        return accept_length([self._seen[wiring][prompt] for prompt in self._coarse]).value

    def _take(self, wirings: Iterable[Wiring], prompts: Sequence[int], *, forced: bool = False) -> None:
        for wiring in wirings:
            if not forced and self._out_of_time():
                self._untried.append(wiring.name)
                continue
            known = self._seen.setdefault(wiring, {})
            missing = tuple(prompt for prompt in prompts if prompt not in known)
            if missing:
                known.update(zip(missing, self._measure(wiring, missing), strict=True))

    def _ranking(self, declared: Wiring) -> Ranking:
        measured = [self._measured(wiring, declared) for wiring in self._seen]
        # The declared one stands before those that do exactly as well.
        measured.sort(key=lambda one: (-one.prompts, -one.length.value, one.wiring != declared))
        ranking = Ranking(measured=tuple(measured), declared=declared, untried=tuple(self._untried))
        return attrs.evolve(ranking, close=tuple(self._close(ranking)))

    def _close(self, ranking: Ranking) -> Iterator[str]:
        best = ranking.best
        theirs = list(self._seen[best.wiring].values())
        for one in ranking.measured:
            if one.wiring == best.wiring or one.prompts < best.prompts:
                continue
            known = self._seen[one.wiring]
            behind = gain(theirs, [known[prompt] for prompt in self._seen[best.wiring]])
            if behind.value <= 2 * behind.error:
                yield one.wiring.name

    def _measured(self, wiring: Wiring, declared: Wiring) -> Measured:
        prompts = sorted(self._seen[wiring])
        mine = [self._seen[wiring][prompt] for prompt in prompts]
        theirs = [self._seen[declared][prompt] for prompt in prompts]
        return Measured(wiring=wiring, length=accept_length(mine), gain=gain(mine, theirs), prompts=len(prompts))
