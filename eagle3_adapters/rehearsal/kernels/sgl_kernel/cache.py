"""Bookkeeping of cache slots: which slot of the key-value pool holds which token of which request.

`req_to_token` is SGLang's table of slots, int32 [requests, longest context]; a request's row is named by its pool
index. Integer arguments may be int32 or int64. Every function writes into a tensor that the caller made.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Write new slots into columns start … end-1 of each request's row.

    Called by `assign_req_to_token_pool_func` in srt/mem_cache/allocation.py when a verify step reserves its slots.

    Args:
        req_pool_indices: [batch].
        req_to_token: [requests, pool_len], written.
        start_offset: [batch].
        end_offset: [batch].
        out_cache_loc: [sum(end - start)]; the slots, request after request.
        pool_len: columns of `req_to_token`, which only a kernel working on raw memory needs.
    """
    rows, columns = _cells(req_pool_indices, start_offset, end_offset)
    req_to_token[rows, columns] = out_cache_loc[: rows.numel()].to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Read the slots in columns start … end-1 of each request's row, packed one request after another.

    Called from kernels/ops/speculative/cache_locs.py: for the tokens of a verify step, and (with a window of slots in
    place of the table) for the slots to which accepted tokens move.

    Args:
        req_pool_indices: [batch].
        req_to_token: [requests, pool_len].
        start_offset: [batch].
        end_offset: [batch].
        out_cache_loc: int64, at least sum(end - start) long; written up to there, and no further.
        pool_len: columns of `req_to_token`, unused as above.
    """
    rows, columns = _cells(req_pool_indices, start_offset, end_offset)
    out_cache_loc[: rows.numel()] = req_to_token[rows, columns].to(out_cache_loc.dtype)


def _cells(req_pool_indices: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """List row and column of every cell in the ranges start … end-1, in order; int64 [sum(end - start)] each."""
    lengths = (end.to(torch.int64) - start.to(torch.int64)).clamp(min=0)
    rows = req_pool_indices.to(torch.int64).repeat_interleave(lengths)
    shift = start.to(torch.int64) - (lengths.cumsum(0) - lengths)
    return rows, torch.arange(rows.numel()) + shift.repeat_interleave(lengths)


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
    topk: int,
    speculative_num_steps: int,
) -> None:
    """Read the topk · steps slots that follow each request's committed tokens, for the draft's own steps.

    Called by `assign_draft_cache_locs_contiguous_func` in kernels/ops/speculative/cache_locs.py.

    Args:
        req_pool_indices: [batch].
        req_to_token: [requests, pool_len].
        seq_lens: [batch]; committed tokens.
        out_cache_loc: int64 [batch · topk · steps], written.
        pool_len: columns of `req_to_token`, unused as above.
        topk: branches.
        speculative_num_steps: slots of each branch.
    """
    columns = seq_lens.to(torch.int64).unsqueeze(1) + torch.arange(topk * speculative_num_steps)
    out_cache_loc.copy_(req_to_token[req_pool_indices.to(torch.int64).unsqueeze(1), columns].flatten())


def build_draft_decode_metadata_cpu(
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> Tensor:
    """Make a slot table in which every branch of every request is a request of its own.

    Called by `IntelAMXMultiStepDraftBackend` in srt/layers/attention/intel_amx_backend.py. Branch b of a request
    attends to the committed tokens, then to its own slots, which `assign_draft_cache_locs_contiguous_cpu` laid out
    branch after branch.

    Args:
        req_to_token: [requests, pool_len].
        req_pool_indices: [batch].
        seq_lens: [batch]; committed tokens.
        topk: branches of each request.
        num_steps: slots of each branch.
        pool_len: columns of the result.

    Returns:
        [batch · topk, pool_len], of the type of `req_to_token`; what follows a branch's last slot is unspecified.
    """
    table = req_to_token[req_pool_indices.to(torch.int64)].repeat_interleave(topk, dim=0)
    table = table if table.shape[1] == pool_len else table[:, :pool_len].contiguous()
    start = seq_lens.to(torch.int64).repeat_interleave(topk).unsqueeze(1)
    step = torch.arange(num_steps)
    branch = torch.arange(topk).repeat(seq_lens.numel()).unsqueeze(1)
    table.scatter_(1, start + step, table.gather(1, start + branch * num_steps + step))
    return table


def fill_bonus_tokens_cpu(accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, accept_stride: int) -> None:
    """Take the last accepted token of each request, which is where the next draft starts.

    Called by `fill_bonus_tokens_func` in kernels/ops/speculative/eagle.py.

    Args:
        accept_tokens: int32 [batch, accept_stride] or flat.
        accept_lens: [batch]; accepted tokens with the bonus token, so at least 1.
        bonus_tokens: int32 [batch], written.
        accept_stride: slots of each request in `accept_tokens`.
    """
    last = torch.arange(accept_lens.numel()) * accept_stride + accept_lens.to(torch.int64) - 1
    bonus_tokens.copy_(accept_tokens.flatten()[last])


def fill_accept_out_cache_loc_cpu(accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor) -> None:
    """Gather the slots of the accepted nodes, packed to the front.

    Called by `fill_accept_out_cache_loc_func` in kernels/ops/speculative/eagle.py, when a tree's accepted path moves.

    Args:
        accept_index: int32 [batch, longest path]; rows of accepted nodes, -1 elsewhere.
        out_cache_loc: int64 [batch · n]; the slot of every node.
        accept_out_cache_loc: int64 [batch · longest path], written up to the number of accepted nodes.
    """
    rows = accept_index.flatten()
    rows = rows[rows >= 0].to(torch.int64)
    accept_out_cache_loc[: rows.numel()] = out_cache_loc[rows].to(accept_out_cache_loc.dtype)


def rotate_input_ids_cpu(
    input_ids: Tensor,
    extend_start_loc: Tensor,
    extend_seq_lens: Tensor,
    topk_index: Tensor,
    select_index: Tensor | None = None,
) -> None:
    """Shift each request's tokens one place to the left and put its newest token at the end, in place.

    Called by `rotate_input_ids` in kernels/ops/speculative/multi_layer_eagle.py. A request without tokens is left
    alone.

    Args:
        input_ids: integer [tokens], written.
        extend_start_loc: [batch]; each request's first token.
        extend_seq_lens: [batch]; each request's number of tokens.
        topk_index: [batch] or [batch, 1]; the newest tokens.
        select_index: [batch], where to put the newest token if not at the request's end.
    """
    newest = topk_index.flatten()
    for request, (start, length) in enumerate(zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), strict=True)):
        if length > 0:
            end = start + length
            input_ids[start : end - 1] = input_ids[start + 1 : end].clone()
            input_ids[end - 1 if select_index is None else int(select_index[request])] = newest[request]


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor) -> None:
    """Copy slots within every layer's key and value buffers; all sources are read before a target is written.

    Called by `copy_all_layer_kv_cache_func` in kernels/ops/kvcache/cache_move.py, which hands over addresses, not
    tensors.

    Args:
        data_ptrs: uint64 [buffers]; the address of each buffer's first slot.
        strides: integer [buffers]; bytes from a slot to the next.
        tgt_loc: int64 [slots].
        src_loc: int64 [slots].
    """
    if tgt_loc.numel() == 0:
        return
    slots = int(torch.maximum(tgt_loc.max(), src_loc.max())) + 1
    for address, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        memory = (ctypes.c_uint8 * (slots * stride)).from_address(address)
        rows = torch.frombuffer(memory, dtype=torch.uint8).view(slots, stride)
        rows[tgt_loc] = rows[src_loc]
