"""Places of a target class, found and set."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from eagle3_adapters.sglang import target_class
from eagle3_adapters.values import CaptureSite


def wrapped() -> SimpleNamespace:
    """A target inside a multimodal wrapper."""
    body = SimpleNamespace(layers=["first", "second"], layers_to_capture=[9])
    inner = SimpleNamespace(model=body, capture_aux_hidden_states=False, logits_processor="processor")
    return SimpleNamespace(language_model=inner, capture_aux_hidden_states=False)


SITE = CaptureSite(body="language_model.model", capture_flags=("language_model",))


def test_capture_is_assigned_through_the_wrapper_and_replaces_what_was_there() -> None:
    model = wrapped()
    target_class.assign_capture(model, SITE, (0, 1))
    assert model.language_model.model.layers_to_capture == [0, 1]
    assert model.language_model.capture_aux_hidden_states is True
    assert model.capture_aux_hidden_states is False


def test_every_flag_that_the_site_names_is_raised() -> None:
    model = wrapped()
    target_class.assign_capture(
        model, CaptureSite(body="language_model.model", capture_flags=("", "language_model")), (1,)
    )
    assert model.capture_aux_hidden_states is True
    assert model.language_model.capture_aux_hidden_states is True


@pytest.mark.parametrize(
    ("site", "parts"),
    [
        (CaptureSite(body="text_model.model"), ("SimpleNamespace", "text_model.model", "'text_model'")),
        (CaptureSite(body="language_model.body"), ("language_model.body", "'body'")),
        (CaptureSite(body="language_model.model", layers="blocks"), ("'blocks'",)),
        (CaptureSite(body="language_model.model", capture_list="capture"), ("'capture'",)),
        (CaptureSite(body="language_model.model", capture_flags=("vision",)), ("'vision'",)),
        (
            CaptureSite(body="language_model.model", capture_flags=("language_model.model",)),
            ("'capture_aux_hidden_states'",),
        ),
    ],
)
def test_a_place_that_is_not_there_is_named(site: CaptureSite, parts: tuple[str, ...]) -> None:
    with pytest.raises(AttributeError) as caught:
        target_class.assign_capture(wrapped(), site, (0, 1))
    assert all(part in str(caught.value) for part in parts)


def test_a_flag_of_the_layers_follows_the_boundaries_and_is_reset() -> None:
    model = SimpleNamespace(model=SimpleNamespace(layers=[SimpleNamespace() for _ in range(4)]))
    site = CaptureSite(body="model", capture_list="", layer_flag="captured", capture_flags=())
    for boundaries in ((0, 2), (3,)):
        target_class.assign_capture(model, site, boundaries)
        assert [number for number, layer in enumerate(model.model.layers) if layer.captured] == list(boundaries)


def test_the_empty_path_is_the_model_itself() -> None:
    model = wrapped()
    assert target_class.at(model, "") is model
