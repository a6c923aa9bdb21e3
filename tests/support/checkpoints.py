"""Tiny checkpoints on disk, written with the standard library: shapes are real, numbers are small.

Sizes: hidden 8, heads 2, kv heads 1, intermediate 16, vocabulary 32, draft vocabulary 8, target with 8 layers.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCAB, DRAFT_VOCAB, LAYERS = 8, 2, 1, 4, 16, 32, 8, 8
_CODE = {"F32": "f", "I64": "q", "I32": "i", "BOOL": "B"}


@attrs.frozen
class Array:
    """A tensor to write: dtype, shape, flat values (a single number fills it)."""

    dtype: str
    shape: tuple[int, ...]
    values: Sequence[float] | float = 0.5

    def to_bytes(self) -> bytes:
        count = 1
        for dimension in self.shape:
            count *= dimension
        values = [self.values] * count if isinstance(self.values, int | float) else list(self.values)
        numbers = values if self.dtype == "F32" else [int(value) for value in values]
        return array(_CODE[self.dtype], numbers).tobytes()


def write_safetensors(file: Path, tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> None:
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    data = b""
    for name, tensor in tensors.items():
        raw = tensor.to_bytes()
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    encoded = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data)


def target_config(**changes: Any) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": LAYERS,
        "hidden_size": HIDDEN,
        "vocab_size": VOCAB,
        "rope_theta": 10000.0,
    } | changes


def layer_config(**changes: Any) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "num_hidden_layers": 1,
        "vocab_size": VOCAB,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "max_position_embeddings": 64,
    } | changes


def speculators_config(**changes: Any) -> dict[str, Any]:
    """As speculators 0.5 writes it, for boundaries 0, 2, 5."""
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.5.0",
        "transformer_layer_config": layer_config(),
        "draft_vocab_size": DRAFT_VOCAB,
        "norm_before_residual": False,
        "norm_before_fc": False,
        "fc_norm": False,
        "norm_output": False,
        "eagle_aux_hidden_state_layer_ids": [0, 2, 5],
        "embed_requires_grad": False,
    } | changes


def sglang_config(ids: Sequence[int] | None = (1, 3, 4), **changes: Any) -> dict[str, Any]:
    """As SpecForge exports it for SGLang, for boundaries 2, 4, 5."""
    nested = {} if ids is None else {"eagle_config": {"eagle_aux_hidden_state_layer_ids": list(ids)}}
    return (
        layer_config(architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=DRAFT_VOCAB)
        | nested
        | {"tie_word_embeddings": False}
        | changes
    )


#: Target ids of the draft's tokens, ascending.
TARGET_IDS = (1, 3, 4, 7, 12, 13, 20, 31)


def draft_tensors(*, layer: str = "layers.0", states: int = 3) -> dict[str, Array]:
    """The tensors of a one-layer draft with a reduced vocabulary, offsets in ``d2t`` and a matching ``t2d``."""
    offsets = [target - draft for draft, target in enumerate(TARGET_IDS)]
    shapes = {
        "fc.weight": (HIDDEN, states * HIDDEN),
        "norm.weight": (HIDDEN,),
        "lm_head.weight": (DRAFT_VOCAB, HIDDEN),
        f"{layer}.input_layernorm.weight": (HIDDEN,),
        f"{layer}.hidden_norm.weight": (HIDDEN,),
        f"{layer}.post_attention_layernorm.weight": (HIDDEN,),
        f"{layer}.self_attn.q_proj.weight": (HEADS * HEAD_DIM, 2 * HIDDEN),
        f"{layer}.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, 2 * HIDDEN),
        f"{layer}.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, 2 * HIDDEN),
        f"{layer}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
        f"{layer}.mlp.gate_proj.weight": (INNER, HIDDEN),
        f"{layer}.mlp.up_proj.weight": (INNER, HIDDEN),
        f"{layer}.mlp.down_proj.weight": (HIDDEN, INNER),
    }
    tensors = {name: Array("F32", shape) for name, shape in shapes.items()}
    tensors["d2t"] = Array("I64", (DRAFT_VOCAB,), offsets)
    tensors["t2d"] = Array("BOOL", (VOCAB,), [i in TARGET_IDS for i in range(VOCAB)])
    return tensors


def write_target(directory: Path, config: Mapping[str, Any] | None = None) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config or target_config()))
    return directory


def write_draft(
    directory: Path, config: Mapping[str, Any] | None = None, tensors: Mapping[str, Array] | None = None
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(speculators_config() if config is None else config))
    write_safetensors(directory / "model.safetensors", draft_tensors() if tensors is None else tensors)
    return directory
