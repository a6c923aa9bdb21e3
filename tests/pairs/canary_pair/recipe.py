"""Every number of the training run, for a GPU, for a CPU and for a test of the script itself."""

from __future__ import annotations

import attrs

SEED = 20261129
STEPS = 3
NEW_TOKENS = 96
PROMPT_LENGTHS = (24, 32, 40, 48)
"""Tokens a prompt, for generated training text and for held-out prompts alike."""


@attrs.frozen(kw_only=True)
class Recipe:
    """Amounts of work. Step counts are upper bounds: a phase also ends when its share of ``minutes`` is used up."""

    minutes: float
    """Wall time of the whole run, in minutes."""
    target_share: float = 0.28
    """Part of ``minutes`` that the target's training may use."""
    reserve_seconds: float = 50.0
    """Time kept back for saving and for the acceptance sweep after the draft's training."""
    corpus_files: int | None = None
    """Use only so many files of the standard library; None: all."""

    target_steps: int
    target_rows: int
    target_length: int
    target_rate: float = 3e-3

    generated_rows: int
    generation_batch: int
    text_length: int = 176
    """Tokens of a row of the draft's training text: more than prompt + continuation of the held-out prompts."""

    draft_steps: int
    draft_rows: int
    draft_rate: float = 2e-3
    candidates: int
    """Held-out places that are tried as prompts."""
    prompts: int = 24


LLAMA = Recipe(
    minutes=6.5,
    target_steps=5000,
    target_rows=128,
    target_length=256,
    generated_rows=16384,
    generation_batch=2048,
    draft_steps=9000,
    draft_rows=192,
    candidates=320,
)

DEEPSEEK = attrs.evolve(
    LLAMA,
    minutes=8.4,
    reserve_seconds=60.0,
    # Two and a half passes over the text, for a target that a draft of one layer can follow. The Llama target made
    # thirty-six and knows the text by heart (training loss 1.15, held out 2.79): accept length 2.13.
    target_steps=400,
    target_rows=64,
    # Greedy text of a target trained so little often ends in a loop, and such prompts are passed over.
    candidates=480,
    # More steps in the same time; the wider draft vocabulary makes each row dearer.
    draft_rows=128,
)


def on_cpu(recipe: Recipe) -> Recipe:
    """The same with less work in more time."""
    return attrs.evolve(
        recipe,
        minutes=45.0,
        target_steps=5000,
        target_rows=16,
        target_length=192,
        generated_rows=4096,
        generation_batch=512,
        draft_steps=1500,
        draft_rows=24,
        candidates=96,
    )


def quick(recipe: Recipe) -> Recipe:
    """A few steps of everything."""
    return attrs.evolve(
        recipe,
        minutes=1.0,
        corpus_files=60,
        target_steps=3,
        target_rows=4,
        target_length=64,
        generated_rows=16,
        generation_batch=2,
        text_length=64,
        draft_steps=2,
        draft_rows=4,
        candidates=8,
        prompts=8,
    )
