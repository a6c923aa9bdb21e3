"""Owns reading a list of layer ids out of a config, the same for every format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eagle3_adapters.boundaries import Ids
from eagle3_adapters.errors import FindingsError, fault

#: The key of SGLang, SpecForge, ModelOpt, TorchSpec (nested in ``eagle_config``) and speculators (top level).
IDS = "eagle_aux_hidden_state_layer_ids"


def layer_ids(config: Mapping[str, Any], key: str, where: str) -> Ids | None:
    """A list of ids, None where absent or null. Raises FindingsError where it is anything else."""
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(item) is int for item in value) or not value:
        raise FindingsError(
            [
                fault(
                    "config-unreadable",
                    f"{where}: {key}",
                    "a list of integers",
                    repr(value),
                    remedy=f'write "{key}": [id, id, id] as the trainer printed them',
                )
            ]
        )
    return tuple(value)
