"""Owns how trainers call a draft's tensors: prefixes that lead to canonical names, the same for every format."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

import attrs

from eagle3_adapters import canonical
from eagle3_adapters.keymap import KeyMap, Rename

_LAYER_TENSORS = (*canonical.LLAMA_LAYER, *canonical.MLA_LAYER, *canonical.EXTRA_LAYER)
#: Tensors that have the same name in every dialect, whatever the prefix of the others.
_ROOTLESS = ("lm_head.weight", *canonical.VOCABULARY)
_HIDDEN, _INPUT = "hidden_norm.weight", "input_layernorm.weight"
#: All canonical names outside the layers, as patterns.
OUTSIDE = (*canonical.OUTSIDE, canonical.FC_NORM, *canonical.VOCABULARY)


@attrs.frozen(kw_only=True)
class Names:
    """Where one trainer's tensors hang.

    Below the first layer a decoder layer norms its hidden state once; canonically that is ``hidden_norm``, as in
    SGLang's class. ``deeper_norm`` is what this trainer calls it.
    """

    #: Prefix of the layer of a one-layer draft.
    only: str
    #: Prefix of layer ``{layer}`` of a deeper draft; None: this trainer makes none.
    each: str | None = None
    deeper_norm: str = "hidden_norm"
    #: Prefix of everything but lm_head and the maps.
    root: str = ""

    def key_map(self, owner: str, depth: int, holds: Collection[str] | None = None) -> KeyMap:
        """File name -> canonical name for a draft of ``depth`` layers.

        ``holds``: canonical names (of layer tensors without their layer) that files of the dialect can hold; None: all.
        """
        rules = [*self._layers(depth), *(Rename(self._outside(name), name) for name in OUTSIDE)]
        if holds is not None:
            rules = [rule for rule in rules if _unlayered(rule.target) in holds]
        return KeyMap(owner, tuple(rules))

    def _outside(self, name: str) -> str:
        return name if name in _ROOTLESS else self.root + name

    def _layers(self, depth: int) -> Iterable[Rename]:
        if depth == 1 or self.each is None:
            return [Rename(f"{self.root}{self.only}.{name}", f"layers.0.{name}") for name in _LAYER_TENSORS]
        each = self.root + self.each
        rules = [
            Rename(f"{each}.{name}", f"layers.{{layer}}.{name}")
            for name in _LAYER_TENSORS
            if name not in (_HIDDEN, _INPUT)
        ]
        rules += [Rename(f"{each}.{name}".format(layer=0), f"layers.0.{name}") for name in (_HIDDEN, _INPUT)]
        for layer in range(1, depth):
            own = each.format(layer=layer)
            rules.append(Rename(f"{own}.{self.deeper_norm}.weight", f"layers.{layer}.{_HIDDEN}"))
            if self.deeper_norm == "hidden_norm":
                # Built by SGLang's class in every layer, read in the first one only.
                rules.append(Rename(f"{own}.{_INPUT}", f"layers.{layer}.{_INPUT}"))
        return rules


def depth_of(names: Iterable[str]) -> int:
    """Number of layers by the highest number that a tensor's name carries; 1 where none does."""
    numbers = [int(found[2]) for name in names if (found := re.match(r"(model\.)?(?:mid)?layers?\.(\d+)\.", name))]
    return max(numbers, default=0) + 1


def spelling_of(spellings: Sequence[Names], names: Collection[str]) -> Names:
    """The spelling that takes most of ``names``; the first one where several do."""
    depth = depth_of(names)

    def taken(spelling: Names) -> int:
        keys = spelling.key_map("spelling", depth)
        return sum(keys.takes(name) for name in names)

    return max(spellings, key=taken)


def _unlayered(name: str) -> str:
    return re.sub(r"^layers\.(\{layer\}|\d+)\.", "", name)
