"""What must be true of a boot of support.identity_run, whichever class and version of SGLang it was."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from eagle3_adapters.reference import AcceptLength
from support.boundary_states import Chunk, records
from support.identity_run import BOUNDARIES, Run

#: Float32 against float32: measured 2e-6, and 0.2 to the nearest other boundary.
OWN, MARGIN = 1e-4, 1000
#: Logits of float32 forwards that differ in their order of summation; a lead below is a tie.
TIE = 1e-3
#: Accept length that every fitted draft exceeds; random ones stay below 1.2.
FITTED = 1.5


def states_are_their_own_boundaries_by_far(seen: Sequence[Chunk]) -> None:
    """Each chunk is the boundary that it is planned to be, and far from every other."""
    wrong = [(chunk.request, chunk.planned, chunk.nearest) for chunk in seen if chunk.nearest != chunk.planned]
    assert not wrong
    assert max(chunk.own for chunk in seen) < OWN
    assert min(chunk.margin for chunk in seen) > MARGIN


def injected_states_are_those_of_the_class_bit_for_bit(run: Run) -> None:
    """Each batch runs twice in a row, with another set, every other time injected, and with all boundaries."""
    compared = 0
    written = records(run.records)
    for other, own in zip(written, written, strict=True):
        assert (own["boundaries"], own["injected"]) == (BOUNDARIES, False)
        every = own["states"].chunk(len(BOUNDARIES), dim=-1)
        some = other["states"].chunk(len(other["boundaries"]), dim=-1)
        for boundary, chunk in zip(other["boundaries"], some, strict=True):
            assert torch.equal(chunk, every[boundary]), (other["boundaries"], boundary)
            compared += other["injected"]
    # States of whole batches; a target that accepts most drafts runs the fewest.
    assert compared > 50


def drafts_are_taken_exactly_where_plain_forwards_say(run: Run) -> None:
    """The accept length of training, in verifies and accepted drafts of each request; states one off earn another."""
    counts = run.counts()
    assert counts == run.offline()
    assert counts != run.offline(shift=1)
    assert AcceptLength.from_counts(list(counts.values())).value > FITTED


def tokens_are_the_targets_own(run: Run) -> None:
    """Greedy answers are what transformers says, but for ties."""
    for name, answer in run.answers.items():
        sequence = [*answer["prompt"], *answer["output"]]
        best = run.reference.next_tokens(sequence)
        for position in range(len(answer["prompt"]), len(sequence)):
            token, lead = best[position - 1]
            assert token == sequence[position] or lead < TIE, (name, position)
