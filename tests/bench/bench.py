#!/usr/bin/env python3
"""What the package costs before an engine starts, as ratios from this one run. Prints a table and build/bench.json."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import rich.console
import rich.table

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support.pair import DRAFT, TARGET, plan  # noqa: E402

from eagle3_adapters.vocab import VocabEncoding, VocabMap  # noqa: E402

REPEATS = 9
#: Tokens of Kimi-K2.5's vocabulary.
LARGE = 163_840


def median_of(action: Callable[[], object]) -> tuple[float, float]:
    """Median and spread (interquartile) in seconds of warmed-up runs."""
    action()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    low, middle, high = statistics.quantiles(times, n=4)
    return middle, high - low


def python(code: str) -> Callable[[], object]:
    """A fresh interpreter that runs ``code``."""
    return lambda: subprocess.run([sys.executable, "-c", code], check=True)


def command(*words: str) -> Callable[[], object]:
    """The command line in a fresh interpreter."""
    return lambda: subprocess.run(
        [sys.executable, "-m", "eagle3_adapters.cli", *words], check=True, stdout=subprocess.DEVNULL
    )


def main() -> None:
    """Measure, print, write."""
    offsets = [2 * i - i for i in range(LARGE // 2)]
    pair = ("--target", str(TARGET), "--draft", str(DRAFT))
    # (what, action, peer, peer's action, goal: at most this many times the peer)
    rows: tuple[tuple[str, Callable[[], object], str, Callable[[], object], float | None], ...] = (
        (
            "import eagle3_adapters",
            python("import eagle3_adapters"),
            "import attrs, pluggy",
            python("import attrs, pluggy"),
            1.3,
        ),
        ("check, whole process", command("check", *pair), "python -c pass", python("pass"), None),
        ("plan of the trained pair", plan, "read its config.json", (DRAFT / "config.json").read_bytes, None),
        (
            f"VocabMap of {LARGE // 2:,} tokens",
            lambda: VocabMap.decode(offsets, VocabEncoding.OFFSET, LARGE),
            "set() of as many",
            lambda: set(offsets),
            None,
        ),
    )
    table = rich.table.Table("what", "ms", "spread", "peer", "peer ms", "ratio", "goal", box=None)
    record = []
    for what, action, peer, peer_action, goal in rows:
        (mine, spread), (theirs, _) = median_of(action), median_of(peer_action)
        ratio = mine / theirs
        table.add_row(
            what,
            f"{1e3 * mine:.1f}",
            f"{1e3 * spread:.1f}",
            peer,
            f"{1e3 * theirs:.2f}",
            f"{ratio:.2f}",
            "" if goal is None else f"<= {goal} {'met' if ratio <= goal else 'MISSED'}",
        )
        record.append(
            {"what": what, "seconds": mine, "spread": spread, "peer": peer, "peer_seconds": theirs, "goal": goal}
        )
    rich.console.Console(width=120).print(table)
    output = ROOT / "build" / "bench.json"
    output.parent.mkdir(exist_ok=True)
    output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
