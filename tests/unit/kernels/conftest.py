"""Makes the reference kernels importable under the name that SGLang uses, and leaves the path as it was."""

from __future__ import annotations

import importlib
import sys

import pytest

from eagle3_adapters.rehearsal.engine import KERNELS

pytest.importorskip("torch")
sys.path.insert(0, str(KERNELS))
try:
    importlib.import_module("sgl_kernel")
finally:
    sys.path.remove(str(KERNELS))
