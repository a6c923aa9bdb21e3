"""Owns VocabMap: which target token each draft token is, from any encoding, validated once, encoded to any.

Trainers store ``d2t`` as offsets (target = draft id + d2t[draft id]); some files hold the target ids themselves, some
only the ``t2d`` mask over the target vocabulary. Pure Python over ``array``: no numpy, no torch.
"""

from __future__ import annotations

import enum
import itertools
from array import array
from collections.abc import Sequence

import attrs

from eagle3_adapters.errors import VocabMapError


class VocabEncoding(enum.Enum):
    """How a file stores the map."""

    #: ``d2t[i]`` is added to i. Every public trainer.
    OFFSET = "offset"
    #: ``d2t[i]`` is the target id.
    ABSOLUTE = "absolute"
    #: Only ``t2d``: the i-th set position is draft id i.
    MASK = "mask"


def _ids(values: Sequence[int]) -> array[int]:
    return array("q", values)


def _check_range(ids: Sequence[int], size: int) -> None:
    low, high = min(ids, default=0), max(ids, default=0)
    if low < 0 or high >= size:
        where = ids.index(low if low < 0 else high)
        raise VocabMapError(
            "vocab-map-range", f"target ids in 0..{size - 1}", f"draft token {where} -> target id {ids[where]}"
        )


@attrs.frozen
class VocabMap:
    """``target_ids[i]`` is the target token of draft token i: injective, within the target vocabulary."""

    target_ids: array[int] = attrs.field(converter=_ids, repr=lambda ids: f"<{len(ids)} ids>")
    target_vocab_size: int

    def __attrs_post_init__(self) -> None:
        ids, size = self.target_ids, self.target_vocab_size
        if not len(ids):
            raise VocabMapError("vocab-map-length", "at least one draft token", "none")
        _check_range(ids, size)
        if len(set(ids)) != len(ids):
            seen: dict[int, int] = {}
            for draft_id, target_id in enumerate(ids):
                if target_id in seen:
                    raise VocabMapError(
                        "vocab-map-duplicate",
                        "one draft token for each target token",
                        f"draft tokens {seen[target_id]} and {draft_id} both -> target id {target_id}",
                    )
                seen[target_id] = draft_id

    @classmethod
    def decode(cls, values: Sequence[int], encoding: VocabEncoding, target_vocab_size: int) -> VocabMap:
        """Build the map from a tensor's integers. Raises VocabMapError with the code of findings.md."""
        if encoding is VocabEncoding.OFFSET:
            if len(values) < target_vocab_size and not any(values):
                # Zero offsets are the identity: right for equal vocabularies, a map never filled for a reduced one.
                raise VocabMapError(
                    "vocab-map-unfilled", "offsets of a reduced vocabulary", f"{len(values)} zeros (never filled)"
                )
            ids = [i + value for i, value in enumerate(values)]
            # Before the array is built: a damaged file can hold numbers that no array takes.
            _check_range(ids, target_vocab_size)
            return cls(ids, target_vocab_size)
        if encoding is VocabEncoding.ABSOLUTE:
            return cls(values, target_vocab_size)
        if len(values) != target_vocab_size:
            raise VocabMapError("vocab-map-length", f"a mask of {target_vocab_size} entries", f"{len(values)} entries")
        return cls([i for i, chosen in enumerate(values) if chosen], target_vocab_size)

    def encode(self, encoding: VocabEncoding) -> array[int]:
        """The integers of ``encoding``. A mask cannot tell the order: refused for a map that is not ascending."""
        ids = self.target_ids
        if encoding is VocabEncoding.OFFSET:
            return array("q", [target_id - i for i, target_id in enumerate(ids)])
        if encoding is VocabEncoding.ABSOLUTE:
            return array("q", ids)
        mask = array("q", bytes(8 * self.target_vocab_size))
        for target_id in ids:
            mask[target_id] = 1
        if any(later <= earlier for earlier, later in itertools.pairwise(ids)):
            raise VocabMapError("vocab-map-mask", "ascending target ids", "an order that a mask cannot hold")
        return mask

    def check_mask(self, mask: Sequence[int]) -> None:
        """``d2t`` and ``t2d`` must name the same set of target tokens (in any order: ModelOpt does not sort)."""
        if len(mask) != self.target_vocab_size:
            raise VocabMapError("vocab-map-mask", f"t2d with {self.target_vocab_size} entries", f"{len(mask)} entries")
        chosen = {i for i, value in enumerate(mask) if value}
        mapped = set(self.target_ids)
        if chosen != mapped:
            example = min(chosen ^ mapped)
            side = "t2d alone" if example in chosen else "d2t alone"
            raise VocabMapError(
                "vocab-map-mask",
                "d2t and t2d to name the same target tokens",
                f"{len(chosen ^ mapped)} differ, first {example} (in {side})",
            )
