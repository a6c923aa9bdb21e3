"""What each format claims and reads, and how one is chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import (
    HIDDEN,
    INNER,
    VOCAB,
    draft_tensors,
    layer_config,
    sglang_config,
    speculators_config,
)

from eagle3_adapters import formats
from eagle3_adapters.boundaries import INPUT_OF_LAYER, OUTPUT_OF_LAYER
from eagle3_adapters.errors import Finding, FindingsError, Severity
from eagle3_adapters.formats.ids import IDS
from eagle3_adapters.formats.sglang import FORMAT as SGLANG
from eagle3_adapters.formats.speculators import FORMAT as SPECULATORS
from eagle3_adapters.keymap import Drop
from eagle3_adapters.values import DraftMath, DraftModel, FormatReading, TensorInfo

INSTALLED = (SGLANG, SPECULATORS)


def draft(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]] | None = None) -> DraftModel:
    """A draft in memory: formats read config and headers only."""
    chosen = {name: tensor.shape for name, tensor in draft_tensors().items()} if shapes is None else shapes
    tensors = {
        name: TensorInfo(name=name, dtype="F32", shape=shape, file=Path("model.safetensors"), start=0, stop=0)
        for name, shape in chosen.items()
    }
    return DraftModel(path=Path("draft"), config=config, tensors=tensors)


def shapes(*, layer: str = "layers.0", prefix: str = "") -> dict[str, tuple[int, ...]]:
    """A correct draft's names, everything but lm_head and the maps below ``prefix``."""
    outside = ("lm_head.weight", "d2t", "t2d")
    return {
        name if name in outside else prefix + name: tensor.shape for name, tensor in draft_tensors(layer=layer).items()
    }


def canonical_names(reading: FormatReading) -> dict[str, str]:
    """File name -> canonical name."""
    names = {}
    for name in reading.draft.tensors:
        canonical = reading.keys.apply(name)
        assert not isinstance(canonical, Drop)
        names[name] = canonical
    return names


def refusal(config: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]] | None = None) -> Finding:
    one = draft(config, tensors)
    with pytest.raises(FindingsError) as caught:
        formats.read(one, formats.choose(one, INSTALLED))
    (finding,) = caught.value.findings
    return finding


# The sglang format.


@pytest.mark.parametrize("architecture", ["LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM"])
def test_sglang_claims_the_classes_that_sglang_registers(architecture: str) -> None:
    assert architecture in SGLANG.claim(draft(sglang_config(architectures=[architecture])))[0]


@pytest.mark.parametrize(
    "config",
    [
        sglang_config(architectures=["LlamaForCausalLM"]),
        sglang_config(architectures=["Eagle3LlamaForCausalLM"]),
        sglang_config(architectures=None),
        sglang_config(architectures=[]),
        speculators_config(architectures=["LlamaForCausalLMEagle3"]),
    ],
    ids=["plain", "angelslim", "null", "empty", "another trainer's nesting"],
)
def test_sglang_claims_nothing_else(config: dict[str, Any]) -> None:
    assert SGLANG.claim(draft(config)) == ()


@pytest.mark.parametrize("prefix", ["", "model."])
@pytest.mark.parametrize("layer", ["midlayer", "layers.0"])
def test_sglang_reads_every_spelling_of_the_keys_that_its_loader_takes(layer: str, prefix: str) -> None:
    reading = SGLANG.read(draft(sglang_config(), shapes(layer=layer, prefix=prefix)))
    names = canonical_names(reading)
    assert set(names.values()) == set(draft_tensors(layer="layers.0"))
    assert names[f"{prefix}{layer}.self_attn.q_proj.weight"] == "layers.0.self_attn.q_proj.weight"
    assert names[f"{prefix}fc.weight"] == "fc.weight"
    assert names["lm_head.weight"] == "lm_head.weight"


@pytest.mark.parametrize("prefix", ["", "model."])
def test_sglang_reads_the_old_norm_names_in_the_order_low_mid_high(prefix: str) -> None:
    old = {f"{prefix}aux_norm_{part}.weight": (HIDDEN,) for part in ("high", "low", "mid")}
    names = canonical_names(SGLANG.read(draft(sglang_config(), shapes(prefix=prefix) | old)))
    assert [names[f"{prefix}aux_norm_{part}.weight"] for part in ("low", "mid", "high")] == [
        "fc_norm.0.weight",
        "fc_norm.1.weight",
        "fc_norm.2.weight",
    ]


def test_sglang_reads_nested_ids_without_a_finding() -> None:
    reading = SGLANG.read(draft(sglang_config([1, 3, 4])))
    assert reading.id_readings[0].ids == (1, 3, 4)
    assert reading.findings == ()


@pytest.mark.parametrize("nested", [{}, {"eagle_config": {IDS: None}}, {"eagle_config": None}])
def test_sglang_uses_top_level_ids_and_says_that_stock_sglang_would_not(nested: dict[str, Any]) -> None:
    reading = SGLANG.read(draft(sglang_config(None, **{IDS: [1, 3, 4]}) | nested))
    assert reading.id_readings[0].ids == (1, 3, 4)
    assert [(finding.code, finding.severity) for finding in reading.findings] == [
        ("layer-ids-misplaced", Severity.INFO)
    ]


def test_sglang_prefers_nested_ids_to_stale_ones_at_the_top() -> None:
    reading = SGLANG.read(draft(sglang_config([1, 3, 4], **{IDS: [9, 9, 9]})))
    assert reading.id_readings[0].ids == (1, 3, 4)


def test_sglang_leaves_absent_ids_and_their_meaning_to_the_target_class() -> None:
    declared = SGLANG.read(draft(sglang_config(None))).id_readings[0]
    assert (declared.ids, declared.convention, declared.default) == (None, None, None)


def test_sglang_reads_ids_by_the_class_rule_first_and_the_old_rule_beside_it() -> None:
    reading = SGLANG.read(draft(sglang_config(), shapes(layer="midlayer")))
    assert [one.convention for one in reading.id_readings] == [None, OUTPUT_OF_LAYER]
    assert reading.first_reading_decides


@pytest.mark.parametrize("ids", [[], "1,3,4", [1, 3.0, 4], [1, True, 4], 3])
@pytest.mark.parametrize("nested", [True, False])
def test_ids_that_are_no_list_of_integers_are_refused_by_place(ids: object, nested: bool) -> None:  # noqa: FBT001 - a parameter
    config = sglang_config(None) | ({"eagle_config": {IDS: ids}} if nested else {IDS: ids})
    with pytest.raises(FindingsError) as caught:
        SGLANG.read(draft(config))
    (finding,) = caught.value.findings
    assert finding.code == "config-unreadable"
    assert IDS in finding.where
    assert ("eagle_config" in finding.where) == nested


@pytest.mark.parametrize("nested", [[1, 3, 4], "eagle3.json"])
def test_an_eagle_config_that_is_no_object_is_refused(nested: object) -> None:
    with pytest.raises(FindingsError) as caught:
        SGLANG.read(draft(sglang_config(eagle_config=nested)))
    assert [finding.code for finding in caught.value.findings] == ["config-unreadable"]


@pytest.mark.parametrize(
    ("changes", "math"),
    [
        ({}, DraftMath()),
        ({"fc_norm": True}, DraftMath(fc_norm=True)),
        ({"use_aux_norm": True}, DraftMath(fc_norm=True)),
        ({"norm_output": True}, DraftMath(norm_output=True)),
        ({"norm_before_residual": True}, DraftMath(norm_before_residual=True)),
        ({"norm_before_fc": True}, DraftMath(norm_before_fc=True)),
        ({"eagle_config": {"norm_before_fc": True}}, DraftMath(norm_before_fc=True)),
        ({"eagle_config": {"norm_before_fc": False}, "norm_before_fc": True}, DraftMath()),
    ],
)
def test_sglang_reads_flags_where_its_draft_class_reads_them(changes: dict[str, Any], math: DraftMath) -> None:
    assert SGLANG.read(draft(sglang_config(**changes))).math == math


@pytest.mark.parametrize(("nested", "expected"), [({}, True), ({"use_aux_hidden_state": False}, False)])
def test_sglang_keeps_the_nested_switch_of_the_captured_states(nested: dict[str, Any], expected: bool) -> None:  # noqa: FBT001 - a parameter
    config = SGLANG.read(draft(sglang_config(eagle_config=nested))).draft.config
    assert config["use_aux_hidden_state"] is expected
    assert "eagle_config" not in config


# The speculators format.


@pytest.mark.parametrize(
    "config",
    [
        speculators_config(transformer_layer_config=None),
        {key: value for key, value in speculators_config().items() if key != "transformer_layer_config"},
        speculators_config(speculators_model_type="eagle"),
        speculators_config(speculators_model_type="dflash"),
        sglang_config(),
    ],
    ids=["null nesting", "type without nesting", "eagle 1", "dflash", "sglang"],
)
def test_speculators_claims_only_its_nesting_with_its_type(config: dict[str, Any]) -> None:
    assert SPECULATORS.claim(draft(config)) == ()


@pytest.mark.parametrize("changes", [{}, {"speculators_model_type": None}, {"architectures": ["Anything"]}])
def test_speculators_claims_its_nesting_whatever_the_class_is_called(changes: dict[str, Any]) -> None:
    assert SPECULATORS.claim(draft(speculators_config(**changes)))


def test_speculators_flattens_the_layer_config_and_keeps_what_stands_beside_it() -> None:
    nested = layer_config(rope_theta=5e5, architectures=["LlamaForCausalLM"], tie_word_embeddings=True)
    config = speculators_config(
        transformer_layer_config=nested, target_hidden_size=HIDDEN, tie_word_embeddings=False, draft_vocab_size=8
    )
    reading = SPECULATORS.read(draft(config))
    flat = reading.draft.config
    assert flat["rope_theta"] == 5e5
    assert (flat["draft_vocab_size"], flat["target_hidden_size"]) == (8, HIDDEN)
    assert flat["tie_word_embeddings"] is False
    assert not {"architectures", "model_type", "transformer_layer_config", "embed_requires_grad", IDS} & set(flat)


@pytest.mark.parametrize("version", ["0.5.0", "0.9.1", "0.10.0", "1.0.0"])
def test_speculators_from_0_5_on_has_one_reading_ids_are_boundaries(version: str) -> None:
    reading = SPECULATORS.read(draft(speculators_config(speculators_version=version)))
    (only,) = reading.id_readings
    assert (only.ids, only.convention) == ((0, 2, 5), INPUT_OF_LAYER)
    assert reading.first_reading_decides
    assert reading.trainer_version == version


@pytest.mark.parametrize("version", ["0.4.2", "0.1.0", None, "unknown"])
def test_older_speculators_has_two_readings_and_neither_decides(version: str | None) -> None:
    reading = SPECULATORS.read(draft(speculators_config(speculators_version=version)))
    assert [one.convention for one in reading.id_readings] == [INPUT_OF_LAYER, OUTPUT_OF_LAYER]
    assert not reading.first_reading_decides


def test_older_speculators_without_ids_was_trained_one_layer_after_what_is_served() -> None:
    config = speculators_config(speculators_version="0.3.0", **{IDS: None})
    served, trained = SPECULATORS.read(draft(config)).id_readings
    assert served.default is not None
    assert trained.default is not None
    assert (served.ids, served.default(61), trained.default(61)) == (None, (2, 30, 58), (3, 31, 59))


@pytest.mark.parametrize("absent", [True, False], ids=["absent", "null"])
def test_speculators_does_not_guess_norm_before_residual(absent: bool) -> None:  # noqa: FBT001 - a parameter
    config = speculators_config(norm_before_residual=None)
    if absent:
        del config["norm_before_residual"]
    (finding,) = SPECULATORS.read(draft(config)).findings
    assert (finding.code, finding.severity) == ("norm-before-residual", Severity.ERROR)


@pytest.mark.parametrize("value", [True, False])
def test_speculators_takes_a_stated_norm_before_residual(value: bool) -> None:  # noqa: FBT001 - a parameter
    reading = SPECULATORS.read(draft(speculators_config(norm_before_residual=value)))
    assert reading.findings == ()
    assert reading.math == DraftMath(norm_before_residual=value)


@pytest.mark.parametrize("flag", ["norm_before_fc", "fc_norm", "norm_output"])
def test_speculators_reads_each_flag_as_itself(flag: str) -> None:
    assert SPECULATORS.read(draft(speculators_config(**{flag: True}))).math == DraftMath(**{flag: True})


@pytest.mark.parametrize("value", [True, False, None])
def test_speculators_says_whether_the_embedding_was_trained(value: bool | None) -> None:  # noqa: FBT001 - a parameter
    assert SPECULATORS.read(draft(speculators_config(embed_requires_grad=value))).embedding_trained is value


def test_speculators_knows_no_midlayer() -> None:
    reading = SPECULATORS.read(draft(speculators_config(), shapes(layer="midlayer")))
    with pytest.raises(Exception, match=r"midlayer\.hidden_norm\.weight.*speculators"):
        reading.keys.apply("midlayer.hidden_norm.weight")


def test_a_draft_named_speculators_by_the_user_without_its_nesting_is_refused() -> None:
    with pytest.raises(FindingsError) as caught:
        SPECULATORS.read(draft(sglang_config()))
    assert caught.value.findings[0].code == "config-unreadable"
    assert "transformer_layer_config" in caught.value.findings[0].where


# Choosing.


@pytest.mark.parametrize(
    ("config", "name"), [(sglang_config(), "sglang"), (speculators_config(), "speculators")], ids=["sglang", "spec"]
)
def test_each_format_is_chosen_for_its_own_drafts(config: dict[str, Any], name: str) -> None:
    assert formats.choose(draft(config), INSTALLED).name == name


EAGLE_1 = {
    "fc.weight": (HIDDEN, 2 * HIDDEN),
    "layers.0.self_attn.q_proj.weight": (HIDDEN, HIDDEN),
    "layers.0.mlp.up_proj.weight": (INNER, HIDDEN),
}
PLAIN_LLAMA = {
    "model.embed_tokens.weight": (VOCAB, HIDDEN),
    "model.layers.0.self_attn.q_proj.weight": (HIDDEN, HIDDEN),
    "lm_head.weight": (VOCAB, HIDDEN),
}


@pytest.mark.parametrize(
    ("tensors", "clue"),
    [
        (EAGLE_1, "q_proj"),
        (PLAIN_LLAMA, "fc"),
        ({"fc.weight": (HIDDEN, 3 * HIDDEN)}, "q_proj"),
        ({"fc.weight": (HIDDEN,), "layers.0.self_attn.q_proj.weight": (HIDDEN, 2 * HIDDEN)}, "fc.weight"),
    ],
    ids=["eagle 1", "plain llama", "fc alone", "flat fc"],
)
def test_tensors_decide_that_a_draft_is_no_eagle3_head_whatever_its_config_says(
    tensors: dict[str, tuple[int, ...]], clue: str
) -> None:
    finding = refusal(sglang_config(), tensors)
    assert (finding.code, finding.severity) == ("not-eagle3", Severity.ERROR)
    assert clue in finding.found


def test_a_draft_of_experts_is_refused_since_no_class_computes_them() -> None:
    expert = {"midlayer.mlp.experts.0.up_proj.weight": (4, HIDDEN)}
    finding = refusal(sglang_config(), shapes() | expert)
    assert (finding.code, finding.severity) == ("draft-architecture", Severity.ERROR)
    assert "experts" in finding.found


@pytest.mark.parametrize("alone", ["q_a_proj", "kv_a_proj_with_mqa"])
def test_one_projection_to_latents_makes_it_an_eagle3_head_so_that_the_other_is_missed(alone: str) -> None:
    latent = {"fc.weight": (HIDDEN, 3 * HIDDEN), f"midlayer.self_attn.{alone}.weight": (4, 2 * HIDDEN)}
    assert formats.read(draft(sglang_config(), latent), SGLANG).format == "sglang"


def test_a_head_with_latent_attention_is_an_eagle3_head() -> None:
    latent = {"fc.weight": (HIDDEN, 3 * HIDDEN), "midlayer.self_attn.q_a_proj.weight": (4, 2 * HIDDEN)}
    assert formats.choose(draft(sglang_config(), latent), INSTALLED) is SGLANG


def test_a_deeper_head_is_an_eagle3_head_though_its_second_layer_reads_one_width() -> None:
    deeper = {"layers.1.self_attn.q_proj.weight": (HIDDEN, HIDDEN)} | shapes()
    assert formats.choose(draft(sglang_config(), deeper), INSTALLED) is SGLANG


def test_an_unknown_format_says_what_each_known_one_looks_for_and_what_is_there() -> None:
    finding = refusal(layer_config(architectures=["Eagle3LlamaForCausalLM"], aux_hidden_states_layer_ids=[1, 3, 4]))
    assert finding.code == "format-unknown"
    for installed in INSTALLED:
        assert f"{installed.name}: {installed.looks_for}" in finding.expected
    assert "Eagle3LlamaForCausalLM" in finding.found
    assert "aux_hidden_states_layer_ids" in finding.found
    assert "--eagle3-format" in finding.remedy


@pytest.mark.parametrize(
    "config",
    [
        layer_config(architectures=["LlamaForCausalLM"], _name_or_path="lmsys/sglang-EAGLE3-LlamaForCausalLMEagle3"),
        layer_config(architectures=["Eagle3Speculator"], speculators_model_type="eagle3"),
    ],
    ids=["sglang by its name alone", "speculators by its type alone"],
)
def test_a_name_alone_is_no_claim(config: dict[str, Any]) -> None:
    assert refusal(config).code == "format-unknown"


class Greedy:
    """A third party's format that claims everything."""

    name = "greedy"
    title = "everything"
    looks_for = "anything"

    def claim(self, draft: DraftModel) -> tuple[str, ...]:
        return ("it has a config",)

    def read(self, draft: DraftModel) -> FormatReading:
        raise NotImplementedError


@pytest.mark.parametrize("candidates", [(SGLANG, Greedy(), SPECULATORS), (Greedy(), SGLANG)])
def test_two_claims_are_an_error_that_names_both_and_their_facts(candidates: Iterable[formats.Format]) -> None:
    with pytest.raises(FindingsError) as caught:
        formats.choose(draft(sglang_config()), candidates)
    (finding,) = caught.value.findings
    assert finding.code == "format-ambiguous"
    assert "greedy: it has a config" in finding.found
    assert "sglang: architectures is LlamaForCausalLMEagle3" in finding.found
    assert "speculators" not in finding.remedy
