"""The pairs of identity.py: random targets of 8 layers, drafts that agree with them often, the prompts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from support.boundary_states import Reference
from support.fitted_drafts import fit
from support.pair import plan
from support.random_targets import DEEPSEEK, KIMI, LLAMA, write_draft, write_target
from support.transformers_targets import CLASSES, write_transformers_target

BOUNDARIES = (0, 3, 8)
PROMPTS, NEW_TOKENS, VOCABULARY, STEPS = 8, 48, 256, 3
#: How much a token's follower is likelier than the rest: the likeliest token leads by about 2 in the median.
FOLLOW = 128.0
_SIZES = {
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
_HEADS = {**_SIZES, "num_key_value_heads": 4, "head_dim": 64}
#: Widths that the kernels for latent attention and experts are built for.
_LATENT = {
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "q_lora_rank": 256,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_intermediate_size": 256,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "n_group": 4,
    "topk_group": 2,
    # bf16 routes now and then to another expert than float32, whose output is another one altogether.
    "routed_scaling_factor": 0.1,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": (LLAMA, _HEADS),
    "deepseek": (DEEPSEEK, {**_SIZES, **_LATENT}),
    "kimi": (KIMI, {**_SIZES, **_LATENT}),
    # Injected whole: these classes capture nothing, and the wrong tensor.
    "mixtral": ("MixtralForCausalLM", _HEADS),
    "gemma3": ("Gemma3ForCausalLM", {**_HEADS, "query_pre_attn_scalar": 64}),
    "gpt-oss": ("GptOssForCausalLM", _HEADS),
    "nemotron-h": (
        "NemotronHForCausalLM",
        {**_HEADS, "mamba_num_heads": 16, "mamba_head_dim": 64, "ssm_state_size": 128, "chunk_size": 256},
    ),
    "qwen2-moe": ("Qwen2MoeForCausalLM", {**_HEADS, "moe_intermediate_size": 256}),
    "qwen3-moe": ("Qwen3MoeForCausalLM", {**_HEADS, "moe_intermediate_size": 256}),
    "glm4": ("Glm4ForCausalLM", _HEADS),
}


def make(case: str, folder: Path, device: str) -> None:
    """Target and draft of a case: constructed so that they agree, or fitted to each other."""
    architecture, sizes = CASES[case]
    follow: torch.Tensor | None = None
    if architecture in CLASSES:
        target = write_transformers_target(folder / "target", architecture, **sizes)
    else:
        target = write_target(folder / "target", architecture, follow=FOLLOW, **sizes)
        names = (f"{prefix}model.embed_tokens.weight" for prefix in ("", "language_model."))
        tensors = load_file(target / "model.safetensors")
        follow = next(tensors[name].float() for name in names if name in tensors)
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    heads = {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": sizes["hidden_size"] // 8}
    draft = write_draft(folder / "draft", config.get("text_config", config), BOUNDARIES, follow=follow, **heads)
    if follow is None:
        fit(plan(target, draft), Reference(target, device), prompts().values(), new_tokens=NEW_TOKENS, steps=STEPS)


def prompts() -> dict[str, list[int]]:
    """Request -> tokens, a ragged batch."""
    generator = random.Random(0)  # noqa: S311 - prompts, not secrets
    return {f"request-{i}": [generator.randrange(1, VOCABULARY - 2) for _ in range(16 + 7 * i)] for i in range(PROMPTS)}
