"""The building blocks of the reference draft: Llama's as HF Llama computes them, latent attention as DeepSeek's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional


class RMSNorm(nn.Module):
    """Root-mean-square norm: mean and reciprocal root in float32, the weight applied in the input's dtype."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, states: Tensor) -> Tensor:
        """Norm over the last dimension; shape and dtype stay."""
        wide = states.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(states.dtype)


class Rotary(nn.Module):
    """Rotary embedding in the half-split layout of HF Llama. It has no parameters."""

    def __init__(self, head_dim: int, theta: float) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.theta = theta

    def forward(self, heads: Tensor, first_position: int) -> Tensor:
        """Rotate ``heads`` [batch, heads, rows, head_dim], row t by position ``first_position + t``."""
        rows = heads.shape[-2]
        exponents = torch.arange(0, self.head_dim, 2, device=heads.device, dtype=torch.float32) / self.head_dim
        positions = torch.arange(first_position, first_position + rows, device=heads.device, dtype=torch.float32)
        half = positions[:, None] * (1.0 / self.theta**exponents)
        angles = torch.cat([half, half], dim=-1)
        low, high = heads.chunk(2, dim=-1)
        turned = torch.cat([-high, low], dim=-1)
        return heads * angles.cos().to(heads.dtype) + turned * angles.sin().to(heads.dtype)


class YarnRotary(Rotary):
    """Rotary embedding of neighbouring pairs, stretched as YaRN does it where there is a scaling: DeepSeek's."""

    def __init__(self, head_dim: int, theta: float, scaling: Mapping[str, Any] | None) -> None:
        super().__init__(head_dim, theta)
        self.scaling = scaling

    @staticmethod
    def gain(factor: float, weight: float) -> float:
        """What YaRN multiplies attention by for a context ``factor`` times as long; ``weight`` is a config's mscale."""
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1.0 else 1.0

    @property
    def score_gain(self) -> float:
        """Factor of the attention's scale."""
        weight = (self.scaling or {}).get("mscale_all_dim")
        return self.gain(self.scaling["factor"], weight) ** 2 if self.scaling and weight else 1.0

    def forward(self, heads: Tensor, first_position: int) -> Tensor:
        """As :meth:`Rotary.forward`; the parts of a pair stand beside each other in ``heads``, and apart afterwards."""
        rows = heads.shape[-2]
        positions = torch.arange(first_position, first_position + rows, device=heads.device, dtype=torch.float32)
        angles = positions[:, None] * self._frequencies().to(heads.device)
        cos, sin = angles.cos() * self._amplitude(), angles.sin() * self._amplitude()
        even, odd = heads[..., 0::2], heads[..., 1::2]
        return torch.cat([even * cos - odd * sin, odd * cos + even * sin], dim=-1)

    def _frequencies(self) -> Tensor:
        """Below ``low`` frequencies stay, above ``high`` they are divided by the factor, between they are mixed."""
        pairs = torch.arange(0, self.head_dim, 2, dtype=torch.float32)
        plain = 1.0 / self.theta ** (pairs / self.head_dim)
        if self.scaling is None:
            return plain
        length = self.scaling["original_max_position_embeddings"]

        def pair_of(rotations: float) -> float:
            return self.head_dim * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(self.theta))

        low = max(math.floor(pair_of(self.scaling.get("beta_fast", 32))), 0)
        high = min(math.ceil(pair_of(self.scaling.get("beta_slow", 1))), self.head_dim - 1)
        stretched = ((torch.arange(self.head_dim // 2) - low) / max(high - low, 0.001)).clamp(0, 1)
        mixed: Tensor = plain / self.scaling["factor"] * stretched + plain * (1 - stretched)
        return mixed

    def _amplitude(self) -> float:
        if self.scaling is None:
            return 1.0
        factor, all_dim = self.scaling["factor"], self.scaling.get("mscale_all_dim", 0.0)
        return self.gain(factor, self.scaling.get("mscale", 1.0)) / self.gain(factor, all_dim)


def unrolled(query: Tensor, key: Tensor, value: Tensor, scale: float, cache: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Attention over a training-time-test unroll at step ``len(cache)``; this step's keys and values are appended.

    Step 0 is ordinary causal attention. At step s the row that started at t sees the step-0 keys of rows 0..t and its
    own keys of steps 1..s: the same keys that a KV cache holds when the draft decodes from row t. ``query`` and ``key``
    are [batch, heads, rows, width], the result is [batch, rows, heads * value width].
    """
    cache.append((key, value))
    rows = query.shape[-2]
    first_key, first_value = cache[0]
    scores = query @ first_key.transpose(-1, -2)
    later = torch.ones(rows, rows, dtype=torch.bool, device=query.device).triu(1)
    scores = scores.masked_fill(later, float("-inf"))
    own = [(query * own_key).sum(-1, keepdim=True) for own_key, _ in cache[1:]]
    weights = torch.cat([scores, *own], dim=-1) * scale
    weights = functional.softmax(weights, dim=-1, dtype=torch.float32).to(query.dtype)
    mixed = weights[..., :rows] @ first_value
    for index, (_, own_value) in enumerate(cache[1:]):
        mixed = mixed + weights[..., rows + index, None] * own_value
    return mixed.transpose(1, 2).flatten(2)


class UnrolledAttention(nn.Module):
    """Attention of the draft's layer with ordinary heads, unrolled (see :func:`unrolled`)."""

    def __init__(self, *, input_size: int, hidden_size: int, num_heads: int, num_kv_heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.q_proj = nn.Linear(input_size, num_heads * head_dim, bias=False)
        self.k_proj = nn.Linear(input_size, num_kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(input_size, num_kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * head_dim, hidden_size, bias=False)

    def forward(self, states: Tensor, rotary: Rotary, cache: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Attend from ``states`` [batch, rows, input_size] at step ``len(cache)``; append this step's keys and values.

        Returns [batch, rows, hidden_size].
        """
        step = len(cache)
        query = rotary(self._heads(self.q_proj(states), self.num_heads), step)
        key = rotary(self._heads(self.k_proj(states), self.num_kv_heads), step)
        groups = self.num_heads // self.num_kv_heads
        value = self._heads(self.v_proj(states), self.num_kv_heads)
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        projected: Tensor = self.o_proj(unrolled(query, key, value, self.head_dim**-0.5, cache))
        return projected

    def _heads(self, projected: Tensor, heads: int) -> Tensor:
        return projected.view(*projected.shape[:2], heads, self.head_dim).transpose(1, 2)


@attrs.frozen(kw_only=True)
class LatentSizes:
    """Widths of latent attention, by the names of DeepSeek's config."""

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


class UnrolledLatentAttention(nn.Module):
    """DeepSeek's latent attention, unrolled: keys have a part of each head's own and a rotary one that all share."""

    def __init__(self, *, input_size: int, hidden_size: int, num_heads: int, eps: float, sizes: LatentSizes) -> None:
        super().__init__()
        self.num_heads, self.sizes = num_heads, sizes
        keys = num_heads * (sizes.qk_nope_head_dim + sizes.v_head_dim)
        self.q_a_proj = nn.Linear(input_size, sizes.q_lora_rank, bias=False)
        self.q_a_layernorm = RMSNorm(sizes.q_lora_rank, eps)
        queries = num_heads * (sizes.qk_nope_head_dim + sizes.qk_rope_head_dim)
        self.q_b_proj = nn.Linear(sizes.q_lora_rank, queries, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(input_size, sizes.kv_lora_rank + sizes.qk_rope_head_dim, bias=False)
        self.kv_a_layernorm = RMSNorm(sizes.kv_lora_rank, eps)
        self.kv_b_proj = nn.Linear(sizes.kv_lora_rank, keys, bias=False)
        self.o_proj = nn.Linear(num_heads * sizes.v_head_dim, hidden_size, bias=False)

    def forward(self, states: Tensor, rotary: YarnRotary, cache: list[tuple[Tensor, Tensor]]) -> Tensor:
        """As :meth:`UnrolledAttention.forward`."""
        sizes, step = self.sizes, len(cache)
        plain, rotated = sizes.qk_nope_head_dim, sizes.qk_rope_head_dim
        query = self._heads(self.q_b_proj(self.q_a_layernorm(self.q_a_proj(states))))
        query = torch.cat([query[..., :plain], rotary(query[..., plain:], step)], dim=-1)
        latent, shared = self.kv_a_proj_with_mqa(states).split([sizes.kv_lora_rank, rotated], dim=-1)
        both = self._heads(self.kv_b_proj(self.kv_a_layernorm(latent)))
        turned = rotary(shared.unsqueeze(1), step).expand(-1, self.num_heads, -1, -1)
        key = torch.cat([both[..., :plain], turned], dim=-1)
        scale = (plain + rotated) ** -0.5 * rotary.score_gain
        projected: Tensor = self.o_proj(unrolled(query, key, both[..., plain:], scale, cache))
        return projected

    def _heads(self, projected: Tensor) -> Tensor:
        return projected.view(*projected.shape[:2], self.num_heads, -1).transpose(1, 2)


class GatedMLP(nn.Module):
    """SiLU-gated feed-forward block."""

    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """[..., hidden_size] to the same."""
        projected: Tensor = self.down_proj(functional.silu(self.gate_proj(states)) * self.up_proj(states))
        return projected
