"""Owns KeyMap: an ordered, validated, reversible set of rules that renames tensors. It is data and holds no tensor.

A pattern is a tensor name in which ``{word}`` stands for one decimal number: ``layers.{layer}.mlp.up_proj.weight``.
Trainer names become canonical names by the format's map, canonical names become SGLang's by the adapter's: N + M maps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs

from eagle3_adapters.errors import KeyMapError, UnmappedKeyError

_HOLE = re.compile(r"\{([a-z_]+)\}")
_NUMBER = r"(0|[1-9][0-9]*)"


def _holes(pattern: str) -> tuple[str, ...]:
    names = tuple(_HOLE.findall(pattern))
    for part in pattern.split("."):
        # A hole is a whole dotted part: otherwise two numbers could run together and the way back be lost.
        if ("{" in part or "}" in part) and not _HOLE.fullmatch(part):
            msg = f"pattern {pattern!r}: {part!r} is not a placeholder such as {{layer}}"
            raise KeyMapError(msg)
    if len(set(names)) != len(names):
        msg = f"pattern {pattern!r} names a placeholder twice"
        raise KeyMapError(msg)
    return names


def _compile(pattern: str) -> re.Pattern[str]:
    parts = _HOLE.split(pattern)
    # split() alternates literal text and placeholder names.
    return re.compile("".join(f"(?P<{part}>{_NUMBER})" if i % 2 else re.escape(part) for i, part in enumerate(parts)))


def _overlap(left: str, right: str) -> bool:
    """Whether some name matches both patterns: every dotted part must meet its counterpart."""
    a, b = left.split("."), right.split(".")
    return len(a) == len(b) and all(map(_parts_meet, a, b))


def _parts_meet(left: str, right: str) -> bool:
    return left == right or any(
        _HOLE.fullmatch(one) and (_HOLE.fullmatch(other) or re.fullmatch(_NUMBER, other))
        for one, other in ((left, right), (right, left))
    )


@attrs.frozen
class Rename:
    """``source`` becomes ``target``; both name the same placeholders."""

    source: str
    target: str

    def __attrs_post_init__(self) -> None:
        if sorted(_holes(self.source)) != sorted(_holes(self.target)):
            msg = f"{self.source!r} -> {self.target!r}: the two sides name different placeholders"
            raise KeyMapError(msg)


@attrs.frozen
class Drop:
    """``source`` is not loaded, for a reason that is told to the user."""

    source: str
    reason: str = attrs.field(validator=attrs.validators.min_len(1))

    def __attrs_post_init__(self) -> None:
        _holes(self.source)


@attrs.frozen
class KeyMap:
    """An ordered set of rules; every name is renamed, dropped with a reason, or an :class:`UnmappedKeyError`.

    ``owner`` names who made the rules, for error messages: ``format speculators``, ``LlamaForCausalLMEagle3``.
    """

    owner: str
    rules: tuple[Rename | Drop, ...]
    _compiled: tuple[re.Pattern[str], ...] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        for i, rule in enumerate(self.rules):
            for other in self.rules[:i]:
                if _overlap(rule.source, other.source):
                    msg = f"{self.owner}: {other.source!r} and {rule.source!r} take the same name"
                    raise KeyMapError(msg)
                if isinstance(rule, Rename) and isinstance(other, Rename) and _overlap(rule.target, other.target):
                    msg = f"{self.owner}: {other.source!r} and {rule.source!r} both give {rule.target!r}"
                    raise KeyMapError(msg)
        object.__setattr__(self, "_compiled", tuple(_compile(rule.source) for rule in self.rules))

    def apply(self, name: str) -> str | Drop:
        """The new name, or the Drop rule that takes ``name``. Raises UnmappedKeyError where no rule does."""
        for rule, pattern in zip(self.rules, self._compiled, strict=True):
            match = pattern.fullmatch(name)
            if match:
                return rule if isinstance(rule, Drop) else rule.target.format_map(match.groupdict())
        raise UnmappedKeyError(name, self.owner)

    def takes(self, name: str) -> bool:
        """Whether some rule takes ``name``."""
        return any(pattern.fullmatch(name) for pattern in self._compiled)

    def inverse(self) -> KeyMap:
        """The map back. Drops have none: a name that was dropped cannot be asked for."""
        renames = (rule for rule in self.rules if isinstance(rule, Rename))
        return KeyMap(f"inverse of {self.owner}", tuple(Rename(rule.target, rule.source) for rule in renames))


def identity(owner: str, patterns: Iterable[str]) -> KeyMap:
    """A map that accepts exactly ``patterns`` and renames nothing."""
    return KeyMap(owner, tuple(Rename(pattern, pattern) for pattern in patterns))
