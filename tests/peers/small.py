"""Small drafts and their target with weights, the commands, and what the reference draft computes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from support.drafts import HIDDEN, LAYERS, VOCAB, Draft
from torch import Tensor

from eagle3_adapters.cli import main
from eagle3_adapters.reference import ReferenceDraft
from eagle3_adapters.reference.load import build_draft

ROWS, STEPS = 7, 3
#: A part of the largest logit. Both sides compute in float32; speculators sums in another order and counts positions
#: from 1, the reference from 0, so angles round elsewhere. Measured: 7e-7 at most; a flag ignored moves it by 0.7.
TOLERANCE = 1e-5


def command(*arguments: object, fails: bool = False) -> dict[str, Any]:
    """A command's JSON."""
    result = CliRunner().invoke(main, [*map(str, arguments), "--json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == int(fails), result.output
    data: dict[str, Any] = json.loads(result.stdout)
    return data


def convert(source: Path, output: Path, to: str, *options: object) -> Path:
    command("convert", source, output, "--to", to, *options)
    return output


def errors(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Code of each finding that stops, and what was found there."""
    return [(one["code"], one["found"]) for one in data["findings"] if one["severity"] == "error"]


def tensors_of(directory: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for file in sorted(directory.glob("*.safetensors")):
        found |= load_file(file)
    return found


def write_small(draft: Draft, directory: Path) -> Path:
    """A draft with weights of both signs, so that the forward is no sum of like terms."""
    draft.write(directory)
    for file in directory.glob("*.safetensors"):
        tensors = {
            name: 2 * tensor - 1 if tensor.is_floating_point() and tensor.ndim > 1 else tensor
            for name, tensor in load_file(file).items()
        }
        save_file(tensors, file, {"format": "pt"})
    return directory


def write_target(directory: Path) -> Path:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 2,
        "hidden_size": HIDDEN,
        "intermediate_size": 16,
        "vocab_size": VOCAB,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
    }
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    generator = torch.Generator().manual_seed(5)
    tensors = {
        name: torch.randn(VOCAB, HIDDEN, generator=generator)
        for name in ("model.embed_tokens.weight", "lm_head.weight")
    }
    save_file(tensors | {"model.norm.weight": torch.ones(HIDDEN)}, directory / "model.safetensors", {"format": "pt"})
    return directory


def named(tensors: Mapping[str, Tensor], only: str, deeper_norm: str = "hidden_norm") -> dict[str, Tensor]:
    """Canonical tensors by a trainer's names: what its first layer is called, and the norm of the others' input."""
    return {
        re.sub(r"^layers\.0\.", f"{only}.", re.sub(r"^(layers\.[1-9]\.)hidden_norm", rf"\1{deeper_norm}", name)): tensor
        for name, tensor in tensors.items()
    }


def assert_same_bits(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    assert sorted(found) == sorted(wanted)
    for name, tensor in found.items():
        other = wanted[name]
        assert (tensor.dtype, tensor.shape) == (other.dtype, other.shape), name
        assert torch.equal(tensor.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8)), name


@attrs.frozen
class Inputs:
    """Features [1, rows, width] of random states and the tokens [1, rows] that follow them, as trainers feed them."""

    features: Tensor
    tokens: Tensor

    @classmethod
    def random(cls, width: int, vocab: int) -> Inputs:
        generator = torch.Generator().manual_seed(11)
        tokens = torch.randint(0, vocab, (1, ROWS), generator=generator)
        return cls(torch.randn(1, ROWS, width, generator=generator), tokens)


def reference_of(draft: Draft, source: Path, **changed: float) -> ReferenceDraft:
    """This project's draft with the weights of ``source``, written from ``draft``, whatever SGLang can serve of it."""
    fields = draft.config() | changed
    extra = {"qk_norm": draft.qk_norm, "mlp_bias": draft.mlp_bias}
    extra |= dict.fromkeys(("qkv_bias", "output_bias"), draft.attention_bias)
    reference = build_draft(
        fields,
        attrs.evolve(draft.math, **extra),
        states=draft.states,
        state_width=draft.width,
        vocab_size=VOCAB,
        draft_vocab_size=fields["draft_vocab_size"],
    )
    beside = {"embed_tokens.weight", "d2t", "t2d"}
    reference.load_state_dict({name: tensor for name, tensor in tensors_of(source).items() if name not in beside})
    return reference


def reference_logits(reference: ReferenceDraft, inputs: Inputs, embedding: Tensor) -> Tensor:
    """The trainers' unroll by this project: logits [steps, 1, rows, draft vocabulary].

    Past the last row trainers embed token 0.
    """
    # Row t embeds token t + 1 of these at step 0.
    tokens = torch.nn.functional.pad(inputs.tokens, (1, STEPS - 1))
    with torch.no_grad():
        logits: Tensor = reference(inputs.features, tokens, embedding, steps=STEPS)
    return logits


def distance(found: Tensor, wanted: Tensor) -> float:
    """The largest difference, as a part of the largest logit."""
    assert found.shape == wanted.shape
    return float((found - wanted).abs().max() / wanted.abs().max())
