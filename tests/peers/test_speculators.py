"""speculators' own loader takes what ``convert`` writes, and ``inspect`` reads what the library saves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from peers.small import (
    STEPS,
    TOLERANCE,
    Inputs,
    assert_same_bits,
    command,
    convert,
    distance,
    errors,
    named,
    reference_logits,
    reference_of,
    tensors_of,
    write_small,
)
from speculators import SpeculatorModel, SpeculatorsConfig, VerifierConfig
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from speculators.proposals.greedy import GreedyTokenProposalConfig
from support.drafts import HIDDEN, LAYERS, VOCAB, Draft
from support.pair import DRAFT, TARGET, plan
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config

from eagle3_adapters.reference.load import load_draft
from eagle3_adapters.values import DraftMath

pytestmark = [
    pytest.mark.peers,
    # The library says so where a file has no ids; what it then takes is asserted.
    pytest.mark.filterwarnings("ignore:--target-layer-ids:UserWarning"),
]
#: Made while loading, for training; never saved.
OF_THE_VERIFIER = {"verifier_lm_head.weight", "verifier_norm.weight"}
EMBEDDING = "embed_tokens.weight"
FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
DRAFTS = {
    "plain": Draft(embedding="copy"),
    "two layers": Draft(depth=2),
    "three layers, five states": Draft(depth=3, boundaries=(0, 1, 3, 5, 7), unknown=1),
    "one state": Draft(boundaries=(4,)),
    "default states": Draft(boundaries=None),
    **{flag: Draft(math=DraftMath(**{flag: True})) for flag in FLAGS},
    "most flags, deep": Draft(depth=2, math=DraftMath(norm_before_residual=True, fc_norm=True, norm_output=True)),
    "qwen3": Draft(qk_norm=True),
    "qwen3, deep, biases": Draft(depth=2, qk_norm=True, attention_bias=True),
    "biases": Draft(depth=2, attention_bias=True, mlp_bias=True),
    "whole vocabulary": Draft(vocabulary=None),
    "unsorted vocabulary": Draft(vocabulary=(12, 3, 7, 1, 4)),
    "trained embedding": Draft(embedding="trained"),
}
every_draft = pytest.mark.parametrize("draft", DRAFTS.values(), ids=DRAFTS)


def load_strictly(directory: Path) -> Any:
    """The library's loader, with transformers' account of it: every key of the file has its place."""
    # Eagle3DraftModel's own from_pretrained cannot hand the account out; it adds the verifier's default ids alone.
    model, account = super(Eagle3DraftModel, Eagle3DraftModel).from_pretrained(directory, output_loading_info=True)
    assert {name: list(found) for name, found in account.items() if found} == {}
    # Keys that the library lets be missing are not in that account.
    assert set(model.state_dict()) - OF_THE_VERIFIER - set(tensors_of(directory)) <= {EMBEDDING}
    return model


def logits_of(model: Any, inputs: Inputs) -> Tensor:
    """Logits [steps, 1, rows, draft vocabulary] of a forward, which itself returns tokens only."""
    seen: list[Tensor] = []
    hook = model.lm_head.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    with torch.no_grad():
        model(inputs.features, inputs.tokens, document_ids=torch.zeros_like(inputs.tokens), ttt_steps=STEPS)
    hook.remove()
    return torch.stack(seen)


def load_to_run(directory: Path, target: Path) -> Any:
    """In float32; the library's default attention on a CPU wants rows by the 128."""
    config = Eagle3SpeculatorConfig.from_pretrained(directory)
    config.transformer_layer_config._attn_implementation = "eager"
    model = Eagle3DraftModel.from_pretrained(directory, config=config, dtype=torch.float32).eval()
    if EMBEDDING not in tensors_of(directory):
        # 0.9.0 means to take the verifier's, but tells a missing embedding by its NaN, which transformers has replaced
        # with memory as it was.
        model.embed_tokens.load_state_dict({"weight": tensors_of(target)["model.embed_tokens.weight"].float()})
    return model


# What convert writes.


@every_draft
def test_its_loader_finds_every_tensor_bit_for_bit_and_nothing_else(draft: Draft, tmp_path: Path) -> None:
    source = write_small(draft, tmp_path / "source")
    model = load_strictly(convert(source, tmp_path / "converted", "speculators"))
    loaded = {name: tensor for name, tensor in model.state_dict().items() if name not in OF_THE_VERIFIER}
    if draft.embedding == "none":
        del loaded[EMBEDDING]
    assert_same_bits(loaded, named(tensors_of(source), only="layers.0", deeper_norm="input_layernorm"))


@every_draft
def test_its_config_says_what_the_draft_is(draft: Draft, tmp_path: Path) -> None:
    converted = convert(write_small(draft, tmp_path / "source"), tmp_path / "converted", "speculators")
    config = load_strictly(converted).config
    assert {flag: getattr(config, flag) for flag in FLAGS} == {flag: getattr(draft.math, flag) for flag in FLAGS}
    wanted = None if draft.boundaries is None else list(draft.boundaries)
    assert config.eagle_aux_hidden_state_layer_ids == wanted
    assert config.embed_requires_grad is (draft.embedding == "trained")
    assert config.draft_vocab_size == len(draft.vocabulary or range(VOCAB))
    assert (config.speculators_version, config.speculators_config.algorithm) == ("0.9.0", "eagle3")
    layer = config.transformer_layer_config
    assert isinstance(layer, Qwen3Config if draft.qk_norm else LlamaConfig)
    fields = (
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "vocab_size",
    )
    assert {field: getattr(layer, field) for field in fields} == {field: draft.config()[field] for field in fields}
    assert (layer.num_hidden_layers, layer.rms_norm_eps) == (draft.depth, 1e-5)
    assert layer.rope_parameters == {"rope_theta": 10000.0, "rope_type": "default"}


@every_draft
def test_its_forward_is_this_projects(draft: Draft, target: Path, tmp_path: Path) -> None:
    source = write_small(draft, tmp_path / "source")
    converted = convert(source, tmp_path / "converted", "speculators", "--target", target)
    assert isinstance(SpeculatorModel.from_pretrained(converted), Eagle3DraftModel)
    model = load_to_run(converted, target)
    # Without ids the library asks the verifier that the config names.
    assert model.target_layer_ids == list(draft.boundaries or (2, LAYERS // 2, LAYERS - 3))
    embedding = tensors_of(source).get(EMBEDDING, tensors_of(target)["model.embed_tokens.weight"])
    assert torch.equal(model.embed_tokens.weight, embedding)
    inputs = Inputs.random(draft.states * HIDDEN, VOCAB)
    wanted = reference_logits(reference_of(draft, source), inputs, embedding)
    assert distance(logits_of(model, inputs), wanted) < TOLERANCE


@pytest.mark.parametrize("part", ["q_norm", "k_norm", "q_proj.bias", "v_proj.bias", "o_proj.bias", "up_proj.bias"])
def test_the_comparison_sees_norms_of_heads_and_biases(part: str, target: Path, tmp_path: Path) -> None:
    draft = Draft(qk_norm=part.endswith("_norm"), attention_bias=True, mlp_bias=not part.endswith("_norm"))
    source = write_small(draft, tmp_path / "source")
    model = load_to_run(convert(source, tmp_path / "converted", "speculators", "--target", target), target)
    (spoilt,) = (tensor for name, tensor in model.named_parameters() if part in name)
    spoilt.data.mul_(-3)
    inputs, embedding = Inputs.random(3 * HIDDEN, VOCAB), model.embed_tokens.weight.detach()
    wanted = reference_logits(reference_of(draft, source), inputs, embedding)
    assert distance(logits_of(model, inputs), wanted) > 100 * TOLERANCE


@pytest.mark.parametrize("flag", FLAGS)
def test_the_comparison_sees_each_flag(flag: str, target: Path, tmp_path: Path) -> None:
    draft = Draft(math=DraftMath(**{flag: True}))
    source = write_small(draft, tmp_path / "source")
    model = load_to_run(convert(source, tmp_path / "converted", "speculators", "--target", target), target)
    if flag == "norm_before_residual":
        model.layers[0].norm_before_residual = False
    elif flag == "norm_output":
        model.config.norm_output = False
    else:
        setattr(model, {"norm_before_fc": "input_norm", "fc_norm": "fc_norm"}[flag], None)
    inputs, embedding = Inputs.random(3 * HIDDEN, VOCAB), model.embed_tokens.weight.detach()
    wanted = reference_logits(reference_of(draft, source), inputs, embedding)
    assert distance(logits_of(model, inputs), wanted) > 1000 * TOLERANCE


def test_states_out_of_order_arrive_in_the_order_in_which_it_captures(target: Path, tmp_path: Path) -> None:
    draft = Draft(boundaries=(5, 2, 0))
    source = write_small(draft, tmp_path / "source")
    model = load_to_run(convert(source, tmp_path / "converted", "speculators", "--target", target), target)
    assert model.target_layer_ids == [0, 2, 5]
    inputs, embedding = Inputs.random(3 * HIDDEN, VOCAB), model.embed_tokens.weight.detach()
    listed = Inputs(torch.cat(inputs.features.chunk(3, dim=-1)[::-1], dim=-1), inputs.tokens)
    wanted = reference_logits(reference_of(draft, source), listed, embedding)
    assert distance(logits_of(model, inputs), wanted) < TOLERANCE


def test_the_rope_base_and_the_epsilon_arrive(target: Path, tmp_path: Path) -> None:
    draft, changed = Draft(depth=2), {"rope_theta": 17.0, "rms_norm_eps": 0.25}
    source = write_small(draft, tmp_path / "source")
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config["universal"]["fields"] |= changed
    (source / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model = load_to_run(convert(source, tmp_path / "converted", "speculators", "--target", target), target)
    inputs, embedding = Inputs.random(3 * HIDDEN, VOCAB), model.embed_tokens.weight.detach()
    wanted = reference_logits(reference_of(draft, source, **changed), inputs, embedding)
    assert distance(logits_of(model, inputs), wanted) < TOLERANCE


def test_a_qwen3_layer_has_no_mlp_biases(tmp_path: Path) -> None:
    source = write_small(Draft(qk_norm=True, mlp_bias=True), tmp_path / "source")
    data = command("convert", source, tmp_path / "converted", "--to", "speculators", fails=True)
    assert {code for code, _ in errors(data)} == {"not-representable"}


@pytest.mark.parametrize("through", ["speculators", "sglang", "torchspec"])
def test_the_trained_pair_loads_and_computes_what_it_did(
    through: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    between = convert(DRAFT, tmp_path / through, through, "--target", TARGET)
    converted = convert(between, tmp_path / "converted", "speculators", "--target", TARGET)
    (tmp_path / "target").symlink_to(TARGET)
    monkeypatch.chdir(converted)  # its own files name the verifier "../target"
    state = load_strictly(converted).state_dict()
    assert_same_bits({name: state[name] for name in set(state) - OF_THE_VERIFIER}, tensors_of(DRAFT))
    model = load_to_run(converted, TARGET)
    assert model.target_layer_ids == [0, 2, 5]
    inputs, embedding = Inputs.random(3 * 128, 1024), tensors_of(DRAFT)[EMBEDDING].float()
    wanted = reference_logits(load_draft(plan()).draft, inputs, embedding)
    assert distance(logits_of(model, inputs), wanted) < TOLERANCE


# What the library saves.


@attrs.frozen(kw_only=True)
class Fresh:
    """A model as the library's trainer builds it."""

    kind: type = LlamaConfig
    depth: int = 1
    ids: tuple[int, ...] | None = (2, 4, 5)
    draft_vocab: int = 5
    flags: tuple[str, ...] = ()
    embed_requires_grad: bool = False

    def save(self, directory: Path, target: Path | None) -> dict[str, Tensor]:
        """Save it and return what it held."""
        layer = self.kind(
            vocab_size=VOCAB,
            hidden_size=HIDDEN,
            intermediate_size=16,
            num_hidden_layers=self.depth,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=4,
            rms_norm_eps=1e-5,
            max_position_embeddings=64,
        )
        verifier = VerifierConfig(
            name_or_path=None if target is None else str(target), architectures=["LlamaForCausalLM"]
        )
        config = Eagle3SpeculatorConfig(
            transformer_layer_config=layer,
            draft_vocab_size=self.draft_vocab,
            eagle_aux_hidden_state_layer_ids=None if self.ids is None else list(self.ids),
            embed_requires_grad=self.embed_requires_grad,
            speculators_config=SpeculatorsConfig(
                algorithm="eagle3",
                proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=3)],
                default_proposal_method="greedy",
                verifier=verifier,
            ),
            **dict.fromkeys(self.flags, True),
        )
        model = Eagle3DraftModel(config)
        generator = torch.Generator().manual_seed(3)
        for parameter in model.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator)
        if self.draft_vocab < VOCAB:
            chosen = torch.tensor([1, 3, 4, 7, 12])
            mask = torch.zeros(VOCAB, dtype=torch.bool)
            mask[chosen] = True
            model.load_vocab_mappings(mask, chosen - torch.arange(self.draft_vocab))
        model.save_pretrained(directory)
        return {name: tensor for name, tensor in model.state_dict().items() if name not in OF_THE_VERIFIER}


FRESH = {
    "plain": Fresh(),
    "the trainer's default flags": Fresh(flags=("norm_before_residual", "norm_before_fc")),
    "eagle 3.1": Fresh(flags=("fc_norm", "norm_output"), depth=2),
    "one norm before fc": Fresh(flags=("norm_before_fc",), depth=3, ids=(0, 1, 3, 5, 7)),
    "qwen3": Fresh(kind=Qwen3Config, flags=("norm_output",)),
    "no ids": Fresh(ids=None),
    "whole vocabulary": Fresh(draft_vocab=VOCAB),
    "trained embedding": Fresh(embed_requires_grad=True),
}


@pytest.mark.parametrize("fresh", FRESH.values(), ids=FRESH)
def test_inspect_reads_what_the_library_saves(fresh: Fresh, target: Path, tmp_path: Path) -> None:
    held = fresh.save(tmp_path / "saved", target)
    data = command("inspect", tmp_path / "saved")
    assert (data["format"], data["trainer_version"]) == ("speculators", "0.9.0")
    assert {flag for flag, value in data["flags"].items() if value} == set(fresh.flags)
    assert [one["ids"] for one in data["layer_ids"]] == [None if fresh.ids is None else list(fresh.ids)]
    assert data["embedding_trained"] is fresh.embed_requires_grad
    assert {name: tuple(one["shape"]) for name, one in data["tensors"].items()} == {
        name: tuple(tensor.shape) for name, tensor in held.items()
    }
    assert data["findings"] == []
    config = data["config"]
    assert (config["hidden_size"], config["num_hidden_layers"], config["head_dim"]) == (HIDDEN, fresh.depth, 4)


for_sglang = pytest.mark.parametrize("name", ["plain", "eagle 3.1", "one norm before fc", "no ids", "whole vocabulary"])


@pytest.mark.parametrize("name", FRESH)
def test_check_plans_what_the_library_saves(name: str, target: Path, tmp_path: Path) -> None:
    fresh = FRESH[name]
    fresh.save(tmp_path / "saved", target)
    plan = command("check", "--target", target, "--draft", tmp_path / "saved")["plan"]
    assert plan["boundaries"] == list(fresh.ids or (2, LAYERS // 2, LAYERS - 3))
    norms = {"qk_norm"} if fresh.kind is Qwen3Config else set()
    assert {flag for flag, value in plan["math"].items() if value} == {*fresh.flags, *norms}
    stock = set(fresh.flags) <= {"norm_before_fc", "fc_norm", "norm_output"} and not norms
    assert plan["draft_class"].startswith("Adapted") is (not stock or fresh.embed_requires_grad)


@for_sglang
def test_for_sglang_it_holds_the_same_tensors(name: str, target: Path, tmp_path: Path) -> None:
    fresh = FRESH[name]
    held = fresh.save(tmp_path / "saved", target)
    converted = convert(tmp_path / "saved", tmp_path / "converted", "sglang", "--target", target)
    deeper = re.compile(r"^(layers\.[1-9]\.)input_layernorm")
    canonical = {deeper.sub(r"\1hidden_norm", name): tensor for name, tensor in held.items()}
    only = "midlayer" if fresh.depth == 1 else "layers.0"
    assert_same_bits(tensors_of(converted), named(canonical, only=only))
    data = command("inspect", converted, "--target", target)
    assert {flag for flag, value in data["flags"].items() if value} == set(fresh.flags)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("the trainer's default flags", "norm_before_residual"),
        ("qwen3", "q_norm"),
        ("trained embedding", "embed"),
    ],
)
def test_what_sglang_cannot_say_is_refused_by_name(name: str, what: str, target: Path, tmp_path: Path) -> None:
    FRESH[name].save(tmp_path / "saved", target)
    data = command("convert", tmp_path / "saved", tmp_path / "out", "--to", "sglang", "--target", target, fails=True)
    assert [code for code, _ in errors(data)] == ["not-representable"] * len(errors(data))
    assert what in json.dumps(data["findings"])
    assert not (tmp_path / "out").exists()
