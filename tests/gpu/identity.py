#!/usr/bin/env python3
"""Which state each captured chunk is on a GPU, in CUDA graphs, on one rank and on two.

Random targets of 8 layers and drafts that read the boundaries 0, 3 and 8 (the embedding, one inside, the last), each
served with EAGLE3_ADAPTER=auto and again without speculation; with ``--ranks 2`` also over two GPUs, and with all three
boundaries injected where the class captures them. Every state that reached the draft, written down by
tests/support/recorder, is compared with every boundary of a float32 forward of transformers. Tokens must be those
without speculation, up to ties. What a tie is, the same run says: transformers computes the target in bf16 too, whose
leads differ by some standard deviation from float32's, and the engine serves the requests without speculation in other
batches, which may turn a lead.
Prints a table, writes JSON, ends with 1 where a state is another boundary or a token differs without a tie.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from safetensors.torch import load_file

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [path for path in (str(TESTS),) if path not in sys.path]

from support.boundary_states import Chunk, Reference, chunks, distance, pieces, records  # noqa: E402 - the path is set above
from support.random_targets import DEEPSEEK, KIMI, LLAMA, write_draft, write_target  # noqa: E402 - as above
from support.transformers_targets import CLASSES, write_transformers_target  # noqa: E402 - as above

BOUNDARIES = (0, 3, 8)
PROMPTS, NEW_TOKENS, VOCABULARY = 8, 48, 256
#: Standard deviations of a lead's change in bf16. Two ways through bf16 differ by the square root of two of them, in
#: some thousand places.
TIE = 6.0
#: How much a token's follower is likelier than the rest: the likeliest token leads by about 2 in the median.
FOLLOW = 128.0
_SIZES = {
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
#: Widths that the kernels for latent attention and experts are built for.
_LATENT = {
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "q_lora_rank": 256,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_intermediate_size": 256,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "n_group": 4,
    "topk_group": 2,
    # bf16 routes now and then to another expert than float32, whose output is another one altogether.
    "routed_scaling_factor": 0.1,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": (LLAMA, {**_SIZES, "num_key_value_heads": 4, "head_dim": 64}),
    "deepseek": (DEEPSEEK, {**_SIZES, **_LATENT}),
    "kimi": (KIMI, {**_SIZES, **_LATENT}),
    # Injected whole: these classes capture nothing, and the wrong tensor.
    "mixtral": ("MixtralForCausalLM", {**_SIZES, "num_key_value_heads": 4, "head_dim": 64}),
    "gemma3": ("Gemma3ForCausalLM", {**_SIZES, "num_key_value_heads": 4, "head_dim": 64, "query_pre_attn_scalar": 64}),
}
#: Cases whose states are captured by the class, and are injected in a run of their own too.
NATIVE = ("llama", "deepseek")


@attrs.frozen(kw_only=True)
class Way:
    """One engine."""

    name: str
    case: str
    speculate: bool = True
    ranks: int = 1
    inject: bool = False


def ways(cases: Sequence[str], ranks: int) -> list[Way]:
    """Every engine of a run."""
    found = []
    for case in cases:
        found.append(Way(name=f"{case}-plain", case=case, speculate=False))
        for count in sorted({1, ranks}):
            several = f"-{count}-ranks" if count > 1 else ""
            found.append(Way(name=f"{case}-eagle{several}", case=case, ranks=count))
            if ranks > 1 and case in NATIVE:
                found.append(Way(name=f"{case}-injected{several}", case=case, ranks=count, inject=True))
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
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}


@attrs.frozen(kw_only=True)
class Verdict:
    """What the captured states of one kind of forward came to."""

    states: int
    #: Those that are nearest to another boundary than planned.
    wrong: int
    #: Largest relative distance to the own boundary, and how many times farther the nearest other one is at least.
    own: float
    margin: float


def verdict(found: Sequence[Chunk]) -> Verdict:
    """Sum up; ValueError where nothing was captured."""
    return Verdict(
        states=len(found),
        wrong=sum(chunk.nearest != chunk.planned for chunk in found),
        own=max(chunk.own for chunk in found),
        margin=min(chunk.margin for chunk in found),
    )


def parting(mine: Sequence[int], theirs: Sequence[int]) -> int | None:
    """First place where two continuations part; None: nowhere. Past it the contexts differ and say nothing."""
    places = (place for place, (one, other) in enumerate(zip(mine, theirs, strict=True)) if one != other)
    return next(places, None)


def make(case: str, folder: Path) -> tuple[Path, Path]:
    """Target and draft of a case."""
    architecture, sizes = CASES[case]
    follow: torch.Tensor | None = None
    if architecture in CLASSES:
        target = write_transformers_target(folder / "target", architecture, **sizes)
    else:
        target = write_target(folder / "target", architecture, follow=FOLLOW, **sizes)
        names = (f"{prefix}model.embed_tokens.weight" for prefix in ("", "language_model."))
        tensors = load_file(target / "model.safetensors")
        follow = next(tensors[name].float() for name in names if name in tensors)
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    heads = {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": sizes["hidden_size"] // 8}
    return target, write_draft(folder / "draft", config.get("text_config", config), BOUNDARIES, follow=follow, **heads)


def prompts() -> dict[str, list[int]]:
    """Request -> tokens, a ragged batch."""
    generator = random.Random(0)  # noqa: S311 - prompts, not secrets
    return {f"request-{i}": [generator.randrange(1, VOCABULARY - 2) for _ in range(16 + 7 * i)] for i in range(PROMPTS)}


def serve(case: str, target: Path, draft: Path | None, port: int, ranks: int) -> dict[str, dict[str, Any]]:
    """Prompt and answer of every request; prompts and decoding in CUDA graphs.

    Without a draft also ``again``: what the engine answers in other batches, one by one and in pairs.
    """
    import sglang  # noqa: PLC0415 - only the processes that serve

    extra: dict[str, Any] = {"enable_multimodal": False} if case == "kimi" else {}
    if draft is not None:
        extra |= SPECULATION | {"speculative_draft_model_path": str(draft)}
    engine = sglang.Engine(
        model_path=str(target), port=port, tp_size=ranks, disable_prefill_cuda_graph=False, **ENGINE, **extra
    )
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
        }
        for (name, prompt), answer in zip(asked.items(), answers, strict=True)
    }
    return served | {"first": {"prompt": [1, 2, 3], "output": [], "again": [], "verifies": 0}}


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
            [sys.executable, __file__, *words], env=environment, stdout=log, stderr=log, check=False, timeout=300
        )


def answers(folder: Path, way: str) -> dict[str, Any]:
    """What an engine's process wrote; its log's end where it wrote nothing."""
    file = folder / f"{way}.json"
    if not file.exists():
        log = (folder / f"{way}.log").read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"{way} ended without an answer\n{log[-4000:]}")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def compare_tokens(
    reference: Reference, low: Reference, eagle: dict[str, Any], plain: dict[str, Any]
) -> dict[str, Any]:
    """Where speculation says other tokens although the likeliest token led by more than a tie, in float32.

    ``reference`` and ``low`` are the target in float32 and in bf16. ``tie``: TIE standard deviations of what bf16
    changes in a lead, or the largest lead that other batches turned without speculation; ``median``: of all leads.
    """
    parted: dict[str, tuple[int, float]] = {}
    every, noise, turned = [], [], [0.0]
    for name, answer in plain.items():
        start = len(answer["prompt"]) - 1
        sequence = [*answer["prompt"], *answer["output"]]
        values, tokens = reference.logits(sequence).topk(2)
        other = low.logits(sequence).float().gather(-1, tokens)
        leads = values[:, 0] - values[:, 1]
        noise.append(other[:, 0] - other[:, 1] - leads)
        every += (led := leads[start:].tolist())
        places = (parting(again, answer["output"]) for again in answer["again"])
        turned += [led[place] for place in places if place is not None]
        place = parting(eagle[name]["output"], answer["output"])
        if place is not None:
            parted[name] = (place, led[place])
    tie = max(*turned, TIE * float(torch.cat(noise).square().mean().sqrt()))
    return {
        "requests": len(plain),
        "equal": len(plain) - len(parted),
        "again": sum(again == answer["output"] for answer in plain.values() for again in answer["again"]),
        "agains": sum(len(answer["again"]) for answer in plain.values()),
        "tie": tie,
        "median": statistics.median(every),
        "parted": {name: found for name, found in parted.items() if found[1] > tie},
        "tied": {name: found for name, found in parted.items() if found[1] <= tie},
    }


def accept_length(answers: Iterable[dict[str, Any]]) -> float:
    """Tokens a verify step; the first token of an answer comes from its prompt."""
    counts = [(len(answer["output"]) - 1, answer["verifies"]) for answer in answers if answer["verifies"]]
    accepted: float = sum(tokens for tokens, _ in counts) / sum(verifies for _, verifies in counts)
    return accepted


def rows(folder: Path, served: dict[str, Any]) -> dict[tuple[int, ...], torch.Tensor]:
    """Tokens up to and with one -> the packed states captured there, of every row with a known context."""
    found: dict[tuple[int, ...], torch.Tensor] = {}
    for piece in pieces(folder, served):
        for end, state in enumerate(piece.record["states"][piece.rows], piece.first + 1):
            found.setdefault(piece.tokens[:end], state)
    return found


def between(mine: dict[tuple[int, ...], torch.Tensor], theirs: dict[tuple[int, ...], torch.Tensor]) -> dict[str, Any]:
    """Relative distance of the states of all rows that two runs share, by boundary."""
    common = sorted(mine.keys() & theirs.keys())
    one, other = (torch.stack([found[key] for key in common]) for found in (mine, theirs))
    chunks_of = (one.chunk(len(BOUNDARIES), dim=-1), other.chunk(len(BOUNDARIES), dim=-1))
    return {"rows": len(common), "distance": [distance(*pair) for pair in zip(*chunks_of, strict=True)]}


def same_on_ranks(folder: Path) -> tuple[int, int]:
    """Forwards whose states are the same bits on the second rank as on the first, and all."""
    pairs = [(torch.load(file), torch.load(folder / "rank1" / file.name)) for file in sorted(folder.glob("0*.pt"))]
    return sum(torch.equal(one["states"], other["states"]) for one, other in pairs), len(pairs)


@functools.cache
def references(folder: Path, case: str, device: str) -> tuple[Reference, Reference]:
    """A case's target in float32 and in bf16, for all of its engines."""
    # Kimi's target holds the DeepSeek one's weights, which transformers knows.
    place = folder / ("deepseek" if case == "kimi" else case) / "target"
    return Reference(place, device), Reference(place, device, torch.bfloat16)


def judge(way: Way, folder: Path, device: str) -> dict[str, Any]:
    """States and tokens of one engine against transformers, and against the one without speculation."""
    reference, low = references(folder, way.case, device)
    eagle, plain = answers(folder, way.name), answers(folder, f"{way.case}-plain")
    kept = folder / "records" / way.name
    found = list(chunks(reference, kept, eagle))
    graphs = [record["graph"] for record in records(kept)]
    log = (folder / f"{way.name}.log").read_text(encoding="utf-8", errors="replace")
    first = f"{way.case}-eagle"
    beside: dict[str, Any] = {}
    if way.name != first:
        beside = between(rows(kept, eagle), rows(folder / "records" / first, answers(folder, first)))
    if way.ranks > 1:
        beside["same_on_ranks"] = same_on_ranks(kept)
    return {
        "prefill": attrs.asdict(verdict([chunk for chunk in found if chunk.prompt])),
        "decode": attrs.asdict(verdict([chunk for chunk in found if not chunk.prompt])),
        "graphs": f"{sum(graphs)} of {len(graphs)} forwards",
        "accept_length": accept_length(eagle.values()),
        **compare_tokens(reference, low, eagle, plain),
        "beside": beside,
        "log": [line for line in _FACTS if line in log],
    }


_FACTS = (f"boundaries {list(BOUNDARIES)}", "captured states verified", "[0, 8] injected", "[8] injected")


def failed(results: Iterable[dict[str, Any]]) -> bool:
    """Whether a state is another boundary, a token differs without a tie, or the start did not verify itself."""
    return any(
        result["prefill"]["wrong"]
        or result["decode"]["wrong"]
        or result["parted"]
        or not set(_FACTS[:2]) <= set(result["log"])
        for result in results
    )


def main() -> None:
    """Serve all cases side by side, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--cases", default=",".join(CASES), help=f"of {', '.join(CASES)}; kimi needs deepseek too")
    parser.add_argument("--ranks", type=int, default=1, help="GPUs that the larger engines run on")
    parser.add_argument("--together", type=int, default=10, help="engines at a time")
    parser.add_argument("--device", default="cpu", help="of the reference forward")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder: Path = options.output
    if options.serve:
        way, place, port = Way(**json.loads(options.serve[0])), Path(options.serve[1]), int(options.serve[2])
        draft = place / way.case / "draft" if way.speculate else None
        served = serve(way.case, place / way.case / "target", draft, port, way.ranks)
        (place / f"{way.name}.json").write_text(json.dumps(served), encoding="utf-8")
        return
    cases = options.cases.split(",")
    for case in cases:
        make(case, folder / case)
    every = ways(cases, options.ranks)
    with concurrent.futures.ThreadPoolExecutor(options.together) as pool:
        for number, way in enumerate(every):
            devices = range(way.ranks) if way.ranks > 1 else [number % options.ranks]
            pool.submit(start, way, folder, 31000 + 1500 * number, devices)
    results, broken = {}, []
    for way in every:
        if way.speculate:
            try:
                results[way.name] = judge(way, folder, options.device)
            except RuntimeError as error:
                broken.append(str(error))
    (folder / "identity.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
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
            f"{name}, serving: accept length {result['accept_length']:.3f}; in graphs: {result['graphs']}; "
            f"beside {name.split('-')[0]}-eagle: {result['beside'] or '-'}; log: {result['log']}"
        )
    print(*broken, sep="\n")
    sys.exit(bool(broken) or failed(results.values()))


if __name__ == "__main__":
    main()
