"""Owns what SGLang's stock draft classes are: which drafts they serve, which parameters they have, what they honour.

Source: sglang/srt/models/llama_eagle3.py, 0.5.17 to 0.5.23 (parameters and ``load_weights``).
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from eagle3_adapters import canonical
from eagle3_adapters.keymap import Drop, KeyMap, Rename
from eagle3_adapters.values import Config, DraftMath, DraftModel

Shape = tuple[int, ...]
LLAMA = "LlamaForCausalLMEagle3"
EMBEDDING = "embed_tokens.weight"
SHARED_EMBEDDING = "SGLang shares the target's embedding with the draft"


@attrs.frozen(kw_only=True)
class DraftClass:
    """One stock draft class of SGLang."""

    name: str
    #: Honoured math flags; the others cannot be represented by the class.
    math: DraftMath


LLAMA_CLASS = DraftClass(name=LLAMA, math=DraftMath(norm_before_fc=True, fc_norm=True, norm_output=True))


def is_latent(draft: DraftModel) -> bool:
    """Whether the draft has latent (MLA) attention, by its tensors."""
    return any(name.endswith(".self_attn.kv_a_proj_with_mqa.weight") for name in draft.tensors)


def class_of(draft: DraftModel) -> DraftClass | None:
    """The stock class that serves a canonical draft, or None."""
    return None if is_latent(draft) else LLAMA_CLASS


def owns_embedding(config: Config) -> bool:
    """Whether SGLang keeps the draft's own embedding: only where the target's would not fit (``set_embed``)."""
    target_hidden = config.get("target_hidden_size")
    return target_hidden is not None and target_hidden != config.get("hidden_size")


def is_optional(name: str) -> bool:
    """Whether a draft may have a tensor that the class does not need: maps, a copy of the embedding, unread norms."""
    unread = name.startswith("layers.") and name.endswith(".input_layernorm.weight")
    return unread or name in (*canonical.VOCABULARY, EMBEDDING)


def llama_key_map(draft: DraftModel) -> KeyMap:
    """Canonical names -> parameter names of LlamaForCausalLMEagle3 (its loader stacks q/k/v and gate/up itself)."""
    layers = tuple(
        Rename(f"layers.{{layer}}.{name}", f"model.layers.{{layer}}.{name}") for name in canonical.LLAMA_LAYER
    )
    embedding: Rename | Drop = Drop(EMBEDDING, SHARED_EMBEDDING)
    if owns_embedding(draft.config):
        embedding = Rename(EMBEDDING, f"model.{EMBEDDING}")
    return KeyMap(
        LLAMA,
        (
            *layers,
            Rename("fc.weight", "model.fc.weight"),
            Rename("input_norm.weight", "model.input_norm.weight"),
            Rename(canonical.FC_NORM, "model.fc_norm.{state}.weight"),
            Rename("norm.weight", "model.norm.weight"),
            Rename("lm_head.weight", "lm_head.weight"),
            embedding,
            Rename("d2t", "d2t"),
            Drop("t2d", "d2t says the same and was checked against it"),
        ),
    )


def llama_shapes(
    config: Config, *, num_layers: int, states: int, math: DraftMath, head_rows: int | None
) -> Mapping[str, Shape]:
    """Canonical name -> shape of every tensor that LlamaForCausalLMEagle3 needs. ``head_rows`` None: head is shared.

    ``config`` is canonical and complete (see ``config_checks.config_complete``).
    """
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or hidden // heads
    target_hidden = config.get("target_hidden_size") or hidden
    inner = config["intermediate_size"]
    shapes: dict[str, Shape] = {"fc.weight": (hidden, states * target_hidden), "norm.weight": (hidden,)}
    if math.norm_before_fc:
        shapes["input_norm.weight"] = (states * target_hidden,)
    if math.fc_norm:
        shapes |= {f"fc_norm.{state}.weight": (target_hidden,) for state in range(states)}
    if head_rows is not None:
        shapes["lm_head.weight"] = (head_rows, hidden)
    if owns_embedding(config):
        shapes[EMBEDDING] = (config["vocab_size"], hidden)
    for layer in range(num_layers):
        reads = 2 * hidden if layer == 0 else hidden
        shapes |= {
            f"layers.{layer}.{name}": shape
            for name, shape in {
                "input_layernorm.weight": (hidden,),
                "hidden_norm.weight": (hidden,),
                "post_attention_layernorm.weight": (hidden,),
                "self_attn.q_proj.weight": (heads * head_dim, reads),
                "self_attn.k_proj.weight": (kv_heads * head_dim, reads),
                "self_attn.v_proj.weight": (kv_heads * head_dim, reads),
                "self_attn.o_proj.weight": (hidden, heads * head_dim),
                "mlp.gate_proj.weight": (inner, hidden),
                "mlp.up_proj.weight": (inner, hidden),
                "mlp.down_proj.weight": (hidden, inner),
            }.items()
            # Only the first layer norms its input embedding; the class builds the norm everywhere but never reads it.
            if layer == 0 or name != "input_layernorm.weight"
        }
    return shapes
