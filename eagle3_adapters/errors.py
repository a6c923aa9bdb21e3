"""Owns the exceptions of the package and the finding, the one shape in which it reports a fault.

A finding is what users see (see ``eagle3_adapters.findings`` for the codes); an exception carries findings out of code
that cannot go on. Exceptions hold their facts as fields: only the command line and the SGLang seam render them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import attrs
from attrs.validators import instance_of, matches_re


class Severity(enum.Enum):
    """What a finding does: an error stops, a warning goes on and says what it costs, an info tells what was done."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@attrs.frozen(kw_only=True)
class Finding:
    """One fault or correction: where it is, what was expected, what was found, why it matters and what to do."""

    code: str = attrs.field(validator=matches_re(r"[a-z0-9]+(-[a-z0-9]+)*"))
    severity: Severity = attrs.field(validator=instance_of(Severity))
    #: File and key, tensor name, or command-line option.
    where: str
    expected: str
    found: str
    #: The consequence in one clause; may be empty where it is obvious.
    why: str = ""
    #: The next step: a command or an edit that can be pasted.
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.code}: {self.where}: expected {self.expected}, found {self.found}"
        if self.why:
            text += f" ({self.why})"
        if self.remedy:
            text += f"; {self.remedy}"
        return text


def fault(code: str, where: object, expected: str, found: str, *, why: str = "", remedy: str = "") -> Finding:
    """A finding that stops."""
    return Finding(
        code=code,
        severity=Severity.ERROR,
        where=str(where),
        expected=expected,
        found=found,
        why=why,
        remedy=remedy,
    )


class Eagle3AdaptersError(Exception):
    """Base of everything that this package raises on purpose."""


class FindingsError(Eagle3AdaptersError):
    """Work stopped; ``findings`` says why, most urgent first. Never empty."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings: tuple[Finding, ...] = tuple(findings)
        if not self.findings:
            msg = "FindingsError needs at least one finding"
            raise ValueError(msg)
        super().__init__("\n".join(str(finding) for finding in self.findings))

    def __reduce__(self) -> tuple[type[FindingsError], tuple[tuple[Finding, ...]]]:
        # The default would rebuild the exception from its text; SGLang sends exceptions between processes.
        return (type(self), (self.findings,))


class CheckpointError(FindingsError):
    """A directory is not a checkpoint that can be read: config, header, index or shard."""


class WiringRefusedError(FindingsError):
    """The pair cannot run with its training-time math; the engine was not started."""


class ConventionError(Eagle3AdaptersError):
    """A list of layer ids or boundaries has no meaning under a convention."""

    def __init__(self, convention: str, values: tuple[int, ...], problem: str) -> None:
        self.convention, self.values, self.problem = convention, values, problem
        super().__init__(f"{convention}: {list(values)}: {problem}")


class KeyMapError(Eagle3AdaptersError):
    """A set of name rules is contradictory, or a name has no rule."""


class UnmappedKeyError(KeyMapError):
    """No rule takes a name."""

    def __init__(self, name: str, owner: str) -> None:
        self.name, self.owner = name, owner
        super().__init__(f"{name}: no rule in {owner}")


class VocabMapError(Eagle3AdaptersError):
    """A vocabulary map is not an injective map from draft ids into the target vocabulary."""

    def __init__(self, code: str, expected: str, found: str) -> None:
        self.code, self.expected, self.found = code, expected, found
        super().__init__(f"{code}: expected {expected}, found {found}")


class RegistryError(FindingsError):
    """Two distributions claim one name, or a name is unknown."""


class PluginLoadError(RegistryError):
    """An installed plugin could not be imported, or its hooks do not fit the specification."""
