"""The usual hand fix of a speculators draft for SGLang as people publish it: all steps done, the wiring still wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import load_file, save_file


def rename(draft: Path, output: Path, ids: Sequence[int] | None = None) -> Path:
    """Flatten the config, rename ``layers.0`` to ``midlayer``, copy the vocabulary map and the ids as they are.

    ``ids`` replaces them: with those of SGLang's rule the result is a sound draft in SGLang's own dialect.
    """
    config = json.loads((draft / "config.json").read_text(encoding="utf-8"))
    flat = config["transformer_layer_config"] | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": config["draft_vocab_size"],
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": config["eagle_aux_hidden_state_layer_ids"] if ids is None else list(ids)
        },
        "tie_word_embeddings": False,
        "torch_dtype": config["torch_dtype"],
    }
    output.mkdir(parents=True)
    (output / "config.json").write_text(json.dumps(flat), encoding="utf-8")
    tensors = load_file(draft / "model.safetensors")
    renamed = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in tensors.items()}
    save_file(renamed, output / "model.safetensors")
    return output
