"""What the user asked SGLang for: flags, variables, and which wins."""

from __future__ import annotations

import argparse
from types import SimpleNamespace

import pytest

from eagle3_adapters.errors import FindingsError
from eagle3_adapters.pair import AUTO
from eagle3_adapters.sglang import parent, request
from eagle3_adapters.sglang.request import Wish

VARIABLES = {"EAGLE3_ADAPTER": "kimi_k25", "EAGLE3_FORMAT": "sglang", "EAGLE3_BOUNDARIES": "0,3,31"}


def arguments(*flags: str) -> argparse.Namespace:
    """What SGLang's parser makes of a command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model-path")
    request.add_flags(parser)
    return parser.parse_args(["--model-path", "target", *flags])


def server(*flags: str) -> SimpleNamespace:
    """ServerArgs of a command line, with the flags riding on it."""
    return SimpleNamespace(**{request.ATTRIBUTE: dict(request.from_flags(arguments(*flags)))})


def test_flags_that_were_given_are_recorded_by_field() -> None:
    given = request.from_flags(arguments("--eagle3-adapter", "auto", "--eagle3-boundaries", "0,3,31"))
    assert given == {"adapter": "auto", "boundaries": "0,3,31"}


def test_flags_that_were_not_given_are_no_request() -> None:
    assert request.from_flags(arguments()) == {}
    assert request.read(server(), {}) is None


def test_arguments_that_know_no_flags_are_no_request() -> None:
    assert request.from_flags(argparse.Namespace(model_path="target")) == {}
    assert request.read(SimpleNamespace(), {}) is None


def test_empty_variables_are_no_request() -> None:
    assert request.read(SimpleNamespace(), dict.fromkeys(VARIABLES, "")) is None


def test_flags_are_read() -> None:
    asked = server("--eagle3-adapter", "kimi_k25", "--eagle3-format", "sglang", "--eagle3-boundaries", "31,0,3")
    assert request.read(asked, {}) == Wish(adapter="kimi_k25", format="sglang", boundaries=(31, 0, 3))


def test_variables_are_read_for_an_engine_without_a_command_line() -> None:
    assert request.read(SimpleNamespace(), VARIABLES) == Wish(
        adapter="kimi_k25", format="sglang", boundaries=(0, 3, 31)
    )


def test_a_flag_beats_its_variable_and_only_its_own() -> None:
    wish = request.read(server("--eagle3-adapter", "llama", "--eagle3-boundaries", "2,30,58"), VARIABLES)
    assert wish == Wish(adapter="llama", format="sglang", boundaries=(2, 30, 58))


@pytest.mark.parametrize(
    ("flag", "value", "field"),
    [
        ("--eagle3-adapter", "llama", "adapter"),
        ("--eagle3-format", "sglang", "format"),
        ("--eagle3-boundaries", "0,3", "boundaries"),
    ],
)
def test_any_one_of_the_three_is_a_request_and_the_others_are_auto(flag: str, value: str, field: str) -> None:
    wish = request.read(server(flag, value), {})
    assert wish is not None
    asked = {"adapter": AUTO, "format": AUTO, "boundaries": None} | {field: (0, 3) if field == "boundaries" else value}
    assert {name: getattr(wish, name) for name in asked} == asked


def test_spaces_between_boundaries_are_no_fault() -> None:
    wish = request.read(server("--eagle3-boundaries", "0, 3, 31"), {})
    assert wish is not None
    assert wish.boundaries == (0, 3, 31)


@pytest.mark.parametrize("text", ["0,3,x", "0,,3", "0 3 31", "[0,3,31]", "0,3,", "1.5"])
@pytest.mark.parametrize("where", ["--eagle3-boundaries", "EAGLE3_BOUNDARIES"])
def test_boundaries_that_are_no_numbers_are_refused_by_the_place_they_came_from(text: str, where: str) -> None:
    flagged = where.startswith("--")
    args = server(where, text) if flagged else SimpleNamespace()
    # A good variable does not excuse a bad flag.
    environment = {"EAGLE3_BOUNDARIES": "0,3,31" if flagged else text}
    with pytest.raises(FindingsError) as caught:
        request.read(args, environment)
    (finding,) = caught.value.findings
    assert finding.where == where
    assert text in finding.found


@pytest.mark.parametrize(
    ("args", "step"),
    [(server("--eagle3-boundaries", "x"), "--eagle3-boundaries 0,"), (SimpleNamespace(), "EAGLE3_BOUNDARIES=0,")],
    ids=["flag", "variable"],
)
def test_the_next_step_after_bad_boundaries_can_be_pasted(args: SimpleNamespace, step: str) -> None:
    with pytest.raises(FindingsError) as caught:
        request.read(args, {"EAGLE3_BOUNDARIES": "x"})
    assert caught.value.findings[0].remedy.startswith(step)


def test_flags_count_while_the_arguments_are_still_being_built() -> None:
    """Up to 0.5.18 SGLang resolves inside the constructor, before from_cli_args could record anything."""
    seen: list[Wish | None] = []

    def build(cls: object, args: object) -> SimpleNamespace:
        built = SimpleNamespace()
        seen.append(request.read(built, {}))
        return built

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parent, "_check_hooks", lambda: None)  # asks SGLang, which has no part in this
        built = parent.around_from_cli_args(build, object, arguments("--eagle3-format", "sglang"))
    assert seen == [Wish(format="sglang")]
    assert request.read(built, {}) == seen[0]
    assert request.read(SimpleNamespace(), {}) is None, "nothing is left behind for the next server"
