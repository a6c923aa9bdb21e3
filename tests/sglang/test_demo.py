"""The main job end to end: what `make demo` prints, held to its bars."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytestmark = pytest.mark.engine


def test_enough_was_generated(report: dict[str, Any]) -> None:
    assert report["prompts"] >= 16
    assert report["prompts"] * report["new_tokens"] >= 1500


def test_stock_sglang_cannot_read_the_checkpoint_as_it_is(report: dict[str, Any]) -> None:
    assert "Unrecognized model" in report["plain"]["error"]


def test_in_float32_the_engine_equals_the_offline_draft_prompt_by_prompt(report: dict[str, Any]) -> None:
    assert report["adapter"]["verifies"] == report["offline"]["verifies"]
    assert report["adapter"]["accepted"] == report["offline"]["accepted"]


def test_the_accept_length_is_that_of_a_working_draft(report: dict[str, Any]) -> None:
    adapter, offline = report["adapter"]["accept_length"], report["offline"]["accept_length"]
    assert math.isclose(adapter, offline, rel_tol=0.03)
    assert adapter >= 1.8
    assert adapter >= 1.5 * report["renamed"]["accept_length"]


def test_the_usual_hand_fix_serves_at_the_floor(report: dict[str, Any]) -> None:
    assert report["renamed"]["accept_length"] <= 1.3


def test_a_tree_accepts_at_least_what_a_chain_does(report: dict[str, Any]) -> None:
    assert report["tree"]["accept_length"] >= report["adapter"]["accept_length"]


@pytest.mark.parametrize("way", ["renamed", "adapter", "tree"])
def test_tokens_are_those_without_speculation(report: dict[str, Any], way: str) -> None:
    assert report[way]["prompts_equal"] == report["prompts"]
