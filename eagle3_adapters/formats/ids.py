"""Owns lists of layer ids in a config, read and written, the same for every format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eagle3_adapters.boundaries import Convention, Ids
from eagle3_adapters.errors import ConventionError, FindingsError, fault
from eagle3_adapters.values import DraftContent

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


def write_ids(
    content: DraftContent, convention: Convention | None, format_: str, *, listed: bool = False
) -> Ids | None:
    """Ids that name the content's boundaries; None for the default triple.

    ``listed``: files of this format join states in the order of the list; the others are written ascending.
    ``convention`` None stands for the rule of SGLang's own class of the target. Raises FindingsError (target-needed,
    not-representable) where no target was named or no list of ids names them.
    """
    if content.boundaries is None:
        return None
    rule = convention or content.id_rule
    if rule is None:
        raise FindingsError(
            [
                fault(
                    "target-needed",
                    f"--to {format_}",
                    "--target, since ids of this format count by the rule of SGLang's class of the target",
                    f"boundaries {list(content.boundaries)} and no target",
                    remedy="eagle3-adapters convert DRAFT OUT --to " + format_ + " --target TARGET",
                )
            ]
        )
    try:
        boundaries = content.boundaries if listed else tuple(sorted(content.boundaries))
        # Without a target the rule is a plain shift, which does not look at N.
        return rule.to_ids(boundaries, content.target.num_layers if content.target else max(boundaries) + 1)
    except ConventionError as error:
        raise FindingsError(
            [
                fault(
                    "not-representable",
                    f"--to {format_}: layer ids",
                    f"ids that mean boundaries {list(content.boundaries)}",
                    str(error),
                    remedy="choose a format whose ids can name them: eagle3-adapters adapters",
                )
            ]
        ) from error
