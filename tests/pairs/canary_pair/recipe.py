"""Every number of the training run, for a GPU, for a CPU and for a test of the script itself."""

from __future__ import annotations

import attrs

SEED = 20261129
STEPS = 3
NEW_TOKENS = 96
PROMPT_LENGTHS = (24, 32, 40, 48)
"""Tokens a prompt, for generated training text and for held-out prompts alike."""

BOUNDARIES = (0, 2, 5)
"""What the draft reads: the embedding output and the inputs of layers 2 and 5."""


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


GPU = Recipe(
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

CPU = attrs.evolve(
    GPU,
    minutes=45.0,
    target_rows=16,
    target_length=192,
    generated_rows=4096,
    generation_batch=512,
    draft_steps=1500,
    draft_rows=24,
    candidates=96,
)

QUICK = attrs.evolve(
    CPU,
    minutes=1.0,
    corpus_files=60,
    target_steps=3,
    target_rows=4,
    target_length=64,
    generated_rows=16,
    generation_batch=2,
    draft_steps=2,
    draft_rows=4,
    candidates=24,
)
