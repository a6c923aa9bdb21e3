"""Owns what a version of SGLang is, without SGLang."""

from __future__ import annotations

import importlib.metadata
import re

Version = tuple[int, int, int]

#: Versions in which states that this package captures itself were told apart, by transformers, in the running engine.
#: A test holds it against what the engine's tests wrote: tests/versions/record.json.
INJECTED: tuple[Version, ...] = tuple((0, 5, patch) for patch in range(17, 24))


def installed_version() -> str:
    """SGLang's version by its metadata, ``none`` where it is not installed. Imports nothing."""
    try:
        return importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return "none"


def version_numbers(version: str) -> Version | None:
    """``0.5.23`` and ``0.5.17.post1`` as numbers; None for anything else."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def spelled(version: Version) -> str:
    """``0.5.23``."""
    return ".".join(map(str, version))
