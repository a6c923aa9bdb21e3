"""Owns how a child process stops: the finding goes to the screen before SGLang's traceback, an exception ends it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from eagle3_adapters.engine_version import installed_version
from eagle3_adapters.errors import Finding, Severity, WiringRefusedError
from eagle3_adapters.render import write_findings
from eagle3_adapters.sglang import compat


def check_child_hooks(draft_class: str) -> None:
    """Refuse to go on where SGLang did not apply one of our hooks: it logs that and continues."""
    missing = compat.missing_hooks(compat.child_paths(draft_class, installed_version()))
    if missing:
        raise refused(
            "hook-not-applied",
            ", ".join(missing),
            "a hook that SGLang applied",
            "none; its log says why",
            why="a part of the wiring would be SGLang's own",
            remedy="eagle3-adapters doctor",
        )


def cannot_wire(plan_file: str, error: Exception) -> Callable[..., Any]:
    """AROUND ModelConfig._config_draft_model in a child where our entry function failed: refuses every draft."""

    def around_config_draft_model(original: Callable[..., Any], config: Any) -> Any:  # noqa: ANN401 - SGLang's config
        if not config.is_draft_model:
            return original(config)
        raise refused(
            "hook-not-applied",
            plan_file,
            "a plan that this process can read and carry out",
            f"{type(error).__name__}: {error}",
            why="the wiring would be SGLang's own",
            remedy="start again; if it stays, eagle3-adapters doctor",
        ) from error

    return around_config_draft_model


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
