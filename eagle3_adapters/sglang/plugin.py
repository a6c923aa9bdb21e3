"""The entry point of ``sglang.srt.plugins``: called once in every process of SGLang, before anything else runs there.

SGLang only logs what an entry function raises, so nothing here may fail: faults are raised inside the hooked functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagle3_adapters.engine_version import installed_version
from eagle3_adapters.sglang import compat, ending, overlay, parent


def register() -> None:
    """Hook three functions that run once at start; in a child of a server with an adapter what serves its draft too."""
    version = installed_version()
    compat.hook("flags", parent.after_add_cli_args, "AFTER", version)
    compat.hook("request", parent.around_from_cli_args, "AROUND", version)
    compat.hook("resolve", parent.around_resolve, "AROUND", version)
    if ending.is_init():
        compat.hook("end", ending.around_kill_process_tree, "AROUND", version)
    plan_file = os.environ.get(overlay.PLAN_VARIABLE)
    if plan_file:
        try:
            _register_child(Path(plan_file), version)
        except Exception as error:  # noqa: BLE001 - whatever it is, SGLang would log it and serve the draft alone
            from eagle3_adapters.sglang.refuse import cannot_wire  # noqa: PLC0415 - as below

            compat.hook("draft-config", cannot_wire(plan_file, error), "AROUND", version)


def _register_child(plan_file: Path, version: str) -> None:
    # Late: the launching process has no use for them.
    from eagle3_adapters.sglang.capture import TargetCapture  # noqa: PLC0415
    from eagle3_adapters.sglang.draft import DraftLoader, around_config_draft_model  # noqa: PLC0415
    from eagle3_adapters.sglang.refuse import check_child_hooks, check_same_plan  # noqa: PLC0415
    from eagle3_adapters.sglang.sentinel import SentinelHooks  # noqa: PLC0415
    from eagle3_adapters.wiring import WiringPlan  # noqa: PLC0415

    def around_config(original: Callable[..., Any], config: Any) -> Any:
        # The first of our hooks that a child runs; were it the missing one, the private architecture stops SGLang.
        check_child_hooks(plan.draft_architecture)
        check_same_plan(config, plan)
        return around_config_draft_model(original, config)

    plan = WiringPlan.from_json(plan_file.read_text(encoding="utf-8"))
    capture, loader, sentinel = TargetCapture(plan), DraftLoader(plan), SentinelHooks(plan)
    compat.hook("draft-config", around_config, "AROUND", version)
    compat.hook("capture", capture.after_configure, "AFTER", version)
    compat.hook("model-load", capture.after_load_model, "AFTER", version)
    compat.hook("model-load", loader.before_load_model, "BEFORE", version)
    compat.hook("model-load", loader.after_load_model, "AFTER", version)
    compat.hook("verify-counts", sentinel.after_verify, "AFTER", version)
    compat.hook("request-end", sentinel.after_release, "AFTER", version)
    compat.hook_loader(plan.draft_architecture, loader.around_load_weights)
