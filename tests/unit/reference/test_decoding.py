"""Training-time test and cached decoding are one computation: any draft, any flags, plain heads or latent attention."""

from __future__ import annotations

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from eagle3_adapters.reference import CachedDecoding, DraftMath, ReferenceDraft
from eagle3_adapters.reference.layers import LatentSizes

HIDDEN, WIDTH, STATES, VOCAB, DRAFT_VOCAB, ROWS, STEPS = 12, 10, 2, 19, 11, 6, 4
LATENT = LatentSizes(q_lora_rank=6, kv_lora_rank=5, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=3)
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}
FLAGS = [field.name for field in attrs.fields(DraftMath)]
#: Of latent attention: what has no ordinary heads.
HEADS_ONLY = ("qk_norm", "qkv_bias", "output_bias")


@st.composite
def drafts(draw: st.DrawFn) -> ReferenceDraft:
    latent = draw(st.booleans())
    flags = [flag for flag in FLAGS if not (latent and flag in HEADS_ONLY)]
    torch.manual_seed(draw(st.integers(0, 1000)))
    draft = ReferenceDraft(
        hidden_size=HIDDEN,
        target_hidden_size=WIDTH,
        states=STATES,
        intermediate_size=16,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        rms_norm_eps=1e-5,
        rope_theta=100.0,
        vocab_size=VOCAB,
        draft_vocab_size=DRAFT_VOCAB,
        math=DraftMath(**{flag: draw(st.booleans()) for flag in flags}),
        num_layers=draw(st.integers(1, 3)),
        latent=LATENT if latent else None,
        rope_scaling=None if latent else draw(st.sampled_from([None, LLAMA3])),
        partial_rotary=draw(st.sampled_from([1.0, 0.5])),
    )
    for parameter in draft.parameters():
        parameter.data = torch.randn(parameter.shape) * (0.4 if parameter.ndim == 2 else 1.0)
    return draft


def inputs(draft: ReferenceDraft) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, tokens, embedding and target ids of the draft's."""
    features = torch.randn(2, ROWS, STATES * WIDTH)
    tokens = torch.randint(0, VOCAB, (2, ROWS + 1))
    return features, tokens, torch.randn(VOCAB, HIDDEN), torch.randperm(VOCAB)[:DRAFT_VOCAB]


@given(draft=drafts(), cuts=st.lists(st.integers(1, ROWS - 1), max_size=3, unique=True))
@settings(max_examples=80, deadline=None)
def test_a_cache_decodes_what_the_unroll_says(draft: ReferenceDraft, cuts: list[int]) -> None:
    """However many rows are taken in at once, as a server does with prompts and with verified tokens."""
    features, tokens, embedding, ids = inputs(draft)
    with torch.no_grad():
        unrolled = draft(features, tokens, embedding, steps=STEPS, draft_to_target=ids)
    decoding = CachedDecoding(draft, embedding=embedding, draft_to_target=ids)
    first = 0
    for last in sorted({*cuts, ROWS}):
        logits = decoding.extend(features[:, first:last], tokens[:, first + 1 : last + 1])
        torch.testing.assert_close(logits, unrolled[0, :, first:last], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(decoding.propose(STEPS), unrolled[:, :, last - 1], rtol=1e-4, atol=1e-4)
        first = last


def test_nothing_is_proposed_before_a_row_is_known() -> None:
    draft = ReferenceDraft(
        hidden_size=4,
        target_hidden_size=4,
        states=1,
        intermediate_size=4,
        num_heads=1,
        num_kv_heads=1,
        head_dim=4,
        rms_norm_eps=1e-5,
        rope_theta=100.0,
        vocab_size=4,
        draft_vocab_size=4,
        math=DraftMath(),
    )
    with pytest.raises(ValueError, match="no row"):
        CachedDecoding(draft, embedding=torch.zeros(4, 4), draft_to_target=torch.arange(4)).propose(2)
