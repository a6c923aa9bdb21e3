"""Owns what the draft classes are, SGLang's own and ours: drafts that they serve, parameters, honoured math.

Ours are subclasses for drafts that SGLang's would serve with other math, and for those only.

Sources: sglang/srt/models/llama_eagle3.py and kimi_k25_eagle3.py, 0.5.17 to 0.5.23 (parameters and ``load_weights``);
ours are built in sglang/drafts/.
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
#: Canonical config field: the embedding was trained, and the draft keeps it. By speculators' name.
TRAINED_EMBEDDING = "embed_requires_grad"
#: Where a file does not say whether its embedding was trained, and the numbers differ from the target's.
EMBEDDING_REMEDY = (
    f'a trained one is kept where config.json says so: "{TRAINED_EMBEDDING}": true; a frozen or unread one: remove the '
    "tensor from the draft"
)


@attrs.frozen(kw_only=True)
class DraftClass:
    """One draft class that SGLang can load."""

    name: str
    #: SGLang's own class of this shape: the name by which SGLang's configuration knows a draft, whoever serves it.
    architecture: str
    #: Honoured math flags; the others cannot be represented by the class.
    math: DraftMath
    #: Honoured flag -> config key that tells SGLang's class. What ours adds it is told by the plan.
    switches: Mapping[str, str]
    #: Whether ``fc`` runs also where its input is as wide as its output.
    always_joins: bool = False
    #: Whether a draft of the target's width may keep an embedding of its own.
    keeps_embedding: bool = False
    #: Config fields that it is built from, beside those of every draft.
    fields: tuple[str, ...] = ()
    #: Most decoder layers that it can have; None: any number.
    depth: int | None = None
    #: The model type under which transformers keeps its fields, and their default for the longest position.
    model_type: str
    positions: int
    #: What it puts before the canonical names when it loads.
    prefix: str
    #: Names inside a layer, canonical; those of math that only ours computes included.
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
    architecture="LlamaForCausalLMEagle3",
    math=DraftMath(norm_before_fc=True, fc_norm=True, norm_output=True, output_bias=True),
    # ``bias`` would give fc one, and o_proj too.
    switches={"fc_norm": "fc_norm", "norm_output": "norm_output", "output_bias": "attention_bias"},
    model_type="llama",
    positions=2048,
    prefix="model.",
    layer=(*canonical.LLAMA_LAYER, *canonical.EXTRA_LAYER),
    attention=_heads,
)
LATENT = DraftClass(
    name="Eagle3DeepseekV2ForCausalLM",
    architecture="Eagle3DeepseekV2ForCausalLM",
    math=DraftMath(fc_norm=True, norm_output=True, fc_bias=True),
    switches={"fc_norm": "fc_norm", "norm_output": "norm_output", "fc_bias": "bias"},
    fields=("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    depth=1,
    model_type="deepseek_v3",
    positions=4096,
    # Its loader adds the prefix itself, and renames layer 0.
    prefix="",
    layer=(
        *(name for name in canonical.LLAMA_LAYER if name not in canonical.HEADS),
        *canonical.MLA_LAYER,
        *canonical.MLP_BIAS,
    ),
    attention=_latent,
)
_ALL = DraftMath(**{field.name: True for field in attrs.fields(DraftMath)})
ADAPTED_LLAMA = attrs.evolve(
    LLAMA, name="AdaptedLlamaForCausalLMEagle3", math=_ALL, always_joins=True, keeps_embedding=True
)
ADAPTED_LATENT = attrs.evolve(
    LATENT,
    name="AdaptedEagle3DeepseekV2ForCausalLM",
    # Its attention has no queries and keys of ordinary heads, and no trainer gives its projections a bias.
    math=attrs.evolve(_ALL, qk_norm=False, qkv_bias=False, output_bias=False),
    always_joins=True,
    keeps_embedding=True,
)
#: SGLang's own class -> ours of the same shape.
ADAPTED: Mapping[str, DraftClass] = {one.architecture: one for one in (ADAPTED_LLAMA, ADAPTED_LATENT)}


def serving(stock: DraftClass, math: DraftMath, *, bypassed: bool, trained_embedding: bool) -> DraftClass:
    """The class that serves a draft: SGLang's own wherever that is right, else ours.

    ``bypassed``: fc reads as many columns as it has rows, and SGLang's class would skip it.
    """
    wanted, honoured = attrs.asdict(math), attrs.asdict(stock.math)
    right = all(honoured[flag] for flag, value in wanted.items() if value)
    return stock if right and not bypassed and not trained_embedding else ADAPTED[stock.architecture]


def class_of(draft: DraftModel) -> DraftClass:
    """The stock class that serves a canonical draft, by its tensors: latent (MLA) attention or ordinary heads."""
    return LATENT if any(name.endswith(canonical.DOWN) for name in draft.tensors) else LLAMA


def owns_embedding(config: Config) -> bool:
    """Whether the draft keeps its own embedding: it was trained, or the target's would not fit (``set_embed``)."""
    return config.get(TRAINED_EMBEDDING) is True or is_wider(config)


def is_wider(config: Config) -> bool:
    """Whether the states that the draft reads have another width than its own."""
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
    outside = ("fc.weight", "fc.bias", canonical.FC_NORM, canonical.INPUT_NORM, "norm.weight")
    inside = (*(f"{layers}.{name}" for name in served.layer), *outside)
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
    if math.fc_bias:
        needed["fc.bias"] = (hidden,)
    if math.norm_before_fc:
        needed["input_norm.weight"] = (states * target_hidden,)
    if math.fc_norm:
        needed |= {f"fc_norm.{state}.weight": (target_hidden,) for state in range(states)}
    if head_rows is not None:
        needed["lm_head.weight"] = (head_rows, hidden)
    if owns_embedding(config):
        needed[EMBEDDING] = (config["vocab_size"], hidden)
    for layer in range(num_layers):
        inside = {
            "input_layernorm.weight": (hidden,),
            "hidden_norm.weight": (hidden,),
            "post_attention_layernorm.weight": (hidden,),
            **served.attention(config, 2 * hidden if layer == 0 else hidden),
            "mlp.gate_proj.weight": (inner, hidden),
            "mlp.up_proj.weight": (inner, hidden),
            "mlp.down_proj.weight": (hidden, inner),
        }
        needed |= {
            f"layers.{layer}.{name}": shape
            for name, shape in {**inside, **_extra(config, inside, math)}.items()
            # Only the first layer norms its input embedding; the class builds the norm everywhere but never reads it.
            if layer == 0 or name != "input_layernorm.weight"
        }
    return needed


def _extra(config: Config, inside: Mapping[str, Shape], math: DraftMath) -> Mapping[str, Shape]:
    """A layer's norms of queries and keys, and a bias for each row of its matrices, where the math has them."""
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    names = [name for flag, names in canonical.TENSOR_FLAGS.items() if getattr(math, flag) for name in names]
    extra: dict[str, Shape] = {}
    for name in names:
        weight = inside.get(f"{name.removesuffix('.bias')}.weight")
        if name in canonical.QK_NORM:
            extra[name] = (size,)
        elif weight is not None:
            extra[name] = weight[:1]
    return extra
