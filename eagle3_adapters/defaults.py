"""Owns the core's own answers to the hooks ``weight_key_map`` and ``vocab_map``, for SGLang's stock draft classes.

Registered before the adapter, so that pluggy asks the adapter first.
"""

from __future__ import annotations

import pluggy

from eagle3_adapters import draft_classes
from eagle3_adapters.checkpoint import read_integers
from eagle3_adapters.keymap import KeyMap
from eagle3_adapters.values import DraftModel
from eagle3_adapters.vocab import VocabEncoding, VocabMap

hookimpl = pluggy.HookimplMarker("eagle3_adapters")


@hookimpl
def weight_key_map(draft: DraftModel) -> KeyMap | None:
    """Names of LlamaForCausalLMEagle3 or, for latent attention, of Eagle3DeepseekV2ForCausalLM."""
    return draft_classes.key_map(draft)


@hookimpl
def vocab_map(draft: DraftModel) -> VocabMap | None:
    """``d2t`` in the format's encoding, checked against ``t2d``; ``t2d`` alone where that is the encoding.

    Raises VocabMapError.
    """
    mask = draft.tensors.get("t2d")
    size = draft.config["vocab_size"]
    if draft.vocab_encoding is VocabEncoding.MASK:
        return None if mask is None else VocabMap.decode(read_integers(mask), VocabEncoding.MASK, size)
    ids = draft.tensors.get("d2t")
    if ids is None:
        return None
    result = VocabMap.decode(read_integers(ids), draft.vocab_encoding, size)
    if mask is not None:
        result.check_mask(read_integers(mask))
    return result
