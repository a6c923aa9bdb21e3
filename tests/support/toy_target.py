"""A target in a few lines of PyTorch: SGLang's loop, its two halves of the stream, its in-place norm, its packer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

WIDTH, TOKENS = 3, 4


class Layer(nn.Module):
    """Adds one to the stream, in SGLang's two halves."""

    def forward(
        self, positions: Any, hidden_states: torch.Tensor, forward_batch: Any, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        residual = hidden_states if residual is None else hidden_states + residual
        return torch.ones_like(residual), residual


class Norm(nn.Module):
    """Sums up in place, as the fused kernel does."""

    def forward(self, hidden: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        residual += hidden
        return torch.full_like(hidden, 99.0), residual


class Body(nn.Module):
    """The loop of SGLang's classes: a list of states, or one packed tensor whose count is checked.

    ``embedding`` False: as the Llama classes before 0.5.22, which add the residual that layer 0 has not got.
    """

    def __init__(self, num_layers: int, *, packed: bool, embedding: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(num_layers))
        self.norm = Norm()
        self.layers_to_capture: list[int] = []
        self.packed = packed
        self.embedding = embedding

    def forward(self, input_ids: torch.Tensor, positions: Any, forward_batch: Any, input_embeds: Any = None) -> Any:
        hidden = torch.zeros(len(input_ids), WIDTH)
        residual: torch.Tensor | None = None
        states = []
        for position, layer in enumerate(self.layers):
            if position in self.layers_to_capture:
                if residual is None and not self.embedding:
                    raise TypeError("unsupported operand: hidden_states + None")
                states.append(hidden.clone() if residual is None else hidden + residual)
            hidden, residual = layer(positions, hidden, forward_batch, residual)
        if not forward_batch.forward_mode.is_idle():
            hidden, _ = self.norm(hidden, residual)
        if not states:
            return hidden
        if not self.packed:
            return hidden, states
        assert len(states) == len(self.layers_to_capture), "the packer counts"
        return hidden, torch.cat(states, dim=-1)


class Processor(nn.Module):
    """SGLang's signature, as far as it matters."""

    def forward(self, hidden_states: torch.Tensor, aux_hidden_states: Any = None) -> torch.Tensor:
        return hidden_states


class Target(nn.Module):
    """A target whose boundary k is k everywhere."""

    def __init__(self, num_layers: int = 5, *, packed: bool = False, embedding: bool = True) -> None:
        super().__init__()
        self.model = Body(num_layers, packed=packed, embedding=embedding)
        self.capture_aux_hidden_states = False
        self.logits_processor = Processor()
        self.error = 0.0

    def forward(self, tokens: int = TOKENS) -> None:
        batch = SimpleNamespace(forward_mode=SimpleNamespace(is_idle=lambda: False))
        hidden, states = self.model(torch.zeros(tokens), None, batch)
        self.logits_processor(hidden, [state + self.error for state in states])

    def states(self, tokens: int = TOKENS, *, idle: bool = False) -> list[int]:
        """What boundary each captured chunk is: layer k adds one, so the stream before it is k."""
        batch = SimpleNamespace(forward_mode=SimpleNamespace(is_idle=lambda: idle))
        hidden, states = self.model(torch.zeros(tokens), None, batch)
        assert hidden.shape == (tokens, WIDTH)
        chunks = torch.split(states, WIDTH, dim=-1) if isinstance(states, torch.Tensor) else states
        assert all(chunk.shape == (tokens, WIDTH) for chunk in chunks)
        return [int(chunk.unique().item()) if tokens else -1 for chunk in chunks]
