"""The ``kimi_k25`` adapter: KimiK25ForConditionalGeneration, a DeepSeek-V3 model behind a vision tower.

Source: sglang/srt/models/kimi_k25.py, 0.5.17 to 0.5.23.
"""

from __future__ import annotations

from eagle3_adapters_deepseek import capture_through, embedding_through

from eagle3_adapters import CaptureLayers, EmbedCapture, TargetModel, hookimpl

#: KimiK25ForConditionalGeneration.language_model is a DeepseekV3ForCausalLM, and its setter hands ids on to it.
WRAPPER = "language_model."


@hookimpl
def capture_layers(target: TargetModel) -> CaptureLayers:
    """As DeepSeek-V3's."""
    return capture_through(target, WRAPPER)


@hookimpl
def embed_capture(target: TargetModel) -> EmbedCapture:
    """The token embedding; image features replace the rows of their placeholders before layer 0."""
    return embedding_through(WRAPPER, merged=True)
