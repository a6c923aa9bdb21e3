"""What the ``llama`` adapter says of a Llama target, against sglang/srt/models/llama.py."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from eagle3_adapters.errors import RegistryError
from eagle3_adapters.registry import ADAPTERS, ARCHITECTURES, Adapter, Registry
from eagle3_adapters.values import CaptureLayers, EmbedCapture, TargetModel

WHEEL = "eagle3-adapters-llama"
#: The classes of llama.py and mistral.py that run LlamaModel.forward unchanged.
SERVED = {
    "IQuestCoderForCausalLM",
    "InternLM3ForCausalLM",
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Phi3ForCausalLM",
}


@pytest.fixture
def adapter() -> Adapter:
    return Registry.installed().adapter("llama")


@pytest.fixture
def target() -> TargetModel:
    config = {"num_hidden_layers": 32}
    return TargetModel(
        path=Path("target"),
        architecture="LlamaForCausalLM",
        config=config,
        text=config,
        num_layers=32,
        hidden_size=4096,
        vocab_size=128256,
    )


def test_ids_name_the_output_of_their_layer_and_the_last_output_is_injected(
    adapter: Adapter, target: TargetModel
) -> None:
    capture: CaptureLayers = adapter.capture_layers(target)
    # set_eagle3_layers_to_capture: [val + 1 for val in layer_ids], and without ids [2, N // 2, N - 3].
    assert capture.id_rule.to_boundaries((1, 15, 28), 32) == (2, 16, 29)
    assert capture.default == (2, 16, 29)
    # The loop captures at the input of layers 0..N-1; nothing captures after it.
    assert list(capture.native) == list(range(32))
    assert capture.injected == (0, 32)


@pytest.mark.parametrize(("patch", "native"), [(17, False), (21, False), (22, True), (23, True)])
def test_up_to_0_5_21_the_embedding_is_injected_too(
    adapter: Adapter,
    target: TargetModel,
    patch: int,
    native: bool,  # noqa: FBT001 - a column of the table above
) -> None:
    assert adapter.capture_layers(target).is_native(0, (0, 5, patch)) is native


def test_paths_lead_through_the_causal_lm_to_its_body(adapter: Adapter, target: TargetModel) -> None:
    site = adapter.capture_layers(target).site
    embed: EmbedCapture = adapter.embed_capture(target)
    assert (site.body, site.layers, site.capture_list) == ("model", "layers", "layers_to_capture")
    assert site.capture_flags == ("",)
    assert (embed.module, embed.scale, embed.merged) == ("model.embed_tokens", 1.0, False)


def test_the_wheel_claims_exactly_what_it_serves(adapter: Adapter) -> None:
    points = importlib.metadata.distribution(WHEEL).entry_points
    assert {point.name for point in points.select(group=ADAPTERS)} == {"llama"}
    assert {(point.name, point.value) for point in points.select(group=ARCHITECTURES)} == {
        (architecture, "llama") for architecture in SERVED
    }
    assert set(adapter.architectures) == SERVED


@pytest.mark.parametrize("architecture", sorted(SERVED))
def test_the_core_names_this_wheel_where_it_is_not_installed(architecture: str) -> None:
    with pytest.raises(RegistryError) as caught:
        Registry([]).owner_of(architecture)
    assert WHEEL in caught.value.findings[0].remedy
