"""How a server that is process 1 leaves, and that any other is left to SGLang."""

from __future__ import annotations

import os
from typing import Any

import pytest

from eagle3_adapters.sglang import ending, overlay


class LeftError(Exception):
    """In place of the end of the process."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What SGLang's function was called with; leaving raises LeftError, and a server with an adapter runs."""

    def leave(code: int) -> None:
        raise LeftError(code)

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setenv(overlay.PLAN_VARIABLE, "/cache/plan.json")
    return []


def original(calls: list[tuple[Any, ...]]) -> Any:
    def kill(parent_pid: int, include_parent: bool = True, **kwargs: Any) -> str:  # noqa: FBT001, FBT002 - SGLang's
        calls.append((parent_pid, include_parent))
        return "killed"

    return kill


def test_it_kills_its_children_and_leaves_with_code_1(calls: list[tuple[Any, ...]]) -> None:
    with pytest.raises(LeftError, match="1"):
        ending.around_kill_process_tree(original(calls), os.getpid())
    assert calls == [(os.getpid(), False)]


def test_a_child_that_will_not_die_does_not_keep_it(calls: list[tuple[Any, ...]]) -> None:
    def kill(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("not reaped")

    with pytest.raises(LeftError, match="1"):
        ending.around_kill_process_tree(kill, os.getpid(), True)  # noqa: FBT003 - as SGLang calls it


def test_children_alone_and_other_processes_are_left_to_sglang(calls: list[tuple[Any, ...]]) -> None:
    assert ending.around_kill_process_tree(original(calls), os.getpid(), include_parent=False) == "killed"
    assert ending.around_kill_process_tree(original(calls), 12345, wait_timeout=60) == "killed"
    assert calls == [(os.getpid(), False), (12345, True)]


def test_a_server_without_an_adapter_is_left_to_sglang(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(overlay.PLAN_VARIABLE)
    assert ending.around_kill_process_tree(original(calls), os.getpid()) == "killed"
    assert calls == [(os.getpid(), True)]


def test_this_process_is_not_process_1() -> None:
    assert not ending.is_init()
