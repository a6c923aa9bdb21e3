"""Targets that are a config.json alone, and what an adapter says of their class."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from eagle3_adapters.checkpoint import read_target
from eagle3_adapters.pair import AUTO, choose_adapter
from eagle3_adapters.registry import Adapter, Registry
from eagle3_adapters.report import Report
from eagle3_adapters.values import TargetModel


def paper_target(architecture: str, num_layers: int) -> TargetModel:
    """A target of a class, as read from a file that is gone; a wrapper's has its sizes in a text part."""
    text = {"num_hidden_layers": num_layers, "hidden_size": 4096, "vocab_size": 131072}
    wrapper = architecture.endswith("ForConditionalGeneration")
    config = {"architectures": [architecture], **({"text_config": text} if wrapper else text)}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
        return read_target(Path(folder))


def owner(target: TargetModel) -> Adapter:
    """The installed adapter that owns a target's class."""
    return choose_adapter(target, AUTO, Registry.installed(), Report())
