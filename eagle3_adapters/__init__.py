"""Wire an EAGLE-3 draft to SGLang with its training-time math, or refuse to start and say why.

Importing this package loads neither torch nor SGLang nor numpy: everything up to the wiring plan is pure Python over
``config.json`` and safetensors headers. A plugin author needs the names exported here; the rest of the package is
reached through its modules.
"""

from __future__ import annotations

import pluggy

from eagle3_adapters.boundaries import (
    DEEPSEEK_RULE,
    GPT_OSS_RULE,
    INPUT_OF_LAYER,
    OUTPUT_OF_LAYER,
    Convention,
    default_boundaries,
)
from eagle3_adapters.errors import Eagle3AdaptersError
from eagle3_adapters.keymap import Drop, KeyMap, Rename
from eagle3_adapters.values import CaptureLayers, CaptureSite, DraftModel, EmbedCapture, TargetModel
from eagle3_adapters.vocab import VocabMap

__version__ = "0.1.0"

#: Marks the four functions of an adapter; see :mod:`eagle3_adapters.hookspecs`.
hookimpl = pluggy.HookimplMarker("eagle3_adapters")

__all__ = [
    "DEEPSEEK_RULE",
    "GPT_OSS_RULE",
    "INPUT_OF_LAYER",
    "OUTPUT_OF_LAYER",
    "CaptureLayers",
    "CaptureSite",
    "Convention",
    "DraftModel",
    "Drop",
    "Eagle3AdaptersError",
    "EmbedCapture",
    "KeyMap",
    "Rename",
    "TargetModel",
    "VocabMap",
    "__version__",
    "default_boundaries",
    "hookimpl",
]
