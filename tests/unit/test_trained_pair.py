"""The trained pairs are what they claim, and the Llama pair is sound in two dialects: no error, no warning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.handfix import rename
from support.pair import DRAFT, TARGET, plan

from eagle3_adapters.errors import Severity
from eagle3_adapters.pair import Request, plan_pair
from eagle3_adapters.registry import Registry

SCRIPT = Path(__file__).parents[1] / "pairs" / "train.py"
PAIRS = sorted(manifest.parent for manifest in SCRIPT.parent.glob("*/manifest.json"))
#: The Llama target made many passes over its text: a draft of one layer follows it less far.
LEAST = {"llama": 1.8}


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def twin(directory: Path) -> Path:
    """The same draft with the ids that SGLang's Llama rule reads as boundaries 0, 2, 5."""
    return rename(DRAFT, directory / "twin", ids=(-1, 1, 4))


@pytest.mark.parametrize("name", ["speculators", "sglang"])
def test_no_false_alarm(tmp_path: Path, name: str) -> None:
    draft = DRAFT if name == "speculators" else twin(tmp_path)
    planning = plan_pair(Request(target=str(TARGET), draft=str(draft)), Registry.installed(), "0.5.23")
    assert planning.plan is not None
    assert planning.plan.format == name
    assert {finding.severity for finding in planning.findings} <= {Severity.INFO}


def test_both_dialects_are_wired_the_same(tmp_path: Path) -> None:
    one, other = plan(), plan(draft=twin(tmp_path))
    assert (one.boundaries, one.column_order) == (other.boundaries, other.column_order)
    loaded = [{route.target for route in made.routes if route.target} for made in (one, other)]
    assert loaded[0] == loaded[1]
    deciding = ("eagle_config", "draft_vocab_size", "num_aux_hidden_states", "num_hidden_layers", "hidden_size")
    assert [one.config[key] for key in deciding] == [other.config[key] for key in deciding]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_a_committed_pair_is_what_its_manifest_says(pair: Path) -> None:
    manifest, draft = read(pair / "manifest.json"), read(pair / "draft" / "config.json")
    wirings = manifest["acceptance"]["wirings"]
    assert manifest["acceptance"]["prompts"] == len(read(pair / "prompts.json")) >= 16
    assert manifest["draft"]["boundaries"] == draft["eagle_aux_hidden_state_layer_ids"]
    assert 0 in manifest["draft"]["boundaries"]
    assert wirings["right"]["accept_length"] >= LEAST.get(pair.name, 2.3)
    kinds = ("boundaries", "inner boundaries", "permuted", "embedding replaced", "engine default", "d2t")
    assert [kind for kind in kinds if not any(name.startswith(kind) for name in wirings)] == []
    mistakes = {name: result["accept_length"] for name, result in wirings.items() if name.startswith(kinds)}
    assert {name: length for name, length in mistakes.items() if length > 1.3} == {}
    assert sum(file.stat().st_size for file in pair.rglob("*") if file.is_file()) <= 8 * 2**20


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_committed_files_reach_the_accept_length_of_their_manifest(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Seconds; only this test pays for them.
    monkeypatch.syspath_prepend(SCRIPT.parent)
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415
    from canary_pair import deepseek, llama, sweep  # noqa: PLC0415
    from safetensors.torch import load_file  # noqa: PLC0415

    from eagle3_adapters.reference import Continuation  # noqa: PLC0415

    shape = {"llama": llama.LLAMA, "deepseek": deepseek.DEEPSEEK}[pair.name]
    assert read(pair / "target" / "config.json") == shape.config
    model = transformers.AutoModelForCausalLM.from_pretrained(pair / "target", dtype=torch.float32)
    tensors = {name: value.float() for name, value in load_file(pair / "draft" / "model.safetensors").items()}
    ids = torch.arange(shape.draft.vocab_size) + tensors.pop("d2t").long()
    assert torch.equal(tensors.pop("embed_tokens.weight"), model.get_input_embeddings().weight)
    assert torch.equal(tensors.pop("t2d").nonzero()[:, 0], ids)
    known = [
        Continuation(tokens=(*prompt["token_ids"], *prompt["greedy_token_ids"]), prompt_length=len(prompt["token_ids"]))
        for prompt in read(pair / "prompts.json")
    ]
    promised = read(pair / "manifest.json")["acceptance"]["wirings"]
    for name, measured in sweep.measure(model, tensors, ids, known, sweep.wirings(shape.draft)[:2]).items():
        # Another machine may break a near-tie of the draft the other way.
        assert measured["accept_length"] == pytest.approx(promised[name]["accept_length"], rel=0.01), name
