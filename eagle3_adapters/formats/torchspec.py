"""The ``torchspec`` format: TorchSpec's ``convert_to_hf`` export.

Sources: TorchSpec's ``tools/convert_to_hf.py`` (names, maps), ``models/draft/llama3_eagle.py`` and
``deepseek_eagle.py`` (tensors, three states), ``inference/engine`` (ids count outputs of layers; its HF runner joins
states in the order of the list, its SGLang and vLLM engines in the order of the layers). Its Llama-shaped files look
like SGLang's own dialect and are read as that unless the format is named; ``--vllm`` exports count boundaries and call
the layer ``layers.0``.
"""

from __future__ import annotations

from typing import Any

from eagle3_adapters import canonical
from eagle3_adapters.boundaries import OUTPUT_OF_LAYER
from eagle3_adapters.formats.dialect import LATENT_CORE, FlatDialect, has_layer, is_latent, section_of
from eagle3_adapters.formats.modelopt import LATER, MARKS
from eagle3_adapters.formats.names import Names
from eagle3_adapters.values import DraftContent, DraftModel


class TorchSpecFormat(FlatDialect):
    """TorchSpec."""

    name = "torchspec"
    title = "TorchSpec (convert_to_hf without --vllm)"
    looks_for = (
        "latent attention in midlayer.* under an eagle_config with ModelOpt's first five keys; else by name only"
    )
    llama_class = "LlamaForCausalLMEagle3"
    latent_class = "Eagle3DeepseekV2ForCausalLM"
    spellings = (Names(only="midlayer"),)
    holds = LATENT_CORE | {canonical.EMBEDDING}
    convention = OUTPUT_OF_LAYER
    listed_order = None
    states = 3

    def claim(self, draft: DraftModel) -> tuple[str, ...]:
        """By an eagle_config as ModelOpt wrote it before it could train latent attention."""
        section = section_of(draft)
        marks = [key for key in MARKS if key in section]
        if not marks or LATER in section or not is_latent(draft) or not has_layer(draft, "midlayer"):
            return ()
        return ("latent attention", "the layer is called midlayer", f"eagle_config with {marks[0]}, without {LATER}")

    def section(self, content: DraftContent) -> dict[str, Any]:
        """As its configs have it; ModelOpt's keys in the latent one."""
        used: dict[str, Any] = {"use_aux_hidden_state": content.config.get("use_aux_hidden_state", True)}
        return used | MARKS if content.latent else used


FORMAT = TorchSpecFormat()
