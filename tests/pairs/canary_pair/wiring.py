"""Wirings: what a server feeds to the draft, and which arithmetic and tensors it uses. One is right."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
import torch
from torch import Tensor
from torch.func import functional_call

from canary_pair.recipe import BOUNDARIES
from canary_pair.target import HIDDEN, POST_NORM, ROPE_THETA, SHAPE
from eagle3_adapters.reference import DraftMath, ReferenceDraft

DRAFT_VOCAB_SIZE = 512
INTERMEDIATE = 384

Tensors = dict[str, Tensor]
PLAIN = DraftMath()
NORMS = (
    "layers.0.input_layernorm.weight",
    "layers.0.hidden_norm.weight",
    "layers.0.post_attention_layernorm.weight",
    "norm.weight",
)


@attrs.frozen(kw_only=True)
class Wiring:
    """One way to serve the draft; the defaults are the right one.

    ``planes``: which planes of :func:`target.boundaries` are concatenated, in ``fc``'s order. ``edit``: what became of
    the draft's tensors. ``map_ids``: what was made of the draft's target ids. ``first_step``: the first draft step at
    which the mistake shows.
    """

    name: str
    planes: tuple[int, ...] = BOUNDARIES
    math: DraftMath = PLAIN
    rope_theta: float = ROPE_THETA
    edit: Callable[[Tensors], Tensors] = dict
    map_ids: Callable[[Tensor], Tensor] = torch.clone
    bypass_fc: bool = False
    first_step: int = 0

    def tensors(self, tensors: Tensors) -> Tensors:
        """The draft's tensors as this wiring sees them; norms that the checkpoint lacks start at one."""
        seen = self.edit(tensors)
        like = tensors["norm.weight"]
        if self.math.norm_before_fc:
            seen["input_norm.weight"] = like.new_ones(len(BOUNDARIES) * HIDDEN)
        if self.math.fc_norm:
            seen |= {f"fc_norm.{index}.weight": like.new_ones(HIDDEN) for index in range(len(BOUNDARIES))}
        return seen

    def features(self, planes: Tensor) -> Tensor:
        """Concatenate the chosen planes: [planes, ..., HIDDEN] to [..., len(self.planes) * HIDDEN]."""
        return torch.cat([planes[plane] for plane in self.planes], dim=-1)

    def build(self) -> ReferenceDraft:
        """A draft with this wiring's arithmetic and untrained tensors."""
        return ReferenceDraft(
            hidden_size=HIDDEN,
            target_hidden_size=HIDDEN,
            states=len(BOUNDARIES),
            intermediate_size=INTERMEDIATE,
            num_heads=SHAPE["num_attention_heads"],
            num_kv_heads=SHAPE["num_key_value_heads"],
            head_dim=SHAPE["head_dim"],
            rms_norm_eps=SHAPE["rms_norm_eps"],
            rope_theta=self.rope_theta,
            vocab_size=SHAPE["vocab_size"],
            draft_vocab_size=DRAFT_VOCAB_SIZE,
            math=self.math,
        )


RIGHT = Wiring(name="right")


def run(
    wiring: Wiring,
    skeleton: ReferenceDraft,
    tensors: Tensors,
    features: Tensor,
    tokens: Tensor,
    embedding: Tensor,
    steps: int,
) -> Tensor:
    """Teacher-forced logits of ``skeleton`` (from ``wiring.build()``) with ``tensors``, gradients included."""
    options = {"steps": steps, "bypass_fc": wiring.bypass_fc}
    logits: Tensor = functional_call(skeleton, wiring.tensors(tensors), (features, tokens, embedding), options)
    return logits


def ones(*names: str) -> Callable[[Tensors], Tensors]:
    """Tensors that a loader dropped: norm weights stay at one."""

    def edit(tensors: Tensors) -> Tensors:
        return {name: torch.ones_like(value) if name in names else value for name, value in tensors.items()}

    return edit


def randomised(*prefixes: str) -> Callable[[Tensors], Tensors]:
    """Tensors that a loader dropped: matrices stay at their initialisation (seeded here), norm weights at one."""

    def edit(tensors: Tensors) -> Tensors:
        generator = torch.Generator().manual_seed(0)
        dropped = {name: _initial(value, generator) for name, value in tensors.items() if name.startswith(prefixes)}
        return tensors | dropped

    return edit


def _initial(value: Tensor, generator: torch.Generator) -> Tensor:
    if value.ndim < 2:
        return torch.ones_like(value)
    drawn = torch.randn(value.shape, generator=generator) / math.sqrt(value.shape[1])
    return drawn.to(value)


def swapped_inputs(tensors: Tensors) -> Tensors:
    """Hidden state first, embedding second, at the input of the first layer."""
    projections = {f"layers.0.self_attn.{name}_proj.weight" for name in "qkv"}
    return {name: value.roll(HIDDEN, dims=1) if name in projections else value for name, value in tensors.items()}


FLAG_MISTAKES = (
    Wiring(name="norm_output", math=DraftMath(norm_output=True), first_step=1),
    Wiring(name="norm_before_fc", math=DraftMath(norm_before_fc=True)),
    Wiring(name="fc_norm", math=DraftMath(fc_norm=True)),
    Wiring(name="norm_before_residual", math=DraftMath(norm_before_residual=True)),
    Wiring(name="hidden_norm dropped", edit=ones("layers.0.hidden_norm.weight")),
    Wiring(name="final norm dropped", edit=ones("norm.weight")),
    Wiring(name="input_layernorm dropped", edit=ones("layers.0.input_layernorm.weight")),
    Wiring(name="post_attention_layernorm dropped", edit=ones("layers.0.post_attention_layernorm.weight")),
    Wiring(name="rope base 1000000", rope_theta=1e6),
    Wiring(name="rope base 500000", rope_theta=5e5),
    Wiring(name="first-layer input swapped", edit=swapped_inputs),
)
"""Right states, wrong arithmetic."""

BYPASSES = tuple(
    Wiring(name=f"fc bypassed, plane {plane}", planes=(plane,), bypass_fc=True) for plane in range(POST_NORM + 1)
)
"""One state: SGLang skips ``fc`` when the captured width equals the draft's. The last plane is the normed output."""
