"""The README's table of what is supported, from the records that the tests wrote; a class without a proof is not in it.

``python -m support.support_table`` prints it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from eagle3_adapters.boundaries import Ids
from eagle3_adapters.engine_version import version_numbers
from support.paper_targets import owner, paper_target
from support.random_targets import LAYERS

TESTS = Path(__file__).parents[1]
#: Version -> target class -> ways that passed on the CPU, by tests/versions.
ON_CPU = TESTS / "versions" / "record.json"
#: One run of tests/gpu/identity.py each.
ON_GPU = sorted((TESTS / "gpu" / "records").glob("*.json"))
HEAD = ("target class", "adapter", "boundaries", "its own capture, CPU", "injected capture, CPU", "H200", "two H200s")


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _span(versions: Iterable[str], every: list[str]) -> str:
    """``0.5.17 to 0.5.23`` where nothing between is missing, else each."""
    found = sorted(versions, key=lambda version: version_numbers(version) or (0, 0, 0))
    if len(found) > 2 and found == every[every.index(found[0]) :][: len(found)]:
        return f"{found[0]} to {found[-1]}"
    return ", ".join(found) or "-"


def _words(boundaries: Ids) -> str:
    names = {LAYERS: "N", LAYERS - 1: "N-1"}
    ends = [names.get(k, str(k)) for k in (boundaries[0], boundaries[-1])]
    return ends[0] if len(boundaries) == 1 else f"{ends[0]} to {ends[1]}"


def _boundaries(architecture: str) -> tuple[str, str]:
    """Adapter, and which boundaries come from where in the newest version."""
    target = paper_target(architecture, LAYERS)
    adapter = owner(target)
    capture = adapter.capture_layers(target)
    native = tuple(k for k in range(LAYERS + 1) if capture.is_native(k, None))
    injected = tuple(k for k in range(LAYERS + 1) if k not in native and k in capture.injected)
    parts = [f"{_words(native)} its own" if native else "", f"{_words(injected)} injected" if injected else ""]
    return adapter.registration.name, ", ".join(filter(None, parts))


def _gpu(runs: Iterable[Mapping[str, Any]], architecture: str, ranks: int) -> str:
    """Version, and which captures passed in CUDA graphs."""
    found = [
        (run["sglang"], "injected" if one["inject"] else "as planned", one)
        for run in runs
        for one in run["ways"].values()
        if one["architecture"] == architecture and one["ranks"] == ranks
    ]
    if not found or not all(one["passed"] for _, _, one in found):
        return "-"
    ways = dict.fromkeys(
        way + "".join(f", {name}" for flag, name in (("spread", "DP attention"), ("fused", "fused sums")) if one[flag])
        for _, way, one in found
    )
    return f"{found[0][0]}: {'; '.join(ways)}"


def table() -> str:
    """Markdown, a row for each class that passed somewhere."""
    cpu = _read(ON_CPU)
    runs = [_read(file) for file in ON_GPU]
    every = sorted(cpu, key=lambda version: version_numbers(version) or (0, 0, 0))
    classes = {name for one in cpu.values() for name, ways in one["classes"].items() if ways}
    classes |= {one["architecture"] for run in runs for one in run["ways"].values() if one["passed"]}
    rows = []
    for name in sorted(classes):
        passed = {
            way: _span((version for version in every if way in cpu[version]["classes"].get(name, ())), every)
            for way in ("native", "injected")
        }
        where = (_gpu(runs, name, ranks) for ranks in (1, 2))
        rows.append((f"`{name}`", *_boundaries(name), passed["native"], passed["injected"], *where))
    lines = [HEAD, tuple("---" for _ in HEAD), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(table())  # noqa: T201 - a program for people
