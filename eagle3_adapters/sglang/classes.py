"""Owns describing a target class by SGLang's sources: what whoever writes its adapter would have to say of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from eagle3_adapters.sglang import seams
from eagle3_adapters.sglang.sources import Found, Sources
from eagle3_adapters.sglang.target_class import SETTER, SHARED

_MODELS = "sglang.srt.models"
#: Classes within classes: a wrapper's language model, and its body.
_DEPTH = 3


def described(architecture: str, sources: Sources | None = None) -> str:
    """What the sources show of a class; empty where there is no such class. None: of the installed SGLang."""
    sources = sources or seams.installed()
    found = None if sources is None else _entry(architecture, sources)
    if found is None or sources is None:
        return ""
    has = sources.attributes(found)
    facts = [f"SGLang has it in models/{found.module.rpartition('.')[2]}.py"]
    if (body := _body(found, sources)) is not None:
        path, parts = body
        norms = [name for name, made_by in parts.items() if "Norm" in made_by]
        embeddings = [f"{path}.{name}" for name in _embeddings(parts)]
        facts.append(f"body {path!r}, final norm {' or '.join(norms) or '?'}, embedding {' or '.join(embeddings)}")
        facts.append("captures by layers_to_capture" if "layers_to_capture" in parts else "captures nothing by itself")
    facts += [f"no {name}" for name in (SETTER, SHARED) if name not in has]
    return "; ".join(facts)


def _entry(architecture: str, sources: Sources) -> Found | None:
    head = f"class {architecture}("
    for file in sources.files(_MODELS):
        if head in file.read_text(encoding="utf-8-sig"):
            return sources.named(sources.module(file), architecture)
    return None


def _body(found: Found, sources: Sources, path: str = "", depth: int = _DEPTH) -> tuple[str, Mapping[str, str]] | None:
    """Dotted path of the object that has the decoder layers, and its parts."""
    parts = _parts(found, sources)
    # A vision tower has layers too, and embeds no tokens.
    if "layers" in parts and _embeddings(parts):
        return path, parts
    for name, made_by in parts.items():
        part = sources.named(found.module, made_by) if made_by and depth else None
        below = part and _body(part, sources, f"{path}.{name}".lstrip("."), depth - 1)
        if below:
            return below
    return None


def _parts(found: Found, sources: Sources) -> Mapping[str, str]:
    """Attribute of an instance -> name of the class or function that makes it; empty where it is no call."""
    parts: dict[str, str] = {}
    for one in sources.lineage(found):
        for place, value in _assigned(one.node):
            if isinstance(place, ast.Attribute):
                parts.setdefault(place.attr, _called(value))
    return parts


def _embeddings(parts: Mapping[str, str]) -> list[str]:
    """Attributes that hold an embedding of tokens."""
    return [name for name, made_by in parts.items() if "Embedding" in made_by and "Rotary" not in made_by]


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    for one in ast.walk(node):
        if isinstance(one, ast.AnnAssign) and one.value is not None:
            yield one.target, one.value
        if isinstance(one, ast.Assign):
            for target in one.targets:
                for place in target.elts if isinstance(target, ast.Tuple) else (target,):
                    yield place, one.value


def _called(value: ast.expr) -> str:
    function = value.func if isinstance(value, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
