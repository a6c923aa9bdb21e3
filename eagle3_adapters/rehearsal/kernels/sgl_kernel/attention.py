"""Attention over SGLang's token-granular key-value pool: new tokens after a cached prefix, and one token a request.

Shapes: heads H of the queries, G = H / key-value heads of each group. Scores are computed in float32 whatever the
model's type, so that a run in float32 is as exact as PyTorch's own attention.
"""

# ruff: noqa: FBT001, FBT003 - SGLang decides the arguments, and passes them by position
from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

_CELLS: Final = 1 << 21
"""Scores of one head that may be held at once; more requests than fit are worked off in several passes."""


def extend_attention_cpu(
    q_extend: Tensor,
    k_extend: Tensor | None,
    v_extend: Tensor | None,
    o_extend: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float,
    v_scale: float,
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
    is_causal: bool,
) -> None:
    """Attention of several new tokens a request: prefill, chunked prefill, verification and the draft's catching up.

    Called by `IntelAMXAttnBackend.forward_extend` in srt/layers/attention/intel_amx_backend.py, by position.

    Args:
        q_extend: [tokens, H, D].
        k_extend: [tokens, key-value heads, D], the new tokens' keys. They are taken from here and not from the pool,
            because an MLA pool holds latents while a prefill without prefix works on full heads. `None`: a layer that
            shares another layer's cache, which holds the new tokens already.
        v_extend: [tokens, key-value heads, Dv], likewise.
        o_extend: [tokens, H, Dv], written.
        k_buffer: [slots, key-value heads, D].
        v_buffer: [slots, key-value heads, Dv].
        k_scale: must be 1; the pool of a rehearsal is not quantised.
        v_scale: must be 1.
        req_to_token: int32 [requests, columns]; the slot of every token.
        req_pool_indices: [batch]; the rows of `req_to_token`.
        seq_lens: int64 [batch]; tokens of each request, the new ones included.
        extend_seq_lens: [batch]; new tokens of each request.
        extend_start_loc: [batch]; row of each request's first new token in `q_extend`.
        max_len_extend: the largest of `extend_seq_lens`, by which a kernel sizes its scratch memory.
        sm_scale: factor of the scores.
        logit_cap: if positive, scores become cap · tanh(score / cap).
        is_cross_attn: must be false.
        sliding_window_size: if positive, how many positions a token sees, its own included.
        encoder_lens: must be `None`.
        sinks: [H] or `None`; a score of each head that takes its share of the softmax and gives nothing.
        tree_mask: bool [batch · n · n] or `None`; which of its request's n new tokens each new token sees.
        is_causal: whether a token sees only tokens before it.

    Raises:
        NotImplementedError: for an argument that is set to what no EAGLE-3 pair needs on the CPU; it names the
            argument.
    """
    _refuse("extend_attention_cpu", k_scale, v_scale, is_cross_attn, encoder_lens)
    if not is_causal and (sliding_window_size > 0 or tree_mask is not None):
        raise NotImplementedError("extend_attention_cpu: is_causal=False with a sliding_window_size or a tree_mask")
    new, total = extend_seq_lens.to(torch.int64), seq_lens.to(torch.int64)
    trees = None if tree_mask is None else _trees(tree_mask, new)
    for part in _passes(new.tolist(), total.tolist()):
        queries, n, length = new[part], int(new[part].max()), int(total[part].max())
        if n == 0:
            continue
        prefix = total[part] - queries
        row, column = _valid(queries, n)
        token = extend_start_loc.to(torch.int64)[part][row] + column
        slots = req_to_token[req_pool_indices[part].to(torch.int64), :length]
        new_cell = (row, prefix[row] + column)
        keys = _gather(k_buffer, k_extend, slots, total[part] if k_extend is None else prefix, new_cell, token)
        values = _gather(v_buffer, v_extend, slots, total[part] if v_extend is None else prefix, new_cell, token)
        mask = _mask(prefix, queries, n, length, is_causal, sliding_window_size, None if trees is None else trees[part])
        q = q_extend.new_zeros(len(queries), n, *q_extend.shape[1:])
        q[row, column] = q_extend[token]
        o_extend[token] = _attend(q, keys, values, mask, sm_scale, logit_cap, sinks)[row, column].to(o_extend.dtype)


def decode_attention_cpu(
    query: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float,
    v_scale: float,
    output: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    loc: Tensor,
    attn_logits: Tensor,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
) -> None:
    """Attention of one new token a request, whose key and value this function also writes into the pool.

    Called by `IntelAMXAttnBackend.forward_decode` in srt/layers/attention/intel_amx_backend.py, by position: for plain
    decoding, and for each later step of the draft, where `req_to_token` has one row a branch.

    Args:
        query: [batch, H, D].
        k_buffer: [slots, key-value heads, D], written at `loc`.
        v_buffer: [slots, key-value heads, Dv], written at `loc`; for MLA a view of `k_buffer`.
        k_scale: must be 1.
        v_scale: must be 1.
        output: [batch, H, Dv], written.
        key: [batch, key-value heads, D], or `None` where the pool holds the new tokens already.
        value: [batch, key-value heads, Dv], or `None`.
        loc: int64 [batch]; the slots of the new tokens.
        attn_logits: scratch memory of the real kernel, unused.
        req_to_token: int32 [requests, columns].
        req_pool_indices: [batch].
        seq_lens: int64 [batch]; tokens of each request, the new one included.
        sm_scale: factor of the scores.
        logit_cap: as in `extend_attention_cpu`.
        is_cross_attn: must be false.
        sliding_window_size: as in `extend_attention_cpu`.
        encoder_lens: must be `None`.
        sinks: as in `extend_attention_cpu`.

    Raises:
        NotImplementedError: as in `extend_attention_cpu`.
    """
    _refuse("decode_attention_cpu", k_scale, v_scale, is_cross_attn, encoder_lens)
    if key is not None:
        k_buffer[loc] = key.to(k_buffer.dtype)
    if value is not None:
        v_buffer[loc] = value.to(v_buffer.dtype)
    total = seq_lens.to(torch.int64)
    one = torch.ones_like(total)
    for part in _passes(one.tolist(), total.tolist()):
        length = int(total[part].max())
        slots = req_to_token[req_pool_indices[part].to(torch.int64), :length]
        keys = _gather(k_buffer, None, slots, total[part], None, None)
        values = _gather(v_buffer, None, slots, total[part], None, None)
        mask = _mask(total[part] - 1, one[part], 1, length, True, sliding_window_size, None)
        attended = _attend(query[part].unsqueeze(1), keys, values, mask, sm_scale, logit_cap, sinks)
        output[part] = attended.squeeze(1).to(output.dtype)


def _refuse(kernel: str, k_scale: float, v_scale: float, is_cross_attn: bool, encoder_lens: Tensor | None) -> None:
    unsupported = {
        f"k_scale={k_scale}": k_scale != 1.0,
        f"v_scale={v_scale}": v_scale != 1.0,
        "is_cross_attn=True": is_cross_attn,
        "encoder_lens": encoder_lens is not None,
    }
    for argument, is_set in unsupported.items():
        if is_set:
            message = f"{kernel}: {argument}"
            raise NotImplementedError(message)


def _trees(tree_mask: Tensor, new: Tensor) -> Tensor:
    """Unpack the trees' masks, bool [batch, n, n]. SGLang asks for the layout without prefix columns on the CPU."""
    n = int(new[0])
    if not bool((new == n).all()) or tree_mask.numel() != len(new) * n * n:
        message = (
            f"extend_attention_cpu: tree_mask of {tree_mask.numel()} cells for {new.tolist()} new tokens "
            "(expected n · n cells for each request, and the same n for all)"
        )
        raise NotImplementedError(message)
    return tree_mask.bool().view(len(new), n, n)


def _passes(new: list[int], total: list[int]) -> list[slice]:
    """Split the batch so that no pass of several requests pads them to more than `_CELLS` scores a head."""
    passes, start, queries, length = [], 0, 0, 0
    for i, (n, m) in enumerate(zip(new, total, strict=True)):
        queries, length = max(queries, n), max(length, m)
        if i > start and (i + 1 - start) * queries * length > _CELLS:
            passes.append(slice(start, i))
            start, queries, length = i, n, m
    return [*passes, slice(start, len(new))] if new else []


def _valid(lengths: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Request and place of every new token, one request after another; int64 [sum(lengths)] each."""
    row, column = (torch.arange(width) < lengths.unsqueeze(1)).nonzero(as_tuple=True)
    return row, column


def _gather(
    buffer: Tensor,
    fresh: Tensor | None,
    slots: Tensor,
    cached: Tensor,
    cell: tuple[Tensor, Tensor] | None,
    token: Tensor | None,
) -> Tensor:
    """Keys or values of every request, zero past its end; [batch, length, key-value heads, width].

    Zero, because slots past the end may hold anything, and 0 · NaN would reach the output through the masked weights.
    """
    in_cache = torch.arange(slots.shape[1]) < cached.unsqueeze(1)
    if fresh is None:
        gathered = buffer.new_zeros(*slots.shape, *buffer.shape[1:])
    else:
        gathered = fresh.new_zeros(*slots.shape, *fresh.shape[1:])
        gathered[cell] = fresh[token]
    if bool(in_cache.any()):
        gathered[in_cache] = buffer[slots[in_cache].to(torch.int64)].to(gathered.dtype)
    return gathered


def _mask(
    prefix: Tensor, new: Tensor, n: int, length: int, is_causal: bool, window: int, trees: Tensor | None
) -> Tensor:
    """Which tokens each new token sees; bool [batch, n, length]. A padded query sees something, but nobody reads it."""
    index = torch.arange(length).expand(len(prefix), length)
    place = torch.arange(n).expand(len(prefix), n)
    key_position, query_position = index, prefix.unsqueeze(1) + place
    exists = index < (prefix + new).unsqueeze(1)
    visible = exists.unsqueeze(1).expand(-1, n, -1)
    if trees is not None:
        # A token's place among the new ones says nothing about its position: that is its depth in the tree.
        depth = trees.sum(-1) - 1
        query_position = prefix.unsqueeze(1) + depth
        key_position = index.scatter(1, prefix.unsqueeze(1) + place, query_position)
        in_tree = index.unsqueeze(1).ge(prefix.view(-1, 1, 1))
        cells = torch.zeros(len(prefix), n, length, dtype=torch.bool)
        cells.scatter_(2, (prefix.unsqueeze(1) + place).unsqueeze(1).expand(-1, n, -1), trees)
        visible = visible & (~in_tree | cells)
    elif is_causal:
        visible = visible & (index.unsqueeze(1) <= query_position.unsqueeze(2))
    if window > 0:
        visible = visible & (query_position.unsqueeze(2) - key_position.unsqueeze(1) < window)
    return visible


def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, logit_cap: float, sinks: Tensor | None
) -> Tensor:
    """Softmax attention with grouped heads, in float32; [batch, n, H, Dv].

    Args:
        q: [batch, n, H, D].
        k: [batch, length, key-value heads, D].
        v: [batch, length, key-value heads, Dv].
        mask: bool [batch, n, length].
        scale: factor of the scores.
        logit_cap: as in `extend_attention_cpu`.
        sinks: [H] or `None`.
    """
    batch, n, heads, width = q.shape
    groups = k.shape[2]
    grouped = q.float().view(batch, n, groups, heads // groups, width).permute(0, 2, 3, 1, 4)
    scores = (grouped @ k.float().permute(0, 2, 3, 1).unsqueeze(2)) * scale
    if logit_cap > 0:
        scores = logit_cap * torch.tanh(scores / logit_cap)
    scores = scores.masked_fill(~mask.view(batch, 1, 1, n, -1), float("-inf"))
    if sinks is not None:
        sink = sinks.float().view(1, groups, heads // groups, 1, 1).expand(*scores.shape[:-1], 1)
        weights = torch.cat((scores, sink), dim=-1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1)
    attended = weights @ v.float().permute(0, 2, 1, 3).unsqueeze(2)
    return attended.permute(0, 3, 1, 2, 4).reshape(batch, n, heads, v.shape[-1])
