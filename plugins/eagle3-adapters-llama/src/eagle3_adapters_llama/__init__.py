"""The ``llama`` adapter: targets that SGLang serves through ``models/llama.py``.

Sources: sglang/srt/models/llama.py, mistral.py, phi3 and internlm3 classes in llama.py, 0.5.17 to 0.5.23.
"""

from __future__ import annotations

from eagle3_adapters import (
    OUTPUT_OF_LAYER,
    CaptureLayers,
    CaptureSite,
    EmbedCapture,
    TargetModel,
    default_boundaries,
    hookimpl,
)

#: LlamaForCausalLM.model is the body: it owns `layers` and `layers_to_capture` and runs the loop.
SITE = CaptureSite(body="model")
#: LlamaModel.embed_tokens feeds layer 0 unscaled.
EMBEDDING = EmbedCapture(module="model.embed_tokens")


@hookimpl
def capture_layers(target: TargetModel) -> CaptureLayers:
    """`set_eagle3_layers_to_capture` adds 1 to every id; capture happens at a layer's input, so N is injected.

    Before 0.5.22 the loop adds a residual that layer 0 has not got yet, so there 0 is injected too.
    """
    n = target.num_layers
    return CaptureLayers(
        site=SITE,
        id_rule=OUTPUT_OF_LAYER,
        default=default_boundaries(n),
        native=range(n),
        embedding_since=(0, 5, 22),
        injected=(0, n),
    )


@hookimpl
def embed_capture(target: TargetModel) -> EmbedCapture:
    """The token embedding as it is."""
    return EMBEDDING
