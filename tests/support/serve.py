"""Serving the trained pair's prompts with the real engine, each time in a process of its own.

A process of its own: SGLang's plugins load once a process, its shutdown kills every child of the process that calls it,
and a test process that has imported SGLang has warnings that pytest takes for errors.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from eagle3_adapters.reference import AcceptLength, Counts
from eagle3_adapters.rehearsal.engine import cpu_engine
from support.pair import NEW_TOKENS, PAIR, STEPS, prompts

#: Far above any boot seen (15 to 45 s): a hang must end as a failure.
SECONDS = 240
CHAIN = {"speculative_eagle_topk": 1, "speculative_num_draft_tokens": STEPS + 1}
TREE = {"speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8}


def speculation(draft: Path, shape: Mapping[str, int] = CHAIN) -> dict[str, Any]:
    """Engine arguments for a draft."""
    return {
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": str(draft),
        "speculative_num_steps": STEPS,
        **shape,
    }


@attrs.frozen(kw_only=True)
class Served:
    """What came back: an error, or tokens and, with speculation, counts of each prompt."""

    error: str
    tokens: list[list[int]]
    counts: list[Counts]
    #: Everything that the engine's processes wrote to stderr.
    log: str

    @property
    def accept_length(self) -> AcceptLength:
        """Over all prompts."""
        return AcceptLength.from_counts(self.counts)


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without requests of its own, plus ``variables``."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("EAGLE3_") or name == "EAGLE3_ADAPTERS_CACHE"
    }
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, (tests, variables.pop("PYTHONPATH", ""), kept.get("PYTHONPATH", ""))))
    return kept | variables | {"PYTHONPATH": path}


def serve(arguments: Mapping[str, Any], *, new_tokens: int = NEW_TOKENS, pair: Path = PAIR, **variables: str) -> Served:
    """Boot an engine with ``arguments``, serve a pair's prompts greedily, end it. RuntimeError where no answer came."""
    order = {
        "arguments": {"model_path": str(pair / "target"), **arguments},
        "prompts": prompts(pair),
        "new_tokens": new_tokens,
    }
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        done = subprocess.run(
            [sys.executable, "-m", "support.serve", json.dumps(order), result.name],
            env=environment(**variables),
            check=False,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        text = Path(result.name).read_text(encoding="utf-8")
    if not text:
        raise RuntimeError(f"the engine's process ended with {done.returncode}\n{done.stderr[-6000:]}")
    answer = json.loads(text)
    counts = [Counts(verifies=verifies, accepted=accepted) for verifies, accepted in answer["counts"]]
    return Served(error=answer["error"], tokens=answer["tokens"], counts=counts, log=done.stderr)


def _answer(arguments: dict[str, Any], asked: list[list[int]], new_tokens: int) -> dict[str, Any]:
    sampling = {"temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": True}
    try:
        with cpu_engine(log_level="info", **arguments) as engine:
            results = engine.generate(input_ids=asked, sampling_params=sampling)
    except Exception as error:  # noqa: BLE001 - whatever SGLang raises is the answer
        return {"error": f"{type(error).__name__}: {error}", "tokens": [], "counts": []}
    counts = [
        (result["meta_info"]["spec_verify_ct"], result["meta_info"]["spec_num_correct_drafts"])
        for result in results
        if "spec_verify_ct" in result["meta_info"]
    ]
    return {"error": "", "tokens": [result["output_ids"] for result in results], "counts": counts}


if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    answer = _answer(order["arguments"], order["prompts"], order["new_tokens"])
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
    sys.stderr.flush()
    # An engine whose start failed leaves sockets behind, on which the interpreter would wait for ever when it exits.
    os._exit(0)
