"""The ``angelslim`` format: Tencent AngelSlim's EAGLE-3 trainer.

Sources: angelslim 0.5.0, ``train/models/draft/llama_eagle3.py`` (tensors), ``train/trainer/online_eagle3_trainer.py``
and ``train/models/target/target_model_wrapper.py`` (ids index transformers' hidden_states, joined in the order of the
list).
"""

from __future__ import annotations

import re

from eagle3_adapters import canonical
from eagle3_adapters.boundaries import HIDDEN_STATES
from eagle3_adapters.formats.dialect import LLAMA_CORE, FlatDialect, architecture_of, has_layer
from eagle3_adapters.formats.names import Names
from eagle3_adapters.values import DraftModel, MapTensors

_KEY = "aux_hidden_states_layer_ids"
#: Its classes, one of them misspelt in an early release.
_CLASS = re.compile(r"\w*Eagle3LlamaForCausalLM", re.IGNORECASE)


class AngelSlimFormat(FlatDialect):
    """Tencent AngelSlim."""

    name = "angelslim"
    title = "Tencent AngelSlim"
    looks_for = f"{_KEY}, or architectures ...Eagle3LlamaForCausalLM over midlayer.* tensors"
    llama_class = "Eagle3LlamaForCausalLM"
    spellings = (Names(only="midlayer"),)
    holds = LLAMA_CORE | {canonical.EMBEDDING}
    ids_key = _KEY
    ids_nested = False
    convention = HIDDEN_STATES
    listed_order = True
    states = 3
    other_width = False
    maps = MapTensors.ALWAYS

    def claim(self, draft: DraftModel) -> tuple[str, ...]:
        """By its own key for ids, or its class over its tensors."""
        architecture = architecture_of(draft.config)
        class_ = f"architectures is {architecture}" if _CLASS.fullmatch(architecture) else ""
        key = f"{_KEY} in config.json" if _KEY in draft.config else ""
        if not has_layer(draft, "midlayer") or not (class_ or key):
            return ()
        return tuple(fact for fact in (class_, key, "the layer is called midlayer") if fact)


FORMAT = AngelSlimFormat()
