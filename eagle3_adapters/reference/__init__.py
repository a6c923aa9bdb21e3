"""The draft's forward in plain PyTorch, and the accept length that follows from it. Importing this imports torch."""

from __future__ import annotations

from eagle3_adapters.reference.acceptance import (
    AcceptLength,
    Continuation,
    Counts,
    chain_proposals,
    is_finished,
    replay,
    simulate,
    tokens_needed,
)
from eagle3_adapters.reference.draft import ReferenceDraft
from eagle3_adapters.values import DraftMath

__all__ = [
    "AcceptLength",
    "Continuation",
    "Counts",
    "DraftMath",
    "ReferenceDraft",
    "chain_proposals",
    "is_finished",
    "replay",
    "simulate",
    "tokens_needed",
]
