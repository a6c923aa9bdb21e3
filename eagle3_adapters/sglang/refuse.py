"""Owns how a child process stops: the finding goes to the screen before SGLang's traceback, an exception ends it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from eagle3_adapters.engine_version import installed_version
from eagle3_adapters.errors import WiringRefusedError, fault
from eagle3_adapters.render import write_findings
from eagle3_adapters.sglang import compat, overlay
from eagle3_adapters.wiring import WiringPlan


def check_child_hooks(draft_architecture: str) -> None:
    """Refuse to go on where SGLang did not apply one of our hooks: it logs that and continues."""
    missing = compat.missing_hooks(compat.child_paths(draft_architecture, installed_version()))
    if missing:
        raise refused(
            "hook-not-applied",
            ", ".join(missing),
            "a hook that SGLang applied",
            "none; its log says why",
            why="a part of the wiring would be SGLang's own",
            remedy="eagle3-adapters doctor",
        )


def check_same_plan(config: Any, plan: WiringPlan) -> None:
    """Refuse a draft whose translated config belongs to another plan than this process was started with."""
    marker = getattr(config.hf_config, overlay.KEY, None)
    if config.is_draft_model and marker is not None and marker["fingerprint"] != plan.fingerprint():
        raise refused(
            "plan-mismatch",
            f"the draft's config of plan {marker['fingerprint']}",
            f"plan {plan.fingerprint()} ({plan.draft_path}), which this process was started with",
            "another one",
            why="two servers started at once in one process, and one would capture the other's boundaries",
            remedy="start one server after the other, or each in a process of its own",
        )


def cannot_wire(plan_file: str, error: Exception) -> Callable[..., Any]:
    """AROUND ModelConfig._config_draft_model in a child where our entry function failed: refuses every draft."""

    def around_config_draft_model(original: Callable[..., Any], config: Any) -> Any:
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
    finding = fault(
        code,
        where,
        expected,
        found,
        why=why,
        remedy=remedy or "eagle3-adapters doctor, and report this finding with its output",
    )
    write_findings([finding], sys.stderr)
    return WiringRefusedError([finding])
