"""Tensors as a draft's trainer saves them: names, dtypes and shapes from its config; headers are real, data is a hole.

The rules are those of the trainers' export code (SafeAILab EAGLE, SpecForge, speculators, ModelOpt, AngelSlim,
TorchSpec): prefix of the layer, whether the embedding goes along, which maps, how wide ``fc`` is. ``d2t`` and ``t2d``
hold real integers, because the package reads them; everything else is the unwritten end of a sparse file.
"""

from __future__ import annotations

import codecs
import json
import struct
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

Config = Mapping[str, Any]
Shapes = dict[str, tuple[int, ...]]
_ITEM = {"BF16": 2, "F16": 2, "F32": 4, "I64": 8, "BOOL": 1}
_DTYPE = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
#: Places and names under which trainers keep layer ids.
_IDS = ("eagle_aux_hidden_state_layer_ids", "aux_hidden_states_layer_ids", "target_layer_ids")


@attrs.frozen(kw_only=True)
class Layout:
    """What one trainer's export does."""

    #: ``midlayer`` holds exactly one layer, ``layers`` as many as the config says.
    layer: str
    embedding: bool
    #: ``always``: d2t and t2d, also where nothing is pruned; ``pruned``: both, where pruned; ``d2t``: no t2d.
    maps: str
    qk_norm: bool = False


#: Trainer (how its name starts) -> layout.
_LAYOUTS = {
    "SafeAILab": Layout(layer="midlayer", embedding=False, maps="always"),
    "SpecForge": Layout(layer="midlayer", embedding=False, maps="always"),
    "AngelSlim": Layout(layer="midlayer", embedding=True, maps="always"),
    "TorchSpec": Layout(layer="midlayer", embedding=True, maps="pruned"),
    "ModelOpt": Layout(layer="layers", embedding=False, maps="d2t"),
    "DeepSpec": Layout(layer="layers", embedding=True, maps="pruned", qk_norm=True),
    # Its research code is SafeAILab's; the library itself names layers.
    "speculators (research)": Layout(layer="midlayer", embedding=False, maps="always"),
    "speculators": Layout(layer="layers", embedding=True, maps="pruned"),
}
#: Who wrote it is not known: as most of the public ones.
_USUAL = _LAYOUTS["SpecForge"]


def flat(config: Config) -> dict[str, Any]:
    """The fields of a config whatever the nesting, nulls left out."""
    nested = config.get("transformer_layer_config")
    fields = {**config, **(nested if isinstance(nested, dict) else {})}
    return {key: value for key, value in fields.items() if value is not None}


def ids_of(config: Config) -> list[int] | None:
    """Layer ids, wherever a trainer keeps them."""
    for place in (config.get("eagle_config") or {}, config):
        for key in _IDS:
            if place.get(key):
                ids: list[int] = place[key]
                return ids
    return None


def layout_of(trainer: str) -> Layout:
    """The layout of a trainer, by how its name starts."""
    return next((layout for name, layout in _LAYOUTS.items() if trainer.startswith(name)), _USUAL)


def _attention(prefix: str, config: Config, reads: int, layout: Layout) -> Shapes:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    if "kv_lora_rank" in config:
        queries, values = config["q_lora_rank"], config["kv_lora_rank"]
        plain, rotary, out = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
        return {
            f"{prefix}.q_a_proj.weight": (queries, reads),
            f"{prefix}.q_a_layernorm.weight": (queries,),
            f"{prefix}.q_b_proj.weight": (heads * (plain + rotary), queries),
            f"{prefix}.kv_a_proj_with_mqa.weight": (values + rotary, reads),
            f"{prefix}.kv_a_layernorm.weight": (values,),
            f"{prefix}.kv_b_proj.weight": (heads * (plain + out), values),
            f"{prefix}.o_proj.weight": (hidden, heads * out),
        }
    size = config.get("head_dim") or hidden // heads
    rows = {"q_proj": heads * size, "k_proj": config["num_key_value_heads"] * size}
    rows["v_proj"] = rows["k_proj"]
    shapes: Shapes = {f"{prefix}.{name}.weight": (count, reads) for name, count in rows.items()}
    shapes[f"{prefix}.o_proj.weight"] = (hidden, heads * size)
    if config.get("attention_bias"):
        shapes |= {f"{prefix}.{name}.bias": (count,) for name, count in {**rows, "o_proj": hidden}.items()}
    if layout.qk_norm or config.get("model_type") == "qwen3":
        shapes |= {f"{prefix}.{name}.weight": (size,) for name in ("q_norm", "k_norm")}
    return shapes


def _mlp(prefix: str, config: Config) -> Shapes:
    hidden = config["hidden_size"]

    def dense(name: str, inner: int) -> Shapes:
        return {
            f"{name}.gate_proj.weight": (inner, hidden),
            f"{name}.up_proj.weight": (inner, hidden),
            f"{name}.down_proj.weight": (hidden, inner),
        }

    if config.get("model_type") != "qwen3_moe":
        return dense(prefix, config["intermediate_size"])
    shapes: Shapes = {f"{prefix}.gate.weight": (config["num_experts"], hidden)}
    for expert in range(config["num_experts"]):
        shapes |= dense(f"{prefix}.experts.{expert}", config["moe_intermediate_size"])
    return shapes


def shapes_of(config: Config, trainer: str, sizes: Config) -> Shapes:
    """Name -> shape of every tensor but the maps. ``sizes``: the config's fields, completed where it is an excerpt."""
    layout, hidden = layout_of(trainer), sizes["hidden_size"]
    parallel = "PEagleDraftModel" in (config.get("architectures") or ())
    layer = "layers" if parallel else layout.layer
    names = ["midlayer"] if layer == "midlayer" else [f"layers.{i}" for i in range(sizes.get("num_hidden_layers", 1))]
    shapes: Shapes = {}
    for index, name in enumerate(names):
        shapes |= {f"{name}.{norm}.weight": (hidden,) for norm in ("input_layernorm", "post_attention_layernorm")}
        if index == 0:
            shapes[f"{name}.hidden_norm.weight"] = (hidden,)
        shapes |= _attention(f"{name}.self_attn", sizes, 2 * hidden if index == 0 else hidden, layout)
        shapes |= _mlp(f"{name}.mlp", sizes)
    states, reads = len(ids_of(config) or (0, 0, 0)), sizes.get("target_hidden_size") or hidden
    # ModelOpt builds fc for joined states only.
    if (config.get("eagle_config") or {}).get("use_aux_hidden_state", True):
        shapes["fc.weight"] = (hidden, states * reads)
    if config.get("norm_before_fc"):
        shapes["input_norm.weight"] = (states * reads,)
    if config.get("fc_norm"):
        shapes |= {f"fc_norm.{state}.weight": (reads,) for state in range(states)}
    if parallel:
        shapes["mask_hidden"] = (1, 1, states * reads)
    shapes["norm.weight"] = (hidden,)
    if not config.get("reuse_target_lm_head"):
        shapes["lm_head.weight"] = (sizes.get("draft_vocab_size") or sizes["vocab_size"], hidden)
    if layout.embedding:
        shapes["embed_tokens.weight"] = (vocabulary_of(sizes), hidden)
    return shapes


def vocabulary_of(sizes: Config) -> int:
    """The target's vocabulary, which some files keep beside the draft's."""
    size: int = sizes.get("target_vocab_size") or sizes["vocab_size"]
    return size


def offsets(draft: int, target: int) -> list[int]:
    """``d2t`` as a sorting trainer writes it: frequent low ids as they are, then runs of neighbours further up."""
    half, span = draft // 2, target - draft
    return [span * (max(0, i - half) // 8 * 8) // max(1, draft - half) for i in range(draft)]


def maps_of(trainer: str, sizes: Config) -> dict[str, array[Any]]:
    """``d2t`` and ``t2d`` with their integers, where the trainer saves them."""
    target = vocabulary_of(sizes)
    draft = sizes.get("draft_vocab_size") or sizes["vocab_size"]
    form = layout_of(trainer).maps
    if draft == target and form != "always":
        return {}
    d2t = array("q", offsets(draft, target))
    t2d = array("B", bytes(target))
    for i, offset in enumerate(d2t):
        t2d[i + offset] = 1
    return {"d2t": d2t} if form == "d2t" else {"d2t": d2t, "t2d": t2d}


def write_draft(directory: Path, config: Config, trainer: str, sizes: Config, *, bom: bool = False) -> Path:
    """A checkpoint directory: the config as found, one safetensors file with a full header and almost no bytes."""
    directory.mkdir(parents=True)
    mark = codecs.BOM_UTF8 if bom else b""
    (directory / "config.json").write_bytes(mark + json.dumps(config).encode())
    dtype = _DTYPE[str(sizes.get("torch_dtype") or sizes.get("dtype") or "bfloat16")]
    maps = maps_of(trainer, sizes)
    header: dict[str, Any] = {}
    end = 0
    # Maps first: what follows them is never written.
    for name, kind, shape in (
        *((name, "I64" if name == "d2t" else "BOOL", (len(values),)) for name, values in maps.items()),
        *((name, dtype, shape) for name, shape in shapes_of(config, trainer, sizes).items()),
    ):
        size = _ITEM[kind]
        for dimension in shape:
            size *= dimension
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    raw = json.dumps(header).encode()
    with (directory / "model.safetensors").open("wb") as stream:
        stream.write(struct.pack("<Q", len(raw)) + raw + b"".join(values.tobytes() for values in maps.values()))
        stream.truncate(8 + len(raw) + end)
    return directory
