"""Owns boundaries and the conventions that turn a source's layer ids into them and back.

A boundary k of a target with N decoder layers is the residual stream before decoder layer k: 0 is the embedding output,
k the output of layer k-1, N the last layer's output before the final norm. Every layer id from any source passes
through a :class:`Convention` at the edge of the program; nothing inside speaks of layer ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from eagle3_adapters.errors import ConventionError

Ids = tuple[int, ...]


@attrs.frozen(kw_only=True)
class Convention:
    """A bijection between lists of layer ids and lists of boundaries, for a target of N layers.

    ``shift_of(ids, N)`` gives the number that is added to every id: for SGLang's class rules it depends on the whole
    list. ``write(boundaries, N)`` gives ids that mean those boundaries, or None where no list of ids does.
    """

    name: str
    #: One clause for people: what an id names.
    meaning: str
    shift_of: Callable[[Ids, int], int] = attrs.field(repr=False, eq=False)
    write: Callable[[Ids, int], Ids | None] = attrs.field(repr=False, eq=False)

    def to_boundaries(self, ids: Sequence[int], num_layers: int) -> Ids:
        """Boundaries that ``ids`` name, in the order of ``ids``. No range check."""
        ids = tuple(ids)
        if not ids:
            raise ConventionError(self.name, ids, "an empty list names no boundary")
        shift = self.shift_of(ids, num_layers)
        return tuple(layer_id + shift for layer_id in ids)

    def to_ids(self, boundaries: Sequence[int], num_layers: int) -> Ids:
        """Ids that name ``boundaries``; in their order, except where the rule leaves no ids in that order.

        Raises ConventionError where no list of ids names them under this convention.
        """
        boundaries = tuple(boundaries)
        ids = self.write(boundaries, num_layers) if boundaries else None
        if ids is None:
            raise ConventionError(self.name, boundaries, "no list of layer ids names these boundaries")
        return ids


def _constant(name: str, meaning: str, shift: int) -> Convention:
    return Convention(
        name=name,
        meaning=meaning,
        shift_of=lambda ids, num_layers: shift,
        write=lambda boundaries, num_layers: tuple(k - shift for k in boundaries),
    )


INPUT_OF_LAYER = _constant("input-of-layer", "the input of layer id (k = id)", 0)
OUTPUT_OF_LAYER = _constant("output-of-layer", "the output of layer id (k = id + 1)", 1)


def _deepseek_shift(ids: Ids, num_layers: int) -> int:
    return 1 if ids[0] == 1 else 0


def _deepseek_write(boundaries: Ids, num_layers: int) -> Ids | None:
    if boundaries[0] != 1:
        return boundaries
    # A list that starts with 1 would be shifted: start with another one, SGLang captures in layer order anyway.
    others = [k for k in boundaries if k != 1]
    return (others[0], *(k for k in boundaries if k != others[0])) if others else None


#: deepseek_v2.py and glm4_moe_lite.py of SGLang 0.5.13 to 0.5.23, `set_eagle3_layers_to_capture`.
DEEPSEEK_RULE = Convention(
    name="sglang-deepseek",
    meaning="SGLang's DeepSeek rule: the output of layer id when the first id is 1, else the input of layer id",
    shift_of=_deepseek_shift,
    write=_deepseek_write,
)


def _gpt_oss_shift(ids: Ids, num_layers: int) -> int:
    return 0 if max(ids) == num_layers else 1


def _gpt_oss_write(boundaries: Ids, num_layers: int) -> Ids | None:
    if max(boundaries) == num_layers:
        return boundaries
    ids = tuple(k - 1 for k in boundaries)
    return None if max(ids) == num_layers else ids


#: gpt_oss.py of SGLang 0.5.17 to 0.5.23, `set_eagle3_layers_to_capture`.
GPT_OSS_RULE = Convention(
    name="sglang-gpt-oss",
    meaning="SGLang's gpt-oss rule: the input of layer id when the largest id is N, else the output of layer id",
    shift_of=_gpt_oss_shift,
    write=_gpt_oss_write,
)


def _hidden_states_shift(ids: Ids, num_layers: int) -> int:
    # 0 where no target is at hand: then the ids cannot be held against its layers.
    if num_layers and num_layers - 1 in ids:
        problem = f"hidden_states[{num_layers}] of transformers is normed: no boundary"
        raise ConventionError(HIDDEN_STATES.name, ids, problem)
    return 1


#: ``hidden_states[id + 1]`` of a transformers model, whose last entry has passed the final norm.
HIDDEN_STATES = Convention(
    name="hf-hidden-states",
    meaning="the output of layer id (k = id + 1), the last layer's normed",
    shift_of=_hidden_states_shift,
    write=lambda boundaries, num_layers: None if num_layers in boundaries else tuple(k - 1 for k in boundaries),
)

#: Conventions that a class of SGLang can have.
CONVENTIONS: tuple[Convention, ...] = (INPUT_OF_LAYER, OUTPUT_OF_LAYER, DEEPSEEK_RULE, GPT_OSS_RULE)


def default_boundaries(num_layers: int) -> Ids:
    """The triple that SGLang, vLLM and most trainers use without ids: low, middle, high = 2, N//2, N-3."""
    return (2, num_layers // 2, num_layers - 3)


def is_reordered(order: Ids) -> bool:
    """Whether fc was trained on the states in another order than SGLang's; block ``order[p]`` of fc reads chunk p."""
    return order != tuple(range(len(order)))


def describe(boundary: int, num_layers: int | None) -> str:
    """A boundary in words: ``embedding``, ``output of layer 2``, ``output of the last layer (60), before the norm``.

    ``num_layers`` None: of a target that is not at hand.
    """
    if boundary == 0:
        return "embedding"
    if boundary == num_layers:
        return f"output of the last layer ({boundary - 1}), before the final norm"
    return f"output of layer {boundary - 1}"


def describe_all(boundaries: Sequence[int], num_layers: int | None) -> str:
    """Boundaries in words, with N: ``embedding, output of layer 2, output of layer 29 (of 61 layers)``."""
    words = ", ".join(describe(k, num_layers) for k in boundaries)
    return words if num_layers is None else f"{words} (of {num_layers} layers)"
