"""What users type for a checkpoint, and what they are told when it is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle3_adapters.errors import CheckpointError
from eagle3_adapters.locate import locate


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def refusal(name: str) -> tuple[str, str]:
    with pytest.raises(CheckpointError) as caught:
        locate(name)
    (finding,) = caught.value.findings
    assert finding.code == "checkpoint-unreadable"
    return finding.found, finding.remedy


@pytest.mark.parametrize("name", ["{root}/nope", "./nope", "../a/b/nope", "{root}/a/b"])
def test_a_path_that_is_not_there_is_no_hub_name(tmp_path: Path, name: str) -> None:
    found, remedy = refusal(name.format(root=tmp_path))
    assert found == "no such directory"
    assert "hf download" not in remedy


def test_a_relative_path_below_a_directory_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    assert refusal("models/nope")[0] == "no such directory"


def test_a_file_is_told_with_its_directory(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.touch()
    found, remedy = refusal(str(file))
    assert found == "a file"
    assert str(tmp_path) in remedy


def test_an_empty_name_is_not_the_current_directory() -> None:
    assert refusal("")[0] == "nothing"


def test_a_hub_name_that_is_not_cached_is_told_how_to_be_fetched() -> None:
    assert "hf download org/draft" in refusal("org/draft")[1]


def test_modelscope_names_are_refused_where_sglang_would_ask_modelscope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_USE_MODELSCOPE", "true")
    assert refusal("org/draft")[0] == "a name on ModelScope"
