"""What the ``deepseek_v2`` and ``deepseek_v3`` adapters say of a target, against sglang/srt/models/deepseek_v2.py."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from eagle3_adapters.errors import RegistryError
from eagle3_adapters.registry import ADAPTERS, ARCHITECTURES, Registry
from eagle3_adapters.values import CaptureLayers, EmbedCapture, TargetModel

WHEEL = "eagle3-adapters-deepseek"
#: Architecture -> adapter: the classes that run DeepseekV2Model.forward and have its setter.
SERVED = {
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "GlmMoeDsaForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "DeepseekV32ForCausalLM": "deepseek_v3",
    "MistralLarge3ForCausalLM": "deepseek_v3",
}


@pytest.fixture(params=sorted(SERVED))
def target(request: pytest.FixtureRequest) -> TargetModel:
    config = {"num_hidden_layers": 61}
    return TargetModel(
        path=Path("target"),
        architecture=request.param,
        config=config,
        text=config,
        num_layers=61,
        hidden_size=7168,
        vocab_size=129280,
    )


@pytest.fixture
def capture(target: TargetModel) -> CaptureLayers:
    return Registry.installed().adapter(SERVED[target.architecture]).capture_layers(target)


def test_ids_are_shifted_only_where_the_first_is_1(capture: CaptureLayers) -> None:
    """The same set in another order names other states: measured 2.66 against 1.03."""
    assert capture.id_rule.to_boundaries((1, 29, 57), 61) == (2, 30, 58)
    assert capture.id_rule.to_boundaries((29, 1, 57), 61) == (29, 1, 57)
    assert capture.id_rule.to_boundaries((0, 3, 31), 61) == (0, 3, 31)
    # Without ids: [2, N // 2, N - 3].
    assert capture.default == (2, 30, 58)


@pytest.mark.parametrize("patch", range(17, 24))
def test_in_every_version_the_last_boundary_alone_is_injected(capture: CaptureLayers, patch: int) -> None:
    version = (0, 5, patch)
    assert [k for k in range(62) if not capture.is_native(k, version)] == [61]
    assert capture.injected == (61,)


def test_paths_lead_through_the_causal_lm_to_its_body(capture: CaptureLayers, target: TargetModel) -> None:
    site = capture.site
    embed: EmbedCapture = Registry.installed().adapter(SERVED[target.architecture]).embed_capture(target)
    assert (site.body, site.layers, site.capture_list, site.final_norm) == (
        "model",
        "layers",
        "layers_to_capture",
        "norm",
    )
    assert site.capture_flags == ("",)
    assert site.logits_processor == "logits_processor"
    assert (embed.module, embed.scale, embed.merged) == ("model.embed_tokens", 1.0, False)


def test_the_wheel_claims_exactly_what_it_serves() -> None:
    points = importlib.metadata.distribution(WHEEL).entry_points
    assert {point.name for point in points.select(group=ADAPTERS)} == set(SERVED.values())
    assert {point.name: point.value for point in points.select(group=ARCHITECTURES)} == SERVED


@pytest.mark.parametrize("architecture", sorted(SERVED))
def test_the_core_names_this_wheel_where_it_is_not_installed(architecture: str) -> None:
    with pytest.raises(RegistryError) as caught:
        Registry([]).owner_of(architecture)
    assert WHEEL in caught.value.findings[0].remedy
