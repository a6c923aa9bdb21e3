"""The ``safeailab`` format: SafeAILab's EAGLE repository, where EAGLE-3 comes from.

Sources: EAGLE's ``traineagle3/cnets.py`` (what is trained: rotary base 10000 whatever the config says, states of the
inputs of layers 2, N//2 and N-3) and ``model/cnets.py``, ``model/ea_model.py`` (what is loaded: no maps where both
vocabularies are as large). Its config.json names the plain model class.
"""

from __future__ import annotations

from typing import Any

from eagle3_adapters import canonical
from eagle3_adapters.boundaries import INPUT_OF_LAYER
from eagle3_adapters.errors import Finding, Severity
from eagle3_adapters.formats.dialect import LLAMA_CORE, SECTION, FlatDialect, architecture_of, has_layer
from eagle3_adapters.formats.names import Names
from eagle3_adapters.values import Config, DraftModel

_BASE = 10000.0
#: Keys that speculators' research code wrote into the same kind of file, which trained on other states, and Granite's
#: multipliers, which change what a layer computes.
_OTHERS = (
    "eagle3",
    "target_vocab_size",
    "attention_multiplier",
    "embedding_multiplier",
    "logits_scaling",
    "residual_multiplier",
)


class SafeAILabFormat(FlatDialect):
    """SafeAILab EAGLE."""

    name = "safeailab"
    title = "SafeAILab EAGLE (traineagle3)"
    looks_for = "a plain architectures such as LlamaForCausalLM over midlayer.* tensors, no eagle_config"
    llama_class = "LlamaForCausalLM"
    spellings = (Names(only="midlayer"),)
    holds = LLAMA_CORE | {canonical.EMBEDDING}
    ids_key = None
    convention = INPUT_OF_LAYER
    states = 3

    def claim(self, draft: DraftModel) -> tuple[str, ...]:
        """By the model's own class over EAGLE-3's layer, and nothing that another trainer writes."""
        config, architecture = draft.config, architecture_of(draft.config)
        plain = architecture.endswith("ForCausalLM") and not architecture.startswith(("Eagle3", "CosyVoice3"))
        if not plain or not has_layer(draft, "midlayer") or SECTION in config or any(key in config for key in _OTHERS):
            return ()
        if ("d2t" in draft.tensors) is not ("t2d" in draft.tensors):
            return ()
        return (f"architectures is {architecture}", "the layer is called midlayer", f"no {SECTION}")

    def findings(self, draft: DraftModel, section: Config) -> tuple[Finding, ...]:
        """The rotary base that it trains at, where the config says another."""
        stated = draft.config.get("rope_theta")
        if stated in (None, _BASE):
            return ()
        return (
            Finding(
                code="rope-base",
                severity=Severity.WARNING,
                where=f"{draft.config_file}: rope_theta",
                expected=f"{_BASE:g}, at which traineagle3 trains whatever the config says",
                found=f"{stated}; used as stated",
                why="right only where the training code was changed to read it",
                remedy=f'trained with the repository as it is: write "rope_theta": {_BASE:g}',
            ),
        )

    def _canonical(self, config: Config, section: Config) -> dict[str, Any]:
        return {"rope_theta": _BASE} | super()._canonical(config, section)


FORMAT = SafeAILabFormat()
