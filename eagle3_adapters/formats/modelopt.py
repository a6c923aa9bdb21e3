"""The ``modelopt`` format: NVIDIA ModelOpt's EAGLE-3 exports, from Hugging Face and from Megatron training.

Sources: nvidia-modelopt 0.37 to 0.47, ``export/plugins/hf_spec_export.py``, ``hf_spec_configs.py`` and
``unified_export_megatron.py`` (names, config), ``speculative/plugins/modeling_eagle.py`` (norms), and the repository's
``examples/speculative_decoding/collect_hidden_states`` (ids). What its versions wrote differs, and the files say which:

==================  ====================  =====================  ============  =======================
written by          layer                 eagle_config           first layer   ids
==================  ====================  =====================  ============  =======================
HF up to 0.40       midlayer              five keys              single norm   outputs of layers
HF 0.41 and 0.42    midlayer[.{i}]        and next_layer_regular double norm   outputs of layers
HF 0.43 and later   layers.{i}            the same               double norm   outputs, or boundaries
Megatron            midlayer[.{i}]        the same               single norm   outputs of layers
==================  ====================  =====================  ============  =======================

Megatron's export unsets bos_token_id and eos_token_id, and its deeper layers have a hidden_norm. From 0.45 on states
may come from a vLLM dump, whose ids are boundaries; nothing in the file tells.
"""

from __future__ import annotations

from typing import Any

import attrs

from eagle3_adapters.boundaries import INPUT_OF_LAYER, OUTPUT_OF_LAYER, Ids, default_boundaries
from eagle3_adapters.errors import Finding, fault
from eagle3_adapters.formats.dialect import LATENT_CORE, FlatDialect, has_layer, is_latent, section_of
from eagle3_adapters.formats.names import Names, depth_of
from eagle3_adapters.keymap import KeyMap
from eagle3_adapters.values import (
    Config,
    DraftContent,
    DraftMath,
    DraftModel,
    FormatReading,
    FormatWriting,
    IdReading,
    MapTensors,
)

#: Keys of eagle_config since the first version, with the values that stand for plain EAGLE-3.
MARKS = {"use_input_layernorm_in_first_layer": True, "use_last_layernorm": True, "use_mtp_layernorm": False}
#: Key of eagle_config from 0.41 on.
LATER = "next_layer_regular"
_LATER = {LATER: True, "parallel_draft_step": 1, "parallel_draft_heads_num_layers": 1}
_HF_NEW = Names(only="layers.0", each="layers.{layer}", deeper_norm="input_layernorm")
_HF_OLD = Names(only="midlayer", each="midlayer.{layer}", deeper_norm="input_layernorm")
_MEGATRON = Names(only="midlayer", each="midlayer.{layer}", deeper_norm="hidden_norm")


class ModelOptFormat(FlatDialect):
    """NVIDIA ModelOpt."""

    name = "modelopt"
    title = "NVIDIA ModelOpt, Hugging Face (single norm up to 0.40, double norm later) and Megatron exports"
    looks_for = f"eagle_config with {', '.join(MARKS)}"
    llama_class = "LlamaForCausalLMEagle3"
    latent_class = "Eagle3DeepseekV2ForCausalLM"
    spellings = (_HF_OLD, _HF_NEW, _MEGATRON)
    holds = LATENT_CORE
    convention = OUTPUT_OF_LAYER
    depth = None
    other_width = False
    maps = MapTensors.OFFSETS_ONLY

    def claim(self, draft: DraftModel) -> tuple[str, ...]:
        """By the keys of its eagle_config, whatever class the file names."""
        section = section_of(draft)
        marks = [key for key in (*MARKS, *_LATER) if key in section]
        if not marks or (is_latent(draft) and LATER not in section):
            return ()
        version = "0.41 or later" if LATER in section else "up to 0.40"
        return (f"eagle_config with {marks[0]}", f"written by {_writer(draft, section)}", version)

    def id_readings(self, draft: DraftModel, ids: Ids | None) -> tuple[IdReading, ...]:
        """Outputs of layers; from 0.45 on perhaps boundaries, if a vLLM dump was trained on."""
        hf = IdReading(
            meaning="ModelOpt trained online or on a Hugging Face or TensorRT-LLM dump: outputs of layers",
            ids=ids,
            convention=OUTPUT_OF_LAYER,
            default=default_boundaries,
        )
        if ids is None or not has_layer(draft, "layers.0"):
            return (hf,)
        vllm = IdReading(
            meaning="ModelOpt trained on a vLLM dump: ids are boundaries", ids=ids, convention=INPUT_OF_LAYER
        )
        return (hf, vllm)

    def read(self, draft: DraftModel) -> FormatReading:
        """The canonical draft; two readings of its ids are undecided."""
        reading = super().read(draft)
        return attrs.evolve(reading, first_reading_decides=len(reading.id_readings) == 1)

    def math(self, draft: DraftModel, section: Config) -> DraftMath:
        """The first layer norms its hidden state twice in Hugging Face training from 0.41 on."""
        return attrs.evolve(super().math(draft, section), double_norm=LATER in section and not _from_megatron(draft))

    def findings(self, draft: DraftModel, section: Config) -> tuple[Finding, ...]:
        """Flags that stand for another draft than plain EAGLE-3."""
        plain = {**MARKS, **_LATER}
        return tuple(
            fault(
                "draft-architecture",
                f"{draft.config_file}: eagle_config.{key}",
                f"{plain[key]}, plain EAGLE-3",
                repr(section[key]),
                why="the draft computes something that no class of SGLang does",
                remedy="this draft cannot be served with its training-time math yet",
            )
            for key in plain
            if section.get(key, plain[key]) not in (plain[key], None)
        )

    def write(self, content: DraftContent) -> FormatWriting:
        """As the version wrote it whose first layer norms as this draft's does."""
        written = super().write(content)
        if content.depth > 1 and not content.math.double_norm:
            written.config["architectures"] = ["LlamaForCausalLMEagle3Deep"]
        return written

    def keys(self, content: DraftContent) -> KeyMap:
        """Names of the exporter that this draft can come from."""
        names = _HF_OLD if content.math.double_norm or content.depth == 1 else _MEGATRON
        return names.key_map(f"format {self.name}", content.depth, self.holds)

    def section(self, content: DraftContent) -> dict[str, Any]:
        """``eagle_config``: its later keys where the version matters."""
        used = {"use_aux_hidden_state": content.config.get("use_aux_hidden_state", True)} | MARKS
        return used | _LATER if content.math.double_norm or content.depth > 1 else used


def _from_megatron(draft: DraftModel) -> bool:
    """A deeper layer with Megatron's norm, or special tokens that only its export unsets."""
    if has_layer(draft, "layers.0"):
        return False
    if depth_of(draft.tensors) > 1:
        return "midlayer.1.hidden_norm.weight" in draft.tensors
    return draft.config.get("bos_token_id") is None and draft.config.get("eos_token_id") is None


def _writer(draft: DraftModel, section: Config) -> str:
    if LATER not in section:
        return "its Hugging Face or Megatron export (both norm once)"
    if _from_megatron(draft):
        return "its Megatron export"
    return "its Hugging Face export " + ("from 0.43 on" if has_layer(draft, "layers.0") else "0.41 or 0.42")


FORMAT = ModelOptFormat()
