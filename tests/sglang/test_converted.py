"""The trained draft in every format that can hold it, and a deeper one, on the real engine: served as before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from support.pair import DRAFT, NEW_TOKENS, PAIR, STEPS, TARGET, offline_counts, plan
from support.serve import serve, speculation

from eagle3_adapters.cli import main
from eagle3_adapters.registry import Registry

pytestmark = pytest.mark.engine

#: The pair reads the embedding and other states than the default triple, which these cannot say.
CANNOT = {"nemo": "default triple", "safeailab": "default triple"}
#: Its own format is what all other tests serve.
OWN = "speculators"


def convert(to: str, output: Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["convert", str(DRAFT), str(output), "--to", to, "--target", str(TARGET)])
    return result.exit_code, result.output


def greedy() -> list[list[int]]:
    prompts = json.loads((PAIR / "prompts.json").read_text(encoding="utf-8"))
    return [prompt["greedy_token_ids"][:NEW_TOKENS] for prompt in prompts]


# One format in the gate: the one whose names, maps, ids and config all differ from the pair's own.
@pytest.mark.parametrize(
    "name",
    [
        "modelopt",
        *(
            pytest.param(one.name, marks=pytest.mark.thorough)
            for one in Registry.installed().formats
            if one.distribution == "eagle3-adapters" and one.name not in (*CANNOT, OWN, "modelopt")
        ),
    ],
)
def test_the_converted_pair_is_served_with_the_same_tokens_and_counts(
    name: str, tmp_path: Path, report: dict[str, Any]
) -> None:
    code, output = convert(name, tmp_path / name)
    assert code == 0, output
    served = serve(speculation(tmp_path / name), EAGLE3_ADAPTER="auto", EAGLE3_FORMAT=name)
    assert not served.error, served.log[-3000:]
    assert f"llama x {name} -> LlamaForCausalLMEagle3: boundaries [0, 2, 5] = embedding" in served.log
    assert served.tokens == greedy()
    assert [count.verifies for count in served.counts] == report["adapter"]["verifies"]
    assert [count.accepted for count in served.counts] == report["adapter"]["accepted"]


@pytest.mark.parametrize("name", CANNOT)
def test_the_others_say_why_they_cannot_hold_the_pair(name: str, tmp_path: Path) -> None:
    code, output = convert(name, tmp_path / name)
    assert code == 1
    assert CANNOT[name] in output


def test_a_second_layer_under_speculators_names_is_served_as_the_reference_computes_it(tmp_path: Path) -> None:
    """Its norm of the hidden state is called input_layernorm there, hidden_norm in SGLang's class."""
    draft = deeper(tmp_path / "draft")
    served = serve(speculation(draft), EAGLE3_ADAPTER="auto")
    assert not served.error, served.log[-3000:]
    continuations = [prompt["greedy_token_ids"] for prompt in json.loads((PAIR / "prompts.json").read_text("utf-8"))]
    wired = plan(draft=draft)
    assert wired.config["num_hidden_layers"] == 2
    assert served.tokens == greedy()
    assert served.counts == offline_counts(wired, continuations)
    # The second layer matters, and so does its norm: without either the proposals are others.
    assert served.counts != offline_counts(plan(), continuations)
    assert STEPS * sum(count.verifies for count in served.counts) > sum(count.accepted for count in served.counts) > 0


def deeper(directory: Path) -> Path:
    """The trained draft with a second layer of small random weights, as speculators names it."""
    config = json.loads((DRAFT / "config.json").read_text(encoding="utf-8"))
    config["transformer_layer_config"]["num_hidden_layers"] = 2
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = load_file(DRAFT / "model.safetensors")
    hidden = config["transformer_layer_config"]["hidden_size"]
    generator = torch.Generator().manual_seed(5)
    for name, first in dict(tensors).items():
        if not name.startswith("layers.0.") or ".hidden_norm." in name:
            continue
        shape = (first.shape[0], hidden) if first.shape[-1] == 2 * hidden else first.shape
        random = torch.randn(shape, generator=generator)
        scale = 1 + 0.3 * random if len(shape) == 1 else 0.03 * random
        tensors[name.replace("layers.0.", "layers.1.")] = scale.to(first.dtype)
    save_file(tensors, directory / "model.safetensors")
    return directory
