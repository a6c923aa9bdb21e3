"""Owns ratios of sums over requests and their standard errors, requests being the sample. Pure, without torch."""

from __future__ import annotations

import math
from collections.abc import Sequence

#: (numerator, denominator) of each request.
Samples = Sequence[tuple[int, int]]


def ratio(samples: Samples) -> float:
    """Sum of the numerators over the sum of the denominators. Raises ZeroDivisionError where that is 0."""
    return sum(above for above, _ in samples) / sum(below for _, below in samples)


def residuals(samples: Samples) -> list[float]:
    """Each request's share in the linearised ratio: the ratio's error is that of their mean."""
    value, mean = ratio(samples), sum(below for _, below in samples) / len(samples)
    return [(above - value * below) / mean for above, below in samples]


def error_of_mean(shares: Sequence[float]) -> float:
    """Standard error of the mean of numbers whose mean is 0; NaN for a single one."""
    count = len(shares)
    if count < 2:
        return math.nan
    return math.sqrt(sum(share**2 for share in shares) / (count * (count - 1)))
