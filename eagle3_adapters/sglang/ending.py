"""Owns the end of a failed server that is process 1, as in a container without an init.

When a child fails, SGLang's launching process kills its children and then itself; but the kernel lets no process kill
number 1 of its own namespace. The server would stay, without a child and without a listener, for ever.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from eagle3_adapters.sglang import overlay

#: For children that were killed; the kernel ends them with process 1 in any case.
SECONDS = 10


def is_init() -> bool:
    """Whether this process is number 1 of its namespace."""
    return os.getpid() == 1


def around_kill_process_tree(
    original: Callable[..., Any],
    parent_pid: int | None,
    include_parent: bool = True,  # noqa: FBT001, FBT002 - SGLang's signature
    *args: Any,
    **kwargs: Any,
) -> Any:
    """AROUND the end seam: a server with an adapter that is to kill itself and cannot leaves with code 1."""
    if not include_parent or parent_pid != os.getpid() or overlay.PLAN_VARIABLE not in os.environ:
        return original(parent_pid, include_parent, *args, **kwargs)
    try:
        return original(parent_pid, include_parent=False, wait_timeout=SECONDS)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
