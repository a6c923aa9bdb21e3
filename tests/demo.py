#!/usr/bin/env python3
"""The main job on real input: one trained pair, the same prompts, real SGLang on this CPU, five ways.

``plain``: SGLang alone on the checkpoint as it is; ``renamed``: SGLang alone after the usual hand fix; ``adapter``:
with ``--eagle3-adapter auto`` (``tree``: the same with topk 4); ``none``: without speculation. ``offline`` is what a
plain PyTorch forward of the draft says that serving must come to. Writes build/demo.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support import handfix  # noqa: E402
from support.pair import DRAFT, NEW_TOKENS, STEPS, offline_counts, plan, prompts  # noqa: E402
from support.serve import TREE, Served, serve, speculation  # noqa: E402

from eagle3_adapters.reference import AcceptLength, Counts  # noqa: E402

NOTES = {
    "none": "no speculation",
    "plain": "SGLang alone, the checkpoint as it is",
    "renamed": "SGLang alone, config flattened, keys renamed, ids and vocabulary copied",
    "adapter": "--eagle3-adapter auto, 3 steps, topk 1",
    "tree": "--eagle3-adapter auto, 3 steps, topk 4, 8 draft tokens",
    "offline": "what a plain PyTorch forward of the draft says",
}


def summarise(counts: list[Counts]) -> dict[str, Any]:
    """Accept length with its standard error, and the counts that it comes from."""
    length = AcceptLength.from_counts(counts)
    return {
        "accept_length": length.value,
        "standard_error": length.standard_error,
        "verifies": [count.verifies for count in counts],
        "accepted": [count.accepted for count in counts],
    }


def compare(served: Served, reference: list[list[int]]) -> dict[str, Any]:
    """One way's result beside the tokens without speculation."""
    if served.error:
        return {"error": served.error.splitlines()[0]}
    equal = [mine == theirs[:NEW_TOKENS] for mine, theirs in zip(served.tokens, reference, strict=True)]
    return summarise(served.counts) | {"lossless": all(equal), "prompts_equal": sum(equal)}


def run(output: Path) -> dict[str, Any]:
    """All ways, one after the other; progress on stderr, the result in ``output``."""
    report: dict[str, Any] = {"prompts": len(prompts()), "new_tokens": NEW_TOKENS, "steps": STEPS, "dtype": "float32"}

    def say(way: str) -> None:
        print(f"{way}: {NOTES[way]} …", file=sys.stderr, flush=True)

    say("none")
    # The offline replay reads a little past the last token that counts.
    reference = serve({}, new_tokens=NEW_TOKENS + STEPS - 1).tokens
    report["none"] = {"accept_length": None, "tokens": sum(map(len, reference))}
    with tempfile.TemporaryDirectory() as folder:
        ways: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
            "plain": (speculation(DRAFT), {}),
            "renamed": (speculation(handfix.rename(DRAFT, Path(folder) / "renamed")), {}),
            "adapter": (speculation(DRAFT), {"EAGLE3_ADAPTER": "auto"}),
            "tree": (speculation(DRAFT, TREE), {"EAGLE3_ADAPTER": "auto"}),
        }
        for way, (arguments, variables) in ways.items():
            say(way)
            report[way] = compare(serve(arguments, **variables), reference)
    say("offline")
    report["offline"] = summarise(offline_counts(plan(), reference))
    report["lossless"] = all(report[way].get("lossless", True) for way in ways)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report) + "\n", encoding="utf-8")
    return report


def show(report: dict[str, Any]) -> None:
    """The report for people."""
    print(f"{report['prompts']} prompts x {report['new_tokens']} greedy tokens, real SGLang, float32 on the CPU")
    for way, note in NOTES.items():
        result = report[way]
        number = f"{result['accept_length']:.3f}" if result.get("accept_length") else "  -  "
        print(f"  {way:8} accept length {number}  {note}")
        if "error" in result:
            print(f"           error: {result['error'][:88]}")
    print(f"  lossless: {report['lossless']}  (the same tokens as without speculation, every way)")
    equal = all(report["adapter"][key] == report["offline"][key] for key in ("verifies", "accepted"))
    print(f"  adapter {'equals' if equal else 'DIFFERS FROM'} offline, prompt by prompt")


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "demo.json")
    options = parser.parse_args()
    show(run(options.output))
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
