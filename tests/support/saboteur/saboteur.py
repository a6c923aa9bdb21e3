"""A plugin of SGLang for tests alone: plants the fault that $SABOTEUR names in the child processes of a server.

Its folder stands ahead on the path, so it runs before eagle3_adapters registers anything.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from eagle3_adapters.engine_version import installed_version
from eagle3_adapters.sglang import capture, compat, draft, overlay, sentinel

FOLDER = Path(__file__).parent
#: Printed by every planted exception.
MESSAGE = "planted by the saboteur"


def plant() -> None:
    plan = os.environ.get(overlay.PLAN_VARIABLE)
    if plan is None:
        return
    fault = os.environ["SABOTEUR"]
    if fault in RAISES:
        owner, name = RAISES[fault]
        setattr(owner, name, fail)
    elif fault == "seam-gone":
        module, _, name = compat.seam("capture", installed_version()).path.rpartition(".")
        delattr(importlib.import_module(module), name)
    elif fault == "plan-gone":
        Path(plan).unlink()
    elif fault == "no-capture-list":
        compat.hook("capture", forget_list, "AFTER", installed_version())
    elif fault == "one-layer-late":
        compat._register("eagle3_adapters.sglang.target_class.assign_capture", one_layer_late, "AFTER")
    else:
        raise ValueError(fault)


def fail(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(MESSAGE)


#: Fault -> the function of ours that raises, one for each place where SGLang calls us in a child.
RAISES: dict[str, tuple[Any, str]] = {
    "raise-in-config": (draft, "around_config_draft_model"),
    "raise-in-weights": (draft.DraftLoader, "stream"),
    "raise-in-capture": (capture.TargetCapture, "after_configure"),
    "raise-in-load": (capture.TargetCapture, "after_load_model"),
    "raise-in-forward": (capture.Observer, "verify"),
    "raise-in-verify": (sentinel.Sentinel, "verified"),
    "raise-at-request-end": (sentinel.Sentinel, "finished"),
}


def forget_list(result: Any, *args: Any, model: Any, **kwargs: Any) -> None:
    """The target has no such place, as where an adapter names a wrong one."""
    del model.model.layers_to_capture


def one_layer_late(result: Any, model: Any, *args: Any) -> None:
    """The target captures other boundaries than planned, as where an id rule is misread."""
    model.model.layers_to_capture = [boundary + 1 for boundary in model.model.layers_to_capture]
