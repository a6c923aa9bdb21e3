"""The draft as a server runs it: a cache of keys and values, known rows as they come, and guesses beyond them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from eagle3_adapters.reference.caches import KeyValues
from eagle3_adapters.reference.draft import ReferenceDraft


class CachedDecoding:
    """One batch of sequences. What it proposes equals the unroll of :meth:`ReferenceDraft.forward` at the last row.

    ``embedding`` [vocab_size, hidden_size]; ``draft_to_target`` [draft_vocab_size] (int64), target id of each draft id.
    """

    def __init__(self, draft: ReferenceDraft, *, embedding: Tensor, draft_to_target: Tensor) -> None:
        self._draft, self._embedding, self._ids = draft, embedding, draft_to_target
        self._caches = [KeyValues() for _ in draft.layers]
        #: Logits [batch, draft_vocab_size] of the last row, and the state [batch, 1, hidden_size] to go on from.
        self._logits: Tensor | None = None
        self._hidden: Tensor | None = None

    @torch.no_grad()
    def extend(self, features: Tensor, tokens: Tensor) -> Tensor:
        """Take in rows that the target has verified; logits [batch, rows, draft_vocab_size].

        ``features`` [batch, rows, states * target_hidden_size] of positions that follow those taken in before,
        ``tokens`` [batch, rows] (int64) the token after each.
        """
        embedded = functional.embedding(tokens, self._embedding)
        logits, hidden = self._draft.step(embedded, self._draft.combine(features), self._caches)
        self._logits, self._hidden = logits[:, -1], hidden[:, -1:]
        return logits

    @torch.no_grad()
    def propose(self, steps: int) -> Tensor:
        """Logits [steps, batch, draft_vocab_size] of the greedy chain from the last row. What was taken in stays.

        Raises ValueError where nothing was taken in.
        """
        if self._logits is None or self._hidden is None:
            msg = "propose: no row was taken in yet"
            raise ValueError(msg)
        caches = [cache.fork() for cache in self._caches]
        said, hidden = [self._logits], self._hidden
        for _ in range(steps - 1):
            embedded = functional.embedding(self._ids[said[-1].argmax(-1)][:, None], self._embedding)
            logits, hidden = self._draft.step(embedded, hidden, caches)
            said.append(logits[:, -1])
        return torch.stack(said)
