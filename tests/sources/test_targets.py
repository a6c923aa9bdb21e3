"""What the adapters say of SGLang's target classes, against the sources of every supported version."""

from __future__ import annotations

import functools

import attrs
import pytest
from support.paper_targets import owner, paper_target
from support.target_sources import Target, entry_modules

from eagle3_adapters.engine_version import version_numbers
from eagle3_adapters.registry import Adapter, Registry
from eagle3_adapters.sglang import compat, seams, target_class
from eagle3_adapters.sglang.sources import Sources
from eagle3_adapters.values import CaptureLayers, TargetModel

pytestmark = pytest.mark.wheels

N = 48
REGISTRY = Registry.installed()
SERVED = sorted({one for adapter in REGISTRY.adapters for one in REGISTRY.architectures_of(adapter.name)})


@pytest.fixture(params=SERVED)
def target(request: pytest.FixtureRequest) -> TargetModel:
    return paper_target(request.param, N)


@pytest.fixture
def adapter(target: TargetModel) -> Adapter:
    return owner(target)


@pytest.fixture
def capture(adapter: Adapter, target: TargetModel) -> CaptureLayers:
    return adapter.capture_layers(target)


_entries = functools.cache(entry_modules)


@pytest.fixture
def model(target: TargetModel, sources: Sources) -> Target:
    found = sources.named(_entries(sources)[target.architecture], target.architecture)
    assert found is not None
    return Target(sources, found)


@pytest.fixture
def bodies(model: Target, capture: CaptureLayers) -> list[Target]:
    bodies = model.at(capture.site.body)
    assert bodies
    return bodies


def lacking(model: Target, bodies: list[Target], capture: CaptureLayers, embedding: str) -> list[str]:
    """Places that an adapter names and the class has not, and captures that it does not make by itself."""
    site = capture.site
    held = {site.layers, site.final_norm, *filter(None, [site.capture_list])}
    lacks = [f"{body.name}.{name}" for body in bodies for name in held - body.attributes]
    flags = [f"{path}.capture_aux_hidden_states".removeprefix(".") for path in site.capture_flags]
    for path in (*flags, site.logits_processor, site.head, embedding):
        above, _, name = path.rpartition(".")
        owners = model.at(above)
        lacks += [] if owners and all(name in owner.attributes for owner in owners) else [path]
    # It looks at its list, or asks each layer, in its forward.
    asked = site.layer_flag or site.capture_list
    return lacks + [f"{body.name} reads {asked}" for body in bodies if asked and not body.reads(asked)]


def test_a_class_has_every_place_that_its_adapter_names_from_the_first_version_on_that_it_names(
    model: Target, bodies: list[Target], capture: CaptureLayers, adapter: Adapter, target: TargetModel, version: str
) -> None:
    embedding, number = adapter.embed_capture(target).module, version_numbers(version) or compat.FIRST
    assert not lacking(model, bodies, attrs.evolve(capture, site=capture.site_in(number)), embedding)
    # Where it does not capture yet it has not got the list either: the version is the right one.
    assert bool(lacking(model, bodies, capture, embedding)) == (number < capture.captures_since)


def test_states_go_to_sglangs_own_processor(model: Target, capture: CaptureLayers) -> None:
    assert [one.name for one in model.at(capture.site.logits_processor)] == ["LogitsProcessor"]


def test_a_class_of_which_nothing_is_native_and_no_list_named_captures_nothing(
    bodies: list[Target], capture: CaptureLayers
) -> None:
    if not capture.site.capture_list:
        assert not capture.native
        assert not any("layers_to_capture" in body.attributes for body in bodies)


def test_layers_take_what_the_residual_stream_is_read_from(
    bodies: list[Target], capture: CaptureLayers, sources: Sources
) -> None:
    """The stream as a second argument, or in the batch, where SGLang has it there."""
    layers = [layer for body in bodies for layer in body.layers(capture.site.layers)]
    assert layers
    for layer in layers:
        taken = layer.parameters()
        assert "hidden_states" in taken, layer.name
        in_batch = "forward_batch" in taken and seams.in_sources(f"{target_class.STREAM}.snapshot", sources)
        assert "residual" in taken or in_batch, layer.name


def test_a_body_takes_the_batch_by_its_name(bodies: list[Target]) -> None:
    assert all("forward_batch" in body.parameters() for body in bodies)
