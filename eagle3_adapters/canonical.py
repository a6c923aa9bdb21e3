"""Owns the canonical names of a draft's tensors, where the formats' half and the adapters' half of a key map meet."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from eagle3_adapters.keymap import Rename
from eagle3_adapters.values import DraftModel, TensorInfo

#: Inside a decoder layer, as SafeAILab's EAGLE first named them and every trainer since.
LLAMA_LAYER = (
    "input_layernorm.weight",
    "hidden_norm.weight",
    "post_attention_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
)
#: Of these, what latent attention replaces.
HEADS = tuple(f"self_attn.{part}_proj.weight" for part in "qkv")
#: Latent attention in place of q/k/v (ModelOpt's and TorchSpec's Kimi drafts).
MLA_LAYER = tuple(
    f"self_attn.{part}.weight"
    for part in (
        "q_a_proj",
        "q_a_layernorm",
        "q_b_proj",
        "kv_a_proj_with_mqa",
        "kv_a_layernorm",
        "kv_b_proj",
    )
)
#: Of these, the two projections to latents, one of which says that the attention is latent.
DOWN = ("self_attn.q_a_proj.weight", "self_attn.kv_a_proj_with_mqa.weight")
#: Trained by some, with a flag; SGLang's stock classes have no parameter for most of them.
EXTRA_LAYER = (
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
    "self_attn.q_proj.bias",
    "self_attn.k_proj.bias",
    "self_attn.v_proj.bias",
    "self_attn.o_proj.bias",
    "mlp.gate_proj.bias",
    "mlp.up_proj.bias",
    "mlp.down_proj.bias",
)
OUTSIDE = ("fc.weight", "fc.bias", "input_norm.weight", "norm.weight", "lm_head.weight", "embed_tokens.weight")
FC_NORM = "fc_norm.{state}.weight"
VOCABULARY = ("d2t", "t2d")


EMBEDDING = "embed_tokens.weight"
LM_HEAD = "lm_head.weight"
INPUT_NORM = "input_norm.weight"
#: Config fields that say who wrote a file and how its own library loads it. They mean nothing to the draft's math: a
#: conversion carries them along, SGLang never sees them.
ABOUT = (
    "auto_map",
    "base_model_ep_plan",
    "has_no_defaults_at_init",
    "speculators_config",
    "speculators_model_type",
    "speculators_version",
    "transformers_version",
)
#: What every trainer's file holds, below and beside the layers.
CORE = ("fc.weight", "norm.weight", LM_HEAD)
QK_NORM = tuple(name for name in EXTRA_LAYER if "_norm." in name)
ATTENTION_BIAS = tuple(name for name in EXTRA_LAYER if name.startswith("self_attn.") and name.endswith(".bias"))
MLP_BIAS = tuple(name for name in EXTRA_LAYER if name.startswith("mlp."))
#: Flag of the draft's math that tensors alone decide -> those tensors: below a layer, or beside the layers.
TENSOR_FLAGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "qk_norm": QK_NORM,
        "qkv_bias": tuple(name for name in ATTENTION_BIAS if "o_proj" not in name),
        "output_bias": tuple(name for name in ATTENTION_BIAS if "o_proj" in name),
        "mlp_bias": MLP_BIAS,
        "fc_bias": ("fc.bias",),
    }
)


def layer_patterns(prefix: str) -> tuple[Rename, ...]:
    """Rules from ``prefix`` (``layers.{layer}``, ``midlayer``) to canonical layer names."""
    canonical = "layers.{layer}" if "{layer}" in prefix else "layers.0"
    return tuple(Rename(f"{prefix}.{name}", f"{canonical}.{name}") for name in (*LLAMA_LAYER, *MLA_LAYER, *EXTRA_LAYER))


def rename_tensors(draft: DraftModel, names: Mapping[str, str]) -> Mapping[str, TensorInfo]:
    """``draft.tensors`` under new names; ``names`` is file name -> canonical name, injective."""
    return MappingProxyType(
        {canonical: attrs.evolve(draft.tensors[name], name=canonical) for name, canonical in names.items()}
    )
