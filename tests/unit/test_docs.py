"""What the documents say about the code is what the code is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.support_table import table as support_table

from eagle3_adapters import hookspecs
from eagle3_adapters.cli import main
from eagle3_adapters.formats.__main__ import table
from eagle3_adapters.registry import KNOWN_WHEELS, Registry
from eagle3_adapters.sglang.request import VARIABLES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
HOOKS = [
    name for name, one in vars(hookspecs).items() if inspect.isfunction(one) and one.__module__ == hookspecs.__name__
]


@pytest.mark.parametrize("name", HOOKS)
def test_the_hook_reference_states_each_signature(name: str) -> None:
    signature = inspect.signature(getattr(hookspecs, name))
    parameters = ", ".join(str(parameter).replace("'", "") for parameter in signature.parameters.values())
    assert f"- `{name}({parameters}) -> {signature.return_annotation}`" in CONTRIBUTING


def test_there_are_four_hooks() -> None:
    assert len(HOOKS) == 4


@pytest.mark.parametrize("command", sorted(main.commands))
def test_readme_names_every_command_and_each_has_help(command: str) -> None:
    assert f"eagle3-adapters {command}" in README
    assert CliRunner().invoke(main, [command, "--help"]).exit_code == 0


def test_readme_names_every_flag_and_variable() -> None:
    for field, variable in VARIABLES.items():
        assert f"--eagle3-{field}" in README
        assert variable in README


def test_readme_has_the_table_of_formats_that_the_code_prints() -> None:
    registry = Registry.installed()
    own = [registry.format(one.name) for one in registry.formats if one.distribution == "eagle3-adapters"]
    assert len(own) == 8
    assert table(own) in README


def test_readme_has_the_table_of_what_was_proved_that_the_records_say() -> None:
    assert support_table() in README


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make ([a-z-]+)", README + CONTRIBUTING):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_wheel_that_exists_here_is_suggested_for_its_architectures() -> None:
    registry = Registry.installed()
    for adapter in registry.adapters:
        if (ROOT / "plugins" / adapter.distribution).is_dir():
            for architecture in registry.architectures_of(adapter.name):
                assert KNOWN_WHEELS[architecture] == adapter.distribution
