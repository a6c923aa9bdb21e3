"""Owns accept lengths and their errors over prompts, of one wiring and of one beside another. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

#: (accepted draft tokens, verify steps) of each prompt.
Tallies = Sequence[tuple[int, int]]


@attrs.frozen(kw_only=True)
class Estimate:
    """A number over prompts; ``error`` is its standard error, NaN for a single prompt."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ± {2 * self.error:.3f}"


def accept_length(tallies: Tallies) -> Estimate:
    """1 + accepted / verifies, prompts being the sample (ratio estimator)."""
    return Estimate(value=1.0 + _ratio(tallies), error=_error(_residuals(tallies)))


def gain(tallies: Tallies, over: Tallies) -> Estimate:
    """Accept length of one wiring less that of another, on the same prompts.

    Both meet the same text, so what makes a prompt easy cancels in each prompt's difference: the error is much smaller
    than that of two separate samples.
    """
    pairs = zip(_residuals(tallies), _residuals(over), strict=True)
    differences = [mine - theirs for mine, theirs in pairs]
    return Estimate(value=_ratio(tallies) - _ratio(over), error=_error(differences))


def _ratio(tallies: Tallies) -> float:
    return sum(accepted for accepted, _ in tallies) / sum(verifies for _, verifies in tallies)


def _residuals(tallies: Tallies) -> list[float]:
    """Each prompt's share in the linearised ratio."""
    ratio, mean = _ratio(tallies), sum(verifies for _, verifies in tallies) / len(tallies)
    return [(accepted - ratio * verifies) / mean for accepted, verifies in tallies]


def _error(residuals: Sequence[float]) -> float:
    count = len(residuals)
    if count < 2:
        return math.nan
    return math.sqrt(sum(residual**2 for residual in residuals) / (count * (count - 1)))
