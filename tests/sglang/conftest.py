"""What several engine tests compare with: one run of the demo, and a cache of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DEMO = Path(__file__).parents[1] / "demo.py"


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Plans of these tests are written here and not to the user's cache."""
    directory = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EAGLE3_ADAPTERS_CACHE", str(directory))
        yield directory


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> dict[str, Any]:
    """build/demo.json of one run: four engine boots, and one that SGLang ends itself."""
    output = tmp_path_factory.mktemp("demo") / "demo.json"
    subprocess.run([sys.executable, DEMO, "--output", output], check=True, capture_output=True)
    found: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    return found
