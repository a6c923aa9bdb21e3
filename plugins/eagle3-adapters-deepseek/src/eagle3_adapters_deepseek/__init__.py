"""The ``deepseek_v2`` and ``deepseek_v3`` adapters: targets that SGLang serves through ``models/deepseek_v2.py``.

Sources: sglang/srt/models/deepseek_v2.py, 0.5.17 to 0.5.23, and the classes that inherit its loop and its setter
(GlmMoeDsaForCausalLM of glm4_moe.py, MistralLarge3ForCausalLM of mistral_large_3.py). One set of answers for all: they
differ in attention and experts, which the residual stream does not show.
"""

from __future__ import annotations

from eagle3_adapters import (
    DEEPSEEK_RULE,
    CaptureLayers,
    CaptureSite,
    EmbedCapture,
    TargetModel,
    default_boundaries,
    hookimpl,
)


def site(wrapper: str = "") -> CaptureSite:
    """Where a DeepseekV2ForCausalLM keeps things; ``wrapper`` is the way to it, with its dot: ``language_model.``."""
    return CaptureSite(
        # DeepseekV2Model owns `layers`, `layers_to_capture` and `norm`, and runs the loop.
        body=f"{wrapper}model",
        # DeepseekV2ForCausalLM.forward hands the states out where its own flag is set.
        capture_flags=(wrapper.removesuffix("."),),
        logits_processor=f"{wrapper}logits_processor",
    )


def capture_through(target: TargetModel, wrapper: str = "") -> CaptureLayers:
    """The loop captures at every layer's input, in each version from layer 0 on; nothing follows the last layer."""
    n = target.num_layers
    return CaptureLayers(
        site=site(wrapper),
        # `set_eagle3_layers_to_capture`: ids + 1 where the first id is 1, else ids as they are.
        id_rule=DEEPSEEK_RULE,
        default=default_boundaries(n),
        native=range(n),
        # The capture follows `prepare_attn`, which makes the embedding the residual of layer 0.
        embedding_since=(0, 5, 17),
        injected=(n,),
    )


def embedding_through(wrapper: str = "", *, merged: bool = False) -> EmbedCapture:
    """DeepseekV2Model.embed_tokens feeds layer 0 unscaled; ``merged`` where a wrapper replaces rows of it."""
    return EmbedCapture(module=f"{wrapper}model.embed_tokens", merged=merged)


@hookimpl
def capture_layers(target: TargetModel) -> CaptureLayers:
    """The class itself, without a wrapper."""
    return capture_through(target)


@hookimpl
def embed_capture(target: TargetModel) -> EmbedCapture:
    """The token embedding as it is."""
    return embedding_through()
