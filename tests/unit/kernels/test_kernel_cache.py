"""Slot bookkeeping against loops over requests and tokens."""

# ruff: noqa: FBT001, S311 - flags are parametrised, and seeded random numbers are the point
from __future__ import annotations

import random

import pytest
import torch
from sgl_kernel import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)

REQUESTS, POOL = 6, 40
SEEDS = range(8)


def table(rng: random.Random) -> torch.Tensor:
    """A slot table whose entries are all different, so that no wrong cell looks right."""
    return torch.tensor(rng.sample(range(1000), REQUESTS * POOL), dtype=torch.int32).view(REQUESTS, POOL)


def integers(rng: random.Random, values: list[int]) -> torch.Tensor:
    """SGLang passes int32 in some places and int64 in others."""
    return torch.tensor(values, dtype=rng.choice([torch.int32, torch.int64]))


def ranges(rng: random.Random) -> tuple[list[int], list[int], list[int]]:
    """Rows of the table in any order, and a range of columns for each, some of them empty."""
    rows = rng.sample(range(REQUESTS), 4)
    starts = [rng.randrange(POOL - 10) for _ in rows]
    return rows, starts, [start + rng.randrange(8) for start in starts]


@pytest.mark.parametrize("seed", SEEDS)
def test_new_slots_go_into_each_requests_columns(seed: int) -> None:
    rng = random.Random(seed)
    pool, (rows, starts, ends) = table(rng), ranges(rng)
    slots = torch.arange(5000, 5000 + sum(ends) - sum(starts) + 3)
    expected, taken = pool.clone(), 0
    for row, start, end in zip(rows, starts, ends, strict=True):
        for column in range(start, end):
            expected[row, column] = slots[taken]
            taken += 1
    assign_req_to_token_pool_cpu(integers(rng, rows), pool, integers(rng, starts), integers(rng, ends), slots, POOL)
    assert torch.equal(pool, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_slots_are_read_back_packed(seed: int) -> None:
    rng = random.Random(seed)
    pool, (rows, starts, ends) = table(rng), ranges(rng)
    out = torch.full((sum(ends) - sum(starts) + 3,), -9)
    expected = [int(pool[r, c]) for r, s, e in zip(rows, starts, ends, strict=True) for c in range(s, e)]
    assign_extend_cache_locs_cpu(integers(rng, rows), pool, integers(rng, starts), integers(rng, ends), out, POOL)
    assert out.tolist() == [*expected, -9, -9, -9]


@pytest.mark.parametrize(("topk", "steps"), [(1, 1), (1, 3), (2, 3), (4, 2), (3, 4)])
def test_draft_slots_follow_the_committed_tokens_branch_after_branch(topk: int, steps: int) -> None:
    rng = random.Random(topk * 10 + steps)
    pool, rows = table(rng), rng.sample(range(REQUESTS), 3)
    lengths = [rng.randrange(POOL - topk * steps) for _ in rows]
    out = torch.full((len(rows) * topk * steps,), -9)
    assign_draft_cache_locs_contiguous_cpu(integers(rng, rows), pool, integers(rng, lengths), out, POOL, topk, steps)
    assert out.tolist() == [
        int(pool[r, n + i]) for r, n in zip(rows, lengths, strict=True) for i in range(topk * steps)
    ]


@pytest.mark.parametrize(("topk", "steps"), [(1, 1), (1, 3), (2, 3), (4, 2), (3, 4)])
def test_each_branch_sees_the_committed_tokens_and_its_own_slots(topk: int, steps: int) -> None:
    rng = random.Random(topk * 10 + steps)
    pool, rows = table(rng), rng.sample(range(REQUESTS), 3)
    before = pool.clone()
    lengths = [0, *(rng.randrange(POOL - topk * steps) for _ in rows[1:])]
    got = build_draft_decode_metadata_cpu(pool, integers(rng, rows), integers(rng, lengths), topk, steps, POOL)
    assert (got.shape, got.dtype) == ((len(rows) * topk, POOL), pool.dtype)
    assert got.is_contiguous()
    for i, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        for branch in range(topk):
            own = [int(pool[row, length + branch * steps + step]) for step in range(steps)]
            assert got[i * topk + branch, : length + steps].tolist() == [*pool[row, :length].tolist(), *own]
    assert torch.equal(pool, before)


@pytest.mark.parametrize("flat", [True, False])
def test_the_bonus_token_is_the_last_accepted_one(flat: bool) -> None:
    accepted = torch.arange(12, dtype=torch.int32).view(3, 4) * 7
    bonus = torch.empty(3, dtype=torch.int32)
    fill_bonus_tokens_cpu(
        accepted.flatten() if flat else accepted, torch.tensor([1, 4, 2], dtype=torch.int32), bonus, 4
    )
    assert bonus.tolist() == [0, 7 * 7, 9 * 7]


def test_slots_of_accepted_nodes_move_to_the_front_in_order() -> None:
    accepted = torch.tensor([[0, 3, -1], [4, -1, -1], [8, 9, 11]], dtype=torch.int32)
    out = torch.full((9,), -9)
    fill_accept_out_cache_loc_cpu(accepted, torch.arange(100, 112), out)
    assert out.tolist() == [100, 103, 104, 108, 109, 111, -9, -9, -9]


@pytest.mark.parametrize("selected", [False, True])
def test_tokens_rotate_within_their_request(selected: bool) -> None:
    ids = torch.tensor([10, 11, 12, 20, 30, 31, 99])
    starts, lengths = torch.tensor([0, 3, 4, 4]), torch.tensor([3, 1, 0, 2])
    newest = torch.tensor([[1], [2], [3], [4]])
    places = torch.tensor([1, 3, 0, 4]) if selected else None
    rotate_input_ids_cpu(ids, starts, lengths, newest, places)
    assert ids.tolist() == ([11, 1, 12, 2, 4, 31, 99] if selected else [11, 12, 1, 2, 31, 4, 99])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slots_are_copied_in_every_buffer_as_if_all_were_read_first(dtype: torch.dtype) -> None:
    """An accepted path moves to the front of its own window, so sources and targets overlap."""
    torch.manual_seed(0)
    buffers = [torch.randn(10, 2, 3).to(dtype), torch.randn(10, 4).to(dtype)]
    source, target = torch.tensor([2, 3, 5, 0]), torch.tensor([1, 2, 3, 0])
    expected = [buffer.clone() for buffer in buffers]
    for buffer, copy in zip(buffers, expected, strict=True):
        for s, t in zip(source.tolist(), target.tolist(), strict=True):
            copy[t] = buffer[s]
    addresses = torch.tensor([buffer.data_ptr() for buffer in buffers], dtype=torch.uint64)
    strides = torch.tensor([buffer[0].numel() * buffer.element_size() for buffer in buffers])
    copy_all_layer_kv_cache_cpu(addresses, strides, target, source)
    assert all(torch.equal(a, b) for a, b in zip(buffers, expected, strict=True))
