"""The catalogue of findings: one :class:`Explanation` for every code that ``check``, the server start or a child tells.

Data alone, one module for each part of the data path. Planning does not import it: only ``eagle3-adapters explain``,
``python -m eagle3_adapters.findings`` and tests do.

Where an accept length is "measured here on the canary pair", its draft was trained to refuse wrong wirings: 2.13 is
what the committed pair (``tests/pairs/llama``) reaches when right, 2.81 and 2.66 what earlier ones did. Ordinary drafts
lose less, and are quoted where measured.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from eagle3_adapters.findings import (
    checkpoint,
    config,
    conversion,
    engine,
    formats,
    layer_ids,
    math,
    options,
    states,
    vocabulary,
    weights,
)
from eagle3_adapters.findings.explanation import Explanation

__all__ = ["EXPLANATIONS", "Explanation", "close_to", "normal"]

#: Themes in the order of the data path.
_THEMES = (checkpoint, formats, config, layer_ids, states, weights, math, vocabulary, conversion, options, engine)


def _by_code(entries: Iterable[Explanation]) -> Mapping[str, Explanation]:
    found: dict[str, Explanation] = {}
    for entry in entries:
        if entry.code in found:
            msg = f"{entry.code} is explained twice"
            raise ValueError(msg)
        found[entry.code] = entry
    return MappingProxyType(found)


#: Code -> what it means.
EXPLANATIONS: Mapping[str, Explanation] = _by_code(entry for theme in _THEMES for entry in theme.ENTRIES)


def normal(code: str) -> str:
    """A code as the catalogue spells it, from how a user may paste it: ``ERROR vocab-map-missing:``."""
    words = code.split() or [""]
    return words[-1].strip(":").lower().replace("_", "-")


def close_to(code: str) -> tuple[str, ...]:
    """At most five codes that an unknown one may have meant: near in spelling first, then those that share a word."""
    near = difflib.get_close_matches(code, EXPLANATIONS, n=5, cutoff=0.6)
    words = {word for word in code.split("-") if word}
    sharing = [known for known in EXPLANATIONS if words & set(known.split("-")) and known not in near]
    return tuple([*near, *sharing][:5])
