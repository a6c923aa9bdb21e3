"""The keys that a step of the draft sees: of a training-time test, unrolled from every row, or of a server's cache."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Cache(Protocol):
    """What one attention layer has seen so far."""

    @property
    def position(self) -> int:
        """Position of the first row of the next step."""
        ...

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attention of a step; its keys and values are kept.

        ``query`` and ``key`` are [batch, heads, rows, width], the result is [batch, rows, heads * value width].
        """
        ...


class Unrolled:
    """Attention over a training-time-test unroll.

    Step 0 is ordinary causal attention. At step s the row that started at t sees the step-0 keys of rows 0..t and its
    own keys of steps 1..s: the same keys that a KV cache holds when the draft decodes from row t.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[Tensor, Tensor]] = []

    @property
    def position(self) -> int:
        """Row t of step s stands at t + s."""
        return len(self._steps)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """As :meth:`Cache.attend`."""
        self._steps.append((key, value))
        rows = query.shape[-2]
        first_key, first_value = self._steps[0]
        scores = query @ first_key.transpose(-1, -2)
        later = torch.ones(rows, rows, dtype=torch.bool, device=query.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
        own = [(query * own_key).sum(-1, keepdim=True) for own_key, _ in self._steps[1:]]
        weights = _weights(torch.cat([scores, *own], dim=-1), scale)
        mixed = weights[..., :rows] @ first_value
        for index, (_, own_value) in enumerate(self._steps[1:]):
            mixed = mixed + weights[..., rows + index, None] * own_value
        return mixed.transpose(1, 2).flatten(2)


class KeyValues:
    """Attention over a server's cache: every row sees all that came before it."""

    def __init__(self, keys: Tensor | None = None, values: Tensor | None = None) -> None:
        self._keys, self._values = keys, values

    @property
    def position(self) -> int:
        """As many rows as are kept."""
        return 0 if self._keys is None else self._keys.shape[-2]

    def fork(self) -> KeyValues:
        """One that goes on from here and leaves this one as it is."""
        return KeyValues(self._keys, self._values)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """As :meth:`Cache.attend`."""
        before, rows = self.position, query.shape[-2]
        self._keys = key if self._keys is None else torch.cat([self._keys, key], dim=-2)
        self._values = value if self._values is None else torch.cat([self._values, value], dim=-2)
        later = torch.ones(rows, before + rows, dtype=torch.bool, device=query.device).triu(before + 1)
        scores = (query @ self._keys.transpose(-1, -2)).masked_fill(later, float("-inf"))
        return (_weights(scores, scale) @ self._values).transpose(1, 2).flatten(2)


def _weights(scores: Tensor, scale: float) -> Tensor:
    return functional.softmax(scores * scale, dim=-1, dtype=torch.float32).to(scores.dtype)
