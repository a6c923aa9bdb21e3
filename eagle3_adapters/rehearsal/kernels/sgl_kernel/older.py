"""Both attention kernels as SGLang 0.5.17 to 0.5.19 calls them: without scales, and up to 0.5.18 without `is_causal`.

Up to 0.5.18 the lengths of a verification are wrong, too: `IntelAMXAttnBackend.forward_extend` works out
`seq_lens` with the tokens that are verified, and overwrites it with the batch's own, which are without them. Nothing in
the call tells such a batch from a prompt; the pool does, which holds the new keys already: in those lengths or behind.
"""

# ruff: noqa: FBT001, FBT002 - SGLang decides the arguments, and passes them by position
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .attention import decode_attention_cpu, extend_attention_cpu


def unscaled_extend_attention_cpu(
    q_extend: Tensor,
    k_extend: Tensor | None,
    v_extend: Tensor | None,
    o_extend: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    extend_seq_lens: Tensor,
    extend_start_loc: Tensor,
    max_len_extend: int,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
    tree_mask: Tensor | None,
    is_causal: bool = True,
) -> None:
    """See `extend_attention_cpu`; `seq_lens` may be without the new tokens."""
    total = seq_lens.to(torch.int64)
    if k_extend is not None:
        total = total + _left_out(k_extend, k_buffer, req_to_token[req_pool_indices.long()], total, extend_seq_lens)
    extend_attention_cpu(
        q_extend,
        k_extend,
        v_extend,
        o_extend,
        k_buffer,
        v_buffer,
        1.0,
        1.0,
        req_to_token,
        req_pool_indices,
        total,
        extend_seq_lens,
        extend_start_loc,
        max_len_extend,
        sm_scale,
        logit_cap,
        is_cross_attn,
        sliding_window_size,
        encoder_lens,
        sinks,
        tree_mask,
        is_causal,
    )


def _left_out(keys: Tensor, pool: Tensor, slots: Tensor, total: Tensor, new: Tensor) -> Tensor:
    """Count the new tokens that each length leaves out: all or none of a batch. int64 [batch].

    Args:
        keys: [tokens, key-value heads, D]; the new tokens', request after request.
        pool: [slots, key-value heads, width]; their keys are there, unless it holds latents of another width.
        slots: int32 [batch, columns].
        total: int64 [batch]; the lengths in question.
        new: [batch]; new tokens of each request.
    """
    lengths = new.to(torch.int64)
    nothing = torch.zeros_like(lengths)
    if pool.shape[1:] != keys.shape[1:] or bool((total + lengths > slots.shape[1]).any()):
        return nothing
    request = torch.arange(len(lengths)).repeat_interleave(lengths)
    place = torch.arange(len(request)) - (lengths.cumsum(0) - lengths)[request]
    written = keys.to(pool.dtype)
    behind = pool[slots[request, total[request] + place].long()]
    within = pool[slots[request, (total - lengths).clamp(min=0)[request] + place].long()]
    if bool((total >= lengths).all()) and torch.equal(within, written):
        return nothing
    return lengths if torch.equal(behind, written) else nothing


def unscaled_decode_attention_cpu(*arguments: Any) -> None:  # noqa: ANN401 - as of the kernel below
    """See `decode_attention_cpu`, whose two scales stand behind the three tensors."""
    decode_attention_cpu(*(*arguments[:3], 1.0, 1.0, *arguments[3:]))
