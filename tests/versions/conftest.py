"""The record of what passed: version -> what it ran with, and target class -> how its states were captured."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.engine_wheels import ahead

RECORD = Path(__file__).parent / "record.json"


def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return found


def _write(record: dict[str, Any]) -> None:
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _ran_with(version: str) -> dict[str, str]:
    """Packages that decide what a class computes, as the engine found them."""
    paths = [str(folder) for folder in ahead(version)]
    (first, *_) = [
        *importlib.metadata.distributions(name="transformers", path=paths),
        *importlib.metadata.distributions(name="transformers"),
    ]
    return {"torch": importlib.metadata.version("torch"), "transformers": first.version}


@pytest.fixture
def passed(version: str, architecture: str, way: str) -> Callable[[], None]:
    """Struck out of the record while the test runs, and put in when it says so at its end."""
    record = _read()
    one = record.setdefault(version, {})
    ways: list[str] = one.setdefault("classes", {}).setdefault(architecture, [])
    one |= _ran_with(version)
    if way in ways:
        ways.remove(way)
    _write(record)

    def write() -> None:
        ways.append(way)
        ways.sort()
        _write(record)

    return write
