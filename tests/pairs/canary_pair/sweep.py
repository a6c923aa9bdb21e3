"""The acceptance sweep: the accept length of the finished draft under the right wiring and under every mistake."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from canary_pair import corpus, target
from canary_pair.recipe import NEW_TOKENS, STEPS
from canary_pair.shape import LAYERS, DraftShape, Tensors
from canary_pair.wiring import Wiring, bypasses, flag_mistakes, ones, randomised, right
from eagle3_adapters.reference import AcceptLength, Continuation, replay

_LAST_ID = corpus.VOCAB_SIZE - 1


def wirings(draft: DraftShape) -> list[Wiring]:
    """Everything that is measured, the right wiring first."""
    make = partial(Wiring, draft=draft)
    mistakes = [*_wrong_states(draft), *_wrong_ids(make), *_wrong_tensors(make)]
    return [right(draft), *mistakes, *flag_mistakes(draft), *bypasses(draft)]


def _wrong_states(draft: DraftShape) -> list[Wiring]:
    trained = draft.boundaries
    first, second, third = trained
    named = [
        *((f"boundaries {shift:+d}", tuple(k + shift for k in trained)) for shift in (1, 2)),
        *((f"inner boundaries {shift:+d}", (first, second + shift, third + shift)) for shift in (-1, 1, 2)),
        ("engine default", (2, LAYERS // 2, LAYERS - 3)),
        *(("permuted", order) for order in itertools.permutations(trained) if order != trained),
        *(("embedding replaced", (k, second, third)) for k in range(1, LAYERS + 1) if k not in trained),
        *(("embedding replaced, in layer order", (second, third, k)) for k in range(third + 1, LAYERS + 1)),
        *(("second replaced", (first, k, third)) for k in (second - 1, second + 1)),
        *(("third replaced", (first, second, k)) for k in (third - 1, third + 1)),
        *(("one state three times", (k, k, k)) for k in trained),
    ]
    return [Wiring(draft=draft, name=f"{name} {list(planes)}", planes=planes) for name, planes in named]


def _wrong_ids(make: Callable[..., Wiring]) -> list[Wiring]:
    """Ids outside the vocabulary, on which an engine would crash, are clamped."""

    def read_as_offsets(ids: Tensor) -> Tensor:
        return (ids + torch.arange(len(ids))).clamp(max=_LAST_ID)

    return [
        make(name="d2t zero", map_ids=lambda ids: torch.arange(len(ids))),
        make(name="d2t offsets read as absolute ids", map_ids=lambda ids: ids - torch.arange(len(ids))),
        make(name="d2t absolute ids read as offsets", map_ids=read_as_offsets),
    ]


def _wrong_tensors(make: Callable[..., Wiring]) -> list[Wiring]:
    norms = ("layers.0.input_layernorm.weight", "layers.0.hidden_norm.weight", "norm.weight")
    return [
        make(name="fc dropped", edit=randomised("fc.")),
        make(name="lm_head dropped", edit=randomised("lm_head.")),
        make(name="midlayer dropped", edit=randomised("layers.0.")),
        make(name="input and final norms dropped", edit=ones(*norms)),
    ]


@torch.no_grad()
def measure(
    model: PreTrainedModel,
    tensors: Tensors,
    ids: Tensor,
    continuations: Sequence[Continuation],
    chosen: Sequence[Wiring],
) -> dict[str, Any]:
    """Accept length of each wiring (``STEPS`` drafts, topk 1), in the precision and on the device of ``model``.

    ``ids`` [draft vocab] are the target ids of the draft's ids. Right features are computed once for each prompt.
    """
    planes = [target.boundaries(model, torch.tensor([c.tokens]))[0][:, 0] for c in continuations]
    results: dict[str, Any] = {}
    for wiring in chosen:
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
