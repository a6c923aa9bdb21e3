"""Owns what selects a wiring: the option or the edit of the draft's files, in words and as data."""

from __future__ import annotations

import json
from collections.abc import Iterator

import attrs

from eagle3_adapters.diagnosis.wirings import FLAGS, Wiring, spell
from eagle3_adapters.formats.dialect import SECTION
from eagle3_adapters.formats.modelopt import FORMAT as MODELOPT
from eagle3_adapters.formats.modelopt import LATER
from eagle3_adapters.values import Config
from eagle3_adapters.vocab import VocabEncoding

#: Where flat and nested dialects keep a layer's fields.
_NESTED = "transformer_layer_config"


@attrs.frozen(kw_only=True)
class Edit:
    """One key of the draft's config.json; ``value`` None: the key is to be removed."""

    path: tuple[str, ...]
    value: bool | float | None

    def __str__(self) -> str:
        where = ".".join(self.path[:-1])
        inside = f" in {where}" if where else ""
        if self.value is None:
            return f'remove "{self.path[-1]}"{inside} of the draft\'s config.json'
        return f'write "{self.path[-1]}": {json.dumps(self.value)}{inside} of the draft\'s config.json'


@attrs.frozen(kw_only=True)
class Advice:
    """What makes the package wire a draft in one way; empty where the files already say so."""

    #: Boundaries for ``--eagle3-boundaries``; None where the files' ids say it.
    boundaries: tuple[int, ...] | None = None
    edits: tuple[Edit, ...] = ()
    #: What ``d2t`` holds, where a ``t2d`` beside it must say so.
    encoding: VocabEncoding | None = None
    #: What no option and no edit can select in the draft's format.
    beyond: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """One step each."""
        found = [str(edit) for edit in self.edits]
        if self.boundaries is not None:
            found.insert(0, f"--eagle3-boundaries {spell(self.boundaries)}")
        if self.encoding is not None:
            held = "i + d2t[i]" if self.encoding is VocabEncoding.OFFSET else "d2t[i]"
            found.append(f"export t2d beside d2t: true at the target id of each draft id i, which is {held}")
        return (*found, *([self.beyond] if self.beyond else ()))


def advice(
    wiring: Wiring, declared: Wiring, *, config: Config, format_: str, undecided: frozenset[str] = frozenset()
) -> Advice:
    """What selects ``wiring`` where the files say ``declared``.

    ``config`` is the draft's config.json as it stands. ``undecided`` names what the files leave open (``boundaries``,
    ``encoding``, a flag): that is advised even where it is as declared.
    """
    moved = wiring.boundaries != declared.boundaries or "boundaries" in undecided
    edits, beyond = [], ""
    for flag in FLAGS:
        value = getattr(wiring.math, flag)
        if value == getattr(declared.math, flag) and flag not in undecided:
            continue
        if flag != "double_norm":
            edits.append(_flag(config, flag, value))
        elif format_ == MODELOPT.name:
            edits.append(Edit(path=(SECTION, LATER), value=True if value else None))
        else:
            beyond = f"convert the draft to ModelOpt's format, which alone can say that double_norm is {value}"
    if wiring.rope_theta != declared.rope_theta:
        edits.extend(_rope(config, wiring.rope_theta))
    recoded = wiring.encoding != declared.encoding or "encoding" in undecided
    return Advice(
        boundaries=wiring.boundaries if moved else None,
        edits=tuple(edits),
        encoding=wiring.encoding if recoded else None,
        beyond=beyond,
    )


def _flag(config: Config, flag: str, value: bool) -> Edit:  # noqa: FBT001 - the value that is written
    """Where the config states it now, else at the top level, where every dialect reads it."""
    section = config.get(SECTION)
    inside = isinstance(section, dict) and flag in section
    return Edit(path=(SECTION, flag) if inside else (flag,), value=value)


def _rope(config: Config, theta: float) -> Iterator[Edit]:
    """Every place that states the base now; the layer's fields where none does."""
    nested = config.get(_NESTED)
    start, layer = ((_NESTED,), nested) if isinstance(nested, dict) else ((), config)
    places = [
        (*start, key, "rope_theta")
        for key in ("rope_parameters", "rope_scaling")
        if isinstance(layer.get(key), dict) and "rope_theta" in layer[key]
    ]
    if "rope_theta" in layer or not places:
        places.append((*start, "rope_theta"))
    return (Edit(path=place, value=theta) for place in places)
