"""What differs from one pair to another: the target's architecture and the widths of its draft."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from torch import Tensor
from transformers import PreTrainedModel

from canary_pair import corpus

LAYERS = 8
HIDDEN = 128
MAX_POSITIONS = 512
ROPE_THETA = 10000.0
POST_NORM = LAYERS + 1
"""Index, after the boundaries 0..LAYERS, of the normed output that SGLang hands to a draft without auxiliary states."""

COMMON: dict[str, Any] = {
    "vocab_size": corpus.VOCAB_SIZE,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "hidden_act": "silu",
    "max_position_embeddings": MAX_POSITIONS,
    "attention_bias": False,
    "initializer_range": 0.02,
    "tie_word_embeddings": False,
    "bos_token_id": corpus.END_ID,
    "eos_token_id": corpus.END_ID,
}
"""Fields of config.json that every target here shares."""

Tensors = dict[str, Tensor]


@attrs.frozen(kw_only=True)
class DraftShape:
    """The Llama-shaped draft: one layer of width ``HIDDEN`` that reads ``boundaries`` in this order."""

    boundaries: tuple[int, ...]
    vocab_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    rms_norm_eps: float
    head_dim: int = 32
    rope_theta: float = ROPE_THETA


@attrs.frozen(kw_only=True)
class PairShape:
    """A target and its draft before training.

    ``config`` is the target's config.json. ``build`` makes the target: seeded, float32, on the CPU. ``checkpoint``
    returns what its safetensors file holds, under the names of the published checkpoints of its architecture, on the
    CPU. ``after_step`` does to it what belongs after every step of the optimizer.
    """

    config: dict[str, Any]
    build: Callable[[], PreTrainedModel]
    checkpoint: Callable[[PreTrainedModel], Tensors]
    after_step: Callable[[PreTrainedModel], None]
    draft: DraftShape
