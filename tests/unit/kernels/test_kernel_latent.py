"""Both attention operators as DeepSeek's layers call them: the pool holds one latent and one rotary key a token.

Compared with latent attention as it is defined, every head's keys and values spelt out from the latents. SGLang absorbs
the up-projections into queries and outputs instead, and hands the kernels values that are a view of the keys.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import torch
from torch import Tensor

HEADS, LATENT, ROTARY, PLAIN, VALUE = 3, 6, 4, 5, 7
SLOTS, SCALE = 40, 0.31


@attrs.frozen
class Request:
    """One request: its tokens' slots, of which the last ``new`` are being worked off."""

    slots: Tensor
    new: int


class Layer:
    """The up-projections of one layer, a pool, and two requests in it."""

    def __init__(self, lengths: list[tuple[int, int]]) -> None:
        self.generator = torch.Generator().manual_seed(4)
        self.up_keys = self.random(HEADS, PLAIN, LATENT)
        self.up_values = self.random(HEADS, VALUE, LATENT)
        self.pool = self.random(SLOTS, 1, LATENT + ROTARY)
        order = torch.randperm(SLOTS, generator=self.generator)
        self.table = torch.zeros(len(lengths), 16, dtype=torch.int32)
        self.requests = []
        for row, (prefix, new) in enumerate(lengths):
            slots, order = order[: prefix + new], order[prefix + new :]
            self.table[row, : len(slots)] = slots.int()
            self.requests.append(Request(slots, new))
        # What no request owns must not be read.
        self.pool[order] = torch.nan
        tokens = sum(request.new for request in self.requests)
        self.plain, self.rotary = self.random(tokens, HEADS, PLAIN), self.random(tokens, HEADS, ROTARY)

    def random(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    @property
    def absorbed(self) -> Tensor:
        """Queries that score latents: [tokens, HEADS, LATENT + ROTARY]."""
        return torch.cat([torch.einsum("thp,hpl->thl", self.plain, self.up_keys), self.rotary], dim=-1)

    @property
    def fresh(self) -> Tensor:
        """The new tokens' latents and rotary keys, [tokens, 1, LATENT + ROTARY]."""
        return torch.cat([self.pool[request.slots[len(request.slots) - request.new :]] for request in self.requests])

    def expected(self) -> Tensor:
        """Latent attention by its definition, token by token: [tokens, HEADS, VALUE]."""
        outputs, query = [], 0
        for request in self.requests:
            latents = self.pool[request.slots, 0, :LATENT]
            rotary = self.pool[request.slots, 0, LATENT:]
            keys = torch.einsum("nl,hpl->nhp", latents, self.up_keys)
            values = torch.einsum("nl,hvl->nhv", latents, self.up_values)
            for place in range(len(request.slots) - request.new, len(request.slots)):
                scores = torch.einsum("hp,nhp->hn", self.plain[query], keys[: place + 1])
                scores = scores + torch.einsum("hr,nr->hn", self.rotary[query], rotary[: place + 1])
                outputs.append(torch.einsum("hn,nhv->hv", (scores * SCALE).softmax(-1), values[: place + 1]))
                query += 1
        return torch.stack(outputs)

    def raised(self, latents: Tensor) -> Tensor:
        """Outputs over latents, led to each head's values as the layer does after the kernel."""
        return torch.einsum("thl,hvl->thv", latents, self.up_values)


def extend(layer: Layer) -> Tensor:
    """A prompt's later piece, or a chain of drafted tokens that is verified."""
    new = [request.new for request in layer.requests]
    out = torch.full((sum(new), HEADS, LATENT), torch.nan)
    fresh = layer.fresh
    torch.ops.sgl_kernel.extend_attention_cpu(
        layer.absorbed,
        fresh,
        fresh[..., :LATENT],
        out,
        layer.pool,
        layer.pool[..., :LATENT],
        1.0,
        1.0,
        layer.table,
        torch.arange(len(new)),
        torch.tensor([len(request.slots) for request in layer.requests]),
        torch.tensor(new, dtype=torch.int32),
        torch.tensor([sum(new[:i]) for i in range(len(new))], dtype=torch.int32),
        max(new),
        SCALE,
        0.0,
        False,  # noqa: FBT003 - SGLang passes them by position
        0,
        None,
        None,
        None,
        True,  # noqa: FBT003 - as above
    )
    return layer.raised(out)


def decode(layer: Layer) -> Tensor:
    """One new token a request, which the kernel itself puts into the pool."""
    last = torch.tensor([int(request.slots[-1]) for request in layer.requests])
    out, fresh = torch.full((len(last), HEADS, LATENT), torch.nan), layer.fresh.clone()
    layer.pool[last] = torch.nan
    torch.ops.sgl_kernel.decode_attention_cpu(
        layer.absorbed,
        layer.pool,
        layer.pool[..., :LATENT],
        1.0,
        1.0,
        out,
        fresh,
        fresh[..., :LATENT],
        last,
        torch.empty(0),
        layer.table,
        torch.arange(len(last)),
        torch.tensor([len(request.slots) for request in layer.requests]),
        SCALE,
        0.0,
        False,  # noqa: FBT003 - as above
        0,
        None,
        None,
    )
    return layer.raised(out)


@pytest.mark.parametrize(
    ("run", "lengths"),
    [
        (extend, [(7, 4), (0, 5)]),
        (extend, [(9, 4), (3, 4)]),
        (decode, [(6, 1), (11, 1)]),
        (decode, [(0, 1), (4, 1)]),
    ],
    ids=["pieces of prompts", "chains", "decoding", "from the first token"],
)
def test_attention_over_latents_is_latent_attention(
    run: Callable[[Layer], Tensor], lengths: list[tuple[int, int]]
) -> None:
    layer = Layer(lengths)
    expected = layer.expected()
    torch.testing.assert_close(run(layer), expected)
    assert not expected.isnan().any()
