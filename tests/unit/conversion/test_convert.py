"""``convert``: what is told, what is refused by name, what the directory holds afterwards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.checkpoints import (
    DRAFT_VOCAB,
    HIDDEN,
    LAYERS,
    TARGET_IDS,
    VOCAB,
    Array,
    draft_tensors,
    sglang_config,
    speculators_config,
    target_config,
    write_draft,
    write_safetensors,
    write_target,
)

from eagle3_adapters.boundaries import default_boundaries
from eagle3_adapters.checkpoint import read_integers, read_tensors
from eagle3_adapters.cli import main
from eagle3_adapters.formats.ids import IDS


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["convert", *map(str, words)])


def told(result: Result) -> list[tuple[str, str]]:
    return [(one["severity"], one["code"]) for one in json.loads(result.stdout)["findings"]]


def config_of(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    return found


def floats(directory: Path, name: str) -> list[float]:
    import struct  # noqa: PLC0415 - here alone

    tensor = read_tensors(directory)[name]
    raw = tensor.file.read_bytes()[tensor.start : tensor.stop]
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_target(tmp_path / "target")


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    """speculators 0.5, boundaries 0, 2, 5."""
    return write_draft(tmp_path / "draft")


def test_speculators_becomes_sglangs_dialect(draft: Path, target: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    result = run(draft, output, "--to", "sglang", "--target", target)
    assert result.exit_code == 0, result.output
    assert "speculators -> sglang" in result.stdout
    config = config_of(output)
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["eagle_config"] == {IDS: [-1, 1, 4], "use_aux_hidden_state": True}
    assert (config["hidden_size"], config["draft_vocab_size"], config["model_type"]) == (HIDDEN, DRAFT_VOCAB, "llama")
    assert "transformer_layer_config" not in config
    assert set(read_tensors(output)) == set(draft_tensors(layer="midlayer"))


def test_the_source_is_untouched_and_other_files_come_along(draft: Path, target: Path, tmp_path: Path) -> None:
    (draft / "README.md").write_text("a card", encoding="utf-8")
    (draft / "tokenizer.json").write_text("{}", encoding="utf-8")
    before = {file.name: file.read_bytes() for file in draft.iterdir()}
    assert run(draft, tmp_path / "out", "--to", "sglang", "--target", target).exit_code == 0
    assert {file.name: file.read_bytes() for file in draft.iterdir()} == before
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert names == {"config.json", "model.safetensors", "README.md", "tokenizer.json"}


def test_shards_metadata_and_unknown_keys_are_kept(target: Path, tmp_path: Path) -> None:
    source, output, names = tmp_path / "draft", tmp_path / "out", list(draft_tensors())
    source.mkdir()
    (source / "config.json").write_text(json.dumps(speculators_config(somebodys_key=[1, {"a": None}])))
    weight_map: dict[str, str] = {}
    for number, held in enumerate((names[:5], names[5:]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        write_safetensors(source / file, {name: draft_tensors()[name] for name in held}, {"run": str(number)})
        weight_map |= dict.fromkeys(held, file)
    index = {"metadata": {"made": "here"}, "weight_map": weight_map}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    assert run(source, output, "--to", "sglang", "--target", target).exit_code == 0
    assert config_of(output)["somebodys_key"] == [1, {"a": None}]
    written = json.loads((output / "model.safetensors.index.json").read_text(encoding="utf-8"))
    assert written["metadata"]["made"] == "here"
    assert written["metadata"]["total_size"] == sum(one.stop - one.start for one in read_tensors(output).values())
    assert written["weight_map"] == {name.replace("layers.0.", "midlayer."): file for name, file in weight_map.items()}
    raw = (output / "model-00002-of-00002.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert header["__metadata__"] == {"run": "2"}


def test_an_unordered_list_permutes_fc_and_its_norms(target: Path, tmp_path: Path) -> None:
    """AngelSlim joins in the order of its list, SGLang in the order of the layers."""
    fc = [float(column // HIDDEN) for _ in range(HIDDEN) for column in range(3 * HIDDEN)]
    tensors = draft_tensors(layer="midlayer") | {"fc.weight": Array("F32", (HIDDEN, 3 * HIDDEN), fc)}
    config = sglang_config(None, architectures=["Eagle3LlamaForCausalLM"], aux_hidden_states_layer_ids=[4, 1, 3])
    source, output = write_draft(tmp_path / "draft", config, tensors), tmp_path / "out"
    result = run(source, output, "--to", "sglang", "--target", target, "--json")
    assert result.exit_code == 0, result.output
    assert config_of(output)["eagle_config"][IDS] == [1, 3, 4]
    assert floats(output, "fc.weight")[: 3 * HIDDEN] == [1.0] * HIDDEN + [2.0] * HIDDEN + [0.0] * HIDDEN
    assert json.loads(result.stdout)["tensors"]["fc.weight"] == "columns"


def test_a_whole_head_beside_a_map_is_pruned_to_the_drafts_tokens(target: Path, tmp_path: Path) -> None:
    head = [float(row) for row in range(VOCAB) for _ in range(HIDDEN)]
    tensors = draft_tensors(layer="midlayer") | {"lm_head.weight": Array("F32", (VOCAB, HIDDEN), head)}
    source, output = write_draft(tmp_path / "draft", sglang_config(), tensors), tmp_path / "out"
    assert run(source, output, "--to", "sglang", "--target", target).exit_code == 0
    assert floats(output, "lm_head.weight")[::HIDDEN] == [float(token) for token in TARGET_IDS]


def test_target_ids_become_offsets(target: Path, tmp_path: Path) -> None:
    tensors = draft_tensors(layer="midlayer") | {"d2t": Array("I64", (DRAFT_VOCAB,), TARGET_IDS)}
    source, output = write_draft(tmp_path / "draft", sglang_config(), tensors), tmp_path / "out"
    result = run(source, output, "--to", "sglang", "--target", target, "--json")
    assert ("info", "vocab-map-absolute") in told(result)
    assert list(read_integers(read_tensors(output)["d2t"])) == [token - i for i, token in enumerate(TARGET_IDS)]


def test_a_mask_that_ends_early_is_padded(target: Path, tmp_path: Path) -> None:
    short = max(TARGET_IDS)
    mask = Array("BOOL", (short + 1,), [i in TARGET_IDS for i in range(short + 1)])
    config = sglang_config(vocab_size=VOCAB + 8)
    wide = write_target(tmp_path / "wide", target_config(vocab_size=VOCAB + 8))
    source = write_draft(tmp_path / "draft", config, draft_tensors(layer="midlayer") | {"t2d": mask})
    output = tmp_path / "out"
    assert run(source, output, "--to", "sglang", "--target", wide).exit_code == 0
    values = list(read_integers(read_tensors(output)["t2d"]))
    assert [i for i, chosen in enumerate(values) if chosen] == list(TARGET_IDS)
    assert len(values) == VOCAB + 8


# What cannot be said is refused by name, and nothing is written.


def refusal(result: Result, output: Path) -> str:
    assert result.exit_code == 1, result.output
    assert not output.exists()
    assert list(output.parent.glob(".*eagle3*")) == []
    return result.stdout


@pytest.mark.parametrize(
    ("changes", "to", "words"),
    [
        ({"norm_before_residual": True}, "sglang", "norm_before_residual true"),
        ({"norm_before_residual": True}, "torchspec", "norm_before_residual true"),
        ({"norm_output": True}, "specforge", "norm_output true"),
        ({"embed_requires_grad": True}, "sglang", "an embedding that was trained with the draft"),
        ({}, "nemo", "states embedding, output of layer 1, output of layer 4"),
        ({}, "safeailab", "read back as of the default triple"),
    ],
)
def test_what_a_format_cannot_say_is_named(
    changes: dict[str, Any], to: str, words: str, target: Path, tmp_path: Path
) -> None:
    draft = write_draft(tmp_path / "draft", speculators_config(**changes))
    text = refusal(run(draft, tmp_path / "out", "--to", to, "--target", target), tmp_path / "out")
    assert "not-representable" in text
    assert words in text


@pytest.mark.parametrize("to", ["specforge", "angelslim", "torchspec", "nemo", "safeailab"])
def test_another_number_of_states_or_layers_is_told_once(to: str, target: Path, tmp_path: Path) -> None:
    config = speculators_config(eagle_aux_hidden_state_layer_ids=[2, 5])
    draft = write_draft(tmp_path / "draft", config, draft_tensors(states=2))
    result = run(draft, tmp_path / "out", "--to", to, "--target", target, "--json")
    assert told(result) == [("error", "not-representable")]
    assert "3 states that fc reads" in result.stdout


def test_every_format_but_sglangs_wants_a_head(target: Path, tmp_path: Path) -> None:
    tensors = {name: one for name, one in draft_tensors().items() if name not in ("lm_head.weight", "d2t", "t2d")}
    draft = write_draft(tmp_path / "draft", speculators_config(draft_vocab_size=VOCAB), tensors)
    assert run(draft, tmp_path / "sglang", "--to", "sglang", "--target", target).exit_code == 0
    text = refusal(run(draft, tmp_path / "out", "--to", "angelslim", "--target", target), tmp_path / "out")
    assert "lm_head.weight" in text


@pytest.mark.parametrize("same", [True, False])
def test_an_embedding_goes_only_where_it_is_the_targets(same: bool, target: Path, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    embedding = Array("F32", (VOCAB, HIDDEN), [float(i) for i in range(VOCAB * HIDDEN)])
    other = Array("F32", (VOCAB, HIDDEN), [float(i + 1) for i in range(VOCAB * HIDDEN)])
    write_safetensors(target / "model.safetensors", {"model.embed_tokens.weight": embedding})
    tensors = draft_tensors() | {"embed_tokens.weight": embedding if same else other}
    draft, output = write_draft(tmp_path / "draft", tensors=tensors), tmp_path / "out"
    assert "embed_tokens.weight" in refusal(run(draft, output, "--to", "modelopt"), output)
    result = run(draft, output, "--to", "modelopt", "--target", target, "--json")
    assert result.exit_code == (0 if same else 1)
    assert (("info", "embedding-copy") in told(result)) is same


@pytest.mark.parametrize(
    ("to", "own", "expected"),
    [("speculators", False, True), ("speculators", True, False), ("angelslim", False, False)],
    ids=["its loader wants one", "it has one", "another's loader does not"],
)
def test_a_result_without_an_embedding_is_told_where_the_trainers_loader_wants_one(
    to: str,
    own: bool,  # noqa: FBT001 - a parameter
    expected: bool,  # noqa: FBT001 - a parameter
    target: Path,
    tmp_path: Path,
) -> None:
    embedding = {"embed_tokens.weight": Array("F32", (VOCAB, HIDDEN))}
    draft = write_draft(tmp_path / "draft", tensors=draft_tensors() | (embedding if own else {}))
    result = run(draft, tmp_path / "out", "--to", to, "--target", target, "--json")
    assert result.exit_code == 0, result.output
    assert (("info", "embedding-not-stored") in told(result)) is expected


def test_a_map_of_the_whole_vocabulary_comes_and_goes(target: Path, tmp_path: Path) -> None:
    tensors = draft_tensors() | {
        "lm_head.weight": Array("F32", (VOCAB, HIDDEN)),
        "d2t": Array("I64", (VOCAB,), 0),
        "t2d": Array("BOOL", (VOCAB,), 1),
    }
    draft = write_draft(tmp_path / "draft", speculators_config(draft_vocab_size=VOCAB), tensors)
    result = run(draft, tmp_path / "out", "--to", "sglang", "--target", target, "--json")
    assert told(result) == [("info", "vocab-map-identity")]
    assert not {"d2t", "t2d"} & set(read_tensors(tmp_path / "out"))
    assert run(tmp_path / "out", tmp_path / "again", "--to", "angelslim", "--target", target).exit_code == 0
    assert list(read_integers(read_tensors(tmp_path / "again")["d2t"])) == [0] * VOCAB
    assert list(read_integers(read_tensors(tmp_path / "again")["t2d"])) == [1] * VOCAB


def test_a_norm_that_nothing_reads_is_left_out_with_a_word(target: Path, tmp_path: Path) -> None:
    second = {
        name.replace("layers.0.", "layers.1."): Array(
            one.dtype, (one.shape[0], HIDDEN) if len(one.shape) > 1 else one.shape
        )
        for name, one in draft_tensors().items()
        if name.startswith("layers.0.")
    }
    second["layers.1.self_attn.o_proj.weight"] = Array("F32", (HIDDEN, HIDDEN))
    second["layers.1.mlp.down_proj.weight"] = Array("F32", (HIDDEN, 16))
    config = sglang_config(num_hidden_layers=2)
    draft = write_draft(tmp_path / "draft", config, draft_tensors() | second)
    result = run(draft, tmp_path / "out", "--to", "speculators", "--target", target, "--json")
    told_of = [("info", "embedding-not-stored"), ("info", "weight-unread")]
    assert told(result) == told_of, result.output
    names = set(read_tensors(tmp_path / "out"))
    assert "layers.1.input_layernorm.weight" in names
    assert "layers.1.hidden_norm.weight" not in names


# The target, and what the user says.


def test_ids_by_a_class_rule_need_the_target(draft: Path, tmp_path: Path) -> None:
    result = run(draft, tmp_path / "out", "--to", "sglang", "--json")
    assert told(result) == [("error", "target-needed")]
    source = write_draft(tmp_path / "source", sglang_config(), draft_tensors(layer="midlayer"))
    result = run(source, tmp_path / "out", "--to", "speculators", "--json")
    assert told(result) == [("error", "target-needed")]
    assert "--target TARGET" in result.stdout


def test_the_default_triple_stays_unsaid_and_needs_no_target(tmp_path: Path) -> None:
    source = write_draft(tmp_path / "source", sglang_config(None), draft_tensors(layer="midlayer"))
    assert run(source, tmp_path / "out", "--to", "speculators").exit_code == 0
    assert config_of(tmp_path / "out")[IDS] is None
    assert config_of(tmp_path / "out")["norm_before_residual"] is False


def test_undecided_ids_are_refused_until_boundaries_are_named(target: Path, tmp_path: Path) -> None:
    old = speculators_config(speculators_version="0.4.0", eagle_aux_hidden_state_layer_ids=[1, 3, 4])
    draft, output = write_draft(tmp_path / "draft", old), tmp_path / "out"
    for beside in ((), ("--target", target)):
        result = run(draft, output, "--to", "torchspec", *beside, "--json")
        assert ("error", "format-ambiguous") in told(result)
        assert "2,4,5" in result.stdout
    result = run(draft, output, "--to", "speculators", "--boundaries", "2,4,5")
    assert result.exit_code == 0, result.output
    assert config_of(output)[IDS] == [2, 4, 5]
    assert config_of(output)["speculators_version"] == "0.9.0"


def test_an_old_default_needs_the_targets_depth(target: Path, tmp_path: Path) -> None:
    old = speculators_config(speculators_version="0.4.0", eagle_aux_hidden_state_layer_ids=None)
    draft = write_draft(tmp_path / "draft", old)
    assert told(run(draft, tmp_path / "out", "--to", "torchspec", "--json")) == [("error", "target-needed")]
    result = run(draft, tmp_path / "out", "--to", "torchspec", "--target", target, "--json")
    assert ("error", "format-ambiguous") in told(result)


def test_a_list_whose_order_hangs_on_the_back_end_is_refused(target: Path, tmp_path: Path) -> None:
    source = write_draft(tmp_path / "draft", sglang_config([4, 1, 3]), draft_tensors(layer="midlayer"))
    words = ("--format", "torchspec", "--to", "angelslim")
    result = run(source, tmp_path / "out", *words, "--target", target)
    text = refusal(result, tmp_path / "out")
    assert "format-ambiguous" in text
    assert "--eagle3-boundaries 5,2,4" in text
    assert run(source, tmp_path / "out", *words, "--boundaries", "5,2,4").exit_code == 0
    assert config_of(tmp_path / "out")["aux_hidden_states_layer_ids"] == [4, 1, 3]


def test_the_target_is_named_in_what_speculators_loads(target: Path, tmp_path: Path) -> None:
    source = write_draft(tmp_path / "source", sglang_config(), draft_tensors(layer="midlayer"))
    assert run(source, tmp_path / "out", "--to", "speculators", "--target", target).exit_code == 0
    verifier = config_of(tmp_path / "out")["speculators_config"]["verifier"]
    assert verifier == {"architectures": ["LlamaForCausalLM"], "name_or_path": str(target)}


def test_a_format_that_is_not_recognised_is_told(target: Path, draft: Path, tmp_path: Path) -> None:
    result = run(draft, tmp_path / "out", "--to", "specforge", "--target", target, "--json")
    assert told(result) == [("info", "format-by-name")]
    assert "--eagle3-format specforge" in result.stdout


@pytest.mark.parametrize("ids", [[2, 4, 4], [2, 4, LAYERS + 1]])
def test_ids_outside_the_target_are_refused(ids: Sequence[int], target: Path, tmp_path: Path) -> None:
    draft = write_draft(tmp_path / "draft", speculators_config(eagle_aux_hidden_state_layer_ids=ids))
    assert "layer-ids-out-of-range" in refusal(
        run(draft, tmp_path / "out", "--to", "torchspec", "--target", target), tmp_path / "out"
    )


@pytest.mark.parametrize(
    ("tensors", "code"),
    [
        (draft_tensors(states=2), "aux-count"),
        (draft_tensors() | {"stranger.weight": Array("F32", (8,))}, "weight-unmapped"),
        (draft_tensors() | {"lm_head.weight": Array("F32", (DRAFT_VOCAB + 1, HIDDEN))}, "vocab-map-length"),
        ({name: one for name, one in draft_tensors().items() if name not in ("d2t", "t2d")}, "vocab-map-missing"),
        (draft_tensors() | {"d2t": Array("I64", (DRAFT_VOCAB,), 0)}, "vocab-map-unfilled"),
        (draft_tensors() | {"t2d": Array("BOOL", (VOCAB,), 1)}, "vocab-map-mask"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_faulty_draft_is_not_converted(tensors: dict[str, Array], code: str, target: Path, tmp_path: Path) -> None:
    draft = write_draft(tmp_path / "draft", tensors=tensors)
    assert code in refusal(run(draft, tmp_path / "out", "--to", "torchspec", "--target", target), tmp_path / "out")


def test_an_existing_output_is_refused_without_force(draft: Path, target: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    words = (draft, output, "--to", "sglang", "--target", target)
    assert run(*words).exit_code == 0
    (output / "mine").write_text("kept", encoding="utf-8")
    result = run(*words)
    assert (result.exit_code, "output-exists" in result.stdout) == (1, True)
    assert (output / "mine").exists()
    assert run(*words, "--force").exit_code == 0
    assert not (output / "mine").exists()


def test_a_dry_run_writes_nothing(draft: Path, target: Path, tmp_path: Path) -> None:
    result = run(draft, tmp_path / "out", "--to", "sglang", "--target", target, "--dry-run")
    assert (result.exit_code, (tmp_path / "out").exists()) == (0, False)
    assert "would be" in result.stdout


def test_an_unknown_format_lists_those_that_are_installed(draft: Path, tmp_path: Path) -> None:
    result = run(draft, tmp_path / "out", "--to", "vllm")
    assert result.exit_code == 1
    assert "format-unknown" in result.stdout
    assert "torchspec" in result.stdout


def test_ids_that_name_the_default_triple_may_stay_unsaid_where_the_target_is_known(
    target: Path, tmp_path: Path
) -> None:
    ids = list(default_boundaries(LAYERS))
    draft = write_draft(tmp_path / "draft", speculators_config(eagle_aux_hidden_state_layer_ids=ids))
    assert run(draft, tmp_path / "out", "--to", "nemo", "--target", target).exit_code == 0
    assert IDS not in json.dumps(config_of(tmp_path / "out"))
    read = CliRunner().invoke(main, ["check", "--target", str(target), "--draft", str(tmp_path / "out")])
    assert f"boundaries {ids} = " in read.output
    assert "read back as" in refusal(run(draft, tmp_path / "without", "--to", "nemo"), tmp_path / "without")
