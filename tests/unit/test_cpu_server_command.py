"""`python -m eagle3_adapters.rehearsal ARGUMENTS` becomes launch_server with the CPU's settings and these arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

import pytest

from eagle3_adapters.rehearsal import __main__ as command
from eagle3_adapters.rehearsal import engine
from eagle3_adapters.rehearsal.engine import KERNELS


def test_the_process_becomes_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, Sequence[str], Mapping[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(sys, "argv", ["-m", "--model-path", "T", "--dtype", "bfloat16"])
    command.main()
    ((program, words, environment),) = calls
    assert (program, words[1:3]) == (sys.executable, ["-m", "sglang.launch_server"])
    # argparse takes the last of two: what the user gives beats the defaults.
    assert words[-4:] == ["--model-path", "T", "--dtype", "bfloat16"]
    assert "--skip-tokenizer-init" not in words
    assert environment["PYTHONPATH"].split(os.pathsep)[0] == str(KERNELS)


@pytest.mark.parametrize(
    ("version", "decode"), [("0.5.17", "torch_native"), ("0.5.18", "intel_amx"), ("0.5.23", "intel_amx")]
)
def test_attention_is_the_reference_kernels_in_every_version(
    version: str, decode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.5.17 goes back to the common option where both of the split ones name one backend."""
    monkeypatch.setattr(engine, "installed_version", lambda: version)
    arguments = engine.cpu_server_arguments()
    assert (arguments["prefill_attention_backend"], arguments["decode_attention_backend"]) == ("intel_amx", decode)
    assert (arguments.get("speculative_draft_attention_backend") == "intel_amx") is (decode != "intel_amx")
