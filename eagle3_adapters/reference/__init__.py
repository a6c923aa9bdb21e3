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
from eagle3_adapters.reference.decoding import CachedDecoding
from eagle3_adapters.reference.depths import DepthAcceptance, Share, depth_acceptance
from eagle3_adapters.reference.draft import ReferenceDraft
from eagle3_adapters.values import DraftMath

__all__ = [
    "AcceptLength",
    "CachedDecoding",
    "Continuation",
    "Counts",
    "DepthAcceptance",
    "DraftMath",
    "ReferenceDraft",
    "Share",
    "chain_proposals",
    "depth_acceptance",
    "is_finished",
    "replay",
    "simulate",
    "tokens_needed",
]
