"""Owns how a child process stops: the finding goes to the screen before SGLang's traceback, an exception ends it."""

from __future__ import annotations

import sys

from eagle3_adapters.errors import Finding, Severity, WiringRefusedError
from eagle3_adapters.render import write_findings
from eagle3_adapters.sglang import compat


def check_child_hooks(draft_class: str) -> None:
    """Refuse to go on where SGLang did not apply one of our hooks: it logs that and continues."""
    missing = compat.missing_hooks(compat.child_paths(draft_class, compat.engine_version()))
    if missing:
        raise refused(
            "hook-not-applied",
            ", ".join(missing),
            "a hook that SGLang applied",
            "none; its log says why",
            why="a part of the wiring would be SGLang's own",
            remedy="eagle3-adapters doctor",
        )


def refused(code: str, where: str, expected: str, found: str, *, why: str = "", remedy: str = "") -> WiringRefusedError:
    """Print one error finding and return the exception to raise."""
    finding = Finding(
        code=code,
        severity=Severity.ERROR,
        where=where,
        expected=expected,
        found=found,
        why=why,
        remedy=remedy or "eagle3-adapters check --target TARGET --draft DRAFT, and report this with its output",
    )
    write_findings([finding], sys.stderr)
    return WiringRefusedError([finding])
