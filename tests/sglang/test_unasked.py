"""Installed and not asked for: SGLang has three hooks of ours that run once at start, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.serve import environment

from eagle3_adapters.engine_version import installed_version
from eagle3_adapters.rehearsal.engine import cpu_environment
from eagle3_adapters.sglang import compat

pytestmark = pytest.mark.sglang

PROBE = """
import json, os, sys
from sglang.srt.plugins import load_plugins
from sglang.srt.plugins.hook_registry import HookRegistry
load_plugins()
from sglang.srt.server_args import ServerArgs
args = ServerArgs(model_path="dummy")
before = {name: getattr(args, name) for name in ("decrypted_draft_config_file", "speculative_draft_model_path")}
args.resolve_once()
after = {name: getattr(args, name) for name in before}
ours = [name for name in sys.modules if name.startswith("eagle3_adapters.sglang")]
print(json.dumps({
    "hooked": sorted(HookRegistry._patched), "unchanged": before == after,
    "plan": "EAGLE3_ADAPTERS_PLAN" in os.environ, "torch hooks": "eagle3_adapters.sglang.capture" in ours,
}))
"""


def test_three_cold_functions_are_hooked_and_arguments_pass_unchanged() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env=cpu_environment(environment()),
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    expected = sorted(compat.seam(name, installed_version()).path for name in compat.PARENT_SEAMS)
    assert found == {"hooked": expected, "unchanged": True, "plan": False, "torch hooks": False}
