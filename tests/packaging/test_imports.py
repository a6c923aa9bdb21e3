"""What a fresh interpreter loads, and what the package exports."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest
from support.checkpoints import sglang_config, write_draft, write_target

import eagle3_adapters

HEAVY = ("torch", "sglang", "numpy", "transformers", "huggingface_hub")
REPORT = f"\nprint('loaded', *[name for name in {HEAVY} if name in sys.modules], file=sys.stderr)\n"
PLAN = """
from eagle3_adapters.pair import Request, plan_pair
from eagle3_adapters.registry import Registry
planning = plan_pair(Request(target=sys.argv[1], draft=sys.argv[2]), Registry.installed(), "0.5.23")
assert planning.plan is not None, planning.findings
planning.plan.to_json()
"""
COMMAND = """
import runpy
try:
    runpy.run_module("eagle3_adapters.cli", run_name="__main__", alter_sys=True)
except SystemExit as done:
    assert not done.code, done.code
"""


def python(source: str, *arguments: str | Path) -> str:
    """Run in a fresh interpreter in which warnings are errors; returns the last line of what it says."""
    command = [sys.executable, "-W", "error", "-c", f"import sys{source}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()[-1] if done.stderr else ""


@pytest.mark.parametrize("module", ["eagle3_adapters", "eagle3_adapters.cli", "eagle3_adapters.sglang.plugin"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    assert python(f"\nimport {module}{REPORT}") == "loaded"


def test_reading_checkpoints_and_planning_load_nothing_heavy(tmp_path: Path) -> None:
    target, draft = write_target(tmp_path / "target"), write_draft(tmp_path / "draft", sglang_config())
    assert python(PLAN + REPORT, target, draft) == "loaded"


@pytest.mark.parametrize(
    "arguments", [("--help",), ("adapters", "--json"), ("check", "--help"), ("diagnose", "--help")]
)
def test_a_command_that_needs_no_tensor_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert python(COMMAND + REPORT, *arguments) == "loaded"


def test_all_names_every_public_name_once() -> None:
    public = {
        name
        for name, value in vars(eagle3_adapters).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }
    assert sorted(eagle3_adapters.__all__) == sorted(public | {"__version__"})
