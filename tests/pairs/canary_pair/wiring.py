"""Wirings: what a server feeds to the draft, and which arithmetic and tensors it uses. One is right."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import attrs
import torch
from torch import Tensor
from torch.func import functional_call

from canary_pair import corpus
from canary_pair.shape import HIDDEN, POST_NORM, DraftShape, Tensors
from eagle3_adapters.reference import DraftMath, ReferenceDraft

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

    draft: DraftShape
    name: str
    planes: tuple[int, ...] = attrs.Factory(lambda self: self.draft.boundaries, takes_self=True)
    math: DraftMath = PLAIN
    rope_theta: float = attrs.Factory(lambda self: self.draft.rope_theta, takes_self=True)
    edit: Callable[[Tensors], Tensors] = dict
    map_ids: Callable[[Tensor], Tensor] = torch.clone
    bypass_fc: bool = False
    first_step: int = 0

    def tensors(self, tensors: Tensors) -> Tensors:
        """The draft's tensors as this wiring sees them; norms that the checkpoint lacks start at one."""
        seen = self.edit(tensors)
        like, states = tensors["norm.weight"], len(self.draft.boundaries)
        if self.math.norm_before_fc:
            seen["input_norm.weight"] = like.new_ones(states * HIDDEN)
        if self.math.fc_norm:
            seen |= {f"fc_norm.{index}.weight": like.new_ones(HIDDEN) for index in range(states)}
        return seen

    def features(self, planes: Tensor) -> Tensor:
        """Concatenate the chosen planes: [planes, ..., HIDDEN] to [..., len(self.planes) * HIDDEN]."""
        return torch.cat([planes[plane] for plane in self.planes], dim=-1)

    def build(self) -> ReferenceDraft:
        """A draft with this wiring's arithmetic and untrained tensors."""
        return ReferenceDraft(
            hidden_size=HIDDEN,
            target_hidden_size=HIDDEN,
            states=len(self.draft.boundaries),
            intermediate_size=self.draft.intermediate_size,
            num_heads=self.draft.num_attention_heads,
            num_kv_heads=self.draft.num_key_value_heads,
            head_dim=self.draft.head_dim,
            rms_norm_eps=self.draft.rms_norm_eps,
            rope_theta=self.rope_theta,
            vocab_size=corpus.VOCAB_SIZE,
            draft_vocab_size=self.draft.vocab_size,
            math=self.math,
        )


def right(draft: DraftShape) -> Wiring:
    """The wiring that the draft is trained for."""
    return Wiring(draft=draft, name="right")


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


def flag_mistakes(draft: DraftShape) -> list[Wiring]:
    """Right states, wrong arithmetic."""
    make = partial(Wiring, draft=draft)
    return [
        make(name="norm_output", math=DraftMath(norm_output=True), first_step=1),
        make(name="norm_before_fc", math=DraftMath(norm_before_fc=True)),
        make(name="fc_norm", math=DraftMath(fc_norm=True)),
        make(name="norm_before_residual", math=DraftMath(norm_before_residual=True)),
        make(name="hidden_norm dropped", edit=ones("layers.0.hidden_norm.weight")),
        make(name="final norm dropped", edit=ones("norm.weight")),
        make(name="input_layernorm dropped", edit=ones("layers.0.input_layernorm.weight")),
        make(name="post_attention_layernorm dropped", edit=ones("layers.0.post_attention_layernorm.weight")),
        make(name="rope base 1000000", rope_theta=1e6),
        make(name="rope base 500000", rope_theta=5e5),
        make(name="first-layer input swapped", edit=swapped_inputs),
    ]


def bypasses(draft: DraftShape) -> list[Wiring]:
    """One state: SGLang skips ``fc`` when the captured width equals the draft's. The last is the normed output."""
    return [
        Wiring(draft=draft, name=f"fc bypassed, plane {plane}", planes=(plane,), bypass_fc=True)
        for plane in range(POST_NORM + 1)
    ]
