"""Every boundary of a target by transformers, and which of them a captured state is. Nothing here is SGLang's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch

States = list[torch.Tensor]


class Reference:
    """A target: ``states(tokens)`` is [boundary 0, …, boundary N], each [tokens, hidden] in ``dtype``, on the CPU."""

    def __init__(self, directory: Path, device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        # Late, for those who only compare: it takes seconds, and its SWIG types warn while they are made.
        import transformers  # noqa: PLC0415

        transformers.utils.logging.disable_progress_bar()
        model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)
        if hasattr(model, "set_experts_implementation"):
            # The other ways to run experts want types or kernels of their own.
            model.set_experts_implementation("eager")
        self._model = model.eval().to(device)
        self._device = device
        self._seen: States = []
        body = self._model.model
        # What enters each layer, and what enters the final norm: the stream itself, before any norm.
        for place in (*body.layers, body.norm_f if hasattr(body, "norm_f") else body.norm):
            place.register_forward_pre_hook(self._look, with_kwargs=True)

    @property
    def embedding(self) -> torch.Tensor:
        """[vocabulary, hidden] float32 on the CPU, as a checkpoint holds it."""
        weight: torch.Tensor = self._model.get_input_embeddings().weight.detach().float().cpu()
        return weight

    def _look(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._seen.append((args[0] if args else kwargs["hidden_states"])[0].cpu())

    def states(self, tokens: Sequence[int]) -> States:
        """The stream before each layer and before the final norm."""
        self._seen.clear()
        with torch.no_grad():
            self._model(torch.tensor([list(tokens)], device=self._device))
        return [state.clone() for state in self._seen]

    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """[tokens, vocabulary], after each token, on the CPU."""
        with torch.no_grad():
            found: torch.Tensor = self._model(torch.tensor([list(tokens)], device=self._device)).logits[0]
        return found.cpu()

    def next_tokens(self, tokens: Sequence[int]) -> list[tuple[int, float]]:
        """After each token the likeliest next one, and by how much its logit leads."""
        values, ids = self.logits(tokens).topk(2)
        return list(zip(ids[:, 0].tolist(), (values[:, 0] - values[:, 1]).tolist(), strict=True))


@attrs.frozen(kw_only=True)
class Chunk:
    """One captured state of one request in one forward, beside every boundary of the reference."""

    request: str
    prompt: bool
    planned: int
    #: Whether all states of the forward were injected, whatever the class captures by itself.
    injected: bool = False
    #: Relative distance to each boundary: norm of the difference over the boundary's norm, over all of its tokens.
    distances: tuple[float, ...]

    @property
    def nearest(self) -> int:
        """Which boundary it is."""
        return min(range(len(self.distances)), key=self.distances.__getitem__)

    @property
    def own(self) -> float:
        """Distance to the planned boundary."""
        return self.distances[self.planned]

    @property
    def margin(self) -> float:
        """How many times farther the nearest other boundary is."""
        others = [distance for k, distance in enumerate(self.distances) if k != self.planned]
        return min(others) / max(self.own, 1e-12)


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative distance of two states."""
    return float((found - expected).norm() / expected.norm())


def records(folder: Path) -> Iterator[dict[str, Any]]:
    """What the recorder wrote, in the order of the forwards."""
    for file in sorted(folder.glob("0*.pt")):
        yield torch.load(file)


def requests_of(record: dict[str, Any]) -> Iterator[tuple[str, slice]]:
    """Each request of a forward, and its rows."""
    start = 0
    for request, length in zip(record["requests"], record["lengths"], strict=True):
        yield request, slice(start, start + length)
        start += length


@attrs.frozen(kw_only=True)
class Piece:
    """One request in one forward."""

    record: dict[str, Any]
    request: str
    rows: slice
    #: Position of the first row, and the tokens up to and with the last one.
    first: int
    tokens: tuple[int, ...]


def pieces(folder: Path, answers: dict[str, Any]) -> Iterator[Piece]:
    """Every request of every forward but for those past an answer's end, whose context the answer does not tell."""
    known = {name: [*answer["prompt"], *answer["output"]] for name, answer in answers.items()}
    for record in records(folder):
        for request, rows in requests_of(record):
            positions = record["positions"][rows]
            first = positions[0]
            assert positions == list(range(first, first + len(positions)))
            # One forward more is under way when a request ends; what it was accepted before is cut off its answer.
            if first <= len(known[request]):
                tokens = (*known[request][:first], *record["tokens"][rows])
                yield Piece(record=record, request=request, rows=rows, first=first, tokens=tokens)


def chunks(reference: Reference, folder: Path, answers: dict[str, Any]) -> Iterator[Chunk]:
    """Every captured state of :func:`pieces`: of prompts, of their later pieces, of drafted tokens, taken or not."""
    cache: dict[tuple[int, ...], States] = {}
    for piece in pieces(folder, answers):
        if piece.tokens not in cache:
            cache[piece.tokens] = reference.states(piece.tokens)
        expected, record = cache[piece.tokens], piece.record
        width = expected[0].shape[-1]
        assert record["states"].shape[-1] == len(record["boundaries"]) * width
        for place, planned in enumerate(record["boundaries"]):
            found = record["states"][piece.rows, place * width : (place + 1) * width]
            yield Chunk(
                request=piece.request,
                prompt=record["prompt"],
                planned=planned,
                injected=record["injected"],
                distances=tuple(distance(found, state[piece.first :]) for state in expected),
            )


def answers_of(file: Path) -> dict[str, Any]:
    """What support.identity_engine wrote."""
    answers: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return answers
