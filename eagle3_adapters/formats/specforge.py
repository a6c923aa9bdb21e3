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
from eagle3_adapters.formats.dialect import LLAMA_CORE
from eagle3_adapters.formats.names import Names
from eagle3_adapters.formats.sglang import SglangFormat
from eagle3_adapters.values import Config, DraftContent, DraftMath, DraftModel, FormatReading, FormatWriting, MapTensors


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
        bare = draft.config.get("norm_output") is False
        return attrs.evolve(super().math(draft, section), norm_output=False, norm_before_fc=False, bare_head=bare)

    def write(self, content: DraftContent) -> FormatWriting:
        """``norm_output`` false where no norm stands before lm_head; true is what an absent key means."""
        written = super().write(content)
        if content.math.bare_head:
            written.config["norm_output"] = False
        return written

    def section(self, content: DraftContent) -> dict[str, Any]:
        """As its configs have it."""
        return {"use_aux_hidden_state": content.config.get("use_aux_hidden_state", True)}


FORMAT = SpecForgeFormat()
