"""Owns how findings look to people: the same text in the command line, at server start and in a child's error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from eagle3_adapters.errors import Finding, Severity

_MARK = {Severity.ERROR: "ERROR", Severity.WARNING: "WARNING", Severity.INFO: "info"}


def finding_lines(finding: Finding) -> list[str]:
    """One finding as lines: code and place, then expected, found, why and the next step."""
    lines = [
        f"{_MARK[finding.severity]} {finding.code}: {finding.where}",
        f"    expected  {finding.expected}",
        f"    found     {finding.found}",
    ]
    if finding.why:
        lines.append(f"    because   {finding.why}")
    if finding.remedy:
        lines.append(f"    next      {finding.remedy}")
    return lines


def write_findings(findings: Iterable[Finding], stream: TextIO) -> None:
    """All findings, in their order, in one write: several ranks may share a terminal."""
    lines = [line for finding in findings for line in finding_lines(finding)]
    stream.write("".join(f"eagle3-adapters: {line}\n" if not line.startswith(" ") else f"{line}\n" for line in lines))
    stream.flush()
