"""A format that no public trainer has, as a third party would add it: everything that can differ differs.

Ids name outputs of layers, states are concatenated in the order of the list, tensors have names of their own, ``d2t``
holds target ids. Installed in tests by putting this folder on the path: the folder beside this file is its metadata.
"""

from __future__ import annotations

import attrs

from eagle3_adapters import OUTPUT_OF_LAYER, DraftModel, KeyMap, Rename
from eagle3_adapters.values import DraftContent, FormatReading, FormatWriting, IdReading, MapTensors
from eagle3_adapters.vocab import VocabEncoding

#: Own name -> canonical name.
NAMES = {
    "join.weight": "fc.weight",
    "out_norm.weight": "norm.weight",
    "out.weight": "lm_head.weight",
    "vocabulary": "d2t",
    "block.{layer}.norm_e.weight": "layers.{layer}.input_layernorm.weight",
    "block.{layer}.norm_h.weight": "layers.{layer}.hidden_norm.weight",
    "block.{layer}.norm_m.weight": "layers.{layer}.post_attention_layernorm.weight",
    "block.{layer}.q.weight": "layers.{layer}.self_attn.q_proj.weight",
    "block.{layer}.k.weight": "layers.{layer}.self_attn.k_proj.weight",
    "block.{layer}.v.weight": "layers.{layer}.self_attn.v_proj.weight",
    "block.{layer}.o.weight": "layers.{layer}.self_attn.o_proj.weight",
    "block.{layer}.gate.weight": "layers.{layer}.mlp.gate_proj.weight",
    "block.{layer}.up.weight": "layers.{layer}.mlp.up_proj.weight",
    "block.{layer}.down.weight": "layers.{layer}.mlp.down_proj.weight",
}
KEYS = KeyMap("format foreign", tuple(Rename(own, canonical) for own, canonical in NAMES.items()))


class ForeignFormat:
    """The format of the foreign trainer."""

    name = "foreign"
    title = "a trainer that does everything its own way"
    looks_for = "a key foreign_trainer in config.json"

    def claim(self, draft: DraftModel) -> tuple[str, ...]:
        """By its own key."""
        return ("foreign_trainer in config.json",) if "foreign_trainer" in draft.config else ()

    def read(self, draft: DraftModel) -> FormatReading:
        """Flat config under ``draft``, ids under ``taps``."""
        return FormatReading(
            format=self.name,
            evidence=self.claim(draft),
            draft=attrs.evolve(draft, config=draft.config["draft"], vocab_encoding=VocabEncoding.ABSOLUTE),
            keys=KEYS,
            id_readings=(
                IdReading(meaning=OUTPUT_OF_LAYER.meaning, ids=tuple(draft.config["taps"]), convention=OUTPUT_OF_LAYER),
            ),
            ids_where=f"{draft.config_file}: taps",
            listed_order=True,
        )

    def write(self, content: DraftContent) -> FormatWriting:
        """The same back; ``taps`` are always there."""
        listed = content.boundaries or ()
        return FormatWriting(
            config={
                "foreign_trainer": "1.0",
                "taps": list(OUTPUT_OF_LAYER.to_ids(listed, 0)) if listed else None,
                "draft": {key: value for key, value in content.config.items() if key != "use_aux_hidden_state"},
            },
            keys=KEYS,
            maps=MapTensors.OFFSETS_ONLY,
            vocab_encoding=VocabEncoding.ABSOLUTE,
            listed_order=True,
        )


FORMAT = ForeignFormat()
