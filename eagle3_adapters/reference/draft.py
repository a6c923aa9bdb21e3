"""A plain PyTorch EAGLE-3 draft: decoder layers over the concatenated states of a target.

It is written to be read and to be compared with: no fused kernel, one code path for training and for evaluation, and
parameter names equal to the canonical names of an EAGLE-3 checkpoint. The forward follows SGLang's
``LlamaForCausalLMEagle3`` and, for latent attention, its ``Eagle3DeepseekV2ForCausalLM``; for ``norm_before_residual``,
``qk_norm`` and biases speculators' ``Eagle3DraftModel``; for ``bare_head`` SpecForge's ``LlamaForCausalLMEagle3``; for
``double_norm`` ModelOpt's ``EagleModule`` from 0.41 on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from eagle3_adapters.reference.caches import Cache, Unrolled
from eagle3_adapters.reference.layers import GatedMLP, HeadAttention, LatentAttention, LatentSizes, RMSNorm
from eagle3_adapters.reference.rotary import PairedRotary, Rotary
from eagle3_adapters.values import DraftMath


class DraftLayer(nn.Module):
    """One decoder layer. The first one's attention reads embedding and hidden state side by side."""

    def __init__(
        self,
        *,
        first: bool,
        hidden_size: int,
        intermediate_size: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        rms_norm_eps: float,
        math: DraftMath,
        latent: LatentSizes | None,
    ) -> None:
        super().__init__()
        self.math = math
        self.first = first
        if first:
            self.input_layernorm = RMSNorm(hidden_size, rms_norm_eps)
        self.hidden_norm = RMSNorm(hidden_size, rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(hidden_size, rms_norm_eps)
        reads = 2 * hidden_size if first else hidden_size
        self.self_attn: nn.Module
        if latent is None:
            self.self_attn = HeadAttention(
                input_size=reads,
                hidden_size=hidden_size,
                num_heads=num_heads,
                num_kv_heads=num_kv_heads,
                head_dim=head_dim,
                eps=rms_norm_eps,
                math=math,
            )
        else:
            self.self_attn = LatentAttention(
                input_size=reads, hidden_size=hidden_size, num_heads=num_heads, eps=rms_norm_eps, sizes=latent
            )
        self.mlp = GatedMLP(hidden_size, intermediate_size, bias=math.mlp_bias)

    def forward(self, embedded: Tensor, hidden: Tensor, rotary: Rotary, cache: Cache) -> Tensor:
        """One step for every row; ``embedded``, ``hidden`` and the result are [batch, rows, hidden_size]."""
        if self.first:
            normed = self.hidden_norm(self.input_layernorm(hidden) if self.math.double_norm else hidden)
            residual = normed if self.math.norm_before_residual else hidden
            read = torch.cat([self.input_layernorm(embedded), normed], dim=-1)
        else:
            read, residual = self.hidden_norm(hidden), hidden
        residual = residual + self.self_attn(read, rotary, cache)
        output: Tensor = residual + self.mlp(self.post_attention_layernorm(residual))
        return output


class ReferenceDraft(nn.Module):
    """An EAGLE-3 draft of ``num_layers`` decoder layers.

    ``states`` boundaries of a target of width ``target_hidden_size`` are concatenated (in the order in which ``fc`` was
    trained on them) and mapped to ``hidden_size``. ``draft_vocab_size`` rows of ``lm_head`` stand for as many of the
    target's ``vocab_size`` ids. The embedding, the target's or one that was trained, is passed to each call.

    ``latent``: latent attention of these widths, its rotary embedding in pairs. ``rope_scaling`` and
    ``partial_rotary`` as in :class:`Rotary`.
    """

    def __init__(
        self,
        *,
        hidden_size: int,
        target_hidden_size: int,
        states: int,
        intermediate_size: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        rms_norm_eps: float,
        rope_theta: float,
        vocab_size: int,
        draft_vocab_size: int,
        math: DraftMath,
        num_layers: int = 1,
        latent: LatentSizes | None = None,
        rope_scaling: Mapping[str, Any] | None = None,
        partial_rotary: float = 1.0,
    ) -> None:
        if num_heads % num_kv_heads:
            msg = f"num_heads {num_heads} is no multiple of num_kv_heads {num_kv_heads}"
            raise ValueError(msg)
        if draft_vocab_size > vocab_size:
            msg = f"draft_vocab_size {draft_vocab_size} exceeds vocab_size {vocab_size}"
            raise ValueError(msg)
        super().__init__()
        self.math = math
        self.states = states
        self.vocab_size = vocab_size
        self.rotary: Rotary
        if latent is None:
            self.rotary = Rotary(head_dim, rope_theta, rope_scaling, partial=partial_rotary)
        else:
            self.rotary = PairedRotary(latent.qk_rope_head_dim, rope_theta, rope_scaling)
        if math.norm_before_fc:
            self.input_norm = RMSNorm(states * target_hidden_size, rms_norm_eps)
        if math.fc_norm:
            self.fc_norm = nn.ModuleList([RMSNorm(target_hidden_size, rms_norm_eps) for _ in range(states)])
        self.fc = nn.Linear(states * target_hidden_size, hidden_size, bias=math.fc_bias)
        self.layers = nn.ModuleList(
            DraftLayer(
                first=layer == 0,
                hidden_size=hidden_size,
                intermediate_size=intermediate_size,
                num_heads=num_heads,
                num_kv_heads=num_kv_heads,
                head_dim=head_dim,
                rms_norm_eps=rms_norm_eps,
                math=math,
                latent=latent,
            )
            for layer in range(num_layers)
        )
        self.norm = RMSNorm(hidden_size, rms_norm_eps)
        self.lm_head = nn.Linear(hidden_size, draft_vocab_size, bias=False)

    def combine(self, features: Tensor) -> Tensor:
        """Map concatenated states [batch, rows, states * target_hidden_size] to h⁰ [batch, rows, hidden_size]."""
        if self.math.norm_before_fc:
            features = self.input_norm(features)
        if self.math.fc_norm:
            chunks = features.chunk(self.states, dim=-1)
            features = torch.cat([norm(chunk) for norm, chunk in zip(self.fc_norm, chunks, strict=True)], dim=-1)
        combined: Tensor = self.fc(features)
        return combined

    def step(self, embedded: Tensor, hidden: Tensor, caches: Sequence[Cache]) -> tuple[Tensor, Tensor]:
        """One step of every row: logits [batch, rows, draft_vocab_size] and the state that the next step starts from.

        ``embedded`` and ``hidden`` are [batch, rows, hidden_size]; ``caches`` holds one for each layer.
        """
        output = hidden
        for layer, cache in zip(self.layers, caches, strict=True):
            output = layer(embedded, output, self.rotary, cache)
        normed = self.norm(output)
        logits: Tensor = self.lm_head(output if self.math.bare_head else normed)
        return logits, normed if self.math.norm_output else output

    def forward(
        self,
        features: Tensor,
        tokens: Tensor,
        embedding: Tensor,
        *,
        steps: int,
        draft_to_target: Tensor | None = None,
        bypass_fc: bool = False,
    ) -> Tensor:
        """Unroll the draft ``steps`` times from every row at once; logits [steps, batch, rows, draft_vocab_size].

        Row t of ``features`` [batch, rows, states * target_hidden_size] holds the states of position t; at step s it
        embeds token t + 1 + s and predicts token t + 2 + s. Without ``draft_to_target`` the tokens are teacher-forced:
        ``tokens`` [batch, rows + steps] (int64). With ``draft_to_target`` [draft_vocab_size] (int64, target id of each
        draft id) steps after the first embed the draft's own argmax, as in serving: ``tokens`` [batch, rows + 1].
        ``embedding`` is [vocab_size, hidden_size].

        ``bypass_fc`` takes ``features`` [batch, rows, hidden_size] as h⁰. SGLang's own classes do so, silently,
        whenever the width that they captured equals the draft's. Raises ValueError where ``tokens`` are too few.
        """
        rows = features.shape[1]
        needed = rows + (steps if draft_to_target is None else 1)
        if tokens.shape[1] < needed:
            msg = f"tokens: {rows} rows and {steps} steps need {needed} columns, found {tokens.shape[1]}"
            raise ValueError(msg)
        hidden = features if bypass_fc else self.combine(features)
        caches = [Unrolled() for _ in self.layers]
        logits: list[Tensor] = []
        for step in range(steps):
            if step == 0 or draft_to_target is None:
                chosen = tokens[:, 1 + step : 1 + step + rows]
            else:
                chosen = draft_to_target[logits[-1].argmax(-1)]
            said, hidden = self.step(functional.embedding(chosen, embedding), hidden, caches)
            logits.append(said)
        return torch.stack(logits)
