"""Every command through click: exit codes, what goes to which stream, JSON, tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.checkpoints import (
    HIDDEN,
    Array,
    draft_tensors,
    layer_config,
    sglang_config,
    speculators_config,
    target_config,
    write_draft,
    write_target,
)

from eagle3_adapters.cli import main
from eagle3_adapters.cli.output import WIDTH

#: doctor is content only where there is an SGLang to look at; the commands before it need none.
needs_sglang = pytest.mark.sglang
LAYER = "transformer_layer_config"


def run(*arguments: str, **environment: str | None) -> Result:
    """One command; variables that a developer's shell may hold are out of its way."""
    clean: dict[str, str | None] = dict.fromkeys(
        ("SGLANG_PLUGINS", "EAGLE3_ADAPTER", "EAGLE3_FORMAT", "EAGLE3_BOUNDARIES")
    )
    result = CliRunner().invoke(main, arguments, env=clean | environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(write_target(tmp_path / "target"))


@pytest.fixture
def draft(tmp_path: Path) -> str:
    return str(write_draft(tmp_path / "draft"))


@pytest.fixture
def plain(tmp_path: Path) -> str:
    """No draft at all."""
    tensors = {"model.layers.0.self_attn.q_proj.weight": Array("F32", (8, 8))}
    return str(write_draft(tmp_path / "plain", target_config(), tensors))


@pytest.fixture
def suspect(tmp_path: Path) -> str:
    """A draft with a warning."""
    return str(write_draft(tmp_path / "suspect", speculators_config(**{LAYER: layer_config(rope_theta=5e5)})))


def data(result: Result) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(result.stdout)
    return loaded


def codes(result: Result) -> list[str]:
    return [finding["code"] for finding in data(result)["findings"]]


# Every command.


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        ("adapters", {"adapters", "formats"}),
        ("inspect", {"format", "evidence", "layer_ids", "flags", "config", "tensors", "findings"}),
        ("check", {"findings", "plan"}),
        pytest.param(
            "doctor", {"versions", "plugins", "seams", "environment", "device", "findings"}, marks=needs_sglang
        ),
    ],
)
def test_json_names_its_schema_and_command_and_is_all_that_stdout_holds(
    command: str, keys: set[str], target: str, draft: str
) -> None:
    arguments = {"inspect": [draft], "check": ["--target", target, "--draft", draft]}.get(command, [])
    result = run(command, *arguments, "--json")
    assert result.exit_code == 0
    assert (data(result)["schema"], data(result)["command"]) == (1, command)
    assert keys <= set(data(result))
    assert result.stderr == ""


@pytest.mark.parametrize("command", ["inspect", "check"])
def test_json_of_a_refusal_is_the_same_object_with_exit_code_1(command: str, target: str, plain: str) -> None:
    result = run(command, *([plain] if command == "inspect" else ["--target", target, "--draft", plain]), "--json")
    assert result.exit_code == 1
    assert (data(result)["schema"], data(result)["command"]) == (1, command)
    assert codes(result) == ["not-eagle3"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("check",),
        ("check", "--target", "t"),
        ("inspect",),
        ("adapters", "--nonsense"),
        ("nonsense",),
    ],
)
def test_wrong_usage_is_exit_code_2_and_leaves_stdout_empty(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr != ""


@pytest.mark.parametrize("boundaries", ["0,3,x", "", "0,,3", "0 3 31", "[0,3,31]", "0.5,2,3"])
def test_boundaries_that_are_no_numbers_are_wrong_usage(boundaries: str, target: str, draft: str) -> None:
    result = run("check", "--target", target, "--draft", draft, "--boundaries", boundaries)
    assert result.exit_code == 2
    assert "--boundaries" in result.stderr
    assert result.stdout == ""


# Tables.


def rows(result: Result) -> list[str]:
    return result.stdout.splitlines()


@pytest.mark.parametrize("command", ["adapters", pytest.param("doctor", marks=needs_sglang), "inspect"])
def test_tables_in_a_pipe_fit_the_width_without_colour(command: str, tmp_path: Path) -> None:
    name = "layers.0." + "a_name_longer_than_any_terminal_" * 5 + ".weight"
    draft = write_draft(tmp_path / "draft", tensors=draft_tensors() | {name: Array("F32", (8,))})
    result = run(
        command, *([str(draft), "--tensors"] if command == "inspect" else []), TERM="xterm-256color", FORCE_COLOR=None
    )
    assert result.exit_code == 0
    # A title is one value and may be a path of any length; its line stands alone.
    assert [row for row in rows(result) if len(row) > WIDTH and row != str(draft)] == []
    assert "\x1b" not in result.stdout
    if command == "inspect":
        assert name in "".join("".join(row.split()) for row in rows(result)).replace("F32[8]", "")


def test_file_names_with_brackets_survive(tmp_path: Path, target: str) -> None:
    tensors = draft_tensors() | {"layers.0.[red]odd[/red].weight": Array("F32", (8,))}
    draft = write_draft(tmp_path / "draft[bold]", tensors=tensors)
    result = run("inspect", str(draft), "--tensors")
    assert str(draft) in result.stdout
    assert "layers.0.[red]odd[/red].weight" in result.stdout
    assert f"{draft}: layers.0.[red]odd[/red].weight" in run("check", "--target", target, "--draft", str(draft)).stdout


# adapters


def test_adapters_lists_name_origin_and_architectures() -> None:
    listed = data(run("adapters", "--json"))
    llama = next(adapter for adapter in listed["adapters"] if adapter["name"] == "llama")
    assert "LlamaForCausalLM" in llama["architectures"]
    assert llama["distribution"] == "eagle3-adapters-llama"
    assert {"sglang", "speculators"} <= {format_["name"] for format_ in listed["formats"]}
    table = run("adapters").stdout
    assert all(name in table for name in ("llama", "MistralForCausalLM", "sglang", "speculators"))


# inspect


def test_inspect_says_on_one_screen_what_a_draft_is(tmp_path: Path) -> None:
    config = speculators_config(fc_norm=True, norm_before_residual=True, embed_requires_grad=True)
    norms = {f"fc_norm.{state}.weight": Array("F32", (HIDDEN,)) for state in range(3)}
    draft = write_draft(tmp_path / "draft", config, draft_tensors() | norms)
    lines = rows(run("inspect", str(draft)))
    assert len(lines) <= 24
    table = " ".join(" ".join(lines).split())
    for words in (
        "format speculators 0.5.0",
        "because config nested in transformer_layer_config; speculators_model_type eagle3",
        "ids [0, 2, 5]: embedding, output of layer 1, output of layer 4",
        "1 decoder layer; hidden 8, MLP 16, 2 heads (1 for keys and values)",
        "fc [8, 24]",
        "8 of 32 target tokens; maps: d2t [8] and t2d [32], d2t holds offsets",
        "norm_before_residual: the first layer's residual is the normed state",
        "fc_norm: a norm for each state before fc",
        "base 10000.0, no scaling, 64 positions",
        "stock SGLang refuses to start: it knows no Eagle3DraftModel",
    ):
        assert words in table, words


def test_inspect_lists_every_tensor_on_request(draft: str) -> None:
    assert "self_attn.q_proj" not in run("inspect", draft).stdout
    table = run("inspect", draft, "--tensors").stdout
    assert all(name in table for name in draft_tensors())


def test_inspect_says_what_the_ids_mean_on_a_target(tmp_path: Path, target: str) -> None:
    draft = str(write_draft(tmp_path / "draft", sglang_config([-1, 3, 4])))
    assert "--target says which" in data(run("inspect", draft, "--json"))["layer_ids"][0]["meaning"]
    meaning = data(run("inspect", draft, "--target", target, "--json"))["layer_ids"][0]["meaning"]
    assert "ids [-1, 3, 4]: embedding, output of layer 3, output of layer 4 (of 8 layers)" in meaning
    table = " ".join(run("inspect", draft, "--target", target).stdout.split())
    assert "target LlamaForCausalLM, 8 layers, hidden 8, 32 tokens; adapter llama" in table
    assert "its class reads ids as the output of layer id (k = id + 1)" in table


def test_inspect_refuses_an_adapter_that_does_not_own_the_target(tmp_path: Path, draft: str) -> None:
    other = str(write_target(tmp_path / "other", target_config(architectures=["GptOssForCausalLM"])))
    result = run("inspect", draft, "--target", other, "--adapter", "llama", "--json")
    assert result.exit_code == 1
    assert "adapter-mismatch" in codes(result)


@pytest.mark.parametrize("as_json", [True, False])
def test_inspect_ends_with_1_where_the_format_finds_an_error(tmp_path: Path, as_json: bool) -> None:  # noqa: FBT001 - a parameter
    draft = str(write_draft(tmp_path / "draft", speculators_config(norm_before_residual=None)))
    result = run("inspect", draft, *(["--json"] if as_json else []))
    assert "norm-before-residual" in result.stdout
    assert result.exit_code == 1


# check


def test_check_of_a_right_pair_ends_with_0_and_says_how_it_is_wired(target: str, draft: str) -> None:
    result = run("check", "--target", target, "--draft", draft)
    assert result.exit_code == 0
    assert "boundaries [0, 2, 5]" in result.stdout
    assert result.stderr == ""
    plan = data(run("check", "--target", target, "--draft", draft, "--json"))["plan"]
    assert plan["boundaries"] == [0, 2, 5]


@pytest.mark.parametrize(("strict", "code"), [((), 0), (("--strict",), 1)])
def test_a_warning_is_exit_code_1_only_when_strict(
    strict: tuple[str, ...], code: int, target: str, suspect: str
) -> None:
    result = run("check", "--target", target, "--draft", suspect, "--json", *strict)
    assert (result.exit_code, codes(result)) == (code, ["rope-base"])
    assert data(result)["plan"] is not None


def test_strict_lets_an_info_pass(tmp_path: Path, target: str) -> None:
    draft = str(write_draft(tmp_path / "draft", sglang_config(None)))
    result = run("check", "--target", target, "--draft", draft, "--strict", "--json")
    assert (result.exit_code, codes(result)) == (0, ["layer-ids-missing"])


def test_findings_of_a_refused_pair_are_data_with_the_next_step(target: str, plain: str) -> None:
    result = run("check", "--target", target, "--draft", plain)
    assert result.exit_code == 1
    assert result.stderr == ""
    for part in ("not-eagle3", plain, "expected", "found", "next", "Not wired"):
        assert part in result.stdout


@pytest.mark.parametrize("missing", ["target", "draft"])
def test_a_directory_without_a_checkpoint_is_a_finding(missing: str, tmp_path: Path, target: str, draft: str) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    names = {"target": target, "draft": draft} | {missing: str(empty)}
    result = run("check", "--target", names["target"], "--draft", names["draft"], "--json")
    assert (result.exit_code, codes(result)) == (1, ["config-unreadable"])


@pytest.mark.parametrize(("option", "code"), [("--adapter", "adapter-unknown"), ("--format", "format-unknown")])
def test_a_name_that_is_not_installed_is_a_finding(option: str, code: str, target: str, draft: str) -> None:
    result = run("check", "--target", target, "--draft", draft, option, "nonsense", "--json")
    assert (result.exit_code, codes(result)) == (1, [code])


def test_check_takes_boundaries_in_the_order_of_the_blocks(target: str, draft: str) -> None:
    result = run("check", "--target", target, "--draft", draft, "--boundaries", "5,0,2", "--json")
    assert result.exit_code == 0
    assert (data(result)["plan"]["boundaries"], data(result)["plan"]["column_order"]) == ([0, 2, 5], [1, 2, 0])


def test_a_pair_that_is_not_wired_never_ends_with_0(tmp_path: Path, target: str) -> None:
    tensors = draft_tensors()
    del tensors["fc.weight"]
    draft = str(write_draft(tmp_path / "draft", tensors=tensors))
    result = run("check", "--target", target, "--draft", draft, "--format", "speculators", "--json")
    assert data(result)["plan"] is None
    assert result.exit_code == 1


# doctor


@pytest.mark.parametrize("as_json", [True, False])
def test_doctor_reports_that_sglang_is_told_to_leave_the_package_out(as_json: bool) -> None:  # noqa: FBT001 - a parameter
    result = run("doctor", *(["--json"] if as_json else []), SGLANG_PLUGINS="other,another")
    assert result.exit_code == 1
    assert "plugin-excluded" in result.stdout
    assert "SGLANG_PLUGINS=other,another,eagle3_adapters" in result.stdout


@needs_sglang
@pytest.mark.parametrize("allowed", ["eagle3_adapters", "other, eagle3_adapters"])
def test_doctor_is_content_where_the_package_is_among_the_allowed(allowed: str) -> None:
    result = run("doctor", "--json", SGLANG_PLUGINS=allowed)
    assert (result.exit_code, codes(result)) == (0, [])


@needs_sglang
def test_doctor_shows_what_the_environment_asks_for_and_every_seam() -> None:
    shown = data(run("doctor", "--json", EAGLE3_ADAPTER="auto", EAGLE3_BOUNDARIES="0,3,31"))
    assert shown["environment"] == {"EAGLE3_ADAPTER": "auto", "EAGLE3_BOUNDARIES": "0,3,31"}
    assert shown["seams"]
    assert all(shown["seams"].values())
    assert any(label.startswith("adapter llama ") for label in shown["plugins"])


def test_help_tells_every_command() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert all(command in result.stdout for command in ("adapters", "check", "doctor", "inspect"))


# What a user types wrongly.


def test_the_variables_of_the_server_are_honoured_by_check(target: str, draft: str) -> None:
    """check must say what the server will do with the same environment."""
    result = run("check", "--target", target, "--draft", draft, "--json", EAGLE3_BOUNDARIES="1,3,6")
    data = json.loads(result.stdout)
    assert data["plan"]["boundaries"] == [1, 3, 6]
    assert "layer-ids-overridden" in codes(result)


@pytest.mark.parametrize("flag", ["--boundaries", "--eagle3-boundaries"])
def test_options_may_be_spelt_as_in_sglang(target: str, draft: str, flag: str) -> None:
    result = run("check", "--target", target, "--draft", draft, "--json", flag, "1,3,6")
    assert json.loads(result.stdout)["plan"]["boundaries"] == [1, 3, 6]


def test_doctor_names_a_misspelt_variable_and_an_adapter_that_is_not_there() -> None:
    result = run("doctor", "--json", EAGLE3_FORMT="x", EAGLE3_ADAPTER="nope")
    assert {"environment-variable", "adapter-unknown"} <= set(codes(result))
    assert result.exit_code == 1


def test_swapped_paths_are_told_as_swapped(target: str, draft: str) -> None:
    assert codes(run("check", "--target", draft, "--draft", target, "--json"))[0] == "pair-swapped"


def test_the_wrong_format_is_told_before_what_comes_of_it(target: str, draft: str) -> None:
    wrong = run("check", "--target", target, "--draft", draft, "--json", "--format", "sglang")
    assert codes(wrong)[0] == "format-mismatch"


def test_a_misspelt_variable_is_told_by_check_with_the_one_that_was_meant(target: str, draft: str) -> None:
    result = run("check", "--target", target, "--draft", draft, "--json", EAGLE3_FORMT="sglang")
    (told,) = [one for one in data(result)["findings"] if one["code"] == "environment-variable"]
    assert "export EAGLE3_FORMAT=" in told["remedy"]
    assert result.exit_code == 0


def test_inspect_says_which_maps_are_there(tmp_path: Path) -> None:
    tensors = draft_tensors()
    for name in ("d2t", "t2d"):
        del tensors[name]
    without = str(write_draft(tmp_path / "without", tensors=tensors))
    assert data(run("inspect", without, "--json"))["vocabulary_map"] == "none"
    assert "d2t [8]" in data(run("inspect", str(write_draft(tmp_path / "draft")), "--json"))["vocabulary_map"]


def test_inspect_beside_a_target_tells_what_check_tells(target: str, tmp_path: Path) -> None:
    far = speculators_config(eagle_aux_hidden_state_layer_ids=[2, 16, 29])
    result = run("inspect", str(write_draft(tmp_path / "far", far)), "--target", target, "--json")
    assert "layer-ids-out-of-range" in codes(result)
    assert result.exit_code == 1
