"""Both attention operators against PyTorch's scaled_dot_product_attention, one request and one head group at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

SLOTS, ROWS, COLUMNS = 97, 9, 24
SCALE = 0.37


@dataclass(kw_only=True)
class Batch:
    """A pool in which every slot that no request owns holds NaN, so that reading one shows."""

    prefixes: list[int]
    news: list[int]
    heads: int = 4
    kv_heads: int = 2
    width: int = 8
    value_width: int = 8
    dtype: torch.dtype = torch.float32
    window: int = 0
    cap: float = 0.0
    sinks: Tensor | None = None
    tree: Tensor | None = None
    causal: bool = True

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(sum(self.prefixes) * 31 + sum(self.news))

        def random(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).to(self.dtype)

        batch, tokens = len(self.news), sum(self.news)
        self.totals = [p + n for p, n in zip(self.prefixes, self.news, strict=True)]
        self.rows = torch.randperm(ROWS, generator=generator)[:batch]
        self.table = torch.randint(SLOTS, (ROWS, COLUMNS), generator=generator, dtype=torch.int32)
        free = torch.randperm(SLOTS, generator=generator)
        for row, total in zip(self.rows.tolist(), self.totals, strict=True):
            self.table[row, :total], free = free[:total].int(), free[total:]
        self.unowned = free
        self.q = random(tokens, self.heads, self.width)
        self.k, self.v = random(tokens, self.kv_heads, self.width), random(tokens, self.kv_heads, self.value_width)
        self.keys, self.values = (
            random(SLOTS, self.kv_heads, self.width),
            random(SLOTS, self.kv_heads, self.value_width),
        )
        self.keys[free] = self.values[free] = torch.nan
        self.starts = [sum(self.news[:i]) for i in range(batch)]

    def new_slots(self, i: int) -> Tensor:
        return self.table[self.rows[i], self.prefixes[i] : self.totals[i]].long()

    def expected(self, *, from_pool: bool = False) -> Tensor:
        """Attention by PyTorch; capped scores and sinks, which it lacks, by the formula."""
        outputs = []
        for i, (prefix, n) in enumerate(zip(self.prefixes, self.news, strict=True)):
            mine, old = slice(self.starts[i], self.starts[i] + n), self.table[self.rows[i], :prefix].long()
            fresh_k, fresh_v = self.k[mine], self.v[mine]
            if from_pool:
                fresh_k, fresh_v = self.keys[self.new_slots(i)], self.values[self.new_slots(i)]
            group = self.heads // self.kv_heads
            k = torch.cat((self.keys[old], fresh_k)).float().repeat_interleave(group, 1).transpose(0, 1)
            v = torch.cat((self.values[old], fresh_v)).float().repeat_interleave(group, 1).transpose(0, 1)
            q, mask = self.q[mine].float().transpose(0, 1), self.visible(i)
            if self.cap or self.sinks is not None:
                scores = q @ k.transpose(1, 2) * SCALE
                scores = self.cap * torch.tanh(scores / self.cap) if self.cap else scores
                weights = torch.where(mask, scores, -torch.inf).exp()
                share = 0.0 if self.sinks is None else self.sinks.view(-1, 1, 1).exp()
                outputs.append(((weights / (weights.sum(-1, keepdim=True) + share)) @ v).transpose(0, 1))
            else:
                outputs.append(scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=SCALE).transpose(0, 1))
        return torch.cat(outputs)

    def visible(self, i: int) -> Tensor:
        prefix, n = self.prefixes[i], self.news[i]
        mask = torch.zeros(n, prefix + n, dtype=torch.bool)
        depth = list(range(n)) if self.tree is None else [int(row.sum()) - 1 for row in self.tree[i]]
        for a in range(n):
            for b in range(prefix + n):
                position = b if b < prefix else prefix + depth[b - prefix]
                seen = b < prefix or not self.causal
                seen = seen or (b - prefix <= a if self.tree is None else bool(self.tree[i, a, b - prefix]))
                mask[a, b] = seen and (not self.window or prefix + depth[a] - position < self.window)
        return mask

    def extend_arguments(self, out: Tensor) -> dict[str, Any]:
        return {
            "q_extend": self.q,
            "k_extend": self.k,
            "v_extend": self.v,
            "o_extend": out,
            "k_buffer": self.keys,
            "v_buffer": self.values,
            "k_scale": 1.0,
            "v_scale": 1.0,
            "req_to_token": self.table,
            "req_pool_indices": self.rows,
            "seq_lens": torch.tensor(self.totals),
            "extend_seq_lens": torch.tensor(self.news, dtype=torch.int32),
            "extend_start_loc": torch.tensor(self.starts, dtype=torch.int32),
            "max_len_extend": max(self.news),
            "sm_scale": SCALE,
            "logit_cap": self.cap,
            "is_cross_attn": False,
            "sliding_window_size": self.window,
            "encoder_lens": None,
            "sinks": self.sinks,
            "tree_mask": None if self.tree is None else self.tree.flatten(),
            "is_causal": self.causal,
        }

    def extend(self, **changed: object) -> Tensor:
        out = torch.full((len(self.q), self.heads, self.value_width), torch.nan, dtype=self.dtype)
        arguments = self.extend_arguments(out)
        torch.ops.sgl_kernel.extend_attention_cpu(*(arguments | changed).values())
        return out

    def decode_arguments(self, out: Tensor) -> dict[str, Any]:
        return {
            "query": self.q,
            "k_buffer": self.keys,
            "v_buffer": self.values,
            "k_scale": 1.0,
            "v_scale": 1.0,
            "output": out,
            "key": self.k,
            "value": self.v,
            "loc": torch.cat([self.new_slots(i) for i in range(len(self.news))]),
            "attn_logits": torch.zeros(1),
            "req_to_token": self.table,
            "req_pool_indices": self.rows,
            "seq_lens": torch.tensor(self.totals),
            "sm_scale": SCALE,
            "logit_cap": self.cap,
            "is_cross_attn": False,
            "sliding_window_size": self.window,
            "encoder_lens": None,
            "sinks": self.sinks,
        }

    def decode(self, **changed: object) -> Tensor:
        out = torch.full((len(self.q), self.heads, self.value_width), torch.nan, dtype=self.dtype)
        arguments = self.decode_arguments(out)
        torch.ops.sgl_kernel.decode_attention_cpu(*(arguments | changed).values())
        return out


def chains(batch: int, n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril().repeat(batch, 1, 1)


TREES = torch.tensor(
    [  # nodes 1 and 2 hang under 0; then 3 under 1 and 4 under 2, or 3 under 2 and 4 under 3
        [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 1, 0, 1]],
        [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 0, 1, 1, 0], [1, 0, 1, 1, 1]],
    ],
    dtype=torch.bool,
)

EXTENDS = {
    "prefill": Batch(prefixes=[0, 0, 0], news=[5, 1, 9]),
    "prefix": Batch(prefixes=[4, 0, 11], news=[3, 6, 1]),
    "empty": Batch(prefixes=[4, 3], news=[0, 2]),
    "single head": Batch(prefixes=[2, 7], news=[3, 2], heads=3, kv_heads=3),
    "one group": Batch(prefixes=[2, 7], news=[3, 2], heads=6, kv_heads=1),
    "narrow values": Batch(prefixes=[2, 7], news=[3, 2], value_width=5),
    "window": Batch(prefixes=[9, 0], news=[4, 7], window=3),
    "cap": Batch(prefixes=[9, 0], news=[4, 7], cap=0.5),
    "sinks": Batch(prefixes=[9, 0], news=[4, 7], sinks=torch.tensor([0.3, -1.0, 2.0, 0.0])),
    "not causal": Batch(prefixes=[3, 0], news=[4, 7], causal=False),
    "chain": Batch(prefixes=[3, 0], news=[5, 5], tree=chains(2, 5)),
    "tree": Batch(prefixes=[3, 8], news=[5, 5], tree=TREES),
    "tree in window": Batch(prefixes=[3, 8], news=[5, 5], tree=TREES, window=2),
}


@pytest.mark.parametrize("batch", EXTENDS.values(), ids=EXTENDS)
def test_extend_matches_torch(batch: Batch) -> None:
    torch.testing.assert_close(batch.extend(), batch.expected())


@pytest.mark.parametrize("batch", EXTENDS.values(), ids=EXTENDS)
def test_extend_in_several_passes_is_the_same(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = batch.extend()
    monkeypatch.setattr("sgl_kernel.attention._CELLS", 1)
    torch.testing.assert_close(batch.extend(), whole)


def older(arguments: dict[str, Any], *left_out: str) -> list[Any]:
    """The arguments of a call by older versions of SGLang."""
    return [value for name, value in arguments.items() if name not in ("k_scale", "v_scale", *left_out)]


@pytest.mark.parametrize("left_out", [(), ("is_causal",)], ids=["0.5.19", "0.5.17"])
@pytest.mark.parametrize("name", ["prefix", "window", "chain"])
def test_extend_called_as_by_older_versions_is_the_same(name: str, left_out: tuple[str, ...]) -> None:
    batch, out = EXTENDS[name], torch.full_like(EXTENDS[name].q, torch.nan)
    torch.ops.sgl_kernel.extend_attention_cpu(*older(batch.extend_arguments(out), *left_out))
    assert torch.equal(out, batch.extend())


def test_extend_called_as_by_0_5_19_is_told_what_is_not_causal() -> None:
    batch, out = EXTENDS["not causal"], torch.full_like(EXTENDS["not causal"].q, torch.nan)
    torch.ops.sgl_kernel.extend_attention_cpu(*older(batch.extend_arguments(out)))
    assert torch.equal(out, batch.extend())


@pytest.mark.parametrize("name", ["prefix", "window", "chain", "tree", "one group"])
@pytest.mark.parametrize("within", [True, False], ids=["whole", "without the new tokens"])
def test_extend_called_as_by_0_5_18_finds_out_what_its_lengths_leave_out(name: str, within: bool) -> None:  # noqa: FBT001 - a parameter
    """Its pool holds the new keys; a verification's lengths are those before."""
    batch, out = replace(EXTENDS[name]), torch.full_like(EXTENDS[name].q, torch.nan)
    for i, start in enumerate(batch.starts):
        batch.keys[batch.new_slots(i)] = batch.k[start : start + batch.news[i]]
    lengths = torch.tensor(batch.totals if within else batch.prefixes)
    arguments = batch.extend_arguments(out) | {"seq_lens": lengths}
    torch.ops.sgl_kernel.extend_attention_cpu(*older(arguments, "is_causal"))
    assert torch.equal(out, EXTENDS[name].extend())


def test_a_chain_mask_equals_no_mask() -> None:
    with_mask = EXTENDS["chain"]
    torch.testing.assert_close(with_mask.extend(), replace(with_mask, tree=None).extend())


def test_extend_takes_new_tokens_from_its_arguments() -> None:
    """An MLA pool holds latents of another shape, which a prefill without prefix must not touch."""
    batch = Batch(prefixes=[0, 0], news=[4, 2])
    latent = torch.full((SLOTS, 1, 3), torch.nan)
    torch.testing.assert_close(batch.extend(k_buffer=latent, v_buffer=latent), batch.expected())


def test_extend_of_a_layer_that_shares_a_cache_reads_the_pool() -> None:
    batch = Batch(prefixes=[4, 0], news=[3, 6])
    torch.testing.assert_close(batch.extend(k_extend=None, v_extend=None), batch.expected(from_pool=True))


def test_extend_rounds_bfloat16_once() -> None:
    batch = Batch(prefixes=[4, 0], news=[3, 6], dtype=torch.bfloat16)
    torch.testing.assert_close(batch.extend(), batch.expected().to(torch.bfloat16), rtol=0, atol=2**-8)


DECODES = {
    "plain": Batch(prefixes=[4, 0, 11], news=[1, 1, 1]),
    "one group": Batch(prefixes=[4, 0, 11], news=[1, 1, 1], heads=6, kv_heads=1),
    "narrow values": Batch(prefixes=[4, 11], news=[1, 1], value_width=3),
    "window": Batch(prefixes=[9, 1], news=[1, 1], window=3),
    "cap": Batch(prefixes=[9, 1], news=[1, 1], cap=0.5),
    "sinks": Batch(prefixes=[9, 1], news=[1, 1], sinks=torch.tensor([0.3, -1.0, 2.0, 0.0])),
}


@pytest.mark.parametrize("batch", DECODES.values(), ids=DECODES)
def test_decode_matches_torch(batch: Batch) -> None:
    torch.testing.assert_close(batch.decode(), batch.expected())


def test_decode_called_as_by_older_versions_is_the_same() -> None:
    batch, other = replace(DECODES["window"]), replace(DECODES["window"])
    out = torch.full_like(batch.q, torch.nan)
    torch.ops.sgl_kernel.decode_attention_cpu(*older(batch.decode_arguments(out)))
    assert torch.equal(out, other.decode())
    assert torch.equal(batch.keys.nan_to_num(7.0), other.keys.nan_to_num(7.0))


def test_decode_writes_its_token_into_the_pool_and_nothing_else() -> None:
    batch = replace(DECODES["plain"])
    keys, values = batch.keys.clone(), batch.values.clone()
    slots = torch.cat([batch.new_slots(i) for i in range(3)])
    keys[slots], values[slots] = batch.k, batch.v
    batch.decode()
    assert torch.equal(batch.keys.nan_to_num(7.0), keys.nan_to_num(7.0))
    assert torch.equal(batch.values.nan_to_num(7.0), values.nan_to_num(7.0))


def test_decode_without_key_and_value_reads_the_pool() -> None:
    batch = replace(DECODES["plain"])
    torch.testing.assert_close(batch.decode(key=None, value=None), batch.expected(from_pool=True))


@pytest.mark.parametrize(
    "argument",
    [{"k_scale": 0.5}, {"v_scale": 2.0}, {"is_cross_attn": True}, {"encoder_lens": torch.tensor([1, 1, 1])}],
    ids=lambda argument: next(iter(argument)),
)
def test_an_argument_that_is_not_served_is_named(argument: dict[str, Any]) -> None:
    (name,) = argument
    with pytest.raises(NotImplementedError, match=f"extend_attention_cpu: {name}"):
        EXTENDS["prefix"].extend(**argument)
    with pytest.raises(NotImplementedError, match=f"decode_attention_cpu: {name}"):
        replace(DECODES["plain"]).decode(**argument)


def test_a_mask_of_another_layout_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="tree_mask of 6 cells"):
        EXTENDS["tree"].extend(tree_mask=torch.ones(6, dtype=torch.bool))
    with pytest.raises(NotImplementedError, match="tree_mask"):
        EXTENDS["not causal"].extend(tree_mask=TREES.flatten())
