"""The script that makes the trained pair, end to end with a few steps: what it writes must be what others load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from safetensors import safe_open

SCRIPT = Path(__file__).parents[1] / "pairs" / "train.py"
HIDDEN, VOCAB = 128, 1024

# transformers imports SWIG types (sentencepiece) that Python deprecates while they are made: as an error that ends in a
# segmentation fault, so the import waits until the test's own filter is in force.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:builtin type [Ss]wig:DeprecationWarning")]


@attrs.frozen(kw_only=True)
class Expected:
    architecture: str
    boundaries: list[int]
    draft_vocab: int
    #: Rows of the draft's projections.
    queries: int
    keys: int
    inner: int


EXPECTED = {
    "llama": Expected(
        architecture="LlamaForCausalLM", boundaries=[0, 2, 5], draft_vocab=512, queries=128, keys=64, inner=384
    ),
    "deepseek": Expected(
        architecture="DeepseekV3ForCausalLM", boundaries=[0, 3, 5], draft_vocab=768, queries=256, keys=128, inner=768
    ),
}


@pytest.fixture(scope="module", params=EXPECTED)
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def pair(shape: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp(shape)
    quiet = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONWARNINGS": "default"}
    command = [sys.executable, str(SCRIPT), "--shape", shape, "--output", str(output), "--device", "cpu", "--quick"]
    done = subprocess.run(command, cwd=output, env=quiet, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return output


def tensors(path: Path) -> dict[str, torch.Tensor]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def load_target(pair: Path, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    return AutoModelForCausalLM.from_pretrained(pair / "target", dtype=dtype)


def test_the_files_are_complete_and_small_enough_to_commit(pair: Path) -> None:
    written = {path.relative_to(pair).as_posix() for path in pair.rglob("*") if path.is_file()}
    target = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    draft = {"draft/config.json", "draft/model.safetensors"}
    assert written == {f"target/{name}" for name in target} | draft | {"prompts.json", "manifest.json"}
    assert sum(path.stat().st_size for path in pair.rglob("*") if path.is_file()) < 8 * 2**20


def test_transformers_loads_the_target_and_its_tokenizer(shape: str, pair: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer  # noqa: PLC0415

    assert AutoConfig.from_pretrained(pair / "target").dtype == torch.bfloat16
    model = load_target(pair, torch.bfloat16)
    assert type(model).__name__ == EXPECTED[shape].architecture
    assert model.config.rope_parameters["rope_theta"] == 10000.0
    tokenizer = AutoTokenizer.from_pretrained(pair / "target")
    assert tokenizer.eos_token_id == model.config.eos_token_id == 0
    for prompt in read(pair / "prompts.json"):
        assert tokenizer(prompt["text"])["input_ids"] == prompt["token_ids"]
        assert 24 <= len(prompt["token_ids"]) <= 48


def test_the_continuations_are_the_targets_own(pair: Path) -> None:
    model = load_target(pair, torch.float32)
    prompt = max(read(pair / "prompts.json"), key=lambda prompt: float(prompt["smallest_lead"]))
    whole = torch.tensor([prompt["token_ids"] + prompt["greedy_token_ids"]])
    with torch.no_grad():
        said = model(whole).logits[0].argmax(-1)
    length = len(prompt["token_ids"])
    assert said[length - 1 : -1].tolist() == whole[0, length:].tolist()
    assert len(prompt["greedy_token_ids"]) == 96 + 3 - 1  # the last verify step may overrun


def test_the_draft_holds_the_declared_tensors(shape: str, pair: Path) -> None:
    both, queries, keys, inner = 2 * HIDDEN, EXPECTED[shape].queries, EXPECTED[shape].keys, EXPECTED[shape].inner
    layer = {
        "input_layernorm": (HIDDEN,),
        "hidden_norm": (HIDDEN,),
        "post_attention_layernorm": (HIDDEN,),
        "self_attn.q_proj": (queries, both),
        "self_attn.k_proj": (keys, both),
        "self_attn.v_proj": (keys, both),
        "self_attn.o_proj": (HIDDEN, queries),
        "mlp.gate_proj": (inner, HIDDEN),
        "mlp.up_proj": (inner, HIDDEN),
        "mlp.down_proj": (HIDDEN, inner),
    }
    rest = {
        "fc": (HIDDEN, 3 * HIDDEN),
        "norm": (HIDDEN,),
        "lm_head": (EXPECTED[shape].draft_vocab, HIDDEN),
        "embed_tokens": (VOCAB, HIDDEN),
    }
    expected: dict[str, tuple[int, ...]] = {f"layers.0.{name}.weight": shape for name, shape in layer.items()}
    expected |= {f"{name}.weight": shape for name, shape in rest.items()}
    draft = tensors(pair / "draft" / "model.safetensors")
    floating = {name: tuple(value.shape) for name, value in draft.items() if value.dtype == torch.bfloat16}
    assert floating == expected
    assert set(draft) - set(floating) == {"d2t", "t2d"}
    target = tensors(pair / "target" / "model.safetensors")
    assert torch.equal(draft["embed_tokens.weight"], target["model.embed_tokens.weight"])


def test_the_vocabulary_maps_agree(shape: str, pair: Path) -> None:
    draft = tensors(pair / "draft" / "model.safetensors")
    assert (draft["d2t"].dtype, draft["t2d"].dtype) == (torch.int64, torch.bool)
    ids = torch.arange(EXPECTED[shape].draft_vocab) + draft["d2t"]
    assert torch.equal(ids, draft["t2d"].nonzero()[:, 0])
    # A lost map must change every token, the end of text aside.
    assert (draft["d2t"][1:] > 0).all()
    config = read(pair / "draft" / "config.json")
    assert config["draft_vocab_size"] == EXPECTED[shape].draft_vocab
    assert config["eagle_aux_hidden_state_layer_ids"] == EXPECTED[shape].boundaries
    assert config["speculators_config"]["verifier"]["architectures"] == [EXPECTED[shape].architecture]


def test_the_manifest_measures_every_kind_of_mistake(pair: Path) -> None:
    acceptance = read(pair / "manifest.json")["acceptance"]
    wirings = acceptance["wirings"]
    assert next(iter(wirings)) == "right"
    kinds = [
        "boundaries +1",
        "inner boundaries -1",
        "boundaries +2",
        "engine default",
        "embedding replaced",
        "d2t",
        "rope base",
    ]
    kinds += ["fc dropped", "fc bypassed", "final norm dropped", "hidden_norm dropped", "midlayer dropped"]
    kinds += ["norm_output", "norm_before_fc", "fc_norm", "norm_before_residual", "first-layer input swapped"]
    assert [kind for kind in kinds if not any(name.startswith(kind) for name in wirings)] == []
    assert sum(name.startswith("permuted") for name in wirings) == 5
    for result in wirings.values():
        assert result["accept_length"] == round(1 + result["accepted"] / result["verifies"], 4)
        assert len(result["verifies_by_prompt"]) == acceptance["prompts"]
