"""Owns what of a wiring can be confused: each alternative to a declared wiring is a value, likeliest first."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from eagle3_adapters.boundaries import Ids, default_boundaries
from eagle3_adapters.values import DraftMath
from eagle3_adapters.vocab import VocabEncoding

#: Flags that no tensor of a file betrays -> what each does, in words.
FLAGS = {
    "norm_output": ("the recurrence before the final norm", "the recurrence after the final norm"),
    "norm_before_residual": ("the residual before hidden_norm", "the residual after hidden_norm"),
    "double_norm": ("the hidden state normed once", "the hidden state normed twice"),
}
#: SafeAILab's and early speculators' code trains at this rotary base whatever the config says.
TRAINERS_BASE = 10000.0
#: Most states of which every one is moved together with every other: 3 ** states wirings.
_MOVED_TOGETHER = 3
#: Most states of which every order is tried.
_REORDERED = 4


@attrs.frozen(kw_only=True)
class Wiring:
    """What can be confused of a draft's wiring. Equal where the draft computes the same."""

    #: What of it is told, by kind of thing; none where it is as declared.
    said: Mapping[str, str] = attrs.field(factory=dict, eq=False)
    #: Boundary of each column block of ``fc``, in their order.
    boundaries: Ids
    math: DraftMath
    rope_theta: float
    #: None: the draft has the whole vocabulary.
    encoding: VocabEncoding | None

    @property
    def name(self) -> str:
        """In words: what differs from the declared wiring."""
        return ", ".join(self.said.values()) or "as declared"


@attrs.frozen(kw_only=True)
class Surroundings:
    """What bounds the alternatives, of the pair."""

    num_layers: int
    #: Other ways to read the file's ids: meaning, and boundaries in the order of the list.
    readings: tuple[tuple[str, Ids], ...] = ()
    #: The target's rotary base, None where its config names none.
    target_theta: float | None = None
    #: Encodings in which ``d2t`` is a map, where nothing in the file decides.
    encodings: tuple[VocabEncoding, ...] = ()

    #: Boundaries whose states were recorded; None: all.
    recorded: frozenset[int] | None = None

    def has(self, boundaries: Ids) -> bool:
        """Whether the target has all of them, each named once, and their states are there."""
        known = self.recorded is None or self.recorded.issuperset(boundaries)
        return known and len(set(boundaries)) == len(boundaries) and all(0 <= k <= self.num_layers for k in boundaries)


def spell(boundaries: Iterable[int]) -> str:
    """As ``--eagle3-boundaries`` takes them."""
    return ",".join(map(str, boundaries))


def alternatives(base: Wiring, around: Surroundings) -> tuple[Wiring, ...]:
    """Every plausible wiring that differs from ``base`` in one kind of thing, likeliest first, ``base`` left out."""
    found: dict[Wiring, Wiring] = {}
    for wiring in (*_boundaries(base, around), *_arithmetic(base, around)):
        if wiring != base and around.has(wiring.boundaries):
            found.setdefault(wiring, wiring)
    return tuple(found)


def read_by(base: Wiring, around: Surroundings) -> frozenset[int]:
    """Boundaries that ``base`` or any of its alternatives reads: few of a deep target's."""
    return frozenset(k for wiring in (base, *alternatives(base, around)) for k in wiring.boundaries)


def _boundaries(base: Wiring, around: Surroundings) -> Iterator[Wiring]:
    for why, listed in _lists(base.boundaries, around):
        yield _changed(base, "boundaries", f"boundaries {spell(listed)} ({why})", boundaries=listed)


def _lists(own: Ids, around: Surroundings) -> Iterator[tuple[str, Ids]]:
    ascending = tuple(sorted(own))
    for meaning, listed in around.readings:
        yield meaning, listed
        yield f"{meaning}, ascending", tuple(sorted(listed))
    for shift in (1, -1):
        yield f"all {shift:+d}", tuple(k + shift for k in own)
    yield "ascending", ascending
    if len(own) <= _REORDERED:
        yield from (("reordered", order) for order in itertools.permutations(ascending))
    if len(own) == len(default_boundaries(around.num_layers)):
        for shift in (0, 1, -1):
            name = f"default triple {shift:+d}" if shift else "default triple"
            yield name, tuple(k + shift for k in default_boundaries(around.num_layers))
    for shift in (2, -2):
        yield f"all {shift:+d}", tuple(k + shift for k in own)
    yield from _moved(own)


def _moved(own: Ids) -> Iterator[tuple[str, Ids]]:
    """Some of the states one layer off."""
    if len(own) <= _MOVED_TOGETHER:
        moves = sorted(itertools.product((0, 1, -1), repeat=len(own)), key=lambda move: sum(map(abs, move)))
    else:
        moves = [tuple(sign * (i == place) for i in range(len(own))) for place in range(len(own)) for sign in (1, -1)]
    for move in moves:
        moved = sum(map(abs, move))
        yield f"{moved} moved", tuple(k + step for k, step in zip(own, move, strict=True))


def _arithmetic(base: Wiring, around: Surroundings) -> Iterator[Wiring]:
    for flag, words in FLAGS.items():
        turned = not getattr(base.math, flag)
        name = f"{flag} {str(turned).lower()} ({words[turned]})"
        yield _changed(base, flag, name, math=attrs.evolve(base.math, **{flag: turned}))
    for theta, whose in ((TRAINERS_BASE, "some trainers' whatever the config says"), (around.target_theta, "target's")):
        if theta is not None:
            yield _changed(base, "rope", f"rope base {theta:g} ({whose})", rope_theta=theta)
    for encoding in around.encodings:
        held = "offsets" if encoding is VocabEncoding.OFFSET else "target ids"
        yield _changed(base, "encoding", f"d2t holds {held}", encoding=encoding)


def _changed(base: Wiring, kind: str, words: str, **change: Any) -> Wiring:  # noqa: ANN401 - a field of Wiring
    return attrs.evolve(base, said={**base.said, kind: words}, **change)
