"""Small targets of more classes with random weights, made by transformers: names, shapes and config are its own.

A wrapper's target holds the weights of its text model under the wrapper's names; its vision tower has none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import torch

from support.random_targets import HIDDEN, LAYERS, VOCABULARY

_SIZES: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "vocab_size": VOCABULARY,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": VOCABULARY - 1,
    "pad_token_id": None,
}
_EXPERTS = {"moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": True}


@attrs.frozen(kw_only=True)
class Made:
    """How transformers makes one class."""

    model_type: str
    sizes: Mapping[str, Any] = attrs.field(factory=dict)
    #: Standard deviation of the embedding as layer 0 reads it is 1, whatever the class multiplies it with.
    embedding: float = 1.0


CLASSES = {
    "Qwen2ForCausalLM": Made(model_type="qwen2"),
    "Qwen3ForCausalLM": Made(model_type="qwen3"),
    "Qwen2MoeForCausalLM": Made(
        model_type="qwen2_moe", sizes={**_EXPERTS, "shared_expert_intermediate_size": 32, "decoder_sparse_step": 1}
    ),
    "Qwen3MoeForCausalLM": Made(model_type="qwen3_moe", sizes={**_EXPERTS, "decoder_sparse_step": 1}),
    "MixtralForCausalLM": Made(model_type="mixtral", sizes={"num_local_experts": 4, "num_experts_per_tok": 2}),
    "Glm4ForCausalLM": Made(model_type="glm4", sizes={"partial_rotary_factor": 0.5}),
    "Gemma3ForCausalLM": Made(
        model_type="gemma3_text",
        sizes={"tie_word_embeddings": True, "query_pre_attn_scalar": 16, "sliding_window": 256},
        embedding=HIDDEN**-0.5,
    ),
}


def write_transformers_target(directory: Path, architecture: str, seed: int = 0) -> Path:
    """A target of one of :data:`CLASSES` in float32."""
    import transformers  # noqa: PLC0415 - seconds, for those who make such targets

    made = CLASSES[architecture]
    config = transformers.AutoConfig.for_model(made.model_type, **{**_SIZES, **made.sizes})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                # Norms near one or, where the class adds one, near nought; biases.
                drawn = parameter + 0.2 * drawn
            elif "embed_tokens" in name:
                drawn *= made.embedding
            else:
                drawn *= (3.0 if "lm_head" in name else 1.5) * parameter.shape[-1] ** -0.5
            parameter.copy_(drawn)
    model.save_pretrained(directory)
    written = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    # What transformers leaves open, and this is a file of float32.
    (directory / "config.json").write_text(
        json.dumps(written | {"architectures": [architecture], "torch_dtype": "float32"}), encoding="utf-8"
    )
    return directory
