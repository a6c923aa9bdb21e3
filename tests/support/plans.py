"""A real plan of a tiny pair, for tests of what consumes plans."""

from __future__ import annotations

from pathlib import Path

from eagle3_adapters.pair import Request, plan_pair
from eagle3_adapters.wiring import WiringPlan
from support.checkpoints import target_config, write_draft, write_target
from support.plugin_rules import architecture, registry


def tiny_plan(directory: Path) -> WiringPlan:
    """The plan of a correct speculators draft (boundaries 0, 2, 5 of 8), written below ``directory``."""
    target = write_target(directory / "target", target_config(architectures=[architecture("output-of-layer")]))
    draft = write_draft(directory / "draft")
    planning = plan_pair(Request(target=str(target), draft=str(draft)), registry(), "0.5.23")
    assert planning.plan is not None, planning.errors
    return planning.plan
