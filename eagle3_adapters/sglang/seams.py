"""Owns looking the seams, and the facts beside them, up in SGLang's sources, without importing them."""

from __future__ import annotations

import ast
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path

from eagle3_adapters.errors import Finding, fault
from eagle3_adapters.sglang import compat
from eagle3_adapters.sglang.drafts import stock
from eagle3_adapters.sglang.facts import FACTS, Fact
from eagle3_adapters.sglang.sources import Sources


def in_sources(path: str, sources: Sources) -> bool:
    """Whether the sources define the function of a dotted path."""
    found = sources.find(path)
    return found is not None and isinstance(found.node, ast.FunctionDef)


def wanted(version: str) -> tuple[compat.Seam, ...]:
    """Every seam that a version must have: also the draft classes' weight loaders, and what parts of ours override."""
    names = dict.fromkeys(seam.name for seam in compat.SEAMS)
    loaders = tuple(compat.Seam(name=f"weights of {cls}", path=path) for cls, path in compat.DRAFT_LOADERS.items())
    parts = tuple(
        compat.Seam(name=f"part of {cls}", path=path)
        for cls, built in stock.PARTS.items()
        for part in (built.draft, built.body, built.layer, built.attention)
        if part is not None
        for path in part.paths
    )
    return (*(compat.seam(name, version) for name in names), *loaders, *parts)


def installed() -> Sources | None:
    """The sources of the installed SGLang, None where there is none."""
    try:
        distribution = importlib.metadata.distribution("sglang")
    except importlib.metadata.PackageNotFoundError:
        return None
    return Sources(Path(str(distribution.locate_file(""))))


def found(version: str, sources: Sources) -> Mapping[compat.Seam, bool]:
    """Seam -> whether the sources of a version have it."""
    return {seam: in_sources(seam.path, sources) for seam in wanted(version)}


def missing_facts(version: str, sources: Sources) -> tuple[Fact, ...]:
    """What the sources of a version should say and do not."""
    return tuple(fact for fact in FACTS if fact.expected(version) and not fact.holds(sources))


def finding(seam: compat.Seam, version: str) -> Finding:
    """engine-version, for a seam that is not where it is expected."""
    return fault(
        "engine-version",
        seam.path,
        f"the seam {seam.name!r} of SGLang {version}",
        "no such function",
        why="a draft would be served as by SGLang alone",
        remedy="pip install -U eagle3-adapters",
    )


def fact_finding(fact: Fact, version: str) -> Finding:
    """engine-version, for something that SGLang's sources do not say."""
    return fault(
        "engine-version",
        fact.path,
        f"{fact.told}, as in SGLang {version}",
        "something else",
        why="the wiring would read another thing than it means, or fail while it starts",
        remedy="pip install -U eagle3-adapters",
    )
