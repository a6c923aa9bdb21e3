"""The Llama pair."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from canary_pair.recipe import SEED
from canary_pair.shape import COMMON, ROPE_THETA, DraftShape, PairShape, Tensors

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    **COMMON,
    "intermediate_size": 384,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rms_norm_eps": 1e-5,
    "mlp_bias": False,
    "rope_theta": ROPE_THETA,
    "rope_scaling": None,
    "use_cache": True,
}


def build() -> PreTrainedModel:
    """A freshly initialised target in float32 on the CPU."""
    torch.manual_seed(SEED)
    return LlamaForCausalLM(LlamaConfig(**CONFIG)).float()


def checkpoint(model: PreTrainedModel) -> Tensors:
    """Every tensor in bf16 under its own name."""
    return {name: value.to("cpu", torch.bfloat16).contiguous() for name, value in model.state_dict().items()}


LLAMA = PairShape(
    config=CONFIG,
    build=build,
    checkpoint=checkpoint,
    after_step=lambda model: None,
    draft=DraftShape(
        boundaries=(0, 2, 5),
        vocab_size=512,
        intermediate_size=384,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
    ),
)
