"""Owns looking the seams up in SGLang's sources, without importing them."""

from __future__ import annotations

import ast
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path

from eagle3_adapters.errors import Finding, fault
from eagle3_adapters.sglang import compat
from eagle3_adapters.sglang.drafts import stock


def in_sources(path: str, root: Path) -> bool:
    """Whether the sources below ``root`` (which holds ``sglang/``) define the function of a dotted path."""
    parts = path.split(".")
    for split in range(len(parts) - 1, 0, -1):
        file = root.joinpath(*parts[:split]).with_suffix(".py")
        if file.is_file():
            return _defines(ast.parse(file.read_text(encoding="utf-8")), parts[split:])
    return False


def _defines(node: ast.Module | ast.ClassDef, names: list[str]) -> bool:
    first, rest = names[0], names[1:]
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.ClassDef) and child.name == first:
            if not rest:
                return isinstance(child, ast.FunctionDef)
            if isinstance(child, ast.ClassDef) and _defines(child, rest):
                return True
    return False


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


def found(version: str) -> Mapping[compat.Seam, bool]:
    """Seam -> whether the installed SGLang has it; empty where SGLang is not installed."""
    try:
        distribution = importlib.metadata.distribution("sglang")
    except importlib.metadata.PackageNotFoundError:
        return {}
    root = Path(str(distribution.locate_file("")))
    return {seam: in_sources(seam.path, root) for seam in wanted(version)}


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
