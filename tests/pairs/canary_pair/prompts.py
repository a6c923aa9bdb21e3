"""Held-out prompts whose greedy continuations are worth measuring acceptance on."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import torch
from transformers import PreTrainedModel

from canary_pair import corpus, target
from canary_pair.recipe import NEW_TOKENS, PROMPT_LENGTHS, SEED, STEPS, Recipe
from eagle3_adapters.reference import Continuation, tokens_needed

_LEAST_LEAD = 2e-3
"""Logits: a smaller lead of the best token could flip on another machine."""


@attrs.frozen(kw_only=True)
class Prompt:
    """A held-out prompt with its greedy continuation in float32, a few tokens longer than the measured part."""

    continuation: Continuation
    text: str
    smallest_lead: float
    faults: int

    def record(self) -> dict[str, Any]:
        """What prompts.json holds for it."""
        length = self.continuation.prompt_length
        return {
            "token_ids": list(self.continuation.tokens[:length]),
            "text": self.text,
            "greedy_token_ids": list(self.continuation.tokens[length:]),
            "smallest_lead": round(self.smallest_lead, 5),
        }


def choose(model: PreTrainedModel, text: corpus.Corpus, recipe: Recipe) -> list[Prompt]:
    """``recipe.prompts`` prompts, those without fault first: no end of text, no loop, no near-tie."""
    candidates = corpus.candidate_prompts(text, recipe.candidates, PROMPT_LENGTHS, SEED)
    candidates.sort(key=len)
    prompts: list[Prompt] = []
    for length, group in itertools.groupby(candidates, key=len):
        total = tokens_needed(length, NEW_TOKENS, STEPS)
        tokens, leads = target.generate(model, torch.tensor(list(group)), total)
        for row, lead in zip(tokens.tolist(), leads.tolist(), strict=True):
            continuation = Continuation(tokens=tuple(row), prompt_length=length)
            faults = _faults(row[length:]) + (lead < _LEAST_LEAD)
            shown = text.tokenizer.decode(row[:length])
            prompts.append(Prompt(continuation=continuation, text=shown, smallest_lead=lead, faults=faults))
    shuffled = torch.randperm(len(prompts), generator=torch.Generator().manual_seed(SEED)).tolist()
    return sorted((prompts[index] for index in shuffled), key=lambda prompt: prompt.faults)[: recipe.prompts]


def _faults(tokens: list[int]) -> int:
    """10 for an end of text, 5 for a short cycle that runs to the end, 0 for neither."""
    loops = any(_repeats(tokens[-max(24, 2 * period) :], period) for period in range(1, 33))
    return 10 * (corpus.END_ID in tokens) + 5 * loops


def _repeats(tokens: list[int], period: int) -> bool:
    return tokens[period:] == tokens[:-period]
