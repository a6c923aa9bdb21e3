"""Offline acceptance: what a draft would have been granted on a known greedy continuation.

Speculation does not change a greedy continuation, so one forward of the target over the finished sequence holds every
feature that serving would have produced, and the draft can propose from every position at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from eagle3_adapters.ratios import error_of_mean, residuals
from eagle3_adapters.reference.draft import ReferenceDraft


@attrs.frozen(kw_only=True)
class Counts:
    """What one request reports: SGLang's ``spec_verify_ct`` and ``spec_num_correct_drafts``."""

    verifies: int
    accepted: int


@attrs.frozen(kw_only=True)
class AcceptLength:
    """Accept length over several requests, a ratio of sums; ``value`` is in tokens a verify step."""

    accepted: int
    verifies: int
    standard_error: float

    @property
    def value(self) -> float:
        """1 + accepted draft tokens / verify steps."""
        return 1.0 + self.accepted / self.verifies

    @classmethod
    def from_counts(cls, counts: Sequence[Counts]) -> AcceptLength:
        """Sum over requests.

        The standard error treats requests as the sample (ratio estimator); NaN for a single one.
        Raises ValueError where no request made a verify step.
        """
        verifies = sum(count.verifies for count in counts)
        accepted = sum(count.accepted for count in counts)
        if not verifies:
            msg = "accept length: no verify step in any request (was max_new_tokens 1?)"
            raise ValueError(msg)
        error = error_of_mean(residuals([(count.accepted, count.verifies) for count in counts]))
        return cls(accepted=accepted, verifies=verifies, standard_error=error)


@attrs.frozen(kw_only=True)
class Continuation:
    """A prompt and its greedy continuation: token ids, of which the first ``prompt_length`` are the prompt."""

    tokens: tuple[int, ...]
    prompt_length: int = attrs.field(validator=attrs.validators.ge(2))


@torch.no_grad()
def chain_proposals(
    draft: ReferenceDraft,
    *,
    features: Tensor,
    tokens: Tensor,
    embedding: Tensor,
    draft_to_target: Tensor,
    steps: int,
    bypass_fc: bool = False,
) -> Tensor:
    """The greedy chain that the draft proposes at every position, in target ids: [batch, rows, steps] (int64).

    Entry [b, t, j] is a guess at token t + 2 + j, made when tokens 0..t+1 and the states of positions 0..t are known
    and true. Shapes as in :meth:`ReferenceDraft.forward`; rows of padding at the end change nothing before them.
    """
    logits = draft(features, tokens, embedding, steps=steps, draft_to_target=draft_to_target, bypass_fc=bypass_fc)
    return draft_to_target[logits.argmax(-1)].permute(1, 2, 0)


def is_finished(emitted: int, max_new_tokens: int) -> bool:
    """Whether SGLang stops a request that has emitted this many tokens.

    The rule of 0.5.23 (``_resolve_spec_v2_tokens``, ``Req.update_finish_state``): the prefill emits the first token
    without a verify step; a verify step runs while fewer than ``max_new_tokens`` are out; its accepted tokens are
    counted in full, also those past the limit, which are cut off only afterwards. So a simulation reads up to
    ``steps`` - 1 tokens more.
    """
    return emitted >= max_new_tokens


def tokens_needed(prompt_length: int, max_new_tokens: int, steps: int) -> int:
    """Length of the known sequence that :func:`simulate` needs, the overrun of the last verify step included."""
    return prompt_length + max_new_tokens + steps - 1


def simulate(continuation: Continuation, proposals: Tensor, *, max_new_tokens: int) -> Counts:
    """Replay greedy chain verification (topk 1, ``steps`` drafts and a bonus token a verify) over one continuation.

    ``proposals`` [rows, steps] from :func:`chain_proposals`, with a row for each position but the last one.
    """
    steps = proposals.shape[1]
    tokens = continuation.tokens
    needed = tokens_needed(continuation.prompt_length, max_new_tokens, steps)
    if len(tokens) < needed:
        msg = f"simulate: {max_new_tokens} new tokens and {steps} steps need {needed} known tokens, found {len(tokens)}"
        raise ValueError(msg)
    hits_of = granted(torch.tensor(tokens), proposals.cpu())
    last, emitted, verifies, accepted = continuation.prompt_length, 1, 0, 0
    while not is_finished(emitted, max_new_tokens):
        hits = hits_of[last - 1]
        verifies += 1
        accepted += hits
        emitted += hits + 1
        last += hits + 1
    return Counts(verifies=verifies, accepted=accepted)


def replay(
    draft: ReferenceDraft,
    *,
    continuations: Sequence[Continuation],
    features: Sequence[Tensor],
    embedding: Tensor,
    draft_to_target: Tensor,
    steps: int,
    max_new_tokens: int,
    bypass_fc: bool = False,
) -> list[Counts]:
    """Counts of every continuation, all in one batch.

    ``features`` are [tokens or tokens - 1, states * target_hidden_size] each; ``embedding`` and ``draft_to_target`` as
    in :meth:`ReferenceDraft.forward`.
    """
    rows = max(len(continuation.tokens) for continuation in continuations) - 1
    tokens = pad_sequence([torch.tensor(c.tokens) for c in continuations], batch_first=True).to(embedding.device)
    cut = [feature[: len(c.tokens) - 1] for feature, c in zip(features, continuations, strict=True)]
    states = pad_sequence(cut, batch_first=True)
    proposals = chain_proposals(
        draft,
        features=states[:, :rows],
        tokens=tokens,
        embedding=embedding,
        draft_to_target=draft_to_target,
        steps=steps,
        bypass_fc=bypass_fc,
    ).cpu()
    return [
        simulate(continuation, proposals[index], max_new_tokens=max_new_tokens)
        for index, continuation in enumerate(continuations)
    ]


def granted(tokens: Tensor, proposals: Tensor) -> list[int]:
    """Leading matches of each row's chain with what the target went on to say; past the end nothing matches."""
    steps = proposals.shape[1]
    rows = min(len(proposals), len(tokens) - 1)
    padded = torch.cat([tokens, tokens.new_full((steps,), -1)])
    truth = padded[2:].unfold(0, steps, 1)[:rows]
    return [int(hits) for hits in (proposals[: len(truth)] == truth).long().cumprod(-1).sum(-1)]
