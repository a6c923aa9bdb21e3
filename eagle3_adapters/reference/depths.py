"""How well a draft guesses at each depth of its chain, over every position of known continuations.

A guess counts where it is the target's own token, in target ids, whatever the draft's vocabulary holds: so a token that
the draft cannot say is a miss. Every position of a continuation is asked, not only those where serving would verify.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor

from eagle3_adapters.ratios import Samples, error_of_mean, ratio, residuals
from eagle3_adapters.reference.acceptance import Continuation, granted


@attrs.frozen(kw_only=True)
class Share:
    """A share of positions, between 0 and 1; requests are the sample of its standard error (NaN for a single one)."""

    value: float
    standard_error: float

    @classmethod
    def of(cls, samples: Samples) -> Share:
        """From (hits, positions) of each request; NaN where there is no position at all."""
        if not any(below for _, below in samples):
            return cls(value=float("nan"), standard_error=float("nan"))
        return cls(value=ratio(samples), standard_error=error_of_mean(residuals(samples)))


@attrs.frozen(kw_only=True)
class DepthAcceptance:
    """What :func:`depth_acceptance` found; index j stands for the chain's guess j + 1."""

    #: Share of positions at which this guess and all before it are right.
    accepted: tuple[Share, ...]
    #: The same among the positions at which all before it are right.
    conditional: tuple[Share, ...]
    #: 1 + the sum of ``accepted``: what a verify at every position would come to.
    accept_length: Share


def depth_acceptance(continuations: Sequence[Continuation], proposals: Sequence[Tensor]) -> DepthAcceptance:
    """Acceptance at each depth.

    ``proposals`` [rows, steps] of each continuation, as :func:`chain_proposals` gives them: row t guesses the tokens
    from t + 2 on. Positions are those from the end of the prompt on whose whole chain has a known answer.
    """
    steps = proposals[0].shape[1]
    hits = [_hits(*one, steps) for one in zip(continuations, proposals, strict=True)]
    reached = [[(sum(hit >= depth for hit in of), len(of)) for of in hits] for depth in range(steps + 1)]
    accepted = tuple(Share.of(samples) for samples in reached[1:])
    conditional = tuple(
        Share.of([(now[0], before[0]) for now, before in zip(reached[depth], reached[depth - 1], strict=True)])
        for depth in range(1, steps + 1)
    )
    mean = Share.of([(sum(of), len(of)) for of in hits])
    return DepthAcceptance(
        accepted=accepted,
        conditional=conditional,
        accept_length=attrs.evolve(mean, value=1.0 + mean.value),
    )


def _hits(continuation: Continuation, proposals: Tensor, steps: int) -> list[int]:
    """Leading right guesses of each position that counts."""
    tokens = torch.tensor(continuation.tokens)
    return granted(tokens, proposals.cpu())[continuation.prompt_length - 1 : len(tokens) - 1 - steps]
