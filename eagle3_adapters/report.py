"""Owns collecting findings while planning goes on, so that one fault never hides another."""

from __future__ import annotations

from collections.abc import Iterable

from eagle3_adapters.errors import Finding, Severity

_URGENCY = (Severity.ERROR, Severity.WARNING, Severity.INFO)


class Report:
    """A list of findings with a short way to add one."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []

    def error(self, code: str, where: object, expected: str, found: str, *, why: str = "", remedy: str = "") -> None:
        """Something that stops."""
        self._add(Severity.ERROR, code, where, expected, found, why, remedy)

    def prepend_error(self, code: str, where: object, expected: str, found: str, *, why: str, remedy: str) -> None:
        """Something that stops and is likelier the cause of the errors found before than they are themselves."""
        self._add(Severity.ERROR, code, where, expected, found, why, remedy)
        self._findings.insert(0, self._findings.pop())

    def warning(self, code: str, where: object, expected: str, found: str, *, why: str = "", remedy: str = "") -> None:
        """Something that goes on and costs."""
        self._add(Severity.WARNING, code, where, expected, found, why, remedy)

    def info(self, code: str, where: object, expected: str, found: str, *, why: str = "", remedy: str = "") -> None:
        """Something that was corrected or decided."""
        self._add(Severity.INFO, code, where, expected, found, why, remedy)

    def extend(self, findings: Iterable[Finding]) -> None:
        """Findings from elsewhere."""
        self._findings.extend(findings)

    def _add(
        self, severity: Severity, code: str, where: object, expected: str, found: str, why: str, remedy: str
    ) -> None:
        self._findings.append(
            Finding(
                code=code,
                severity=severity,
                where=str(where),
                expected=expected,
                found=found,
                why=why,
                remedy=remedy,
            )
        )

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Most urgent first; within a severity in the order of the data path, which is the order to mend them in."""
        return tuple(sorted(self._findings, key=lambda finding: _URGENCY.index(finding.severity)))

    def failed(self) -> bool:
        """Whether any finding stops."""
        return any(finding.severity is Severity.ERROR for finding in self._findings)
