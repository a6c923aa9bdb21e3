"""The ``specforge`` format: SpecForge's exports, read as SpecForge trained them.

Sources: specforge 0.2.0, ``modeling/draft/llama3_eagle.py`` (one layer, three states; ``norm_output`` is the norm
before lm_head, later steps always continue from the state before it) and ``export/to_sglang.py`` (both maps always).
Its files are SGLang's own dialect and nothing in them says who wrote them, so the format is chosen by name only: it
decides ``norm_output``, the one key that SpecForge and SGLang read differently.
"""

from __future__ import annotations

from typing import Any

import attrs

from eagle3_adapters import canonical
from eagle3_adapters.errors import Finding, fault
from eagle3_adapters.formats.dialect import LLAMA_CORE
from eagle3_adapters.formats.names import Names
from eagle3_adapters.formats.sglang import SglangFormat
from eagle3_adapters.values import Config, DraftContent, DraftMath, DraftModel, FormatReading, MapTensors


class SpecForgeFormat(SglangFormat):
    """SpecForge."""

    name = "specforge"
    title = "SpecForge, its norm_output as it trains it"
    looks_for = "chosen by name only: its files are SGLang's own dialect"
    latent_class = None
    spellings = (Names(only="midlayer"),)
    holds = LLAMA_CORE | {canonical.EMBEDDING, canonical.FC_NORM}
    states = 3
    depth = 1
    maps = MapTensors.ALWAYS
    flags = ("fc_norm",)

    def claim(self, draft: DraftModel) -> tuple[str, ...]:
        """Never: nothing in a file tells it from SGLang's own dialect."""
        return ()

    def read(self, draft: DraftModel) -> FormatReading:
        """As SGLang's dialect, but for the meaning of ``norm_output``."""
        return attrs.evolve(super().read(draft), norm_output_doubtful=False)

    def math(self, draft: DraftModel, section: Config) -> DraftMath:
        """Later steps never continue from the normed state, and states are normed one by one if at all."""
        return attrs.evolve(super().math(draft, section), norm_output=False, norm_before_fc=False)

    def section(self, content: DraftContent) -> dict[str, Any]:
        """As its configs have it."""
        return {"use_aux_hidden_state": content.config.get("use_aux_hidden_state", True)}

    def findings(self, draft: DraftModel, section: Config) -> tuple[Finding, ...]:
        """A draft without a norm before its head."""
        found = super().findings(draft, section)
        if draft.config.get("norm_output") is not False:
            return found
        unnormed = fault(
            "norm-output-meaning",
            f"{draft.config_file}: norm_output",
            "true or no such key: a norm before lm_head, which SGLang's class always applies",
            "false: SpecForge trained the head on the un-normed state",
            why="every logit would come from another state than in training",
            remedy="this draft cannot be served with its training-time math yet",
        )
        return (*found, unnormed)


FORMAT = SpecForgeFormat()
