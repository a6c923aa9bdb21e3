"""Owns accept lengths and their errors over prompts, of one wiring and of one beside another. Pure."""

from __future__ import annotations

import attrs

from eagle3_adapters.ratios import Samples, error_of_mean, ratio, residuals

#: (accepted draft tokens, verify steps) of each prompt.
Tallies = Samples


@attrs.frozen(kw_only=True)
class Estimate:
    """A number over prompts; ``error`` is its standard error, NaN for a single prompt."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ± {2 * self.error:.3f}"


def accept_length(tallies: Tallies) -> Estimate:
    """1 + accepted / verifies, prompts being the sample (ratio estimator)."""
    return Estimate(value=1.0 + ratio(tallies), error=error_of_mean(residuals(tallies)))


def gain(tallies: Tallies, over: Tallies) -> Estimate:
    """Accept length of one wiring less that of another, on the same prompts.

    Both meet the same text, so what makes a prompt easy cancels in each prompt's difference: the error is much smaller
    than that of two separate samples.
    """
    pairs = zip(residuals(tallies), residuals(over), strict=True)
    differences = [mine - theirs for mine, theirs in pairs]
    return Estimate(value=ratio(tallies) - ratio(over), error=error_of_mean(differences))
