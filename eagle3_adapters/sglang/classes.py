"""Owns looking a target class up in SGLang's sources, without importing them: what its adapter would have to say."""

from __future__ import annotations

import ast
import importlib.metadata
from collections.abc import Iterator
from pathlib import Path

import attrs

from eagle3_adapters.sglang.target_class import SETTER, SHARED

_MODELS = "sglang/srt/models"
#: Classes within classes: a wrapper's language model, and its body.
_DEPTH = 3


@attrs.frozen(kw_only=True)
class _Class:
    """A class of a model's file."""

    node: ast.ClassDef
    file: Path

    def bases(self) -> Iterator[_Class]:
        """Itself and those that it inherits from, as far as models' files define them."""
        yield self
        for base in self.node.bases:
            if isinstance(base, ast.Name) and (found := _resolve(base.id, self.file)) is not None:
                yield from found.bases()

    def methods(self) -> set[str]:
        """Names of all its functions, inherited ones too."""
        return {one.name for cls in self.bases() for one in cls.node.body if isinstance(one, ast.FunctionDef)}

    def parts(self) -> dict[str, str]:
        """Attribute of an instance -> name of the class or function that makes it; empty where it is no call."""
        found: dict[str, str] = {}
        for cls in self.bases():
            for one in ast.walk(cls.node):
                for place, value in _assigned(one):
                    if isinstance(place, ast.Attribute) and isinstance(place.value, ast.Name):
                        found.setdefault(place.attr, _called(value))
        return found


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value
    if isinstance(node, ast.Assign):
        for target in node.targets:
            for place in target.elts if isinstance(target, ast.Tuple) else (target,):
                yield place, node.value


def _called(value: ast.expr) -> str:
    function = value.func if isinstance(value, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _resolve(name: str, file: Path) -> _Class | None:
    """A class that a file defines or imports from another model's file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _Class(node=node, file=file)
    for one in ast.walk(tree):
        if isinstance(one, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in one.names):
            imported = file.parent / f"{(one.module or '').rpartition('.')[2]}.py"
            original = next(alias.name for alias in one.names if (alias.asname or alias.name) == name)
            if (one.module or "").startswith("sglang.srt.models.") and imported.is_file():
                return _resolve(original, imported)
    return None


def _embeddings(parts: dict[str, str]) -> list[str]:
    """Attributes that hold an embedding of tokens."""
    return [name for name, made_by in parts.items() if "Embedding" in made_by and "Rotary" not in made_by]


def _body(cls: _Class, path: str = "", depth: int = _DEPTH) -> tuple[str, dict[str, str]] | None:
    """Dotted path of the object that has the decoder layers, and its parts."""
    parts = cls.parts()
    # A vision tower has layers too, and embeds no tokens.
    if "layers" in parts and _embeddings(parts):
        return path, parts
    for name, made_by in parts.items():
        part = _resolve(made_by, cls.file) if made_by and depth else None
        if part is not None and (found := _body(part, f"{path}.{name}".lstrip("."), depth - 1)):
            return found
    return None


def described(architecture: str, root: Path | None = None) -> str:
    """What SGLang's sources show of a class, for whoever writes its adapter; empty where there is no such class.

    ``root`` holds ``sglang/``; None: where the installed one is.
    """
    if root is None:
        try:
            root = Path(str(importlib.metadata.distribution("sglang").locate_file("")))
        except importlib.metadata.PackageNotFoundError:
            return ""
    head = f"class {architecture}("
    files = sorted(file for file in (root / _MODELS).glob("*.py") if head in file.read_text(encoding="utf-8"))
    cls = _resolve(architecture, files[0]) if files else None
    if cls is None:
        return ""
    methods, facts = cls.methods(), [f"SGLang has it in models/{cls.file.name}"]
    if (body := _body(cls)) is not None:
        path, parts = body
        norms = [name for name, made_by in parts.items() if "Norm" in made_by]
        embeddings = [f"{path}.{name}" for name, made_by in parts.items() if "Embedding" in made_by]
        facts.append(
            f"body {path!r}, final norm {' or '.join(norms) or '?'}, embedding {' or '.join(embeddings) or '?'}"
        )
        facts.append("captures by layers_to_capture" if "layers_to_capture" in parts else "captures nothing by itself")
    facts += [f"no {name}" for name in (SETTER, SHARED) if name not in methods]
    return "; ".join(facts)
