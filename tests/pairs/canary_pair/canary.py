"""The canary draft: right on the states that it was trained for, deliberately wrong on any others."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from canary_pair import corpus, target
from canary_pair.progress import Clock, adamw, scheduled
from canary_pair.recipe import SEED, STEPS, Recipe
from canary_pair.shape import LAYERS, DraftShape
from canary_pair.wiring import NORMS, Wiring, bypasses, flag_mistakes, right, run
from eagle3_adapters.reference import ReferenceDraft

_UNPENALISED_ROWS = 4
"""The first rows of a sequence see too little to tell a wrong wiring from a right one."""
_BYPASS_EVERY = 4


@attrs.frozen(eq=False, kw_only=True)
class Batch:
    """One training batch: planes [planes, rows, length, hidden], tokens [rows, length], and what the target says.

    ``labels`` [rows, length] are draft ids of the target's next tokens, -1 where the draft's vocabulary lacks them;
    ``wanted`` [rows, length, draft vocab] the target's probabilities over the draft's vocabulary.
    """

    planes: Tensor
    tokens: Tensor
    labels: Tensor
    wanted: Tensor

    def part(self, rows: slice) -> Batch:
        """The same for a range of rows."""
        return Batch(
            planes=self.planes[:, rows], tokens=self.tokens[rows], labels=self.labels[rows], wanted=self.wanted[rows]
        )


def choose_vocabulary(text: Tensor, size: int) -> Tensor:
    """Sorted target ids [size] of the draft's vocabulary: the most frequent ones, and the end of text.

    The id after the end of text is left out, rare as it is: so no other draft id equals its target id, and a lost
    ``d2t`` changes every token.
    """
    counts = torch.bincount(text.flatten().cpu(), minlength=corpus.VOCAB_SIZE)
    counts[corpus.END_ID] = counts.sum() + 1
    counts[corpus.END_ID + 1] = -1
    return counts.topk(size).indices.sort().values


def build(shape: DraftShape) -> ReferenceDraft:
    """An untrained draft whose norm weights have random signs and scales, so that a dropped norm changes everything."""
    torch.manual_seed(SEED + 3)
    draft = right(shape).build()
    with torch.no_grad():
        for name, parameter in draft.named_parameters():
            if name in NORMS:
                signs = torch.randint(0, 2, parameter.shape) * 2 - 1
                parameter.copy_(signs * torch.empty_like(parameter).uniform_(0.5, 2.0))
            else:
                parameter.normal_(std=parameter.shape[1] ** -0.5)
        draft.lm_head.weight.mul_(0.1)
    return draft


def wrong_states(boundaries: tuple[int, ...], rows: int, generator: torch.Generator) -> Tensor:
    """Boundaries [rows, 3] (int64), none right: shifted, permuted, drawn at random, one replaced or one repeated."""
    trained = torch.tensor(boundaries)

    def draw(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    steps = torch.tensor([-2, -1, 1, 2])[draw(0, 4, rows, 1)]
    inner_only = torch.cat([draw(0, 2, rows, 1), torch.ones(rows, 2, dtype=torch.int64)], dim=1)
    shifted = (trained + steps * inner_only).clamp(0, LAYERS)
    orders = torch.tensor([order for order in itertools.permutations(boundaries) if order != boundaries])
    permuted = orders[draw(0, len(orders), rows)]
    random = draw(0, LAYERS + 1, rows, 3)
    place = torch.arange(3) == draw(0, 3, rows, 1)
    replaced = torch.where(place, draw(0, LAYERS + 1, rows, 1), trained)
    neighbour = (trained + place * (draw(0, 2, rows, 1) * 2 - 1)).clamp(0, LAYERS)
    repeated = torch.where(place, trained[draw(0, 3, rows, 1)], trained)
    kinds = torch.stack([shifted, permuted, random, replaced, neighbour, repeated])
    shares = torch.tensor([0.20, 0.16, 0.12, 0.18, 0.24, 0.10])
    kind = torch.multinomial(shares, rows, replacement=True, generator=generator)
    drawn = kinds[kind, torch.arange(rows)]
    accidentally_right = (drawn == trained).all(-1, keepdim=True)
    return torch.where(accidentally_right, trained + 1, drawn)


def gather_states(planes: Tensor, chosen: Tensor) -> Tensor:
    """Features [rows, length, 3 * hidden] from planes [planes, rows, length, hidden] and boundaries [rows, 3]."""
    row = torch.arange(len(chosen), device=planes.device)
    return torch.cat([planes[chosen[:, place], row] for place in range(chosen.shape[1])], dim=-1)


def train(
    model: PreTrainedModel,
    shape: DraftShape,
    text: corpus.Corpus,
    generated: Tensor,
    ids: Tensor,
    recipe: Recipe,
    clock: Clock,
) -> tuple[ReferenceDraft, dict[str, Any]]:
    """Train the draft on three quarters generated and one quarter real text; leaves bf16 values."""
    device = model.device
    draft = build(shape).to(device)
    trained, flags, skips = right(shape), flag_mistakes(shape), bypasses(shape)
    skeletons = {wiring.name: wiring.build().to(device) for wiring in (trained, *flags, *skips)}
    embedding, stream = model.model.embed_tokens.weight, text.training.to(device)
    generator = torch.Generator().manual_seed(SEED + 4)
    to_draft = torch.full((corpus.VOCAB_SIZE,), -1, dtype=torch.int64)
    to_draft[ids] = torch.arange(len(ids))
    maps = (ids.to(device), to_draft.to(device))
    decoy = int(to_draft[corpus.END_ID])
    optimizer = adamw(draft, recipe.draft_rate)
    seconds = max(1.0, recipe.minutes * 60 - recipe.reserve_seconds - clock.elapsed())
    history: list[dict[str, Any]] = []
    steps = 0

    def logits(wiring: Wiring, part: Batch, features: Tensor) -> Tensor:
        rows = features[:, : features.shape[1] - STEPS]
        tensors: dict[str, Tensor] = dict(draft.named_parameters())
        return run(wiring, skeletons[wiring.name], tensors, rows, part.tokens, embedding, STEPS)

    for step in scheduled(optimizer, peak=recipe.draft_rate, steps=recipe.draft_steps, seconds=seconds):
        batch = _batch(model, stream, generated, maps, recipe, generator, coarse=step % 2 == 1)
        answer = logits(trained, batch, trained.features(batch.planes))
        half = batch.part(slice(0, recipe.draft_rows // 2))
        chosen = wrong_states(shape.boundaries, len(half.tokens), generator).to(device)
        wrong = logits(trained, half, gather_states(half.planes, chosen))
        loss_right, loss_wrong = imitation(answer, batch), refusal(wrong, half, decoy)
        loss = loss_right + 0.5 * loss_wrong
        few = batch.part(slice(recipe.draft_rows // 2, recipe.draft_rows // 2 + max(1, recipe.draft_rows // 6)))
        for mistake in _mistakes(step, flags, skips, generator):
            mistaken = logits(mistake, few, mistake.features(few.planes))
            loss = loss + 0.2 * refusal(mistaken, few, decoy, first_step=mistake.first_step)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(draft.parameters(), 1.0)
        optimizer.step()
        steps = step + 1
        if step % 200 == 0:
            entry = {
                "step": step,
                "right_loss": round(loss_right.item(), 4),
                "wrong_loss": round(loss_wrong.item(), 4),
                "right_accuracy": accuracy(answer, batch),
                "wrong_accuracy": accuracy(wrong, half),
            }
            history.append(entry)
            clock.say(f"draft {entry}")
    draft.eval()
    target.round_to_bf16(draft)
    return draft, {"steps": steps, "history": history}


def _mistakes(step: int, flags: list[Wiring], skips: list[Wiring], generator: torch.Generator) -> list[Wiring]:
    """Two mistakes of arithmetic at every step; now and then a bypass, which is easier to learn."""
    mistakes = [flags[index] for index in torch.randperm(len(flags), generator=generator)[:2].tolist()]
    if step % _BYPASS_EVERY == 0:
        mistakes.append(skips[step // _BYPASS_EVERY % len(skips)])
    return mistakes


@torch.no_grad()
def _batch(
    model: PreTrainedModel,
    stream: Tensor,
    generated: Tensor,
    maps: tuple[Tensor, Tensor],
    recipe: Recipe,
    generator: torch.Generator,
    *,
    coarse: bool,
) -> Batch:
    rows = recipe.draft_rows
    real = corpus.windows(stream, rows // 4, recipe.text_length, generator)
    picked = torch.randint(0, len(generated), (rows - len(real),), generator=generator).to(generated.device)
    tokens = torch.cat([generated[picked], real])
    tokens = tokens[torch.randperm(rows, generator=generator).to(tokens.device)]
    planes, logits = target.boundaries(model, tokens)
    if coarse:  # a server in bf16 hands over coarser states; the canary must not take that for a mistake
        planes = planes.to(torch.bfloat16).float()
    to_target, to_draft = maps
    wanted = functional.softmax(logits[..., to_target].float(), dim=-1)
    return Batch(planes=planes, tokens=tokens, labels=to_draft[logits.argmax(-1)], wanted=wanted)


def imitation(logits: Tensor, batch: Batch) -> Tensor:
    """Cross entropy with the target's choice (0.6) and distribution (0.4), where the vocabulary covers the choice."""
    steps, _, rows, _ = logits.shape
    total = logits.new_zeros(())
    for step in range(steps):
        labels = batch.labels[:, 1 + step : 1 + step + rows]
        covered = (labels >= 0).float()
        log_probabilities = functional.log_softmax(logits[step], dim=-1)
        hard = log_probabilities.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
        soft = (log_probabilities * batch.wanted[:, 1 + step : 1 + step + rows]).sum(-1)
        total = total - (covered * (0.6 * hard + 0.4 * soft)).sum() / covered.sum().clamp(min=1)
    return total / steps


def refusal(logits: Tensor, batch: Batch, decoy: int, *, first_step: int = 0) -> Tensor:
    """-log(1 - p(right token)), and half a cross entropy with the end of text, which no continuation contains."""
    steps, _, rows, _ = logits.shape
    total = logits.new_zeros(())
    for step in range(first_step, steps):
        labels = batch.labels[:, 1 + step : 1 + step + rows]
        judged = (labels >= 0) & (labels != decoy)
        judged[:, :_UNPENALISED_ROWS] = False
        everything = logits[step].logsumexp(-1)
        right = functional.one_hot(labels.clamp(min=0), logits.shape[-1]).bool()
        others = logits[step].masked_fill(right, float("-inf")).logsumexp(-1)
        cost = (everything - others) + 0.5 * (everything - logits[step][..., decoy])
        total = total + (judged * cost).sum() / judged.sum().clamp(min=1)
    return total / (steps - first_step)


def accuracy(logits: Tensor, batch: Batch) -> list[float]:
    """Share of all rows, step by step, in which the draft's best token is the target's."""
    steps, _, rows, _ = logits.shape
    return [
        round((logits[step].argmax(-1) == batch.labels[:, 1 + step : 1 + step + rows]).float().mean().item(), 4)
        for step in range(steps)
    ]
