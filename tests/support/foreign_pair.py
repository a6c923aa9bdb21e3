"""The trained draft, rewritten as the foreign trainer would have saved it."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from eagle3_adapters.sglang.draft import permute_blocks
from support.foreign.foreign_trainer import KEYS

FOLDER = Path(__file__).parent / "foreign"
#: The pair's boundaries [0, 2, 5] as outputs of layers, in an order of its own: 5, 0, 2.
TAPS = [4, -1, 1]
#: Block p of the foreign fc is this block of the pair's.
ORDER = (2, 0, 1)


def rewrite(draft: Path, output: Path) -> Path:
    """Write ``draft`` (speculators, boundaries 0, 2, 5) to ``output`` in the foreign format."""
    config = json.loads((draft / "config.json").read_text(encoding="utf-8"))
    foreign = {
        "foreign_trainer": "1.0",
        "taps": TAPS,
        "draft": config["transformer_layer_config"] | {"draft_vocab_size": config["draft_vocab_size"]},
    }
    output.mkdir(parents=True)
    (output / "config.json").write_text(json.dumps(foreign), encoding="utf-8")
    back, tensors = KEYS.inverse(), load_file(draft / "model.safetensors")
    # The format knows neither a copy of the target's embedding nor a mask.
    kept = {name: tensor for name, tensor in tensors.items() if name not in ("embed_tokens.weight", "t2d")}
    kept["fc.weight"] = permute_blocks(kept["fc.weight"], ORDER)
    kept["d2t"] = kept["d2t"] + torch.arange(len(kept["d2t"]))
    renamed = {str(back.apply(name)): tensor.contiguous() for name, tensor in kept.items()}
    save_file(renamed, output / "model.safetensors")
    return output
