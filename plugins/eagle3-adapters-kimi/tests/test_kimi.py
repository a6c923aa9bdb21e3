"""What the ``kimi_k25`` adapter says of a target, against sglang/srt/models/kimi_k25.py."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest

from eagle3_adapters.checkpoint import read_target
from eagle3_adapters.errors import RegistryError
from eagle3_adapters.pair import AUTO, choose_adapter
from eagle3_adapters.registry import ADAPTERS, ARCHITECTURES, Adapter, Registry
from eagle3_adapters.report import Report
from eagle3_adapters.values import TargetModel

WHEEL = "eagle3-adapters-kimi"
ARCHITECTURE = "KimiK25ForConditionalGeneration"


@pytest.fixture
def target(tmp_path: Path) -> TargetModel:
    """Kimi-K2.5's config: the top level has neither layers nor a vocabulary."""
    text = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", "num_hidden_layers": 61}
    text |= {"hidden_size": 7168, "vocab_size": 163840}
    config = {"architectures": [ARCHITECTURE], "model_type": "kimi_k25", "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return read_target(tmp_path)


@pytest.fixture
def adapter(target: TargetModel) -> Adapter:
    return choose_adapter(target, AUTO, Registry.installed(), Report())


def test_auto_goes_by_the_wrapper_and_counts_the_layers_of_the_text_model(
    adapter: Adapter, target: TargetModel
) -> None:
    """The text model's own architecture belongs to another adapter, whose paths stop one attribute short."""
    assert adapter.registration.name == "kimi_k25"
    assert (target.num_layers, target.hidden_size, target.vocab_size) == (61, 7168, 163840)


def test_it_answers_as_deepseek_does_one_attribute_further_in(adapter: Adapter, target: TargetModel) -> None:
    inner = Registry.installed().adapter("deepseek_v3")
    mine, theirs = adapter.capture_layers(target), inner.capture_layers(target)
    assert mine.site.body == f"language_model.{theirs.site.body}"
    assert mine.site.logits_processor == f"language_model.{theirs.site.logits_processor}"
    # The wrapper has no flag of its own: the text model hands the states out.
    assert (mine.site.capture_flags, theirs.site.capture_flags) == (("language_model",), ("",))
    for same in ("id_rule", "default", "native", "injected", "embedding_since"):
        assert getattr(mine, same) == getattr(theirs, same)


def test_boundary_0_is_what_enters_the_first_layer_since_images_replace_rows(
    adapter: Adapter, target: TargetModel
) -> None:
    embed = adapter.embed_capture(target)
    assert (embed.module, embed.scale, embed.merged) == ("language_model.model.embed_tokens", 1.0, True)


def test_the_wheel_claims_exactly_what_it_serves() -> None:
    points = importlib.metadata.distribution(WHEEL).entry_points
    assert {point.name for point in points.select(group=ADAPTERS)} == {"kimi_k25"}
    assert {point.name: point.value for point in points.select(group=ARCHITECTURES)} == {ARCHITECTURE: "kimi_k25"}


def test_the_core_names_this_wheel_where_it_is_not_installed() -> None:
    with pytest.raises(RegistryError) as caught:
        Registry([]).owner_of(ARCHITECTURE)
    assert WHEEL in caught.value.findings[0].remedy
