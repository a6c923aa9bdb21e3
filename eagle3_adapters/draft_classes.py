"""Owns what SGLang's stock draft classes are: which drafts they serve, which parameters they have, what they honour.

Sources: sglang/srt/models/llama_eagle3.py and kimi_k25_eagle3.py, 0.5.17 to 0.5.23 (parameters and ``load_weights``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from eagle3_adapters import canonical
from eagle3_adapters.keymap import Drop, KeyMap, Rename
from eagle3_adapters.values import Config, DraftMath, DraftModel

Shape = tuple[int, ...]
EMBEDDING = canonical.EMBEDDING
SHARED_EMBEDDING = "SGLang shares the target's embedding with the draft"


@attrs.frozen(kw_only=True)
class DraftClass:
    """One stock draft class of SGLang."""

    name: str
    #: Honoured math flags; the others cannot be represented by the class.
    math: DraftMath
    #: Config fields that it is built from, beside those of every draft.
    fields: tuple[str, ...] = ()
    #: Most decoder layers that it can have; None: any number.
    depth: int | None = None
    #: The model type under which transformers keeps its fields, and their default for the longest position.
    model_type: str
    positions: int
    #: What it puts before the canonical names when it loads.
    prefix: str
    #: Names inside a layer, canonical.
    layer: tuple[str, ...]
    #: (config, columns that the layer reads) -> shapes of the attention's tensors.
    attention: Callable[[Config, int], Mapping[str, Shape]] = attrs.field(repr=False, eq=False)


def _heads(config: Config, reads: int) -> Mapping[str, Shape]:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    size = config.get("head_dim") or hidden // heads
    return {
        "self_attn.q_proj.weight": (heads * size, reads),
        "self_attn.k_proj.weight": (kv_heads * size, reads),
        "self_attn.v_proj.weight": (kv_heads * size, reads),
        "self_attn.o_proj.weight": (hidden, heads * size),
    }


def _latent(config: Config, reads: int) -> Mapping[str, Shape]:
    heads, queries, values = config["num_attention_heads"], config["q_lora_rank"], config["kv_lora_rank"]
    plain, rotary, out = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    return {
        # The class fuses these two as they arrive, and drops one that comes alone.
        "self_attn.q_a_proj.weight": (queries, reads),
        "self_attn.kv_a_proj_with_mqa.weight": (values + rotary, reads),
        "self_attn.q_a_layernorm.weight": (queries,),
        "self_attn.q_b_proj.weight": (heads * (plain + rotary), queries),
        "self_attn.kv_a_layernorm.weight": (values,),
        "self_attn.kv_b_proj.weight": (heads * (plain + out), values),
        "self_attn.o_proj.weight": (config["hidden_size"], heads * out),
    }


LLAMA = DraftClass(
    name="LlamaForCausalLMEagle3",
    math=DraftMath(norm_before_fc=True, fc_norm=True, norm_output=True),
    model_type="llama",
    positions=2048,
    prefix="model.",
    layer=canonical.LLAMA_LAYER,
    attention=_heads,
)
LATENT = DraftClass(
    name="Eagle3DeepseekV2ForCausalLM",
    math=DraftMath(fc_norm=True, norm_output=True),
    fields=("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    depth=1,
    model_type="deepseek_v3",
    positions=4096,
    # Its loader adds the prefix itself, and renames layer 0.
    prefix="",
    layer=(
        *(name for name in canonical.LLAMA_LAYER if name not in canonical.HEADS),
        *canonical.MLA_LAYER,
    ),
    attention=_latent,
)


def class_of(draft: DraftModel) -> DraftClass:
    """The stock class that serves a canonical draft, by its tensors: latent (MLA) attention or ordinary heads."""
    return LATENT if any(name.endswith(canonical.DOWN) for name in draft.tensors) else LLAMA


def owns_embedding(config: Config) -> bool:
    """Whether SGLang keeps the draft's own embedding: only where the target's would not fit (``set_embed``)."""
    target_hidden = config.get("target_hidden_size")
    return target_hidden is not None and target_hidden != config.get("hidden_size")


def is_optional(name: str) -> bool:
    """Whether a draft may have a tensor that the class does not need: maps, a copy of the embedding, unread norms."""
    unread = name.startswith("layers.") and name.endswith(".input_layernorm.weight")
    return unread or name in (*canonical.VOCABULARY, EMBEDDING)


def key_map(draft: DraftModel) -> KeyMap:
    """Canonical names -> the names that the draft's class loads (it stacks and fuses projections itself)."""
    served = class_of(draft)
    embedding: Rename | Drop = Drop(EMBEDDING, SHARED_EMBEDDING)
    if owns_embedding(draft.config):
        embedding = Rename(EMBEDDING, served.prefix + EMBEDDING)
    layers = "layers.{layer}" if served.depth is None else "layers.0"
    inside = (*(f"{layers}.{name}" for name in served.layer), "fc.weight", canonical.FC_NORM, "norm.weight")
    if served.math.norm_before_fc:
        inside = (*inside, "input_norm.weight")
    return KeyMap(
        served.name,
        (
            *(Rename(name, served.prefix + name) for name in inside),
            Rename("lm_head.weight", "lm_head.weight"),
            embedding,
            Rename("d2t", "d2t"),
            Drop("t2d", "d2t says the same and was checked against it"),
        ),
    )


def shapes(
    served: DraftClass, config: Config, *, num_layers: int, states: int, math: DraftMath, head_rows: int | None
) -> Mapping[str, Shape]:
    """Canonical name -> shape of every tensor that a class needs. ``head_rows`` None: head is shared.

    ``config`` is canonical and complete (see ``config_checks.config_complete``).
    """
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    target_hidden = config.get("target_hidden_size") or hidden
    needed: dict[str, Shape] = {"fc.weight": (hidden, states * target_hidden), "norm.weight": (hidden,)}
    if math.norm_before_fc:
        needed["input_norm.weight"] = (states * target_hidden,)
    if math.fc_norm:
        needed |= {f"fc_norm.{state}.weight": (target_hidden,) for state in range(states)}
    if head_rows is not None:
        needed["lm_head.weight"] = (head_rows, hidden)
    if owns_embedding(config):
        needed[EMBEDDING] = (config["vocab_size"], hidden)
    for layer in range(num_layers):
        needed |= {
            f"layers.{layer}.{name}": shape
            for name, shape in {
                "input_layernorm.weight": (hidden,),
                "hidden_norm.weight": (hidden,),
                "post_attention_layernorm.weight": (hidden,),
                **served.attention(config, 2 * hidden if layer == 0 else hidden),
                "mlp.gate_proj.weight": (inner, hidden),
                "mlp.up_proj.weight": (inner, hidden),
                "mlp.down_proj.weight": (hidden, inner),
            }.items()
            # Only the first layer norms its input embedding; the class builds the norm everywhere but never reads it.
            if layer == 0 or name != "input_layernorm.weight"
        }
    return needed
