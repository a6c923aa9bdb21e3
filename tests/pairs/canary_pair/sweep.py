"""The acceptance sweep: the accept length of the finished draft under the right wiring and under every mistake."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from canary_pair import target
from canary_pair.prompts import Prompt
from canary_pair.recipe import BOUNDARIES, NEW_TOKENS, STEPS
from canary_pair.wiring import BYPASSES, FLAG_MISTAKES, RIGHT, Tensors, Wiring, ones, randomised
from eagle3_adapters.reference import AcceptLength, replay

_LAST_ID = target.SHAPE["vocab_size"] - 1


def wirings() -> list[Wiring]:
    """Everything that is measured, the right wiring first."""
    return [RIGHT, *_wrong_states(), *_wrong_ids(), *_wrong_tensors(), *FLAG_MISTAKES, *BYPASSES]


def _states(name: str, *planes: int) -> Wiring:
    return Wiring(name=f"{name} {list(planes)}", planes=planes)


def _wrong_states() -> list[Wiring]:
    first, second, third = BOUNDARIES
    layers = target.LAYERS
    return [
        *(_states(f"boundaries {shift:+d}", *(k + shift for k in BOUNDARIES)) for shift in (1, 2)),
        *(_states(f"inner boundaries {shift:+d}", first, second + shift, third + shift) for shift in (-1, 1, 2)),
        _states("engine default", 2, layers // 2, layers - 3),
        *(_states("permuted", *order) for order in itertools.permutations(BOUNDARIES) if order != BOUNDARIES),
        *(_states("embedding replaced", k, second, third) for k in range(1, layers + 1) if k not in BOUNDARIES),
        *(_states("embedding replaced, in layer order", second, third, k) for k in range(third + 1, layers + 1)),
        *(_states("second replaced", first, k, third) for k in (second - 1, second + 1)),
        *(_states("third replaced", first, second, k) for k in (third - 1, third + 1)),
        *(_states("one state three times", k, k, k) for k in BOUNDARIES),
    ]


def _wrong_ids() -> list[Wiring]:
    """Ids outside the vocabulary, on which an engine would crash, are clamped."""

    def read_as_offsets(ids: Tensor) -> Tensor:
        return (ids + torch.arange(len(ids))).clamp(max=_LAST_ID)

    return [
        Wiring(name="d2t zero", map_ids=lambda ids: torch.arange(len(ids))),
        Wiring(name="d2t offsets read as absolute ids", map_ids=lambda ids: ids - torch.arange(len(ids))),
        Wiring(name="d2t absolute ids read as offsets", map_ids=read_as_offsets),
    ]


def _wrong_tensors() -> list[Wiring]:
    norms = ("layers.0.input_layernorm.weight", "layers.0.hidden_norm.weight", "norm.weight")
    return [
        Wiring(name="fc dropped", edit=randomised("fc.")),
        Wiring(name="lm_head dropped", edit=randomised("lm_head.")),
        Wiring(name="midlayer dropped", edit=randomised("layers.0.")),
        Wiring(name="input and final norms dropped", edit=ones(*norms)),
    ]


@torch.no_grad()
def measure(model: LlamaForCausalLM, tensors: Tensors, ids: Tensor, prompts: list[Prompt]) -> dict[str, Any]:
    """Accept length of each wiring (``STEPS`` drafts, topk 1), in the precision and on the device of ``model``.

    ``ids`` [draft vocab] are the target ids of the draft's ids. Right features are computed once for each prompt.
    """
    continuations = [prompt.continuation for prompt in prompts]
    planes = [target.boundaries(model, torch.tensor([c.tokens]))[0][:, 0] for c in continuations]
    results: dict[str, Any] = {}
    for wiring in wirings():
        draft = wiring.build().eval()
        draft.load_state_dict(wiring.tensors(tensors))
        counts = replay(
            draft,
            continuations=continuations,
            features=[wiring.features(plane) for plane in planes],
            embedding=model.model.embed_tokens.weight,
            draft_to_target=wiring.map_ids(ids),
            steps=STEPS,
            max_new_tokens=NEW_TOKENS,
            bypass_fc=wiring.bypass_fc,
        )
        length = AcceptLength.from_counts(counts)
        results[wiring.name] = {
            "accept_length": round(length.value, 4),
            "standard_error": round(length.standard_error, 4),
            "accepted": length.accepted,
            "verifies": length.verifies,
            "verifies_by_prompt": [count.verifies for count in counts],
        }
    return results
