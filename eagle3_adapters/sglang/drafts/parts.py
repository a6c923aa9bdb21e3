"""Owns the parts of our draft classes: what they compute that SGLang's do not. Importing this imports torch.

Each is mixed into the class of SGLang's that it stands for, and differs from it by the draft's math alone.

Biases and norms are SGLang's own layers, so that they are split over ranks as SGLang splits them. Nothing is kept
between forwards: what a CUDA graph records is all that runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from eagle3_adapters.sglang.drafts import stock
from eagle3_adapters.values import DraftMath

if TYPE_CHECKING:

    class Stock:
        """The class of SGLang's that a part is mixed into: it ships no types."""

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            """SGLang's."""

        def set_embed(self, *args: Any) -> None:
            """SGLang's."""

        def set_embed_and_head(self, *args: Any) -> None:
            """SGLang's."""

else:
    Stock = object


class NormedAttention(Stock):
    """Queries and keys are normed, each head by itself, before they turn."""

    def __init__(self, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        norm = stock.layer_type("RMSNorm")
        self.q_norm = norm(self.head_dim, eps=config.rms_norm_eps)
        self.k_norm = norm(self.head_dim, eps=config.rms_norm_eps)

    def forward_prepare_native(self, positions: Any, hidden_states: Any) -> tuple[Any, Any, Any]:
        """Queries, keys and values of every row."""
        joined, _ = self.qkv_proj(hidden_states)
        query, key, value = joined.split([self.q_size, self.kv_size, self.kv_size], dim=-1)
        query, key = self._normed(self.q_norm, query), self._normed(self.k_norm, key)
        query, key = self.rotary_emb(positions, query, key)
        return query, key, value

    def _normed(self, norm: Any, rows: Any) -> Any:
        return norm(rows.reshape(-1, self.head_dim)).view(rows.shape)


class BiasedMLP(nn.Module):
    """The gated MLP with a bias in each of its projections."""

    def __init__(self, hidden_size: int, intermediate_size: int, quant_config: Any, prefix: str) -> None:
        super().__init__()
        self.gate_up_proj = stock.layer_type("MergedColumnParallelLinear")(
            hidden_size,
            [intermediate_size] * 2,
            bias=True,
            quant_config=quant_config,
            prefix=f"{prefix}.gate_up_proj",
        )
        self.down_proj = stock.layer_type("RowParallelLinear")(
            intermediate_size, hidden_size, bias=True, quant_config=quant_config, prefix=f"{prefix}.down_proj"
        )
        self.act_fn = stock.layer_type("SiluAndMul")()

    def forward(self, states: Any) -> Any:
        """[rows, hidden_size] to the same."""
        inner, _ = self.gate_up_proj(states)
        outer, _ = self.down_proj(self.act_fn(inner))
        return outer


class Layer(Stock):
    """A decoder layer: its MLP, and what the first one makes of the state."""

    math: ClassVar[DraftMath]

    def __init__(self, config: Any, layer_id: int = 0, quant_config: Any = None, prefix: str = "") -> None:
        super().__init__(config, layer_id, quant_config=quant_config, prefix=prefix)
        if self.math.mlp_bias:
            self.mlp = BiasedMLP(config.hidden_size, config.intermediate_size, quant_config, f"{prefix}.mlp")

    def read(self, embeds: Any, hidden_states: Any) -> tuple[Any, Any]:
        """What the first layer's attention reads, and the residual: [rows, 2 * hidden] and [rows, hidden]."""
        inner = self.input_layernorm(hidden_states) if self.math.double_norm else hidden_states
        normed = self.hidden_norm(inner)
        residual = normed if self.math.norm_before_residual else hidden_states
        return torch.cat([self.input_layernorm(embeds), normed], dim=-1), residual


class LlamaLayer(Layer):
    """The same with ordinary heads."""

    def __init__(self, config: Any, layer_id: int = 0, quant_config: Any = None, prefix: str = "") -> None:
        super().__init__(config, layer_id, quant_config, prefix)
        if self.math.qkv_bias:
            attention, reads = self.self_attn, config.hidden_size * (2 if self.is_input_layer else 1)
            attention.qkv_proj = stock.layer_type("QKVParallelLinear")(
                reads,
                attention.head_dim,
                attention.total_num_heads,
                attention.total_num_kv_heads,
                bias=True,
                quant_config=quant_config,
                prefix=f"{prefix}.qkv_proj",
            )

    def forward(
        self, positions: Any, embeds: Any, hidden_states: Any, forward_batch: Any, residual: Any
    ) -> tuple[Any, Any]:
        """The MLP's output and the residual, not yet added."""
        if not self.is_input_layer:
            output: tuple[Any, Any] = super().forward(positions, embeds, hidden_states, forward_batch, residual)
            return output
        states, residual = self.read(embeds, hidden_states)
        states = self.self_attn(positions=positions, hidden_states=states, forward_batch=forward_batch)
        states, residual = self.post_attention_layernorm(states, residual)
        return self.mlp(states), residual


class LatentLayer(Layer):
    """The same with latent attention."""

    def forward(
        self, positions: Any, embeds: Any, hidden_states: Any, forward_batch: Any, zero_allocator: Any
    ) -> tuple[Any, Any]:
        """As :meth:`LlamaLayer.forward`."""
        states, residual = self.read(embeds, hidden_states)
        stock.announce_attention_input(self, states, forward_batch)
        states = self.self_attn(
            positions=positions, hidden_states=states, forward_batch=forward_batch, zero_allocator=zero_allocator
        )
        if isinstance(states, tuple):
            states = states[0]
        states, residual = self.post_attention_layernorm(states, residual)
        return self.mlp(states), residual


class Body(Stock):
    """The draft without its head. States of the target always pass fc, whatever their width; its own never do."""

    math: ClassVar[DraftMath]

    def __init__(self, config: Any, quant_config: Any = None, prefix: str = "") -> None:
        super().__init__(config, quant_config=quant_config, prefix=prefix)
        # SGLang's forward then hands out both states, and which of them goes where is decided here.
        self.norm_output = False

    def combine(self, states: Any) -> Any:
        """Map joined states [rows, count * target hidden] to [rows, hidden]."""
        if self.input_norm is not None:
            states = self.input_norm(states)
        if self.fc_norm is not None:
            chunks = states.chunk(len(self.fc_norm), dim=-1)
            states = torch.cat([norm(chunk) for norm, chunk in zip(self.fc_norm, chunks, strict=True)], dim=-1)
        return self.joined(states)

    def joined(self, states: Any) -> Any:
        """Through fc."""
        return self.fc(states)

    def forward(
        self,
        input_ids: Any,
        positions: Any,
        forward_batch: Any,
        input_embeds: Any = None,
        pp_proxy_tensors: Any = None,
    ) -> tuple[Any, list[Any]]:
        """What the head reads, and what the next step starts from: [rows, hidden] both."""
        batch = forward_batch.spec_info
        states = batch.hidden_states
        if not stock.is_draft_step(forward_batch):
            # As wide as the embedding now, so that SGLang's own forward takes it as it is.
            batch.hidden_states = self.combine(states)
        normed, (plain,) = super().forward(input_ids, positions, forward_batch, input_embeds, pp_proxy_tensors)
        batch.hidden_states = states
        return (plain if self.math.bare_head else normed), [normed if self.math.norm_output else plain]


class LlamaBody(Body):
    """The same with ordinary heads: a bias of fc."""

    def __init__(self, config: Any, quant_config: Any = None, prefix: str = "") -> None:
        super().__init__(config, quant_config=quant_config, prefix=prefix)
        if self.math.fc_bias:
            self.fc.bias = nn.Parameter(torch.empty(self.fc.out_features), requires_grad=False)


class LatentBody(Body):
    """The same with latent attention: a norm over all states, and an fc that is split over ranks."""

    def __init__(self, config: Any, quant_config: Any = None, prefix: str = "") -> None:
        super().__init__(config, quant_config=quant_config, prefix=prefix)
        self.input_norm = None
        if self.math.norm_before_fc:
            self.input_norm = stock.layer_type("RMSNorm")(self.fc.input_size, eps=config.rms_norm_eps)

    def joined(self, states: Any) -> Any:
        """Through fc, gathered from all ranks."""
        part, _ = self.fc(states)
        return self._fc_gatherer(part)


class Draft(Stock):
    """The whole draft: built of our parts, and with its own embedding where that was trained."""

    parts: ClassVar[dict[stock.Part, Any]]
    keeps_embedding: ClassVar[bool]

    def __init__(self, config: Any, quant_config: Any = None, prefix: str = "") -> None:
        with stock.built_with(self.parts):
            super().__init__(config, quant_config=quant_config, prefix=prefix)

    def set_embed(self, embed: Any) -> None:
        """SGLang's way to share the target's embedding."""
        if not self.keeps_embedding:
            super().set_embed(embed)

    def set_embed_and_head(self, embed: Any, head: Any) -> None:
        """The same with its head, where the draft has none."""
        if not self.keeps_embedding:
            super().set_embed_and_head(embed, head)
            return
        del self.lm_head.weight
        self.lm_head.weight = head
