"""Owns the file of prompts: JSON lines or a JSON array, of text or token ids. Pure."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from eagle3_adapters.errors import Eagle3AdaptersError

Prompt = str | tuple[int, ...]
#: Keys of an entry that is an object, in the order in which they are looked for.
_KEYS = ("token_ids", "input_ids", "text", "prompt")


class DiagnosisError(Eagle3AdaptersError):
    """Nothing can be measured: the message says what is wanted."""


def read_prompts(file: Path) -> tuple[Prompt, ...]:
    """Every prompt of a file: a string, a list of token ids, or an object that holds either. Raises DiagnosisError."""
    text = file.read_text(encoding="utf-8")
    try:
        entries = json.loads(text) if text.lstrip().startswith("[") and not _is_lines(text) else _lines(text)
    except json.JSONDecodeError as error:
        msg = f"{file}: expected a JSON array or one JSON value a line: {error}"
        raise DiagnosisError(msg) from error
    return tuple(_prompt(entry, f"{file}: entry {number}") for number, entry in enumerate(entries, start=1))


def _lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _is_lines(text: str) -> bool:
    """Whether every line is a list by itself: token ids, one prompt a line."""
    try:
        first = json.loads(text.lstrip().splitlines()[0])
    except json.JSONDecodeError:
        return False
    return bool(first) and all(type(item) is int for item in first)


def _prompt(entry: object, where: str) -> Prompt:
    if isinstance(entry, dict):
        entry = next((entry[key] for key in _KEYS if key in entry), None)
    if isinstance(entry, str) and entry:
        return entry
    if isinstance(entry, list) and len(entry) > 1 and all(type(item) is int and item >= 0 for item in entry):
        return tuple(entry)
    msg = f"{where}: expected text, two or more token ids, or an object with one of {', '.join(_KEYS)}"
    raise DiagnosisError(msg)


def chosen(prompts: Sequence[Prompt], most: int, seed: int) -> tuple[Prompt, ...]:
    """At most ``most`` of them, drawn and ordered by ``seed``."""
    return tuple(random.Random(seed).sample(list(prompts), min(most, len(prompts))))  # noqa: S311 - a sample, no secret


def tokenised(prompts: Sequence[Prompt], encode: Callable[[], Callable[[str], list[int]]]) -> list[tuple[int, ...]]:
    """Token ids of all. ``encode`` brings the target's tokenizer, and is asked only where there is text."""
    if not any(isinstance(prompt, str) for prompt in prompts):
        return [prompt for prompt in prompts if not isinstance(prompt, str)]
    to_ids = encode()
    ids = [tuple(to_ids(prompt)) if isinstance(prompt, str) else prompt for prompt in prompts]
    short = next((prompt for prompt, tokens in zip(prompts, ids, strict=True) if len(tokens) < 2), None)
    if short is not None:
        msg = f"prompt {short!r}: expected two or more tokens"
        raise DiagnosisError(msg)
    return ids
