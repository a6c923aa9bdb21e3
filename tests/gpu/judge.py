"""What the engines of identity.py came to: their states and tokens beside transformers', and beside each other."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from gpu.cases import BOUNDARIES, CASES, STEPS
from gpu.engines import Way, answers
from support.boundary_states import Chunk, Reference, chunks, distance, pieces, records
from support.fitted_drafts import offline
from support.pair import plan

from eagle3_adapters.reference import AcceptLength, Counts

#: Standard deviations of a lead's change in bf16. Two ways through bf16 differ by the square root of two of them, in
#: some thousand places.
TIE = 6.0
#: Largest difference of an accept length from offline's: bf16 turns a close choice of either model now and then.
ACCEPTED = 0.05


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


def accept_length(answers: dict[str, Any]) -> float:
    """Of all requests, as the engine counts it."""
    counts = [Counts(verifies=one["verifies"], accepted=one["accepted"]) for one in answers.values()]
    return AcceptLength.from_counts(counts).value


def offline_accept_length(folder: Path, case: str, reference: Reference, answers: dict[str, Any]) -> float:
    """The same of plain float32 forwards of target and draft over the engine's own tokens."""
    # Planned on a target that transformers knows: the boundaries are the same.
    made = plan(known_target(folder, case), folder / case / "draft")
    said = {name: answer for name, answer in answers.items() if answer["output"]}
    return AcceptLength.from_counts(list(offline(made, reference, said, STEPS).values())).value


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


def known_target(folder: Path, case: str) -> Path:
    """What transformers knows of a case: Kimi's target holds the DeepSeek one's weights."""
    return folder / ("deepseek" if case == "kimi" else case) / "target"


@functools.cache
def references(folder: Path, case: str, device: str) -> tuple[Reference, Reference]:
    """A case's target in float32 and in bf16, for all of its engines."""
    place = known_target(folder, case)
    return Reference(place, device), Reference(place, device, torch.bfloat16)


def judge(way: Way, folder: Path, device: str) -> dict[str, Any]:
    """States and tokens of one engine against transformers, and against the one without speculation."""
    reference, low = references(folder, way.case, device)
    eagle, plain = answers(folder, way.name), answers(folder, f"{way.case}-plain")
    kept = folder / "records" / way.name
    # Each rank has requests of its own, or both have the same.
    kept_by = [kept, kept / "rank1"] if way.spread else [kept]
    found = [chunk for place in kept_by for chunk in chunks(reference, place, eagle)]
    graphs = [record["graph"] for place in kept_by for record in records(place)]
    log = (folder / f"{way.name}.log").read_text(encoding="utf-8", errors="replace")
    first = f"{way.case}-eagle"
    beside: dict[str, Any] = {}
    if way.name != first:
        mine = {key: state for place in kept_by for key, state in rows(place, eagle).items()}
        beside = between(mine, rows(folder / "records" / first, answers(folder, first)))
    if way.spread:
        beside["forwards_of_ranks"] = [len(list(records(place))) for place in kept_by]
    elif way.ranks > 1:
        beside["same_on_ranks"] = same_on_ranks(kept)
    return {
        "prefill": attrs.asdict(verdict([chunk for chunk in found if chunk.prompt])),
        "decode": attrs.asdict(verdict([chunk for chunk in found if not chunk.prompt])),
        "graphs": f"{sum(graphs)} of {len(graphs)} forwards",
        "accept_length": accept_length(eagle),
        "offline": offline_accept_length(folder, way.case, reference, eagle),
        **compare_tokens(reference, low, eagle, plain),
        "beside": beside,
        "log": [line for line in _FACTS if line in log],
        # Under DP attention no rank may start a collective by itself, and the start says so.
        "expected": [_PLANNED, _UNVERIFIED if way.spread else _VERIFIED, *([_FUSED] if way.fused else [])],
    }


_PLANNED, _VERIFIED = f"boundaries {list(BOUNDARIES)}", "captured states verified"
_UNVERIFIED = "captured states are not verified under DP attention"
_FUSED = "FlashInfer AllReduce Fusion enabled"
_FACTS = (_PLANNED, _VERIFIED, _UNVERIFIED, _FUSED, "[0, 8] injected", "[0] injected", "[8] injected")


def failed(result: dict[str, Any]) -> bool:
    """Whether a state is another boundary, a token differs without a tie, an accept length is not offline's, or the
    start did not say what it must.
    """
    return bool(
        result["prefill"]["wrong"]
        or result["decode"]["wrong"]
        or result["parted"]
        or not set(result["expected"]) <= set(result["log"])
        or abs(result["accept_length"] / result["offline"] - 1) > ACCEPTED
    )


def recorded(way: Way, result: dict[str, Any]) -> dict[str, Any]:
    """A result with what it is of, and whether it passed."""
    return {"architecture": CASES[way.case][0], **attrs.asdict(way), "passed": not failed(result), **result}
