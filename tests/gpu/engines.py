"""The engines of identity.py: one process each, with everything that reaches the draft written down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from gpu.cases import CASES, NEW_TOKENS, STEPS, prompts
from support.transformers_targets import CLASSES

TESTS = Path(__file__).resolve().parents[1]
PROGRAM = TESTS / "gpu" / "identity.py"
#: Cases whose states are captured by the class, and are injected in a run of their own too.
NATIVE = ("llama", "deepseek")
#: Cases that are served with attention parallel over data and with fused all-reduces too.
SPREAD = ("deepseek",)


@attrs.frozen(kw_only=True)
class Way:
    """One engine."""

    name: str
    case: str
    speculate: bool = True
    ranks: int = 1
    inject: bool = False
    #: Each rank attends for requests of its own (DP attention).
    spread: bool = False
    #: FlashInfer sums over ranks within the next norm.
    fused: bool = False

    def arguments(self) -> dict[str, Any]:
        """The engine's, beside those of every run."""
        architecture = CASES[self.case][0]
        # Some classes want them here as on a CPU.
        special = CLASSES[architecture].engine if architecture in CLASSES else {}
        found: dict[str, Any] = {"tp_size": self.ranks, **special}
        if self.case == "kimi":
            found["enable_multimodal"] = False
        if self.spread:
            found |= {"enable_dp_attention": True, "dp_size": self.ranks}
        if self.fused:
            found["flashinfer_allreduce_fusion_backend"] = "trtllm"
        elif self.ranks > 1:
            # Where FlashInfer is there SGLang would fuse unasked.
            found["enforce_disable_flashinfer_allreduce_fusion"] = True
        return found


def ways(cases: Sequence[str], ranks: int, *, fused: bool = False) -> list[Way]:
    """Every engine of a run; ``fused`` where FlashInfer is there."""
    found = []
    for case in cases:
        found.append(Way(name=f"{case}-plain", case=case, speculate=False))
        for count in sorted({1, ranks}):
            several = f"-{count}-ranks" if count > 1 else ""
            found.append(Way(name=f"{case}-eagle{several}", case=case, ranks=count))
            if ranks > 1 and case in NATIVE:
                found.append(Way(name=f"{case}-injected{several}", case=case, ranks=count, inject=True))
            if count > 1 and case in SPREAD:
                found.append(Way(name=f"{case}-spread{several}", case=case, ranks=count, spread=True))
            if fused and count > 1 and case in SPREAD:
                for inject in (False, True):
                    name = f"{case}-fused{'-injected' * inject}{several}"
                    found.append(Way(name=name, case=case, ranks=count, inject=inject, fused=True))
    return found


ENGINE = {
    "skip_tokenizer_init": True,
    "attention_backend": "triton",
    "sampling_backend": "pytorch",
    "grammar_backend": "none",
    "dtype": "bfloat16",
    "mem_fraction_static": 0.05,
    "max_total_tokens": 32768,
    "max_running_requests": 16,
    "cuda_graph_max_bs_decode": 16,
    "random_seed": 1,
    "log_level": "info",
}
SPECULATION = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": STEPS,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": STEPS + 1,
}


def serve(way: Way, folder: Path, port: int) -> dict[str, dict[str, Any]]:
    """Prompt and answer of every request; prompts and decoding in CUDA graphs.

    Without a draft also ``again``: what the engine answers in other batches, one by one and in pairs.
    """
    import sglang  # noqa: PLC0415 - only the processes that serve

    extra = way.arguments()
    draft = folder / way.case / "draft" if way.speculate else None
    if draft is not None:
        extra |= SPECULATION | {"speculative_draft_model_path": str(draft)}
    target = str(folder / way.case / "target")
    engine = sglang.Engine(model_path=target, port=port, disable_prefill_cuda_graph=False, **ENGINE, **extra)
    asked = prompts()
    sampling = {"temperature": 0, "max_new_tokens": NEW_TOKENS, "ignore_eos": True}
    # The first prompt of two tokens or more runs without its graph, to be verified.
    engine.generate(input_ids=[[1, 2, 3]], sampling_params={**sampling, "max_new_tokens": 1}, rid=["first"])
    answers = engine.generate(input_ids=list(asked.values()), sampling_params=sampling, rid=list(asked))
    again: dict[str, list[list[int]]] = {name: [] for name in asked}
    for together in () if draft else (1, 2):
        for start in range(0, len(asked), together):
            names = list(asked)[start : start + together]
            engine.flush_cache()
            other = engine.generate(input_ids=[asked[name] for name in names], sampling_params=sampling)
            for name, answer in zip(names, other, strict=True):
                again[name].append(answer["output_ids"])
    engine.shutdown()
    served = {
        name: {
            "prompt": prompt,
            "output": answer["output_ids"],
            "again": again[name],
            "verifies": answer["meta_info"].get("spec_verify_ct"),
            "accepted": answer["meta_info"].get("spec_num_correct_drafts"),
        }
        for (name, prompt), answer in zip(asked.items(), answers, strict=True)
    }
    return served | {"first": {"prompt": [1, 2, 3], "output": [], "again": [], "verifies": 0, "accepted": 0}}


def start(way: Way, folder: Path, port: int, devices: Sequence[int]) -> None:
    """One engine in a process of its own; its log stands beside its answer."""
    environment = dict(os.environ) | {"CUDA_VISIBLE_DEVICES": ",".join(map(str, devices))}
    if way.speculate:
        output = folder / "records" / way.name
        output.mkdir(parents=True, exist_ok=True)
        path = (str(TESTS / "support" / "recorder"), environment.get("PYTHONPATH", ""))
        environment |= {
            "EAGLE3_ADAPTER": "auto",
            "RECORDER_OUTPUT": str(output),
            "RECORDER_SETS": "[]",
            "RECORDER_INJECT": str(int(way.inject)),
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
        }
    words = ["--serve", json.dumps(attrs.asdict(way)), str(folder), str(port)]
    with (folder / f"{way.name}.log").open("wb") as log:
        subprocess.run(
            [sys.executable, PROGRAM, *words], env=environment, stdout=log, stderr=log, check=False, timeout=300
        )


def answers(folder: Path, way: str) -> dict[str, Any]:
    """What an engine's process wrote; its log's end where it wrote nothing."""
    file = folder / f"{way}.json"
    if not file.exists():
        log = (folder / f"{way}.log").read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"{way} ended without an answer\n{log[-4000:]}")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found
