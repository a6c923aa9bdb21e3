"""The draft as a speculators (0.5 and later) checkpoint in bf16."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from canary_pair import corpus
from canary_pair.recipe import STEPS
from canary_pair.shape import COMMON, PairShape, Tensors


def config(shape: PairShape) -> dict[str, Any]:
    """config.json with the field layout that speculators writes; layer ids are boundaries there."""
    draft = shape.draft
    layer = COMMON | {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "intermediate_size": draft.intermediate_size,
        "num_attention_heads": draft.num_attention_heads,
        "num_key_value_heads": draft.num_key_value_heads,
        "head_dim": draft.head_dim,
        "rms_norm_eps": draft.rms_norm_eps,
        "mlp_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": draft.rope_theta},
        "rope_theta": draft.rope_theta,
    }
    proposal = {
        "proposal_type": "greedy",
        "speculative_tokens": STEPS,
        "verifier_accept_k": 1,
        "accept_tolerance": 0.0,
    }
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.5.0",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {"name_or_path": "../target", "architectures": shape.config["architectures"]},
        },
        "transformer_layer_config": layer,
        "draft_vocab_size": draft.vocab_size,
        "norm_before_residual": False,
        "norm_before_fc": False,
        "fc_norm": False,
        "norm_output": False,
        "target_hidden_size": None,
        "eagle_aux_hidden_state_layer_ids": list(draft.boundaries),
        "embed_requires_grad": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }


def save(shape: PairShape, tensors: Tensors, embedding: Tensor, ids: Tensor, folder: Path) -> None:
    """Write ``tensors`` under their canonical names, the target's embedding, d2t as offsets and t2d as a mask."""
    folder.mkdir(parents=True, exist_ok=True)
    known = torch.zeros(corpus.VOCAB_SIZE, dtype=torch.bool)
    known[ids] = True
    floating = tensors | {"embed_tokens.weight": embedding}
    whole = {"d2t": ids - torch.arange(len(ids)), "t2d": known}
    written = {name: value.detach().to("cpu", torch.bfloat16).contiguous() for name, value in floating.items()}
    save_file(written | whole, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config(shape), indent=2) + "\n", encoding="utf-8")
