"""A Triton kernel with several tunings, as SGLang has them, runs on a machine without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eagle3_adapters.rehearsal.engine import cpu_environment

pytest.importorskip("triton")
KERNEL = """
import sgl_kernel
import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": size}) for size in (32, 64)], key=["count"])
@triton.jit
def add_one(pointer, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = places < count
    tl.store(pointer + places, tl.load(pointer + places, mask=there) + 1, mask=there)


values = torch.arange(100.0)
for _ in range(2):
    with torch.get_device_module(values.device).device(values.device.index):
        add_one[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](values, 100)
assert torch.equal(values, torch.arange(100.0) + 2), values
"""


def run(directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    script = directory / "kernel.py"
    script.write_text(KERNEL, encoding="utf-8")
    environment = cpu_environment({**os.environ, "PYTHONPATH": ""}) | variables
    return subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)


def test_tunings_are_not_timed_by_runs_that_would_count(tmp_path: Path) -> None:
    """Two launches add two: SGLang's kernels update states in place, and a run to time one would update them too."""
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr


def test_without_the_interpreter_nothing_of_pytorchs_is_changed(tmp_path: Path) -> None:
    done = run(tmp_path, TRITON_INTERPRET="0")
    assert done.returncode != 0
    assert "has no attribute 'device'" in done.stderr
