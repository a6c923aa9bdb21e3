"""The building blocks of the reference draft: Llama's as HF Llama computes them, latent attention as DeepSeek's."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional

from eagle3_adapters.reference.caches import Cache
from eagle3_adapters.reference.rotary import PairedRotary, Rotary
from eagle3_adapters.values import DraftMath


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


class HeadAttention(nn.Module):
    """Attention of the draft's layer with ordinary heads."""

    def __init__(
        self,
        *,
        input_size: int,
        hidden_size: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        eps: float,
        math: DraftMath,
    ) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.q_proj = nn.Linear(input_size, num_heads * head_dim, bias=math.qkv_bias)
        self.k_proj = nn.Linear(input_size, num_kv_heads * head_dim, bias=math.qkv_bias)
        self.v_proj = nn.Linear(input_size, num_kv_heads * head_dim, bias=math.qkv_bias)
        self.o_proj = nn.Linear(num_heads * head_dim, hidden_size, bias=math.output_bias)
        self.normed = math.qk_norm
        if math.qk_norm:
            self.q_norm, self.k_norm = RMSNorm(head_dim, eps), RMSNorm(head_dim, eps)

    def forward(self, states: Tensor, rotary: Rotary, cache: Cache) -> Tensor:
        """Attend from ``states`` [batch, rows, input_size]; the cache keeps this step's keys and values.

        Returns [batch, rows, hidden_size].
        """
        position = cache.position
        query, key = self._heads(self.q_proj(states), self.num_heads), self._heads(self.k_proj(states))
        if self.normed:
            query, key = self.q_norm(query), self.k_norm(key)
        groups = self.num_heads // self.num_kv_heads
        key = rotary(key, position).repeat_interleave(groups, dim=1)
        value = self._heads(self.v_proj(states)).repeat_interleave(groups, dim=1)
        mixed = cache.attend(rotary(query, position), key, value, self.head_dim**-0.5)
        projected: Tensor = self.o_proj(mixed)
        return projected

    def _heads(self, projected: Tensor, heads: int | None = None) -> Tensor:
        return projected.view(*projected.shape[:2], heads or self.num_kv_heads, self.head_dim).transpose(1, 2)


@attrs.frozen(kw_only=True)
class LatentSizes:
    """Widths of latent attention, by the names of DeepSeek's config."""

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


class LatentAttention(nn.Module):
    """DeepSeek's latent attention: keys have a part of each head's own and a rotary one that all share."""

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

    def forward(self, states: Tensor, rotary: PairedRotary, cache: Cache) -> Tensor:
        """As :meth:`HeadAttention.forward`."""
        sizes, position = self.sizes, cache.position
        plain, rotated = sizes.qk_nope_head_dim, sizes.qk_rope_head_dim
        query = self._heads(self.q_b_proj(self.q_a_layernorm(self.q_a_proj(states))))
        query = torch.cat([query[..., :plain], rotary(query[..., plain:], position)], dim=-1)
        latent, shared = self.kv_a_proj_with_mqa(states).split([sizes.kv_lora_rank, rotated], dim=-1)
        both = self._heads(self.kv_b_proj(self.kv_a_layernorm(latent)))
        turned = rotary(shared.unsqueeze(1), position).expand(-1, self.num_heads, -1, -1)
        key = torch.cat([both[..., :plain], turned], dim=-1)
        scale = (plain + rotated) ** -0.5 * rotary.score_gain
        projected: Tensor = self.o_proj(cache.attend(query, key, both[..., plain:], scale))
        return projected

    def _heads(self, projected: Tensor) -> Tensor:
        return projected.view(*projected.shape[:2], self.num_heads, -1).transpose(1, 2)


class GatedMLP(nn.Module):
    """SiLU-gated feed-forward block."""

    def __init__(self, hidden_size: int, intermediate_size: int, *, bias: bool = False) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=bias)

    def forward(self, states: Tensor) -> Tensor:
        """[..., hidden_size] to the same."""
        projected: Tensor = self.down_proj(functional.silu(self.gate_proj(states)) * self.up_proj(states))
        return projected
