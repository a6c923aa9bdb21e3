"""Owns reading SGLang's sources, or those of any version of it, without importing them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import attrs

Definition = ast.FunctionDef | ast.ClassDef


@attrs.frozen(kw_only=True)
class Found:
    """A function or class, and the module that defines it."""

    module: str
    node: Definition


class Sources:
    """The sources below a folder that holds ``sglang/``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._trees: dict[Path, ast.Module] = {}

    def files(self, module: str) -> list[Path]:
        """The file of a module, or every file of a package and its folders; none where there is no such module."""
        place = self._root.joinpath(*module.split("."))
        alone = place.with_name(f"{place.name}.py")
        return [alone] if alone.is_file() else sorted(place.rglob("*.py"))

    def module(self, file: Path) -> str:
        """The dotted name of a file's module."""
        return ".".join(file.relative_to(self._root).with_suffix("").parts).removesuffix(".__init__")

    def tree(self, file: Path) -> ast.Module:
        """What a file says."""
        if file not in self._trees:
            self._trees[file] = ast.parse(file.read_bytes())
        return self._trees[file]

    def find(self, path: str) -> Found | None:
        """The function or class of a dotted path; a class that a module imports is not its own."""
        parts = path.split(".")
        for split in range(len(parts) - 1, 0, -1):
            body = self._body(".".join(parts[:split]))
            if body is not None:
                node = _within(body, parts[split:])
                return None if node is None else Found(module=".".join(parts[:split]), node=node)
        return None

    def _body(self, module: str) -> list[ast.stmt] | None:
        """The statements of a module or of a package's own file."""
        place = self._root.joinpath(*module.split("."))
        for file in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
            if file.is_file():
                return self.tree(file).body
        return None

    def classes(self, module: str) -> Iterator[Found]:
        """Every class of a module or package."""
        for file in self.files(module):
            for node in self.tree(file).body:
                if isinstance(node, ast.ClassDef):
                    yield Found(module=self.module(file), node=node)

    def named(self, module: str, name: str) -> Found | None:
        """What a name means in a module: its own class or function, or the one that it imports from SGLang."""
        own = _within(self._body(module) or [], [name])
        return self._imported(module, name) if own is None else Found(module=module, node=own)

    def _imported(self, module: str, name: str) -> Found | None:
        body = self._body(module) or []
        for statement in (inner for outer in body for inner in ast.walk(outer)):
            if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
                for alias in statement.names:
                    if (alias.asname or alias.name) == name:
                        return self.named(statement.module, alias.name)
        return None

    def lineage(self, found: Found) -> Iterator[Found]:
        """A class and the classes of SGLang's that it inherits from, itself first."""
        yield found
        if isinstance(found.node, ast.ClassDef):
            for base in found.node.bases:
                parent = self._base(found, base.id) if isinstance(base, ast.Name) else None
                if parent is not None:
                    yield from self.lineage(parent)

    def _base(self, found: Found, name: str) -> Found | None:
        """A class of the name of its base has an imported one."""
        return (self._imported if name == found.node.name else self.named)(found.module, name)

    def attributes(self, found: Found) -> set[str]:
        """Everything that objects of a class have by its sources: methods, fields, what a method assigns to self."""
        return {name for one in self.lineage(found) for name in _attributes(one.node)}


def _within(body: list[ast.stmt], names: list[str]) -> Definition | None:
    for child in body:
        if isinstance(child, ast.FunctionDef | ast.ClassDef) and child.name == names[0]:
            if len(names) == 1:
                return child
            deeper = _within(child.body, names[1:]) if isinstance(child, ast.ClassDef) else None
            if deeper is not None:
                return deeper
    return None


def _attributes(node: ast.AST) -> Iterator[str]:
    """Of a class's own body, and of assignments to ``self`` anywhere in it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield child.name
        targets = child.targets if isinstance(child, ast.Assign) else [getattr(child, "target", None)]
        yield from (target.id for target in targets if isinstance(target, ast.Name))
    for child in ast.walk(node):
        if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store) and _is_self(child.value):
            yield child.attr


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
