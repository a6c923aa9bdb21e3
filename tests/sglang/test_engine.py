"""`sglang.Engine` with EAGLE3_ADAPTER: formats, precision, and that a process without the plugin dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.foreign_pair import FOLDER, rewrite
from support.pair import DRAFT, NEW_TOKENS, STEPS, offline_counts, plan
from support.serve import serve, speculation

from eagle3_adapters.reference import AcceptLength
from eagle3_adapters.sglang import overlay

pytestmark = pytest.mark.engine


def test_a_third_partys_format_is_served_with_exactly_the_pairs_counts(tmp_path: Path, report: dict[str, Any]) -> None:
    """Foreign names, listed order, target ids in d2t, outputs of layers: misread one and the counts differ."""
    foreign = rewrite(DRAFT, tmp_path / "foreign")
    served = serve(speculation(foreign), EAGLE3_ADAPTER="llama", PYTHONPATH=str(FOLDER))
    assert not served.error, served.log[-3000:]
    assert [count.verifies for count in served.counts] == report["adapter"]["verifies"]
    assert [count.accepted for count in served.counts] == report["adapter"]["accepted"]
    wired = "llama x foreign -> LlamaForCausalLMEagle3: boundaries [0, 2, 5] = embedding"
    assert served.log.count(wired) == 1, "one log line says what was wired"
    assert "captured states verified" in served.log


def test_in_bfloat16_the_accept_length_is_the_offline_one_on_the_same_tokens() -> None:
    """Half precision moves single proposals, so sums are compared: 3%, or twice the standard error if that is more."""
    length = NEW_TOKENS + STEPS - 1
    served = serve(speculation(DRAFT) | {"dtype": "bfloat16"}, new_tokens=length, EAGLE3_ADAPTER="auto")
    assert not served.error, served.log[-3000:]
    offline = AcceptLength.from_counts(offline_counts(plan(), [tokens[:length] for tokens in served.tokens]))
    allowed = max(0.03 * offline.value, 2 * offline.standard_error)
    assert abs(served.accept_length.value - offline.value) <= allowed


def test_without_the_plugin_a_translated_config_is_an_unknown_architecture(cache: Path) -> None:
    """A child that lacks the package must die, not serve the draft as SGLang alone would."""
    directory = overlay.store(plan(), cache)
    arguments = speculation(DRAFT) | {"decrypted_draft_config_file": str(directory / overlay.CONFIG)}
    served = serve(arguments, SGLANG_PLUGINS="another")
    assert served.error
    assert overlay.PRIVATE_ARCHITECTURE in served.error + served.log


def test_a_pair_that_cannot_be_wired_is_refused_before_the_engine_starts(tmp_path: Path) -> None:
    arguments = speculation(rewrite(DRAFT, tmp_path / "foreign"))
    served = serve(arguments, EAGLE3_ADAPTER="llama")
    assert "not-eagle3" in served.error
    assert "ERROR not-eagle3" in served.log, "the finding is on the screen"
    assert "Load weight" not in served.log


def test_a_request_without_speculation_is_refused() -> None:
    served = serve({}, EAGLE3_ADAPTER="auto")
    assert "algorithm" in served.error
