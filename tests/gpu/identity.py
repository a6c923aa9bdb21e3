#!/usr/bin/env python3
"""Which state each captured chunk is on a GPU, in CUDA graphs, on one rank and on two.

Random targets of 8 layers and drafts that read the boundaries 0, 3 and 8 (the embedding, one inside, the last), each
served with EAGLE3_ADAPTER=auto and again without speculation; with ``--ranks 2`` also over two GPUs, there with DP
attention and fused all-reduces too, and with all three boundaries injected where the class captures them. Every state
that reached the draft, written down by tests/support/recorder, is compared with every boundary of a float32 forward of
transformers. Tokens must be those without speculation, up to ties. What a tie is, the same run says: transformers
computes the target in bf16 too, whose leads differ by some standard deviation from float32's, and the engine serves the
requests without speculation in other batches, which may turn a lead. Accept lengths must be those of plain forwards
over the same tokens, to a few percent. Prints a table, writes JSON, ends with 1 where any of this fails.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.metadata
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import torch

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [path for path in (str(TESTS),) if path not in sys.path]

from gpu.cases import CASES, make  # noqa: E402 - the path is set above
from gpu.engines import Way, serve, start, ways  # noqa: E402 - as above
from gpu.judge import judge, recorded  # noqa: E402 - as above


def machine() -> dict[str, str]:
    """When, where and with what it ran."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "device": f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
        if torch.cuda.is_available()
        else "cpu",
        **{name: importlib.metadata.version(name) for name in ("sglang", "torch", "transformers")},
    }


def main() -> None:
    """Serve all cases side by side, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--commit", default="unknown", help="what is measured, for the record")
    parser.add_argument("--cases", default=",".join(CASES), help=f"of {', '.join(CASES)}; kimi needs deepseek too")
    parser.add_argument("--ranks", type=int, default=1, help="GPUs that the larger engines run on")
    parser.add_argument("--fused", action="store_true", help="with fused all-reduces too, which need FlashInfer")
    parser.add_argument("--together", type=int, default=10, help="engines at a time")
    parser.add_argument("--device", default="cpu", help="of the reference forward")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder: Path = options.output
    if options.serve:
        way, place, port = Way(**json.loads(options.serve[0])), Path(options.serve[1]), int(options.serve[2])
        served = serve(way, place, port)
        (place / f"{way.name}.json").write_text(json.dumps(served), encoding="utf-8")
        return
    cases = options.cases.split(",")
    for case in cases:
        make(case, folder / case, options.device)
    every = ways(cases, options.ranks, fused=options.fused)
    with concurrent.futures.ThreadPoolExecutor(options.together) as pool:
        for number, way in enumerate(every):
            devices = range(way.ranks) if way.ranks > 1 else [number % options.ranks]
            pool.submit(start, way, folder, 31000 + 1500 * number, devices)
    results, broken = {}, []
    for way in every:
        if way.speculate:
            try:
                results[way.name] = recorded(way, judge(way, folder, options.device))
            except RuntimeError as error:
                broken.append(str(error))
    (folder / "identity.json").write_text(
        json.dumps({"commit": options.commit, **machine(), "ways": results}, indent=1), encoding="utf-8"
    )
    for name, result in results.items():
        for kind in ("prefill", "decode"):
            one = result[kind]
            print(
                f"{name}, {kind}: {one['states']} states, {one['wrong']} of another boundary, own distance at most "
                f"{one['own']:.3g}, nearest other {one['margin']:.3g} times farther at least"
            )
        print(
            f"{name}, tokens: {result['equal']}/{result['requests']} as without speculation, parted without a tie: "
            f"{result['parted'] or 'none'}, with one: {result['tied'] or 'none'}; a tie is a lead of up to "
            f"{result['tie']:.3g} of {result['median']:.3g} in the median; without speculation in other batches "
            f"{result['again']}/{result['agains']} the same"
        )
        print(
            f"{name}, serving: accept length {result['accept_length']:.3f}, offline {result['offline']:.3f}; "
            f"in graphs: {result['graphs']}; "
            f"beside {name.split('-')[0]}-eagle: {result['beside'] or '-'}; log: {result['log']}"
        )
    print(*broken, sep="\n")
    sys.exit(bool(broken) or not all(result["passed"] for result in results.values()))


if __name__ == "__main__":
    main()
