"""SpecForge's own loader takes what ``convert`` writes, and ``inspect`` and ``check`` read what its exports write."""

from __future__ import annotations

import json
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
from specforge.export.to_hf import export_to_hf
from specforge.export.to_sglang import export_to_sglang
from specforge.modeling.auto import AutoDraftModel, AutoDraftModelConfig
from specforge.modeling.draft.llama3_eagle import LlamaForCausalLMEagle3
from specforge.training.model_loading import warm_start_draft_model
from support.drafts import HIDDEN, LAYERS, VOCAB, Draft
from torch import Tensor

from eagle3_adapters.values import DraftMath

pytestmark = pytest.mark.peers
EMBEDDING = "embed_tokens.weight"
TARGET_EMBEDDING = "model.embed_tokens.weight"
DRAFTS = {
    "plain": Draft(),
    "bare head": Draft(math=DraftMath(bare_head=True)),
    "other states": Draft(boundaries=(0, 2, 5), unknown=1),
    "last state": Draft(boundaries=(1, 4, 8)),
    "default states": Draft(boundaries=None),
    "fc_norm": Draft(math=DraftMath(fc_norm=True)),
    "wider states": Draft(width=HIDDEN + 2, math=DraftMath(fc_norm=True)),
    "whole vocabulary": Draft(vocabulary=None),
    "unsorted vocabulary": Draft(vocabulary=(12, 3, 7, 1, 4)),
    "copy of the embedding": Draft(embedding="copy"),
}
every_draft = pytest.mark.parametrize("draft", DRAFTS.values(), ids=DRAFTS)


def load_strictly(directory: Path) -> Any:
    """Both of its loaders, with transformers' account: of all tensors the embedding alone may be absent."""
    config = AutoDraftModelConfig.from_file(str(directory / "config.json"))
    model, account = AutoDraftModel.from_pretrained(directory, config=config, output_loading_info=True)
    absent = {EMBEDDING} - set(tensors_of(directory))
    assert {name: set(found) for name, found in account.items() if found} == (
        {"missing_keys": absent} if absent else {}
    )
    assert isinstance(model, LlamaForCausalLMEagle3)
    by_itself = AutoDraftModel.from_pretrained(directory).state_dict()
    assert_same_bits(without_embedding(by_itself), without_embedding(model.state_dict()))
    return model


def load_to_run(directory: Path, target: Path) -> Any:
    """As its trainer starts from a draft. What from_pretrained returns has its weights, but no rotary tables: they are
    no part of a file, and transformers 5 replaces them with memory as it was.
    """
    config = AutoDraftModelConfig.from_file(str(directory / "config.json"))
    model = AutoDraftModel.from_config(config, torch_dtype=torch.float32)
    report = warm_start_draft_model(
        model, str(directory), draft_config=config, strategy="eagle3", allow_missing_embedding=True
    )
    assert (report.checkpoint_format, set(report.missing_keys) <= {EMBEDDING}) == ("pretrained", True)
    if not report.loaded_embedding:
        model.load_embedding(str(target))
    return model.eval()


def without_embedding(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name != EMBEDDING}


def logits_of(model: Any, inputs: Inputs) -> Tensor:
    """Logits [steps, 1, rows, draft vocabulary], by the calls of its trainer in their order."""
    logits: list[Tensor] = []
    cache: list[list[Tensor]] = [[], []]
    tokens = inputs.tokens
    rows = tokens.shape[1]
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        hidden = model.project_hidden_states(inputs.features)
        mask = model.prepare_decoder_attention_mask(torch.ones_like(tokens, dtype=torch.bool), hidden, 1, rows, 0)
        for _ in range(STEPS):
            embedded = model.embed_input_ids(tokens)
            hidden = model.backbone(embedded, hidden, cache, mask, torch.arange(rows)[None])
            logits.append(model.compute_logits(hidden))
            tokens = torch.nn.functional.pad(tokens[:, 1:], (0, 1))
    return torch.stack(logits)


# What convert writes.


@every_draft
def test_its_loader_finds_every_tensor_bit_for_bit(draft: Draft, target: Path, tmp_path: Path) -> None:
    source = write_small(draft, tmp_path / "source")
    model = load_strictly(convert(source, tmp_path / "converted", "specforge", "--target", target))
    wanted = named(tensors_of(source), only="midlayer")
    if draft.vocabulary is None:
        # What its own model has for a vocabulary that is not reduced.
        wanted |= {"d2t": torch.zeros(VOCAB, dtype=torch.int64), "t2d": torch.ones(VOCAB, dtype=torch.bool)}
    loaded = model.state_dict()
    assert_same_bits(loaded if EMBEDDING in wanted else without_embedding(loaded), wanted)


@every_draft
def test_its_config_says_what_the_draft_is(draft: Draft, target: Path, tmp_path: Path) -> None:
    source = write_small(draft, tmp_path / "source")
    model = load_strictly(convert(source, tmp_path / "converted", "specforge", "--target", target))
    config = model.config
    fields = (
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "vocab_size",
    )
    assert {field: getattr(config, field) for field in fields} == {field: draft.config()[field] for field in fields}
    assert config.draft_vocab_size == len(draft.vocabulary or range(VOCAB))
    assert (model.target_hidden_size, model.fc_norm is not None) == (draft.width, draft.math.fc_norm)
    # It reads SGLang's ids by SGLang's rule: on Llama the state after layer i.
    boundaries = draft.boundaries or (2, LAYERS // 2, LAYERS - 3)
    ids = getattr(config, "eagle_config", {}).get("eagle_aux_hidden_state_layer_ids")
    assert ids == [boundary - 1 for boundary in boundaries] or (draft.boundaries is None and ids is None)


@every_draft
def test_its_forward_is_this_projects(draft: Draft, target: Path, tmp_path: Path) -> None:
    source = write_small(draft, tmp_path / "source")
    model = load_to_run(convert(source, tmp_path / "converted", "specforge", "--target", target), target)
    embedding = tensors_of(source).get(EMBEDDING, tensors_of(target)[TARGET_EMBEDDING])
    assert torch.equal(model.embed_tokens.weight, embedding)
    inputs = Inputs.random(3 * draft.width, VOCAB)
    wanted = reference_logits(reference_of(draft, source), inputs, embedding)
    assert distance(logits_of(model, inputs), wanted) < TOLERANCE


@pytest.mark.parametrize("bare", [False, True])
def test_the_comparison_sees_its_norm_before_the_head(bare: bool, target: Path, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    draft = Draft(math=DraftMath(bare_head=bare))
    source = write_small(draft, tmp_path / "source")
    model = load_to_run(convert(source, tmp_path / "converted", "specforge", "--target", target), target)
    assert model.norm_output is not bare
    model.norm_output = bare
    inputs, embedding = Inputs.random(3 * HIDDEN, VOCAB), model.embed_tokens.weight.detach()
    wanted = reference_logits(reference_of(draft, source), inputs, embedding)
    assert distance(logits_of(model, inputs), wanted) > 1000 * TOLERANCE


ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 3.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8,
    },
    "yarn": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 8,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 0.5,
    },
}


@pytest.mark.parametrize("rope", ROPES.values(), ids=ROPES)
def test_its_scaled_positions_are_this_projects(rope: dict[str, Any], target: Path, tmp_path: Path) -> None:
    draft = Draft(fields={"rope_scaling": {"rope_theta": 50.0, **rope}, "rope_theta": 50.0})
    source = write_small(draft, tmp_path / "source")
    model = load_to_run(convert(source, tmp_path / "converted", "specforge", "--target", target), target)
    inputs, embedding = Inputs.random(3 * HIDDEN, VOCAB), model.embed_tokens.weight.detach()
    found = logits_of(model, inputs)
    assert distance(found, reference_logits(reference_of(draft, source), inputs, embedding)) < TOLERANCE
    plain = attrs.evolve(draft, fields={"rope_theta": 50.0})
    assert distance(found, reference_logits(reference_of(plain, source), inputs, embedding)) > 100 * TOLERANCE


# What its exports write.


@attrs.frozen(kw_only=True)
class Run:
    """A training run as far as its exports look: draft config and checkpoint."""

    ids: tuple[int, ...] | None = (0, 3, 4)
    draft_vocab: int = 5
    #: Further keys of the draft config.
    keys: dict[str, Any] = attrs.field(factory=dict)
    #: Whether the checkpoint holds the embedding, as it does where that was trained.
    embedding: bool = False

    def write(self, directory: Path) -> dict[str, Any]:
        """The exports' arguments."""
        config = {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "hidden_size": HIDDEN,
            "intermediate_size": 16,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 4,
            "num_hidden_layers": 1,
            "vocab_size": VOCAB,
            "draft_vocab_size": self.draft_vocab,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "max_position_embeddings": 64,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            **({} if self.ids is None else {"eagle_config": {"eagle_aux_hidden_state_layer_ids": list(self.ids)}}),
            **self.keys,
        }
        directory.mkdir()
        (directory / "draft.json").write_text(json.dumps(config), encoding="utf-8")
        drafted = AutoDraftModelConfig.from_file(str(directory / "draft.json"))
        model = AutoDraftModel.from_config(drafted, torch_dtype=torch.bfloat16)
        generator = torch.Generator().manual_seed(7)
        state = {
            name: torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
            for name, tensor in model.state_dict().items()
            if tensor.is_floating_point() and (self.embedding or name != EMBEDDING)
        }
        if self.draft_vocab < VOCAB:
            chosen = torch.tensor([1, 3, 4, 7, 12])
            state |= {"d2t": chosen - torch.arange(self.draft_vocab), "t2d": torch.isin(torch.arange(VOCAB), chosen)}
        else:
            state |= {name: model.state_dict()[name] for name in ("d2t", "t2d")}
        torch.save({"strategy": "eagle3", "draft_state_dict": state}, directory / "training_state.pt")
        return {"checkpoint_path": str(directory), "draft_config_path": str(directory / "draft.json")}


RUNS = {
    "plain": Run(),
    "no ids": Run(ids=None),
    "fc_norm": Run(keys={"fc_norm": True}),
    "whole vocabulary": Run(draft_vocab=VOCAB),
}
every_run = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)


def assert_read(directory: Path, run: Run, target: Path) -> None:
    """What it is by ``inspect``, and how it is wired by ``check``, with the format found and with it named."""
    data = command("inspect", directory)
    assert data["format"] == "sglang"  # nothing in the files says who wrote them
    assert data["layer_ids"][0]["ids"] == (None if run.ids is None else list(run.ids))
    for options in ((), ("--eagle3-format", "specforge")):
        data = command("inspect", directory, *options)
        assert {flag for flag, value in data["flags"].items() if value} == set(run.keys)
        assert {name: (one["dtype"], tuple(one["shape"])) for name, one in data["tensors"].items()} == {
            name: ({torch.bfloat16: "BF16", torch.int64: "I64", torch.bool: "BOOL"}[one.dtype], tuple(one.shape))
            for name, one in tensors_of(directory).items()
        }
        plan = command("check", "--target", target, "--draft", directory, "--deep", *options)["plan"]
        # SpecForge's ids are SGLang's: on Llama the state after layer i; its default is SGLang's too.
        assert plan["boundaries"] == [i + 1 for i in run.ids or (1, LAYERS // 2 - 1, LAYERS - 4)]
        assert {flag for flag, value in plan["math"].items() if value} == set(run.keys)
        assert plan["draft_vocab_size"] == run.draft_vocab


@every_run
def test_its_export_for_sglang_is_read(run: Run, target: Path, tmp_path: Path) -> None:
    exported = tmp_path / "exported"
    export_to_sglang(output_dir=str(exported), **run.write(tmp_path / "run"))
    assert EMBEDDING not in tensors_of(exported)
    assert_read(exported, run, target)


@every_run
def test_its_export_as_a_model_is_read(run: Run, target: Path, tmp_path: Path) -> None:
    exported = tmp_path / "exported"
    export_to_hf(output_dir=str(exported), embedding_source=str(target), **run.write(tmp_path / "run"))
    embedding = tensors_of(target)[TARGET_EMBEDDING]
    assert torch.equal(tensors_of(exported)[EMBEDDING], embedding.bfloat16())
    assert_read(exported, run, target)


@pytest.mark.parametrize("export", [export_to_sglang, export_to_hf])
def test_what_it_exports_comes_back_from_sglangs_dialect(export: Any, target: Path, tmp_path: Path) -> None:
    exported, embedded = tmp_path / "exported", {} if export is export_to_sglang else {"embedding_source": str(target)}
    export(output_dir=str(exported), **embedded, **Run().write(tmp_path / "run"))
    there = convert(exported, tmp_path / "there", "sglang", "--target", target, "--eagle3-format", "specforge")
    back = convert(there, tmp_path / "back", "specforge", "--target", target)
    assert_same_bits(tensors_of(back), tensors_of(exported))
    loaded = load_strictly(back).state_dict()
    assert_same_bits(without_embedding(loaded), without_embedding(tensors_of(exported)))


def test_norm_output_is_its_norm_before_the_head(target: Path, tmp_path: Path) -> None:
    """True: what it always does. False: no norm, which a class of ours leaves out."""
    normed, bare = tmp_path / "normed", tmp_path / "bare"
    export_to_sglang(output_dir=str(normed), **Run(keys={"norm_output": True}).write(tmp_path / "run normed"))
    named_format = ("--eagle3-format", "specforge")
    assert command("inspect", normed, *named_format)["flags"]["norm_output"] is False
    assert (
        command("check", "--target", target, "--draft", normed, *named_format)["plan"]["math"]["norm_output"] is False
    )
    # Unnamed, the key has SGLang's meaning, with a warning.
    unnamed = command("check", "--target", target, "--draft", normed)
    assert unnamed["plan"]["math"]["norm_output"] is True
    assert "norm-output-meaning" in {one["code"] for one in unnamed["findings"] if one["severity"] == "warning"}
    export_to_sglang(output_dir=str(bare), **Run(keys={"norm_output": False}).write(tmp_path / "run bare"))
    found = command("check", "--target", target, "--draft", bare, *named_format)
    assert found["plan"]["math"]["bare_head"] is True
    assert found["plan"]["draft_class"] == "AdaptedLlamaForCausalLMEagle3"


def test_a_trained_embedding_is_seen_by_its_numbers(target: Path, tmp_path: Path) -> None:
    exported = tmp_path / "exported"
    export_to_hf(output_dir=str(exported), **Run(embedding=True).write(tmp_path / "run"))
    data = command("check", "--target", target, "--draft", exported, "--deep", fails=True)
    assert [code for code, _ in errors(data)] == ["trained-embedding"]
