"""What SGLang's sources show of a target class that no adapter owns."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle3_adapters.errors import RegistryError
from eagle3_adapters.registry import Registry
from eagle3_adapters.sglang.classes import described
from eagle3_adapters.sglang.sources import Sources

PLAIN = """
class YetiModel(nn.Module):
    def __init__(self, config):
        self.tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size)
        self.layers, self.start, self.end = make_layers(config)
        self.last_norm = RMSNorm(config.hidden_size)

class YetiForCausalLM(nn.Module):
    def __init__(self, config):
        self.tower = YetiTower(config)
        self.model = YetiModel(config)

class YetiTower(nn.Module):
    def __init__(self, config):
        self.layers = make_layers(config)
"""
CAPTURING = """
from sglang.srt.models.yeti import YetiForCausalLM as Base, YetiModel

class BigfootModel(YetiModel):
    def __init__(self, config):
        self.layers_to_capture: list = list()

class BigfootForCausalLM(Base):
    def __init__(self, config):
        self.model = BigfootModel(config)

    def get_embed_and_head(self):
        return None

    def set_eagle3_layers_to_capture(self, layer_ids=None):
        return None

class WrappedForConditionalGeneration(nn.Module):
    def __init__(self, config):
        self.language_model = BigfootForCausalLM(config)
"""


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    models = tmp_path / "sglang" / "srt" / "models"
    models.mkdir(parents=True)
    (models / "yeti.py").write_text(PLAIN, encoding="utf-8")
    (models / "bigfoot.py").write_text(CAPTURING, encoding="utf-8")
    return Sources(tmp_path)


def test_a_class_without_capture_is_described_with_what_it_lacks(sources: Sources) -> None:
    assert described("YetiForCausalLM", sources) == (
        "SGLang has it in models/yeti.py; body 'model', final norm last_norm, embedding model.tokens; "
        "captures nothing by itself; no set_eagle3_layers_to_capture; no get_embed_and_head"
    )


def test_parts_are_found_through_bases_imports_and_wrappers(sources: Sources) -> None:
    found = "final norm last_norm, embedding {0}.tokens; captures by layers_to_capture"
    assert described("BigfootForCausalLM", sources) == (
        f"SGLang has it in models/bigfoot.py; body 'model', {found.format('model')}"
    )
    wrapped = described("WrappedForConditionalGeneration", sources)
    assert f"body 'language_model.model', {found.format('language_model.model')}" in wrapped
    assert "no set_eagle3_layers_to_capture" in wrapped, "it does not delegate"


def test_a_class_that_sglang_does_not_have_is_described_by_nothing(sources: Sources) -> None:
    assert described("NessieForCausalLM", sources) == ""


@pytest.mark.sglang
def test_the_finding_tells_what_the_installed_sglang_has() -> None:
    with pytest.raises(RegistryError) as caught:
        Registry.installed().owner_of("Olmo2ForCausalLM")
    (finding,) = caught.value.findings
    assert "models/olmo2.py; body 'model', final norm norm, embedding model.embed_tokens" in finding.found
    assert "write a plugin" in finding.remedy
