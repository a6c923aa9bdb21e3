"""Owns making our draft class of a plan. Importing this imports torch; SGLang comes with the first class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eagle3_adapters.sglang.drafts import parts, stock
from eagle3_adapters.wiring import WiringPlan

#: Draft class of SGLang -> our layer and our body of its shape.
_SHAPES: Mapping[str, tuple[type, type]] = {
    "LlamaForCausalLMEagle3": (parts.LlamaLayer, parts.LlamaBody),
    "Eagle3DeepseekV2ForCausalLM": (parts.LatentLayer, parts.LatentBody),
}


def adapted_class(plan: WiringPlan) -> Any:
    """A subclass of SGLang's draft class with the plan's math, under the name that the plan gives it."""
    theirs = stock.PARTS[plan.draft_architecture]
    layer, body = _SHAPES[plan.draft_architecture]
    built = {part: _mixed(own, part, math=plan.math) for own, part in ((layer, theirs.layer), (body, theirs.body))}
    if plan.math.qk_norm and theirs.attention is not None:
        built[theirs.attention] = _mixed(parts.NormedAttention, theirs.attention)
    return type(
        plan.draft_class,
        (parts.Draft, theirs.draft.load()),
        {"parts": built, "keeps_embedding": plan.keeps_embedding, "__module__": __name__},
    )


def _mixed(own: type, part: stock.Part, **facts: Any) -> Any:
    return type(f"Adapted{part.name}", (own, part.load()), {**facts, "__module__": __name__})
