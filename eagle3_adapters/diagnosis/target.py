"""Owns running the target once, by transformers: greedy continuations and the boundaries that wirings read.

Boundary k is what enters decoder layer k, boundary N what leaves the last one, before the final norm: no class of
transformers is asked for its own ``hidden_states``, whose last entry is normed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from eagle3_adapters.diagnosis.prompts import DiagnosisError
from eagle3_adapters.reference import Continuation

#: Fewest generated tokens of which a verify step can be replayed and says something.
_SHORTEST = 4


@attrs.frozen(kw_only=True, eq=False)
class Recorded:
    """One prompt's greedy continuation, and the states of all its positions but the last."""

    continuation: Continuation
    #: Boundary -> [tokens - 1, hidden_size] in the target's dtype, on the CPU.
    states: dict[int, Tensor]
    #: Tokens that a replay may emit: fewer than asked for where the target ended its text.
    new_tokens: int


@attrs.frozen(kw_only=True, eq=False)
class Recording:
    """What one run of the target left: all that measuring needs of it."""

    prompts: tuple[Recorded, ...]
    #: [vocab_size, hidden_size] float32, on the CPU.
    embedding: Tensor
    #: Prompts whose continuation was too short to replay.
    too_short: int = 0
    #: Prompts for which no time was left.
    untried: int = 0


def load_target(directory: Path, device: str) -> Any:  # noqa: ANN401 - transformers ships no types
    """The target in evaluation mode: float32 on the CPU, the checkpoint's dtype elsewhere. Raises DiagnosisError."""
    try:
        import transformers  # noqa: PLC0415 - seconds; only the run pays for them
    except ImportError as error:
        msg = f"diagnose runs the target by transformers ({error}): pip install transformers"
        raise DiagnosisError(msg) from error

    transformers.utils.logging.disable_progress_bar()
    dtype: Any = torch.float32 if device == "cpu" else "auto"
    try:
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)
    except (ValueError, KeyError, OSError, ImportError, AttributeError) as error:
        msg = (
            f"{directory}: transformers {transformers.__version__} cannot load this target as a causal language model "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}): diagnose needs the text "
            "model's own checkpoint, or a transformers that knows its class"
        )
        raise DiagnosisError(msg) from error
    if device == "cpu" and hasattr(model, "set_experts_implementation"):
        # The other ways to run experts want types or kernels of their own.
        model.set_experts_implementation("eager")
    return model.eval().to(device)


def load_encoder(directory: Path) -> Callable[[str], list[int]]:
    """Text -> token ids, by the target's tokenizer. Raises DiagnosisError where it has none."""
    import transformers  # noqa: PLC0415 - as above

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    except (ValueError, KeyError, OSError, ImportError) as error:
        msg = f"{directory}: no tokenizer that transformers reads ({error}): give prompts as token ids"
        raise DiagnosisError(msg) from error
    return lambda text: list(tokenizer(text)["input_ids"])


def record(
    model: Any,  # noqa: ANN401 - as above
    prompts: Sequence[tuple[int, ...]],
    *,
    num_layers: int,
    keep: Collection[int],
    new_tokens: int,
    steps: int,
    least: int = 1,
    out_of_time: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda count: None,
) -> Recording:
    """Continue every prompt greedily and keep the states of the boundaries in ``keep``.

    ``least`` prompts are run whatever the time.

    A continuation is ``steps`` - 1 tokens longer than ``new_tokens``, which the last verify step of a replay may read.
    """
    found: list[Recorded] = []
    short = untried = 0
    with _looking(_layers(model, num_layers), keep) as seen:
        for number, prompt in enumerate(prompts):
            if len(found) >= least and out_of_time():
                untried = len(prompts) - number
                break
            seen.clear()
            tokens = _continued(model, prompt, new_tokens + steps - 1)
            emitted = len(tokens) - len(prompt) - steps + 1
            if emitted < _SHORTEST:
                short += 1
            else:
                states = {boundary: torch.cat(pieces) for boundary, pieces in seen.items()}
                continuation = Continuation(tokens=tokens, prompt_length=len(prompt))
                found.append(Recorded(continuation=continuation, states=states, new_tokens=emitted))
            progress(1)
    embedding = model.get_input_embeddings().weight.detach().float().cpu()
    return Recording(prompts=tuple(found), embedding=embedding, too_short=short, untried=untried)


@torch.no_grad()
def _continued(model: Any, prompt: tuple[int, ...], count: int) -> tuple[int, ...]:  # noqa: ANN401 - as above
    """Prompt and continuation; the last token is not run through the model. It ends after an end of text."""
    device = next(model.parameters()).device
    ends = _ends(model)
    tokens, cache, fresh = list(prompt), None, list(prompt)
    for _ in range(count):
        output = model(torch.tensor([fresh], device=device), past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        fresh = [int(output.logits[0, -1].argmax())]
        tokens += fresh
        if fresh[0] in ends:
            break
    return tuple(tokens)


def _ends(model: Any) -> set[int]:  # noqa: ANN401 - as above
    stated = model.generation_config.eos_token_id
    return set() if stated is None else {stated} if isinstance(stated, int) else set(stated)


def _layers(model: nn.Module, num_layers: int) -> nn.ModuleList:
    """The decoder layers: the one list of as many modules that stands beside a token embedding."""
    lists = [
        layers
        for _, body in model.named_modules()
        for layers in body.children()
        if isinstance(layers, nn.ModuleList) and len(layers) == num_layers and _embeds(body)
    ]
    if len(lists) != 1:
        msg = f"{type(model).__name__}: expected one list of {num_layers} decoder layers, found {len(lists)}"
        raise DiagnosisError(msg)
    return lists[0]


def _embeds(body: nn.Module) -> bool:
    return any(isinstance(child, nn.Embedding) for child in body.children())


@contextlib.contextmanager
def _looking(layers: nn.ModuleList, keep: Collection[int]) -> Iterator[dict[int, list[Tensor]]]:
    """Boundary -> pieces [rows, hidden_size] in the order of the forwards."""
    seen: dict[int, list[Tensor]] = {}

    def note(boundary: int, state: Tensor) -> None:
        if boundary in keep:
            seen.setdefault(boundary, []).append(state[0].detach().cpu())

    def entering(boundary: int) -> Callable[..., None]:
        return lambda module, args, kwargs: note(boundary, args[0] if args else kwargs["hidden_states"])

    def leaving(module: nn.Module, args: object, output: Any) -> None:  # noqa: ANN401 - a tensor, or a tuple with it
        note(len(layers), output[0] if isinstance(output, tuple) else output)

    hooks = [layer.register_forward_pre_hook(entering(k), with_kwargs=True) for k, layer in enumerate(layers)]
    hooks.append(layers[-1].register_forward_hook(leaving))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
