"""The ``nemo`` format: NVIDIA NeMo Automodel's EAGLE-3 recipe.

Sources: nemo-automodel 0.7.0, ``recipes/llm/train_eagle3.py`` (config cloned from the target, flags; ids are never
written, so the states are those of the default) and ``components/speculative/eagle/draft_llama.py``,
``draft_deepseek.py`` (tensors, all but the head below ``model.``).
"""

from __future__ import annotations

from eagle3_adapters import canonical
from eagle3_adapters.boundaries import OUTPUT_OF_LAYER
from eagle3_adapters.formats.dialect import LATENT_CORE, FlatDialect, architecture_of, has_layer
from eagle3_adapters.formats.names import Names
from eagle3_adapters.values import DraftModel

_CLASS = "LlamaEagle3DraftModel"
_FLAG = "parallel_drafting"


class NemoFormat(FlatDialect):
    """NVIDIA NeMo Automodel."""

    name = "nemo"
    title = "NVIDIA NeMo Automodel"
    looks_for = f"model.layers.0.* and model.fc.weight, with architectures {_CLASS} or a key {_FLAG}"
    llama_class = _CLASS
    # The recipe writes one class name for every draft that it trains.
    latent_class = _CLASS
    spellings = (Names(only="layers.0", root="model."),)
    holds = LATENT_CORE | {
        canonical.EMBEDDING,
        canonical.FC_NORM,
        *canonical.ATTENTION_BIAS,
        *canonical.MLP_BIAS,
    }
    ids_key = None
    convention = OUTPUT_OF_LAYER
    listed_order = True
    states = 3
    flags = ("fc_norm", "norm_output")

    def claim(self, draft: DraftModel) -> tuple[str, ...]:
        """By its tensors' prefix with its class or its flag."""
        architecture = architecture_of(draft.config)
        class_ = f"architectures is {architecture}" if architecture == _CLASS else ""
        flag = f"{_FLAG} in config.json" if _FLAG in draft.config else ""
        if not has_layer(draft, "model.layers.0") or "model.fc.weight" not in draft.tensors or not (class_ or flag):
            return ()
        return tuple(fact for fact in (class_, flag, "tensors below model.") if fact)


FORMAT = NemoFormat()
