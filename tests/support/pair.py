"""The trained pair, its prompts, and what a plain PyTorch forward says that serving it must come to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import attrs

from eagle3_adapters.pair import Request, plan_pair
from eagle3_adapters.reference import Continuation, Counts, replay
from eagle3_adapters.reference.load import load_draft
from eagle3_adapters.registry import Registry
from eagle3_adapters.wiring import WiringPlan

PAIR = Path(__file__).parents[1] / "pairs" / "llama"
TARGET, DRAFT = PAIR / "target", PAIR / "draft"
#: Drafts a verify step and tokens a prompt, in the demo and wherever counts are compared.
STEPS, NEW_TOKENS = 3, 80


#: The pair with latent attention and experts; its draft reads {0, 3, 5}.
DEEPSEEK = PAIR.parent / "deepseek"


def prompts(pair: Path = PAIR, key: str = "token_ids") -> list[list[int]]:
    """Token ids of the held-out prompts; ``greedy_token_ids``: of their greedy continuations in float32."""
    return [prompt[key] for prompt in json.loads((pair / "prompts.json").read_text(encoding="utf-8"))]


def plan(target: Path = TARGET, draft: Path = DRAFT, **asked: object) -> WiringPlan:
    """The plan of a pair, which must have one."""
    request = attrs.evolve(Request(target=str(target), draft=str(draft)), **asked)  # type: ignore[arg-type]  # by name
    planning = plan_pair(request, Registry.installed(), "0.5.23")
    assert planning.plan is not None, planning.findings
    return planning.plan


def offline_counts(
    plan: WiringPlan, continuations: Sequence[Sequence[int]], new_tokens: int = NEW_TOKENS, pair: Path = PAIR
) -> list[Counts]:
    """Verify steps and accepted drafts of each prompt of ``pair``, in float32, without any code of SGLang.

    ``continuations`` are the prompts' greedy tokens, ``new_tokens + STEPS - 1`` of them or more.
    """
    # Seconds; only tests that compare with the offline forward pay for it.
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    # Its progress bar would stand between the lines of whoever calls.
    transformers.utils.logging.disable_progress_bar()
    # Not the plan's target: transformers does not know Kimi's, which holds the same weights.
    target = transformers.AutoModelForCausalLM.from_pretrained(pair / "target", dtype=torch.float32)
    loaded = load_draft(plan)
    known, features = [], []
    for prompt, continuation in zip(prompts(pair), continuations, strict=True):
        tokens = [*prompt, *continuation]
        with torch.no_grad():
            states = target(torch.tensor([tokens]), output_hidden_states=True).hidden_states
        known.append(Continuation(tokens=tuple(tokens), prompt_length=len(prompt)))
        # Boundary k is hidden_states[k] for every k below N.
        features.append(torch.cat([states[k][0] for k in loaded.boundaries], dim=-1))
    return replay(
        loaded.draft,
        continuations=known,
        features=features,
        embedding=target.get_input_embeddings().weight,
        draft_to_target=loaded.draft_to_target,
        steps=STEPS,
        max_new_tokens=new_tokens,
    )
