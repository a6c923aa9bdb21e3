"""The trained pair is sound, and so is its twin in SGLang's own dialect: no error and no warning on either."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.handfix import rename
from support.pair import DRAFT, PAIR, TARGET, plan, prompts

from eagle3_adapters.errors import Severity
from eagle3_adapters.pair import Request, plan_pair
from eagle3_adapters.registry import Registry


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


def test_the_committed_pair_is_what_its_manifest_says() -> None:
    manifest = json.loads((PAIR / "manifest.json").read_text(encoding="utf-8"))
    wirings = manifest["acceptance"]["wirings"]
    assert manifest["acceptance"]["prompts"] == len(prompts()) >= 16
    assert tuple(manifest["draft"]["boundaries"]) == plan().boundaries
    assert wirings["right"]["accept_length"] >= 1.8
    states = [name for name in wirings if name.startswith(("boundaries", "inner", "permuted", "embedding", "engine"))]
    assert len(states) >= 12
    assert max(wirings[name]["accept_length"] for name in states) <= 1.3
    assert sum(file.stat().st_size for file in PAIR.rglob("*") if file.is_file()) <= 8 * 2**20
