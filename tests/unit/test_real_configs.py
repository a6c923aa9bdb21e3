"""Every public draft and target config is read without a crash, and answered as the reviewed snapshot says."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.answers import DATA, Line, draft_answer, lines, snapshot, target_answer

from eagle3_adapters.registry import Registry

DRAFTS, TARGETS = lines("drafts.jsonl"), lines("targets.jsonl")
REVIEWED = snapshot()


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.installed()


def _compare(source: str, reviewed: Mapping[str, Any] | None, actual: Mapping[str, Any]) -> None:
    if actual == reviewed:
        return
    difference = difflib.unified_diff(
        json.dumps(reviewed, indent=1).splitlines(),
        json.dumps(actual, indent=1).splitlines(),
        "reviewed",
        "now",
        lineterm="",
        n=20,
    )
    text = "\n".join(difference)
    pytest.fail(f"{source}\n{text}\nright? Then write it: {DATA / 'README.md'}", pytrace=False)


@pytest.mark.parametrize("line", DRAFTS, ids=[line["source"] for line in DRAFTS])
def test_a_real_draft_is_answered_as_reviewed(line: Line, tmp_path: Path, registry: Registry) -> None:
    answer = draft_answer(line, tmp_path, registry)
    _compare(line["source"], REVIEWED["drafts"].get(line["source"]), answer)


@pytest.mark.parametrize("line", TARGETS, ids=[line["source"] for line in TARGETS])
def test_a_real_target_is_read_as_reviewed(line: Line, tmp_path: Path, registry: Registry) -> None:
    answer = target_answer(line, tmp_path / "target", registry)
    _compare(line["source"], REVIEWED["targets"].get(line["source"]), answer)


def test_the_snapshot_answers_exactly_the_lines() -> None:
    assert list(REVIEWED["drafts"]) == [line["source"] for line in DRAFTS]
    assert list(REVIEWED["targets"]) == [line["source"] for line in TARGETS]


def test_an_answer_without_a_plan_says_why() -> None:
    for source, answer in REVIEWED["drafts"].items():
        for pair in (answer["target"], answer["stand-in"]):
            if pair is not None:
                errors = [told for told in pair["findings"] if told.startswith("error ")]
                assert pair["plan"] is not bool(errors), source


def test_every_draft_stands_in_the_review_once() -> None:
    rows = [row.split("|")[1].strip().strip("`") for row in (DATA / "REVIEW.md").read_text().splitlines() if "|" in row]
    reviewed = [row for row in rows if row in REVIEWED["drafts"]]
    assert sorted(reviewed) == sorted(REVIEWED["drafts"])
