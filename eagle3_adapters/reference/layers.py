"""The Llama building blocks of the reference draft, computed as HF Llama computes them."""

from __future__ import annotations

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


class UnrolledAttention(nn.Module):
    """Attention of the draft's layer over a training-time-test unroll.

    Step 0 is ordinary causal attention. At step s the row that started at t sees the step-0 keys of rows 0..t and its
    own keys of steps 1..s: the same keys that a KV cache holds when the draft decodes from row t.
    """

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
        cache.append((key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)))

        rows = states.shape[1]
        first_key, first_value = cache[0]
        scores = query @ first_key.transpose(-1, -2)
        later = torch.ones(rows, rows, dtype=torch.bool, device=states.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
        own = [(query * own_key).sum(-1, keepdim=True) for own_key, _ in cache[1:]]
        weights = torch.cat([scores, *own], dim=-1) * self.head_dim**-0.5
        weights = functional.softmax(weights, dim=-1, dtype=torch.float32).to(query.dtype)

        mixed = weights[..., :rows] @ first_value
        for index, (_, own_value) in enumerate(cache[1:]):
            mixed = mixed + weights[..., rows + index, None] * own_value
        merged = mixed.transpose(1, 2).flatten(2)
        projected: Tensor = self.o_proj(merged)
        return projected

    def _heads(self, projected: Tensor, heads: int) -> Tensor:
        return projected.view(*projected.shape[:2], heads, self.head_dim).transpose(1, 2)


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
