"""A random draft, trained in seconds on the very continuations that it will be asked for: its target accepts it often.

What it knows it has from the states: the token's own part is damped. Served with other states it falls back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from safetensors.torch import save_file
from torch.nn import functional

from eagle3_adapters.reference import Continuation, Counts, ReferenceDraft, replay
from eagle3_adapters.reference.load import LoadedDraft, load_draft
from eagle3_adapters.wiring import WiringPlan
from support.boundary_states import Reference

#: Rounds of training and the size of a step: accept lengths of 2 to 3.3 with three drafted tokens.
ROUNDS, RATE = 60, 1e-2
#: Of the token's embedding beside the states.
DAMPED = 0.1


def greedy(reference: Reference, tokens: Sequence[int], more: int) -> tuple[int, ...]:
    """``tokens`` and ``more`` greedy ones after them."""
    known = list(tokens)
    for _ in range(more):
        known.append(reference.next_tokens(known)[-1][0])
    return tuple(known)


def fit(
    plan: WiringPlan, reference: Reference, prompts: Iterable[Sequence[int]], *, new_tokens: int, steps: int
) -> None:
    """Train the draft of a plan, in whose files names are canonical, on what the target answers, and write it back."""
    continuations = [
        Continuation(tokens=greedy(reference, prompt, new_tokens + steps), prompt_length=len(prompt))
        for prompt in prompts
    ]
    loaded = load_draft(plan)
    draft = loaded.draft
    draft.get_parameter("layers.0.input_layernorm.weight").data.mul_(DAMPED)
    read = [(one, _features(reference, loaded, one)) for one in continuations]
    # All else stays random: what it learns must pass through the states' own columns.
    optimizer = torch.optim.Adam([draft.fc.weight, draft.lm_head.weight], lr=RATE)
    for _ in range(ROUNDS):
        optimizer.zero_grad()
        losses = [_loss(draft, one, states, reference.embedding, steps) for one, states in read]
        torch.autograd.backward(torch.stack(losses).mean())
        optimizer.step()
    tensors = {name: tensor.detach().contiguous() for name, tensor in draft.state_dict().items()}
    save_file(tensors, plan.draft_path / "model.safetensors")


def _loss(
    draft: ReferenceDraft, known: Continuation, states: torch.Tensor, embedding: torch.Tensor, steps: int
) -> torch.Tensor:
    tokens = torch.tensor([known.tokens])
    rows = len(known.tokens) - steps - 1
    logits = draft(states[None, :rows], tokens[:, : rows + steps], embedding, steps=steps)
    # Nobody can guess a prompt of random tokens.
    first = known.prompt_length - 1
    truth = [tokens[0, first + 2 + step : rows + 2 + step] for step in range(steps)]
    return functional.cross_entropy(logits[:, 0, first:].flatten(0, 1), torch.cat(truth))


def _features(reference: Reference, loaded: LoadedDraft, known: Continuation, shift: int = 0) -> torch.Tensor:
    """[tokens, states * hidden] that the draft reads, or those of ``shift`` boundaries on, round the end."""
    states = reference.states(known.tokens)
    return torch.cat([states[(k + shift) % len(states)] for k in loaded.boundaries], dim=-1)


def offline(
    plan: WiringPlan, reference: Reference, answers: Mapping[str, Mapping[str, Any]], steps: int, shift: int = 0
) -> dict[str, Counts]:
    """What each request's draft is granted by a plain forward, without any code of SGLang.

    ``answers``: request -> its ``prompt`` and ``output``; ``shift``: on states so many boundaries off.
    """
    loaded = load_draft(plan)
    counts: dict[str, Counts] = {}
    for name, answer in answers.items():
        prompt, output = answer["prompt"], answer["output"]
        tokens = greedy(reference, [*prompt, *output], steps - 1)  # the last step may overrun
        known = Continuation(tokens=tokens, prompt_length=len(prompt))
        (counts[name],) = replay(
            loaded.draft,
            continuations=[known],
            features=[_features(reference, loaded, known, shift)],
            embedding=reference.embedding,
            draft_to_target=loaded.draft_to_target,
            steps=steps,
            max_new_tokens=len(output),
        )
    return counts
