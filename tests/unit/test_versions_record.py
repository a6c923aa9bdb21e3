"""The versions in which injected capture is allowed are those in which `make test-versions` saw it pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eagle3_adapters.engine_version import INJECTED, spelled
from eagle3_adapters.sglang.compat import FIRST, LAST

RECORD = json.loads((Path(__file__).parents[1] / "versions" / "record.json").read_text(encoding="utf-8"))
#: Of each plugin that boots there, and of each way to have states captured.
LEAST = {
    "LlamaForCausalLM": ["injected", "native"],
    "DeepseekV3ForCausalLM": ["injected", "native"],
    "MixtralForCausalLM": ["injected"],
    "Gemma3ForCausalLM": ["injected"],
}


def _passed(version: str) -> bool:
    classes = RECORD.get(version, {}).get("classes", {})
    return all(classes.get(name) == ways for name, ways in LEAST.items())


def test_injected_capture_is_allowed_where_it_was_run_and_nowhere_else() -> None:
    assert {spelled(version) for version in INJECTED} == {version for version in RECORD if _passed(version)}


def test_every_version_that_was_run_is_a_supported_one() -> None:
    supported = {f"0.5.{patch}" for patch in range(FIRST[2], LAST[2] + 1)}
    assert set(RECORD) <= supported


@pytest.mark.parametrize("version", sorted(RECORD))
def test_a_version_names_what_it_was_run_with(version: str) -> None:
    assert {"torch", "transformers", "classes"} == set(RECORD[version])
