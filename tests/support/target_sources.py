"""A target class of SGLang as its sources tell it: which architecture it is, and what hangs where. No import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from eagle3_adapters.sglang.sources import Found, Sources

MODELS = "sglang.srt.models"
#: Attributes whose class SGLang finds in the target's config: what it is for the architectures that we serve.
BY_CONFIG = {("LlavaForConditionalGeneration", "language_model"): (f"{MODELS}.mistral", "MistralForCausalLM")}


def entry_modules(sources: Sources) -> Mapping[str, str]:
    """Architecture -> the module that enters it into SGLang's registry, as its EntryClass or one of them."""
    found: dict[str, str] = {}
    for file in sources.files(MODELS):
        # Parsed from there on only: whole, the models of one version take eight seconds.
        entry = re.search(r"^EntryClass\b.*", file.read_text(encoding="utf-8-sig"), re.MULTILINE | re.DOTALL)
        if entry is not None:
            statement = ast.parse(entry[0]).body[0]
            names = (node.id for node in ast.walk(statement) if isinstance(node, ast.Name))
            found |= {name: sources.module(file) for name in names if name != "EntryClass"}
    return found


class Target:
    """A class, and the classes that its attributes are made of."""

    def __init__(self, sources: Sources, found: Found) -> None:
        self._sources = sources
        self._lineage = list(sources.lineage(found))
        self.name = found.node.name

    @property
    def attributes(self) -> set[str]:
        """Names of everything that hangs here."""
        return {name for one in self._lineage for name in self._sources.attributes(one)}

    def at(self, path: str) -> list[Target]:
        """What can hang at a dotted path, empty where nothing does. The empty path is the target itself."""
        here = [self]
        for part in filter(None, path.split(".")):
            here = [below for one in here for below in one._made(part)]
        return here

    def _made(self, attribute: str) -> list[Target]:
        """The classes of which ``self.attribute = Class(...)`` can make one, in any method."""
        for one in self._lineage:
            chosen = BY_CONFIG.get((one.node.name, attribute))
            if chosen is not None:
                found = self._sources.named(*chosen)
                return [] if found is None else [Target(self._sources, found)]
        calls = [call for one in self._lineage for call in _calls(one, attribute)]
        targets = [Target(self._sources, found) for one, call in calls for found in self._class_of(one, call)]
        if not targets and attribute != "inner" and "__getattr__" in self.attributes:
            # A class that hands every question on to what it holds.
            return [below for inner in self._made("inner") for below in inner._made(attribute)]
        return targets

    def _class_of(self, one: Found, call: ast.Call) -> Iterator[Found]:
        function = call.func
        if isinstance(function, ast.Attribute) and ast.unparse(function.value) == "self":
            # A method of its own that makes it.
            for owner in self._lineage:
                yield from self._returned(owner, function.attr)
        elif isinstance(function, ast.Name):
            name = self._default(one, function.id) or function.id
            found = self._sources.named(one.module, name)
            if found is not None and isinstance(found.node, ast.ClassDef):
                yield found

    def _returned(self, owner: Found, method: str) -> Iterator[Found]:
        for node in owner.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == method:
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Return) and isinstance(inner.value, ast.Call):
                        yield from self._class_of(owner, inner.value)

    @staticmethod
    def _default(one: Found, parameter: str) -> str | None:
        """The class that a parameter of the constructor stands for where nobody gives another."""
        for node in one.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                names = node.args.args[len(node.args.args) - len(node.args.defaults) :]
                for name, default in zip(names, node.args.defaults, strict=True):
                    if name.arg == parameter and isinstance(default, ast.Name):
                        return default.id
        return None

    def reads(self, attribute: str) -> bool:
        """Whether a method named forward looks at ``self.attribute``, or asks something for it by name."""
        forwards = [node for one in self._lineage for node in _methods(one) if node.name.startswith("forward")]
        nodes = [inner for node in forwards for inner in ast.walk(node)]
        return any(isinstance(one, ast.Attribute) and one.attr == attribute for one in nodes) or any(
            isinstance(one, ast.Constant) and one.value == attribute for one in nodes
        )

    def layers(self, attribute: str) -> list[Target]:
        """The classes of which a list of layers can be made: those of layers that constructors name on the way."""
        makers = [(one, node) for one in self._lineage for node in _methods(one) if node.name == "__init__"]
        assert any(attribute in _targets(inner) for _, node in makers for inner in ast.walk(node)), self.name
        found = [self._sources.named(one.module, name) for one, node in makers for name in self._named_in(one, node)]
        return [Target(self._sources, layer) for layer in found if layer is not None]

    def _named_in(self, one: Found, method: ast.FunctionDef) -> list[str]:
        """Names of layers' classes in a method, as defaults of its parameters and in constants of its module."""
        names = _names(method)
        names |= {self._default(one, name) or name for name in names}
        for file in self._sources.files(one.module):
            for statement in self._sources.tree(file).body:
                if isinstance(statement, ast.Assign | ast.AnnAssign) and _names(statement) & names:
                    names |= _names(statement)
        return sorted(name for name in names if name.endswith("Layer"))

    def parameters(self, method: str = "forward") -> list[str]:
        """Parameters of a method, of the first class that has it."""
        for one in self._lineage:
            for node in _methods(one):
                if node.name == method:
                    return [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
        return []


def _methods(one: Found) -> list[ast.FunctionDef]:
    return [node for node in one.node.body if isinstance(node, ast.FunctionDef)]


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _targets(node: ast.AST) -> list[str]:
    """Attributes of self that a statement assigns."""
    if not isinstance(node, ast.Assign):
        return []
    stores = (inner for target in node.targets for inner in ast.walk(target))
    return [inner.attr for inner in stores if isinstance(inner, ast.Attribute) and ast.unparse(inner.value) == "self"]


def _calls(one: Found, attribute: str) -> Iterator[tuple[Found, ast.Call]]:
    for node in ast.walk(one.node):
        if attribute in _targets(node) and isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            yield one, node.value
