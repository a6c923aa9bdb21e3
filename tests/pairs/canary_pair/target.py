"""Any target: training, generation, and the residual stream at every boundary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from canary_pair import corpus
from canary_pair.progress import Clock, adamw, scheduled
from canary_pair.recipe import PROMPT_LENGTHS, SEED, Recipe
from canary_pair.shape import MAX_POSITIONS, PairShape


def round_to_bf16(module: torch.nn.Module) -> None:
    """Give every parameter the value that its bf16 file will hold, and freeze it."""
    for parameter in module.parameters():
        parameter.requires_grad = False
        parameter.copy_(parameter.to(torch.bfloat16))


def train(
    model: PreTrainedModel, shape: PairShape, text: corpus.Corpus, recipe: Recipe, clock: Clock
) -> dict[str, Any]:
    """Next-token training on the corpus; leaves bf16 values. Returns steps and losses (nats a token)."""
    device = model.device
    stream, generator = text.training.to(device), torch.Generator().manual_seed(SEED)
    optimizer = adamw(model, recipe.target_rate)
    model.train()
    losses: list[tuple[int, float]] = []
    steps = 0
    seconds = recipe.minutes * 60 * recipe.target_share
    for step in scheduled(optimizer, peak=recipe.target_rate, steps=recipe.target_steps, seconds=seconds):
        loss = _loss(model, corpus.windows(stream, recipe.target_rows, recipe.target_length + 1, generator))
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        shape.after_step(model)
        steps = step + 1
        if step % 100 == 0:
            losses.append((step, round(loss.item(), 4)))
            clock.say(f"target step {step}: loss {loss.item():.3f}")
    model.eval()
    round_to_bf16(model)
    return {"steps": steps, "training_loss": losses, "held_out_loss": _held_out_loss(model, text, recipe)}


def _loss(model: PreTrainedModel, tokens: Tensor) -> Tensor:
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    return functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())


@torch.no_grad()
def _held_out_loss(model: PreTrainedModel, text: corpus.Corpus, recipe: Recipe) -> float:
    generator = torch.Generator().manual_seed(SEED + 1)
    stream = text.held_out.to(model.device)
    rows = [corpus.windows(stream, recipe.target_rows, recipe.target_length + 1, generator) for _ in range(4)]
    return sum(_loss(model, tokens).item() for tokens in rows) / len(rows)


@torch.no_grad()
def boundaries(model: PreTrainedModel, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Residual stream at every boundary and the logits, for ``tokens`` [batch, length].

    Returns planes [LAYERS + 2, batch, length, HIDDEN] (0..LAYERS, then the normed output) and logits
    [batch, length, vocab]. Hooks are used because HF's ``hidden_states`` holds no pre-norm last boundary.
    """
    planes: list[Tensor] = []

    def record(_module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        planes.append((args[0] if args else kwargs["hidden_states"]).detach())

    readers = [*model.model.layers, model.model.norm, model.lm_head]
    handles = [module.register_forward_pre_hook(record, with_kwargs=True) for module in readers]
    try:
        logits = model(input_ids=tokens, use_cache=False).logits
    finally:
        for handle in handles:
            handle.remove()
    return torch.stack(planes), logits


@torch.no_grad()
def generate(
    model: PreTrainedModel,
    prompts: Tensor,
    length: int,
    *,
    temperature: float = 0.0,
    forbid_end: bool = False,
) -> tuple[Tensor, Tensor]:
    """Extend ``prompts`` [batch, prompt] to [batch, length]; greedy at temperature 0, else sampled.

    Also returns, for each row, the smallest lead of the best logit over the second: a near-tie makes a greedy
    continuation depend on the machine.
    """
    tokens, cache, fresh = prompts, None, prompts
    lead = torch.full((len(prompts),), float("inf"), device=prompts.device)
    while tokens.shape[1] < length:
        result = model(input_ids=fresh, past_key_values=cache, use_cache=True)
        cache, logits = result.past_key_values, result.logits[:, -1].float()
        if forbid_end:
            logits[:, corpus.END_ID] = float("-inf")
        best = logits.topk(2, dim=-1)
        lead = torch.minimum(lead, best.values[:, 0] - best.values[:, 1])
        if temperature:
            fresh = torch.multinomial(functional.softmax(logits / temperature, dim=-1), 1)
        else:
            fresh = best.indices[:, :1]
        tokens = torch.cat([tokens, fresh], dim=1)
    return tokens, lead


def training_text(model: PreTrainedModel, text: corpus.Corpus, recipe: Recipe, clock: Clock) -> Tensor:
    """Rows [generated_rows, text_length] written after real prompts: 5/8 greedy, 3/8 at temperature 0.6."""
    generator = torch.Generator().manual_seed(SEED + 2)
    torch.manual_seed(SEED + 2)
    stream = text.training.to(model.device)
    rows: list[Tensor] = []
    pieces = max(1, recipe.generated_rows // (8 * recipe.generation_batch)) * 8
    size = recipe.generated_rows // pieces
    for piece in range(pieces):
        prompts = corpus.windows(stream, size, PROMPT_LENGTHS[piece % len(PROMPT_LENGTHS)], generator)
        temperature = 0.6 if piece % 8 >= 5 else 0.0
        rows.append(generate(model, prompts, recipe.text_length, temperature=temperature, forbid_end=True)[0])
        clock.say(f"generated {size} rows at temperature {temperature} ({piece + 1}/{pieces})")
    return torch.cat(rows)


def save(model: PreTrainedModel, shape: PairShape, text: corpus.Corpus, folder: Path) -> None:
    """Write the target as a HF checkpoint in bf16."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(shape.checkpoint(model), folder / "model.safetensors", metadata={"format": "pt"})
    generation = {"bos_token_id": corpus.END_ID, "eos_token_id": corpus.END_ID, "do_sample": False}
    for name, content in (("config.json", shape.config), ("generation_config.json", generation)):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    corpus.save_tokenizer(text.tokenizer, folder, MAX_POSITIONS)
