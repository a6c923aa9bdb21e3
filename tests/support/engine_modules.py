"""Importing SGLang's modules into the test process, on the CPU and without its import-time warnings."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import Any

from eagle3_adapters.rehearsal.engine import KERNELS


def load(name: str) -> Any:
    """The module ``name`` of SGLang. Path and switch stay for the rest of the process: SGLang reads them late."""
    os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
    if str(KERNELS) not in sys.path:
        sys.path.insert(0, str(KERNELS))
    with warnings.catch_warnings():
        # SGLang warns of every accelerator that it misses.
        warnings.simplefilter("ignore")
        return importlib.import_module(name)
