"""What `check --deep` finds inside tensors, and that the trained pair and its nearest neighbours are silent."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from support.pair import DRAFT, TARGET, plan

from eagle3_adapters.cli import main
from eagle3_adapters.deep import check_tensors

Tensors = dict[str, torch.Tensor]


def changed(directory: Path, change: Callable[[Tensors], object]) -> Path:
    """A copy of the trained draft with other tensors."""
    directory.mkdir()
    (directory / "config.json").write_bytes((DRAFT / "config.json").read_bytes())
    tensors = load_file(DRAFT / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")
    return directory


def one_nan(tensors: Tensors) -> None:
    tensors["norm.weight"][3] = float("nan")


def one_zero(tensors: Tensors) -> None:
    tensors["norm.weight"][3] = 0


def all_zero(tensors: Tensors) -> None:
    tensors["layers.0.hidden_norm.weight"].zero_()


def other_embedding(tensors: Tensors) -> None:
    tensors["embed_tokens.weight"][7] += 1


def wider_embedding(tensors: Tensors) -> None:
    """The same numbers in another precision, rounded once on the way."""
    tensors["embed_tokens.weight"] = tensors["embed_tokens.weight"].float() * (1 + 2.0**-9)


@pytest.mark.parametrize(
    ("change", "code", "clue"),
    [
        (one_nan, "weight-nan", "norm.weight"),
        (all_zero, "weight-zero", "hidden_norm"),
        (other_embedding, "trained-embedding", "1 of 1024 rows"),
    ],
)
def test_a_spoilt_tensor_is_found(tmp_path: Path, change: Callable[[Tensors], object], code: str, clue: str) -> None:
    (finding,) = check_tensors(plan(draft=changed(tmp_path / "draft", change)))
    assert finding.code == code
    assert clue in str(finding)


@pytest.mark.parametrize("change", [lambda tensors: None, one_zero, wider_embedding], ids=["as is", "zero", "wider"])
def test_a_sound_draft_is_silent(tmp_path: Path, change: Callable[[Tensors], object]) -> None:
    assert check_tensors(plan(draft=changed(tmp_path / "draft", change))) == ()


def test_check_opens_tensors_only_when_asked(tmp_path: Path) -> None:
    pair = ("check", "--target", str(TARGET), "--draft", str(changed(tmp_path / "draft", one_nan)), "--json")
    shallow, deep = CliRunner().invoke(main, pair), CliRunner().invoke(main, [*pair, "--deep"])
    assert shallow.exit_code == 0
    assert deep.exit_code == 1
    assert json.loads(deep.stdout)["plan"] is None


def test_without_torch_deep_is_wrong_usage_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core runs without torch; a trainer's laptop may have none."""
    monkeypatch.setitem(sys.modules, "safetensors", None)
    result = CliRunner().invoke(main, ["check", "--target", str(TARGET), "--draft", str(DRAFT), "--deep"])
    assert result.exit_code == 2
    assert "pip install torch safetensors" in result.output
