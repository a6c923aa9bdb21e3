"""A format that can say everything: the drafts of the conversion tests begin in it.

Its files hold canonical names, canonical fields under ``fields``, the math under ``math`` and boundaries under
``boundaries``, one for each column block of fc (null: the default triple).
"""

from __future__ import annotations

import attrs

from eagle3_adapters.boundaries import INPUT_OF_LAYER, default_boundaries
from eagle3_adapters.formats.names import Names, depth_of
from eagle3_adapters.values import (
    DraftContent,
    DraftMath,
    DraftModel,
    FormatReading,
    FormatWriting,
    IdReading,
    MapTensors,
)

_NAMES = Names(only="layers.0", each="layers.{layer}")


class UniversalFormat:
    """Everything that a draft can be."""

    name = "universal"
    title = "the format of the conversion tests"
    looks_for = "a key universal"

    def claim(self, draft: DraftModel) -> tuple[str, ...]:
        return ("a key universal",) if "universal" in draft.config else ()

    def read(self, draft: DraftModel) -> FormatReading:
        said = draft.config["universal"]
        listed = said["boundaries"]
        return FormatReading(
            format=self.name,
            evidence=self.claim(draft),
            draft=attrs.evolve(draft, config=said["fields"]),
            keys=_NAMES.key_map("format universal", depth_of(draft.tensors)),
            id_readings=(
                IdReading(
                    meaning="boundaries",
                    ids=None if listed is None else tuple(listed),
                    convention=INPUT_OF_LAYER,
                    default=default_boundaries,
                ),
            ),
            ids_where="universal.boundaries",
            listed_order=True,
            math=DraftMath(**said["math"]),
            embedding_trained=said["embedding_trained"],
        )

    def write(self, content: DraftContent) -> FormatWriting:
        said = {
            "fields": dict(content.config),
            "boundaries": None if content.boundaries is None else list(content.boundaries),
            "math": attrs.asdict(content.math),
            "embedding_trained": content.embedding_trained,
        }
        return FormatWriting(
            config={"universal": said},
            keys=_NAMES.key_map("format universal", content.depth),
            maps=MapTensors.REDUCED,
            listed_order=True,
            shares_head=True,
            latent=True,
        )


FORMAT = UniversalFormat()
