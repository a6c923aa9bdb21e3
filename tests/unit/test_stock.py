"""What stock SGLang is said to make of a file: each line has the smallest file that earns it, and one that does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import VOCAB, Array, draft_tensors, sglang_config, speculators_config, write_draft

from eagle3_adapters.checkpoint import read_draft
from eagle3_adapters.formats import Format
from eagle3_adapters.formats.ids import IDS
from eagle3_adapters.formats.torchspec import FORMAT as TORCHSPEC
from eagle3_adapters.pair import AUTO, read_format
from eagle3_adapters.registry import Registry
from eagle3_adapters.stock import stock_reading

FINE = "serves it as its trainer meant it, if the layer ids are right for the target's class"
Tensors = Mapping[str, Array]


def lines(tmp_path: Path, config: Mapping[str, Any], tensors: Tensors, format_: Format | None = None) -> list[str]:
    raw = read_draft(write_draft(tmp_path / "draft", config, tensors))
    reading = format_.read(raw) if format_ else read_format(raw, AUTO, Registry.installed())
    return list(stock_reading(raw, reading))


def middle(**more: Array) -> dict[str, Array]:
    return draft_tensors(layer="midlayer") | more


def without(*names: str) -> dict[str, Array]:
    return {name: one for name, one in middle().items() if name not in names}


def test_a_file_in_its_own_dialect_is_served(tmp_path: Path) -> None:
    assert lines(tmp_path, sglang_config(), middle()) == [FINE]


def test_another_class_is_refused_by_sglang_itself(tmp_path: Path) -> None:
    (only,) = lines(tmp_path, speculators_config(), draft_tensors())
    assert only == "refuses to start: it knows no Eagle3DraftModel"


NORM = Array("F32", (4,))


@pytest.mark.parametrize(
    ("config", "tensors", "words"),
    [
        (sglang_config(None, **{IDS: [1, 3, 4]}), middle, "does not see the ids [1, 3, 4]"),
        (sglang_config(norm_before_residual=True), middle, "ignores norm_before_residual"),
        (sglang_config(), lambda: without("d2t", "t2d"), "takes draft ids for target ids"),
        (sglang_config(tie_word_embeddings=True), middle, "drops lm_head.weight"),
        (sglang_config(), lambda: middle(**{"midlayer.self_attn.q_norm.weight": NORM}), "norms of queries and keys"),
        (sglang_config(), lambda: middle(**{"midlayer.self_attn.q_proj.bias": Array("F32", (8,))}), "drops 1 biases"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_goes_wrong_is_said(
    config: Mapping[str, Any], tensors: Callable[[], Tensors], words: str, tmp_path: Path
) -> None:
    (only,) = lines(tmp_path, config, tensors())
    assert words in only


def test_a_size_that_the_class_reads_and_the_config_lacks(tmp_path: Path) -> None:
    config = {key: value for key, value in sglang_config().items() if key != "draft_vocab_size"}
    tensors = without("d2t", "t2d") | {"lm_head.weight": Array("F32", (VOCAB, 8))}
    assert lines(tmp_path, config, tensors) == ["fails while it starts: config.json has no draft_vocab_size"]


def test_ids_of_another_convention_are_read_by_the_class_rule(tmp_path: Path) -> None:
    (only,) = lines(tmp_path, sglang_config([1, 3, 4]), middle(), TORCHSPEC)
    assert only.startswith("reads the ids [1, 3, 4] by the rule of the target's class, not as")
