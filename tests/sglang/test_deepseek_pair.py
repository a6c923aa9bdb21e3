"""The trained DeepSeek-V3 pair, whose draft reads the embedding, through both adapters and by SGLang alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import handfix
from support.pair import DEEPSEEK, NEW_TOKENS, STEPS, offline_counts, plan, prompts
from support.random_targets import wrapped_as_kimi
from support.serve import serve, speculation

from eagle3_adapters.reference import AcceptLength

pytestmark = pytest.mark.engine
DRAFT = DEEPSEEK / "draft"
#: Greedy tokens in float32, by transformers, longer than what is served.
GREEDY = prompts(DEEPSEEK, "greedy_token_ids")


@pytest.mark.parametrize("adapter", ["deepseek_v3", "kimi_k25"])
def test_served_equals_offline_prompt_by_prompt(adapter: str, tmp_path: Path) -> None:
    """Tokens as without speculation, and the verify and accept counts of a plain forward of the draft: exactly."""
    arguments: dict[str, Any] = speculation(DRAFT)
    if adapter == "kimi_k25":
        kimi = wrapped_as_kimi(DEEPSEEK / "target", tmp_path / "kimi")
        arguments |= {"model_path": str(kimi), "enable_multimodal": False}
    served = serve(arguments, pair=DEEPSEEK, EAGLE3_ADAPTER=adapter)
    assert not served.error, served.log[-3000:]
    assert f"{adapter} x speculators -> LlamaForCausalLMEagle3: boundaries [0, 3, 5] = embedding" in served.log
    assert "captured states verified" in served.log
    assert served.tokens == [tokens[:NEW_TOKENS] for tokens in GREEDY]
    made = plan(DEEPSEEK / "target", DRAFT)
    known = [tokens[: NEW_TOKENS + STEPS - 1] for tokens in GREEDY]
    offline = offline_counts(made, known, pair=DEEPSEEK)
    assert served.counts == offline
    assert served.accept_length.value == AcceptLength.from_counts(offline).value > 2.3


def test_sglang_alone_cannot_read_the_draft_as_it_is() -> None:
    served = serve(speculation(DRAFT), pair=DEEPSEEK)
    assert "Unrecognized model" in served.error


def test_sglang_alone_dies_in_the_first_request_where_ids_name_outputs(tmp_path: Path) -> None:
    """The usual hand fix with the ids that mean {0, 3, 5} to Llama's rule: DeepSeek's takes -1 as it is."""
    draft = handfix.rename(DRAFT, tmp_path / "renamed", (-1, 2, 4))
    with pytest.raises(RuntimeError, match="captured 2 of 3 aux hidden states"):
        serve(speculation(draft), pair=DEEPSEEK)


def test_sglang_alone_sits_at_the_floor_where_ids_stay_at_the_top_level(tmp_path: Path) -> None:
    """It does not look there and captures its default layers, without a word.

    Nested, the same ids would be right (3.163): this class takes [0, 3, 5] for boundaries, as speculators does.
    """
    draft = handfix.rename(DRAFT, tmp_path / "renamed")
    config = json.loads((draft / "config.json").read_text(encoding="utf-8"))
    config |= config.pop("eagle_config")
    (draft / "config.json").write_text(json.dumps(config), encoding="utf-8")
    served = serve(speculation(draft), pair=DEEPSEEK)
    assert not served.error
    assert served.tokens == [tokens[:NEW_TOKENS] for tokens in GREEDY], "the output is right"
    assert served.accept_length.value < 1.1
