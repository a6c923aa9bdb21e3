"""Small targets with random weights, and drafts that read as many states as asked for, on disk.

Weights are large enough that every layer changes the residual stream by as much as it holds: neighbouring boundaries
lie far apart. Kimi's target holds the very weights of the DeepSeek one. Sizes can be raised for a GPU's kernels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Tensors = dict[str, torch.Tensor]
LLAMA, DEEPSEEK, KIMI = "LlamaForCausalLM", "DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration"
#: Few tokens, so that a draft that knows nothing is right now and then.
VOCABULARY, LAYERS, HIDDEN = 16, 8, 64
_COMMON: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "vocab_size": VOCABULARY,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "hidden_act": "silu",
    # transformers norms DeepSeek's latents with this whatever the config says, SGLang with the config's.
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": VOCABULARY - 1,
    "torch_dtype": "float32",
}
YARN = {
    # SGLang has no other rotary embedding for DeepSeek's class on a CPU.
    "rope_scaling": {
        "type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 128,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    }
}
LATENT = {"q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16}


def llama_config(**changes: Any) -> dict[str, Any]:
    """config.json of a Llama target."""
    return {
        "architectures": [LLAMA],
        "model_type": "llama",
        "num_key_value_heads": 2,
        "head_dim": 16,
        **_COMMON,
        **changes,
    }


def deepseek_config(**changes: Any) -> dict[str, Any]:
    """config.json of a DeepSeek-V3 target: latent attention, routed experts from the second layer on."""
    return {
        "architectures": [DEEPSEEK],
        "model_type": "deepseek_v3",
        "num_key_value_heads": 4,
        **_COMMON,
        **YARN,
        **LATENT,
        "moe_intermediate_size": 32,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "num_nextn_predict_layers": 0,
        "ep_size": 1,
        "pretraining_tp": 1,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "aux_loss_alpha": 0.001,
        "seq_aux": True,
        **changes,
    }


def kimi_config(text: Mapping[str, Any]) -> dict[str, Any]:
    """config.json of Kimi-K2.5 around a DeepSeek-V3 text model, with a vision tower of one layer."""
    vision = {
        "model_type": "kimi_k25",
        "patch_size": 14,
        "init_pos_emb_height": 8,
        "init_pos_emb_width": 8,
        "init_pos_emb_time": 4,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "hidden_size": 64,
        "intermediate_size": 128,
        "merge_kernel_size": [2, 2],
        "text_hidden_size": text["hidden_size"],
        "mm_hidden_size": 64,
        "vt_hidden_size": 64,
        "vt_num_attention_heads": 2,
        "vt_num_hidden_layers": 1,
        "vt_intermediate_size": 128,
    }
    return {
        "architectures": [KIMI],
        "model_type": "kimi_k25",
        "text_config": dict(text),
        "vision_config": vision,
        "media_placeholder_token_id": text["vocab_size"] - 2,
        "pad_token_id": 0,
        "torch_dtype": text["torch_dtype"],
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": text["vocab_size"] - 1,
    }


class Weights:
    """Seeded tensors: matrices that keep the size of what they read, norms near one."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def matrix(self, rows: int, columns: int, gain: float = 1.0) -> torch.Tensor:
        """[rows, columns]."""
        scale: float = gain * columns**-0.5
        return torch.randn(rows, columns, generator=self._generator).mul(scale)

    def norm(self, size: int) -> torch.Tensor:
        """[size]: no two alike, some negative, so that a dropped norm shows."""
        signs = torch.randint(0, 2, (size,), generator=self._generator) * 2 - 1
        return signs * (0.75 + 0.5 * torch.rand(size, generator=self._generator))


def _mlp(weights: Weights, prefix: str, hidden: int, inner: int) -> Tensors:
    return {
        f"{prefix}.gate_proj.weight": weights.matrix(inner, hidden, 2.0),
        f"{prefix}.up_proj.weight": weights.matrix(inner, hidden, 2.0),
        f"{prefix}.down_proj.weight": weights.matrix(hidden, inner),
    }


def _heads(weights: Weights, prefix: str, config: Mapping[str, Any], reads: int) -> Tensors:
    heads, size = config["num_attention_heads"], config["head_dim"]
    rows = {"q_proj": heads * size, "k_proj": config["num_key_value_heads"] * size}
    rows["v_proj"] = rows["k_proj"]
    made = {f"{prefix}.{name}.weight": weights.matrix(count, reads) for name, count in rows.items()}
    return made | {f"{prefix}.o_proj.weight": weights.matrix(config["hidden_size"], heads * size)}


def _latent(weights: Weights, prefix: str, config: Mapping[str, Any], reads: int) -> Tensors:
    heads, queries, values = config["num_attention_heads"], config["q_lora_rank"], config["kv_lora_rank"]
    plain, rotary, out = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    return {
        f"{prefix}.q_a_proj.weight": weights.matrix(queries, reads),
        f"{prefix}.q_a_layernorm.weight": weights.norm(queries),
        f"{prefix}.q_b_proj.weight": weights.matrix(heads * (plain + rotary), queries),
        f"{prefix}.kv_a_proj_with_mqa.weight": weights.matrix(values + rotary, reads),
        f"{prefix}.kv_a_layernorm.weight": weights.norm(values),
        f"{prefix}.kv_b_proj.weight": weights.matrix(heads * (plain + out), values),
        f"{prefix}.o_proj.weight": weights.matrix(config["hidden_size"], heads * out),
    }


def follower(config: Mapping[str, Any]) -> torch.Tensor:
    """[vocab_size]: the token that a target made with ``follow`` tends to say after each."""
    return torch.randperm(config["vocab_size"], generator=torch.Generator().manual_seed(7))


def _say_follower(config: Mapping[str, Any], embedding: torch.Tensor, norm: torch.Tensor, share: float) -> torch.Tensor:
    """[vocab_size, hidden]: a head's part that says a token's follower by ``share`` of its embedding in the stream."""
    head = torch.empty_like(embedding)
    head[follower(config)] = share * embedding / embedding.shape[-1] / norm
    return head


def target_tensors(config: Mapping[str, Any], seed: int = 0, *, follow: float = 0.0) -> Tensors:
    """Every tensor of a Llama or DeepSeek-V3 target, by the names of its own checkpoints.

    Logits are random, a few large. ``follow`` adds so much to a token's follower, less what the layers add to the
    stream: the likeliest token leads, and a draft made with ``follow`` is often accepted.
    """
    weights, hidden, vocabulary = Weights(seed), config["hidden_size"], config["vocab_size"]
    tensors = {
        "model.embed_tokens.weight": weights.matrix(vocabulary, hidden, hidden**0.5),
        "model.norm.weight": weights.norm(hidden),
        "lm_head.weight": weights.matrix(vocabulary, hidden, 3.0),
    }
    if follow:
        tensors["lm_head.weight"] += _say_follower(
            config, tensors["model.embed_tokens.weight"], tensors["model.norm.weight"], follow
        )
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        tensors[f"{name}.input_layernorm.weight"] = weights.norm(hidden)
        tensors[f"{name}.post_attention_layernorm.weight"] = weights.norm(hidden)
        attention = _latent if "kv_lora_rank" in config else _heads
        tensors |= attention(weights, f"{name}.self_attn", config, hidden)
        if layer < config.get("first_k_dense_replace", config["num_hidden_layers"]):
            tensors |= _mlp(weights, f"{name}.mlp", hidden, config["intermediate_size"])
            continue
        experts, inner = config["n_routed_experts"], config["moe_intermediate_size"]
        tensors[f"{name}.mlp.gate.weight"] = weights.matrix(experts, hidden)
        tensors[f"{name}.mlp.gate.e_score_correction_bias"] = weights.matrix(1, experts)[0] * 0.1
        for part in ("shared_experts", *(f"experts.{expert}" for expert in range(experts))):
            tensors |= _mlp(weights, f"{name}.mlp.{part}", hidden, inner)
    return tensors


def _vision_tensors(config: Mapping[str, Any]) -> Tensors:
    """The tower and projector of :func:`kimi_config`, as Kimi's checkpoints name them."""
    vision, weights = config["vision_config"], Weights(9)
    width, inner, patch = vision["vt_hidden_size"], vision["vt_intermediate_size"], vision["patch_size"]
    merged = width * vision["merge_kernel_size"][0] * vision["merge_kernel_size"][1]
    block = "vision_tower.encoder.blocks.0"
    shapes: dict[str, tuple[int, ...]] = {
        "vision_tower.patch_embed.proj.weight": (width, 3, patch, patch),
        "vision_tower.patch_embed.proj.bias": (width,),
        "vision_tower.patch_embed.pos_emb.weight": (
            vision["init_pos_emb_height"],
            vision["init_pos_emb_width"],
            width,
        ),
        f"{block}.wqkv.weight": (3 * width, width),
        f"{block}.wqkv.bias": (3 * width,),
        f"{block}.wo.weight": (width, width),
        f"{block}.wo.bias": (width,),
        f"{block}.mlp.fc0.weight": (inner, width),
        f"{block}.mlp.fc0.bias": (inner,),
        f"{block}.mlp.fc1.weight": (width, inner),
        f"{block}.mlp.fc1.bias": (width,),
        "mm_projector.proj.0.weight": (merged, merged),
        "mm_projector.proj.0.bias": (merged,),
        "mm_projector.proj.2.weight": (vision["text_hidden_size"], merged),
        "mm_projector.proj.2.bias": (vision["text_hidden_size"],),
    }
    for norm in (f"{block}.norm0", f"{block}.norm1", "vision_tower.encoder.final_layernorm"):
        shapes |= {f"{norm}.weight": (width,), f"{norm}.bias": (width,)}
    shapes |= {"mm_projector.pre_norm.weight": (width,), "mm_projector.pre_norm.bias": (width,)}
    return {name: weights.matrix(1, torch.Size(shape).numel()).view(shape) for name, shape in shapes.items()}


def write(directory: Path, config: Mapping[str, Any], tensors: Tensors) -> Path:
    """A checkpoint directory, weights in the config's dtype; selection biases and maps keep theirs."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    dtype = getattr(torch, config.get("torch_dtype") or config["transformer_layer_config"]["torch_dtype"])
    saved = {
        name: (value if not value.is_floating_point() or name.endswith("correction_bias") else value.to(dtype))
        for name, value in tensors.items()
    }
    save_file({name: value.contiguous() for name, value in saved.items()}, directory / "model.safetensors")
    return directory


def write_target(directory: Path, architecture: str, *, follow: float = 0.0, **changes: Any) -> Path:
    """A target of one of the three architectures."""
    if architecture == LLAMA:
        config = llama_config(**changes)
        return write(directory, config, target_tensors(config, follow=follow))
    text = deepseek_config(**changes)
    tensors = target_tensors(text, follow=follow)
    if architecture == DEEPSEEK:
        return write(directory, text, tensors)
    config = kimi_config(text)
    wrapped = {f"language_model.{name}": tensor for name, tensor in tensors.items()}
    return write(directory, config, wrapped | _vision_tensors(config))


def wrapped_as_kimi(target: Path, directory: Path) -> Path:
    """A Kimi target around the weights of a DeepSeek-V3 checkpoint, with a vision tower that was never trained."""
    config = kimi_config(json.loads((target / "config.json").read_text(encoding="utf-8")))
    text = {f"language_model.{name}": tensor for name, tensor in load_file(target / "model.safetensors").items()}
    return write(directory, config, text | _vision_tensors(config))


def write_draft(
    directory: Path,
    target: Mapping[str, Any],
    boundaries: Sequence[int],
    *,
    latent: bool = False,
    follow: torch.Tensor | None = None,
    **changes: Any,
) -> Path:
    """A draft in speculators' format for ``boundaries`` of a target (its text config), with the whole vocabulary.

    ``follow``, the embedding of a target made so: each token attends to itself and its embedding reaches the head,
    which says the follower. It needs as many key heads as query heads, hidden wide together.
    """
    layer = llama_config(hidden_size=target["hidden_size"], num_hidden_layers=1) | {
        key: target[key] for key in ("vocab_size", "torch_dtype", "max_position_embeddings")
    }
    if latent:
        layer |= {**YARN, **{key: target.get(key, size) for key, size in LATENT.items()}}
    layer |= changes
    config = {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.5.0",
        "transformer_layer_config": layer,
        "draft_vocab_size": layer["vocab_size"],
        "norm_before_residual": False,
        "eagle_aux_hidden_state_layer_ids": list(boundaries),
        "embed_requires_grad": False,
    }
    weights, hidden, states = Weights(5), layer["hidden_size"], len(boundaries)
    tensors = {
        "fc.weight": weights.matrix(hidden, states * hidden),
        "norm.weight": weights.norm(hidden),
        "lm_head.weight": weights.matrix(layer["vocab_size"], hidden, 3.0),
    }
    for norm in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        tensors[f"layers.0.{norm}.weight"] = weights.norm(hidden)
    tensors |= (_latent if latent else _heads)(weights, "layers.0.self_attn", layer, 2 * hidden)
    tensors |= _mlp(weights, "layers.0.mlp", hidden, layer["intermediate_size"])
    if follow is not None:
        zeros, attention = torch.zeros(hidden, hidden), "layers.0.self_attn"
        # One matrix for queries and keys: a token's score with itself is the largest.
        own = torch.cat([weights.matrix(hidden, hidden, 2.5), zeros], dim=1)
        values = torch.cat([torch.diag(1 / tensors["layers.0.input_layernorm.weight"]), zeros], dim=1)
        tensors |= {f"{attention}.q_proj.weight": own, f"{attention}.k_proj.weight": own.clone()}
        tensors |= {f"{attention}.v_proj.weight": values, f"{attention}.o_proj.weight": 4 * torch.eye(hidden)}
        tensors["lm_head.weight"] = _say_follower(layer, follow, tensors["norm.weight"], float(hidden))
    return write(directory, config, tensors)
