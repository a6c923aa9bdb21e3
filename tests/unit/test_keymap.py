"""Key maps: what is renamed, what is refused, and what the refusal names."""

from __future__ import annotations

import pytest

from eagle3_adapters.errors import KeyMapError, UnmappedKeyError
from eagle3_adapters.keymap import Drop, KeyMap, Rename, identity

LAYER = Rename("midlayer.{layer}.q.weight", "model.layers.{layer}.q.weight")


def test_a_placeholder_carries_its_number_over() -> None:
    assert KeyMap("m", (LAYER,)).apply("midlayer.12.q.weight") == "model.layers.12.q.weight"


def test_placeholders_go_by_name_not_by_position() -> None:
    keys = KeyMap("m", (Rename("layers.{layer}.experts.{expert}", "e.{expert}.of.{layer}"),))
    assert keys.apply("layers.3.experts.5") == "e.5.of.3"
    assert keys.inverse().apply("e.5.of.3") == "layers.3.experts.5"


@pytest.mark.parametrize(
    "name",
    [
        "midlayer.x.q.weight",
        "midlayer.01.q.weight",  # would collide with layer 1
        "midlayer.-1.q.weight",
        "midlayer.1.qXweight",  # a dot is a dot
        "midlayer.1.q.weight_scale",
        "model.midlayer.1.q.weight",
        "midlayer.1.q.weight\n",
    ],
)
def test_a_name_that_only_resembles_a_rule_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnmappedKeyError) as caught:
        KeyMap("format x", (LAYER,)).apply(name)
    assert caught.value.name == name
    assert caught.value.owner == "format x"
    assert name in str(caught.value)
    assert "format x" in str(caught.value)


def test_a_dropped_name_answers_with_its_reason_and_has_no_way_back() -> None:
    drop = Drop("embed_tokens.weight", "shared with the target")
    keys = KeyMap("m", (drop, LAYER))
    assert keys.apply("embed_tokens.weight") is drop
    with pytest.raises(UnmappedKeyError):
        keys.inverse().apply("embed_tokens.weight")


def test_a_drop_without_a_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="reason"):
        Drop("embed_tokens.weight", "")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        pytest.param("fc.weight", "fc.weight", id="equal"),
        pytest.param("layers.{layer}.q", "layers.0.q", id="a number inside a placeholder"),
        pytest.param("layers.{layer}.q", "layers.17.q", id="any number inside a placeholder"),
        pytest.param("layers.{layer}.q", "layers.{other}.q", id="two placeholders"),
        pytest.param("layers.{layer}.experts.0.w", "layers.0.experts.{expert}.w", id="each side more general once"),
        pytest.param("layers.{layer}.experts.2.w", "layers.1.experts.{expert}.w", id="the same, not at layer 0"),
    ],
)
def test_two_rules_for_one_name_are_refused_naming_both(left: str, right: str) -> None:
    with pytest.raises(KeyMapError) as caught:
        KeyMap("format x", (Drop(left, "because"), Drop(right, "because")))
    assert left in str(caught.value)
    assert right in str(caught.value)
    assert "format x" in str(caught.value)


def test_two_rules_with_one_result_are_refused_naming_both() -> None:
    with pytest.raises(KeyMapError) as caught:
        KeyMap("m", (Rename("head.weight", "lm_head.weight"), Rename("out.weight", "lm_head.weight")))
    assert "head.weight" in str(caught.value)
    assert "out.weight" in str(caught.value)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("layers.{layer}.q", "layers.{layer}.k"),
        ("layers.{layer}.q", "layers.x.q"),
        ("layers.{layer}.q", "layers.01.q"),
        ("a.b", "aXb"),
    ],
)
def test_rules_that_share_no_name_stand_together(left: str, right: str) -> None:
    assert len(identity("m", (left, right)).rules) == 2


def test_a_dropped_source_may_equal_another_rules_target() -> None:
    keys = KeyMap("m", (Drop("norm.weight", "stale"), Rename("final.weight", "norm.weight")))
    assert keys.apply("final.weight") == "norm.weight"


def test_unequal_placeholders_are_refused_naming_both_sides() -> None:
    with pytest.raises(KeyMapError) as caught:
        Rename("layers.{layer}.q", "model.layers.0.q")
    assert "layers.{layer}.q" in str(caught.value)
    assert "model.layers.0.q" in str(caught.value)


def test_a_placeholder_that_stands_twice_is_refused() -> None:
    with pytest.raises(KeyMapError, match="twice"):
        Rename("layers.{layer}.{layer}", "layers.{layer}.{layer}")


@pytest.mark.parametrize("pattern", ["layers.{Layer}.q", "layers.{}.q", "layers.{layer1}.q", "layers.{layer.q"])
def test_a_misspelt_placeholder_is_refused_at_construction(pattern: str) -> None:
    with pytest.raises(KeyMapError):
        Rename(pattern, pattern)


def test_a_target_that_runs_two_numbers_together_is_refused() -> None:
    # a.1.11 and a.11.1 would both become b.111: one tensor lost.
    with pytest.raises(KeyMapError):
        KeyMap("m", (Rename("a.{layer}.{expert}", "b.{layer}{expert}"),))
