"""One draft as each trainer saves it, by trainer-conventions.md: what claims it, and what it is read as."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from support.checkpoints import DRAFT_VOCAB, HIDDEN, VOCAB, layer_config, speculators_config

from eagle3_adapters import formats
from eagle3_adapters.boundaries import HIDDEN_STATES, INPUT_OF_LAYER, OUTPUT_OF_LAYER, Convention
from eagle3_adapters.errors import FindingsError, Severity
from eagle3_adapters.formats.ids import IDS
from eagle3_adapters.registry import Registry
from eagle3_adapters.values import DraftMath, DraftModel, FormatReading, TensorInfo

REGISTRY = Registry.installed()
INSTALLED = [REGISTRY.format(one.name) for one in REGISTRY.formats]
LLAMA = (
    *(f"self_attn.{part}_proj" for part in "qkvo"),
    *(f"mlp.{part}_proj" for part in ("gate", "up", "down")),
    "input_layernorm",
    "hidden_norm",
    "post_attention_layernorm",
)
LATENT = (
    *(f"self_attn.{part}" for part in ("q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa")),
    *(f"self_attn.{part}" for part in ("kv_a_layernorm", "kv_b_proj", "o_proj")),
    *LLAMA[4:],
)
#: Keys of eagle_config that ModelOpt has always written, and those of 0.41.
FIVE = {
    "use_aux_hidden_state": True,
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
    IDS: [1, 3, 4],
}
EIGHT = FIVE | {"next_layer_regular": True, "parallel_draft_step": 1, "parallel_draft_heads_num_layers": 1}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2}


def shape_of(name: str) -> tuple[int, ...]:
    if name.endswith("fc"):
        return (HIDDEN, 3 * HIDDEN)
    return (
        (8, 2 * HIDDEN) if name.endswith(("q_proj", "q_a_proj", "kv_a_proj_with_mqa", "k_proj", "v_proj")) else (8, 8)
    )


def tensors(*layers: tuple[str, tuple[str, ...]], root: str = "", more: tuple[str, ...] = ()) -> dict[str, TensorInfo]:
    """Layer prefixes with their tensors, fc, norm and head, and further names as they are."""
    names = [f"{prefix}.{name}.weight" for prefix, held in layers for name in held]
    names += [f"{root}fc.weight", f"{root}norm.weight", "lm_head.weight", *more]
    found = {}
    for name in names:
        shape = shape_of(name.removesuffix(".weight"))
        found[name] = TensorInfo(name=name, dtype="F32", shape=shape, file=Path("model.safetensors"), start=0, stop=0)
    return found


PLAIN = DraftMath()


@attrs.frozen(kw_only=True)
class Case:
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    format: str
    conventions: tuple[Convention | None, ...] = (OUTPUT_OF_LAYER,)
    ids: tuple[int, ...] | None = None
    math: DraftMath = PLAIN
    listed: bool | None = False
    decides: bool = True


def flat(**changes: Any) -> dict[str, Any]:
    return layer_config(draft_vocab_size=DRAFT_VOCAB) | changes


BOTH, D2T = ("d2t", "t2d"), ("d2t",)
DEEPER_HIDDEN = tuple(name for name in LLAMA if name != "input_layernorm")
DEEPER_INPUT = tuple(name for name in LLAMA if name != "hidden_norm")
SGLANG = "LlamaForCausalLMEagle3"
CASES = {
    "SafeAILab EAGLE": Case(
        config=flat(architectures=["LlamaForCausalLM"]),
        tensors=tensors(("midlayer", LLAMA), more=BOTH),
        format="safeailab",
        conventions=(INPUT_OF_LAYER,),
    ),
    "SpecForge, to_sglang": Case(
        config=flat(architectures=[SGLANG], eagle_config={IDS: [1, 3, 4], "use_aux_hidden_state": True}),
        tensors=tensors(("midlayer", LLAMA), more=BOTH),
        format="sglang",
        conventions=(None, OUTPUT_OF_LAYER),
        ids=(1, 3, 4),
    ),
    "speculators 0.5": Case(
        config=speculators_config(),
        tensors=tensors(("layers.0", LLAMA), more=(*BOTH, "embed_tokens.weight")),
        format="speculators",
        conventions=(INPUT_OF_LAYER,),
        ids=(0, 2, 5),
    ),
    "speculators 0.3": Case(
        config=speculators_config(speculators_version="0.3.0", eagle_aux_hidden_state_layer_ids=None),
        tensors=tensors(("layers.0", LLAMA), more=(*BOTH, "embed_tokens.weight")),
        format="speculators",
        conventions=(INPUT_OF_LAYER, OUTPUT_OF_LAYER),
        decides=False,
    ),
    "ModelOpt 0.37": Case(
        config=flat(architectures=[SGLANG], eagle_config=FIVE, **SPECIAL),
        tensors=tensors(("midlayer", LLAMA), more=D2T),
        format="modelopt",
        ids=(1, 3, 4),
    ),
    "ModelOpt 0.41, Hugging Face": Case(
        config=flat(architectures=[SGLANG], eagle_config=EIGHT, **SPECIAL),
        tensors=tensors(("midlayer", LLAMA), more=D2T),
        format="modelopt",
        ids=(1, 3, 4),
        math=DraftMath(double_norm=True),
    ),
    "ModelOpt 0.41, Hugging Face, two layers": Case(
        config=flat(architectures=[SGLANG], eagle_config=EIGHT, **SPECIAL),
        tensors=tensors(("midlayer.0", LLAMA), ("midlayer.1", DEEPER_INPUT), more=D2T),
        format="modelopt",
        ids=(1, 3, 4),
        math=DraftMath(double_norm=True),
    ),
    "ModelOpt 0.41, Megatron": Case(
        config=flat(architectures=[SGLANG], eagle_config=EIGHT, bos_token_id=None, eos_token_id=None),
        tensors=tensors(("midlayer", LLAMA)),
        format="modelopt",
        ids=(1, 3, 4),
    ),
    "ModelOpt 0.41, Megatron, two layers": Case(
        config=flat(architectures=["LlamaForCausalLMEagle3Deep"], eagle_config=EIGHT),
        tensors=tensors(("midlayer.0", LLAMA), ("midlayer.1", DEEPER_HIDDEN)),
        format="modelopt",
        ids=(1, 3, 4),
    ),
    "ModelOpt 0.47, whose states may come from vLLM": Case(
        config=flat(architectures=[SGLANG], eagle_config=EIGHT, **SPECIAL),
        tensors=tensors(("layers.0", LLAMA), more=D2T),
        format="modelopt",
        conventions=(OUTPUT_OF_LAYER, INPUT_OF_LAYER),
        ids=(1, 3, 4),
        math=DraftMath(double_norm=True),
        decides=False,
    ),
    "ModelOpt 0.47, latent attention": Case(
        config=flat(architectures=["Eagle3DeepseekV2ForCausalLM"], eagle_config=EIGHT, **SPECIAL),
        tensors=tensors(("layers.0", LATENT), more=D2T),
        format="modelopt",
        conventions=(OUTPUT_OF_LAYER, INPUT_OF_LAYER),
        ids=(1, 3, 4),
        math=DraftMath(double_norm=True),
        decides=False,
    ),
    "AngelSlim": Case(
        config=flat(architectures=["Eagle3LlamaForCausalLM"], aux_hidden_states_layer_ids=[4, 1, 3]),
        tensors=tensors(("midlayer", LLAMA), more=(*BOTH, "embed_tokens.weight")),
        format="angelslim",
        conventions=(HIDDEN_STATES,),
        ids=(4, 1, 3),
        listed=True,
    ),
    "AngelSlim, its misspelt class": Case(
        config=flat(architectures=["Eagle3LLamaforCausalLM"]),
        tensors=tensors(("midlayer", LLAMA), more=BOTH),
        format="angelslim",
        conventions=(HIDDEN_STATES,),
        listed=True,
    ),
    "TorchSpec, latent attention": Case(
        config=flat(architectures=["Eagle3DeepseekV2ForCausalLM"], eagle_config=FIVE),
        tensors=tensors(("midlayer", LATENT), more=("embed_tokens.weight",)),
        format="torchspec",
        ids=(1, 3, 4),
        listed=None,
    ),
    "TorchSpec, --vllm": Case(
        config=flat(architectures=[SGLANG], eagle_config={IDS: [2, 4, 5]}),
        tensors=tensors(("layers.0", LLAMA), more=("embed_tokens.weight",)),
        format="sglang",
        conventions=(None, OUTPUT_OF_LAYER, INPUT_OF_LAYER),
        ids=(2, 4, 5),
    ),
    "NeMo Automodel": Case(
        config=flat(architectures=["LlamaEagle3DraftModel"], num_hidden_layers=32, norm_output=True),
        tensors=tensors(("model.layers.0", LLAMA), root="model.", more=(*BOTH, "model.embed_tokens.weight")),
        format="nemo",
        math=DraftMath(norm_output=True),
        listed=True,
    ),
    "NeMo Automodel, latent attention": Case(
        config=flat(architectures=["LlamaEagle3DraftModel"], parallel_drafting=False),
        tensors=tensors(("model.layers.0", LATENT), root="model.", more=("model.embed_tokens.weight",)),
        format="nemo",
        listed=True,
    ),
}


def draft_of(case: Case) -> DraftModel:
    return DraftModel(path=Path("draft"), config=case.config, tensors=case.tensors)


def reading_of(case: Case) -> FormatReading:
    draft = draft_of(case)
    return formats.read(draft, formats.choose(draft, INSTALLED))


@pytest.mark.parametrize("name", CASES)
def test_a_trainers_file_is_recognised_and_read_as_its_trainer_means_it(name: str) -> None:
    case, reading = CASES[name], reading_of(CASES[name])
    assert reading.format == case.format
    assert tuple(one.convention for one in reading.id_readings) == case.conventions
    assert {one.ids for one in reading.id_readings} == {case.ids}
    assert reading.math == case.math
    assert reading.listed_order is case.listed
    assert reading.first_reading_decides is case.decides
    assert [finding for finding in reading.findings if finding.severity is Severity.ERROR] == []


@pytest.mark.parametrize("name", CASES)
def test_exactly_one_format_claims_it_and_every_tensor_has_a_canonical_name(name: str) -> None:
    draft = draft_of(CASES[name])
    assert [one.name for one in INSTALLED if one.claim(draft)] == [CASES[name].format]
    keys = reading_of(CASES[name]).keys
    canonical = {str(keys.apply(tensor)) for tensor in draft.tensors}
    assert len(canonical) == len(draft.tensors)
    assert {"fc.weight", "norm.weight", "lm_head.weight", "layers.0.hidden_norm.weight"} <= canonical
    if any(".1." in tensor for tensor in draft.tensors):
        # Below the first layer one norm is left, whatever its trainer calls it.
        assert "layers.1.hidden_norm.weight" in canonical


@pytest.mark.parametrize("name", CASES)
def test_the_class_name_alone_is_no_claim(name: str) -> None:
    """Detection is by tensors and config together: the same config over other tensors is not recognised by name."""
    case = CASES[name]
    stranger = attrs.evolve(draft_of(case), tensors=tensors(("block", LLAMA)))
    claims = {one.name for one in INSTALLED if one.claim(stranger)}
    # These two have marks in config.json that no other trainer writes; SGLang's class decides by itself what it loads.
    assert claims <= {"speculators", "modelopt", "sglang"}


@pytest.mark.parametrize("key", ["eagle3", "target_vocab_size", "residual_multiplier"])
def test_research_files_and_granites_are_not_taken_for_safeailabs(key: str) -> None:
    case = CASES["SafeAILab EAGLE"]
    with pytest.raises(FindingsError) as caught:
        reading_of(attrs.evolve(case, config={**case.config, key: VOCAB}))
    assert [finding.code for finding in caught.value.findings] == ["format-unknown"]


def test_safeailab_trains_at_base_10000() -> None:
    case = CASES["SafeAILab EAGLE"]
    without = {key: value for key, value in case.config.items() if key != "rope_theta"}
    reading = reading_of(attrs.evolve(case, config=without))
    assert (reading.draft.config["rope_theta"], reading.findings) == (10000.0, ())
    other = reading_of(attrs.evolve(case, config={**case.config, "rope_theta": 5e5}))
    assert other.draft.config["rope_theta"] == 5e5
    assert [finding.code for finding in other.findings] == ["rope-base"]


@pytest.mark.parametrize(
    ("key", "value"),
    [("use_mtp_layernorm", True), ("parallel_draft_step", 4), ("use_last_layernorm", False)],
)
def test_modelopt_flags_of_another_draft_are_refused_by_name(key: str, value: object) -> None:
    case = CASES["ModelOpt 0.41, Hugging Face"]
    reading = reading_of(attrs.evolve(case, config={**case.config, "eagle_config": {**EIGHT, key: value}}))
    (finding,) = reading.findings
    assert (finding.code, finding.severity) == ("draft-architecture", Severity.ERROR)
    assert key in finding.where


@pytest.mark.parametrize(("stated", "bare"), [(None, False), (True, False), (False, True)])
def test_specforge_by_name_decides_what_norm_output_means(stated: bool | None, bare: bool) -> None:  # noqa: FBT001 - parameters
    case = CASES["SpecForge, to_sglang"]
    config = case.config if stated is None else {**case.config, "norm_output": stated}
    draft = draft_of(attrs.evolve(case, config=config))
    reading = formats.read(draft, REGISTRY.format("specforge"))
    assert reading.math == DraftMath(bare_head=bare)
    assert not reading.norm_output_doubtful
    assert reading.findings == ()


@pytest.mark.parametrize(("stated", "trained"), [(None, None), (True, True), (False, None)])
def test_a_flat_file_may_say_that_its_embedding_was_trained(stated: bool | None, trained: bool | None) -> None:  # noqa: FBT001 - parameters
    case = CASES["SpecForge, to_sglang"]
    config = case.config if stated is None else {**case.config, "embed_requires_grad": stated}
    assert reading_of(attrs.evolve(case, config=config)).embedding_trained is trained


def test_the_id_of_the_last_layer_is_normed_in_transformers_hidden_states() -> None:
    with pytest.raises(Exception, match=r"hidden_states\[8\] of transformers is normed"):
        HIDDEN_STATES.to_boundaries((1, 3, 7), 8)
    assert HIDDEN_STATES.to_boundaries((6, 1, 3), 8) == (7, 2, 4)
    assert HIDDEN_STATES.to_ids((7, 2, 4), 8) == (6, 1, 3)
