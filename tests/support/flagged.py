"""A small random draft with any math, served by the engine while every forward of it is written down.

The draft comes in the universal format (support/universal.py), whose files say every flag, installed as any other.
Prompts are served one by one: each record belongs to the request before it.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from safetensors.torch import load_file, save_file

from eagle3_adapters.canonical import TENSOR_FLAGS
from eagle3_adapters.pair import Request, plan_pair
from eagle3_adapters.reference import Continuation, Counts, ReferenceDraft, replay
from eagle3_adapters.reference.load import LoadedDraft, build_draft, load_draft
from eagle3_adapters.registry import Registry
from eagle3_adapters.rehearsal.engine import cpu_engine, cpu_environment
from eagle3_adapters.values import DraftMath
from eagle3_adapters.wiring import WiringPlan
from support.boundary_states import Reference
from support.fitted_drafts import greedy
from support.identity_engine import tokens as random_tokens
from support.pair import STEPS
from support.random_targets import VOCABULARY
from support.serve import SECONDS, environment, speculation
from support.universal import FORMAT

LISTENER = Path(__file__).parent / "listener"
#: The mode of a forward in which the draft reads its own last output.
OWN = "DECODE"
#: Lengths of the prompts, and tokens that each is continued by.
PROMPTS, NEW_TOKENS = (5, 19, 40), 24
#: Three quarters of the vocabulary, in no order.
TARGET_IDS = (9, 2, 14, 5, 0, 11, 7, 3, 12, 1, 8, 6)


@attrs.frozen(kw_only=True)
class Flagged:
    """What a draft is, beside its sizes."""

    math: DraftMath
    boundaries: tuple[int, ...]
    depth: int = 1
    embedding_trained: bool = False
    #: Fields of its config that differ from the target's.
    fields: Mapping[str, Any] = attrs.field(factory=dict)
    latent: Mapping[str, int] | None = None

    def write(self, directory: Path, known: Path) -> Path:
        """Its files for a target; weights are random but for the head, which is fitted to what the target says."""
        target = json.loads((known / "config.json").read_text(encoding="utf-8"))
        config = {
            key: target[key]
            for key in ("hidden_size", "vocab_size", "rms_norm_eps", "max_position_embeddings", "torch_dtype")
        }
        config |= {
            "intermediate_size": 48,
            "num_attention_heads": 4,
            "num_key_value_heads": 4 if self.latent else 2,
            "num_hidden_layers": self.depth,
            "draft_vocab_size": len(TARGET_IDS),
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "use_aux_hidden_state": True,
            **({"head_dim": 16} if self.latent is None else self.latent),
            **self.fields,
        }
        torch.manual_seed(11)
        draft = build_draft(
            config,
            self.math,
            states=len(self.boundaries),
            state_width=target["hidden_size"],
            vocab_size=target["vocab_size"],
            draft_vocab_size=len(TARGET_IDS),
        )
        draft.load_state_dict({name: _random(tensor) for name, tensor in draft.state_dict().items()})
        embedding = load_file(known / "model.safetensors")["model.embed_tokens.weight"]
        if self.embedding_trained:
            embedding = torch.randn(embedding.shape)
        _fit_head(draft, Reference(known), self.boundaries, embedding)
        tensors = draft.state_dict() | {"d2t": torch.tensor(TARGET_IDS) - torch.arange(len(TARGET_IDS))}
        if self.embedding_trained:
            tensors["embed_tokens.weight"] = embedding
        said = {
            "fields": config,
            "boundaries": list(self.boundaries),
            "math": {flag: value for flag, value in attrs.asdict(self.math).items() if flag not in TENSOR_FLAGS},
            "embedding_trained": self.embedding_trained,
        }
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps({"universal": said}), encoding="utf-8")
        save_file(tensors, directory / "model.safetensors")
        return directory


def _random(tensor: torch.Tensor) -> torch.Tensor:
    """Matrices that keep the size of what they read, norms of both signs, biases as large as what they are added to."""
    random = torch.randn(tensor.shape)
    return (
        random * tensor.shape[-1] ** -0.5 * 1.5 if tensor.ndim == 2 else random.sign() * (0.5 + torch.rand_like(random))
    )


@torch.no_grad()
def _fit_head(draft: ReferenceDraft, target: Reference, boundaries: Sequence[int], embedding: torch.Tensor) -> None:
    """A head that knows what the target goes on to say after the prompts: else hardly a guess would be accepted."""
    reads: list[torch.Tensor] = []
    hook = draft.lm_head.register_forward_pre_hook(lambda _, args: reads.append(args[0][0]))
    wanted = []
    for prompt in prompts():
        tokens = greedy(target, prompt, NEW_TOKENS + STEPS)
        states, rows = target.states(tokens), len(tokens) - STEPS - 1
        features = torch.cat([states[k] for k in boundaries], dim=-1)[None, :rows]
        # Teacher-forced: later steps read the draft's own states, with the target's tokens.
        draft(features, torch.tensor([tokens]), embedding, steps=STEPS)
        # The prompt's own rows are asked nothing.
        first = len(prompt) - 1
        reads[-STEPS:] = [read[first:] for read in reads[-STEPS:]]
        wanted += [tokens[2 + step + first : 2 + step + rows] for step in range(STEPS)]
    hook.remove()
    seen, said = torch.cat(reads), torch.tensor(list(itertools.chain(*wanted)))
    hits = (said[:, None] == torch.tensor(TARGET_IDS)).float()
    identity = torch.eye(seen.shape[-1])
    head = torch.linalg.solve(seen.T @ seen + identity, seen.T @ (hits - hits.mean()))
    draft.lm_head.weight.copy_(4 * head.T)


def prompts() -> list[list[int]]:
    """What every draft is asked to continue."""
    return [random_tokens(length, seed) for seed, length in enumerate(PROMPTS)]


@attrs.frozen(kw_only=True)
class Answer:
    """One request: its tokens, and what the engine counted."""

    continuation: Continuation
    counts: Counts


@attrs.frozen(kw_only=True)
class Served:
    """What one boot left behind."""

    plan: WiringPlan
    target: Path
    answers: tuple[Answer, ...]
    #: The draft's forwards of each answer, in their order.
    forwards: tuple[tuple[dict[str, Any], ...], ...]
    log: str


def install_universal(directory: Path) -> Path:
    """A folder for the path under which the universal format is an installed distribution."""
    facts = directory / "universal-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: universal\nVersion: 1.0\n", encoding="utf-8")
    entry = f"[eagle3_adapters.formats]\n{FORMAT.name} = support.universal:FORMAT\n"
    (facts / "entry_points.txt").write_text(entry, encoding="utf-8")
    return directory


def serve(directory: Path, target: Path, flagged: Flagged, *, stock: bool = False) -> Served:
    """Write the draft, boot the engine, serve the prompts. RuntimeError where no answers came.

    ``stock``: with SGLang's own class, whatever the plan says.
    """
    directory.mkdir(exist_ok=True)
    draft = flagged.write(directory / "draft", target)
    records, output = directory / "records", directory / "answers.json"
    records.mkdir()
    installed = install_universal(directory / "installed")
    arguments = {"model_path": str(target), **speculation(draft)}
    path = os.pathsep.join((str(LISTENER), str(installed)))
    done = subprocess.run(
        [sys.executable, "-m", "support.flagged", json.dumps(arguments), output, records],
        env=cpu_environment(
            environment(
                EAGLE3_ADAPTER="auto", LISTENER_OUTPUT=str(records), LISTENER_STOCK=str(int(stock)), PYTHONPATH=path
            )
        ),
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if not output.exists():
        raise RuntimeError(f"the engine's process ended with {done.returncode}\n{done.stderr[-6000:]}")
    answers, forwards = [], []
    for answer in json.loads(output.read_text(encoding="utf-8")):
        sequence = (*answer["prompt"], *answer["output"])
        answers.append(
            Answer(
                continuation=Continuation(tokens=sequence, prompt_length=len(answer["prompt"])),
                counts=Counts(verifies=answer["verifies"], accepted=answer["accepted"]),
            )
        )
        forwards.append(tuple(torch.load(records / name) for name in answer["forwards"]))
    return Served(
        plan=plan_of(target, draft, installed),
        target=target,
        answers=tuple(answers),
        forwards=tuple(forwards),
        log=done.stderr,
    )


def plan_of(target: Path, draft: Path, installed: Path) -> WiringPlan:
    """The plan that the engine was started with."""
    sys.path.insert(0, str(installed))
    try:
        planning = plan_pair(Request(target=str(target), draft=str(draft)), Registry.installed(), "0.5.23")
    finally:
        sys.path.remove(str(installed))
    assert planning.plan is not None, planning.findings
    return planning.plan


@attrs.frozen(kw_only=True)
class Guess:
    """The draft's logits [draft vocabulary] for one position at one step, by the engine."""

    answer: int
    row: int
    step: int
    logits: torch.Tensor


def guesses(served: Served) -> list[Guess]:
    """Every forward whose context is a part of an answer: steps count from the last row that the target verified."""
    found: list[Guess] = []
    for index, (answer, forwards) in enumerate(zip(served.answers, served.forwards, strict=True)):
        tokens, step = answer.continuation.tokens, 0
        for forward, following in itertools.pairwise(forwards):
            step = step + 1 if forward["mode"] == OWN else 0
            # Behind the row from which the next guesses start stands what was not taken, or nothing.
            last = following["positions"][0] - 1 if step == 0 and following["mode"] == OWN else len(tokens) + step - 2
            logits = forward["logits"]
            # Of a prompt the last row alone has logits.
            for row, said in zip(forward["positions"][-len(logits) :], logits, strict=True):
                if row <= last and row - step <= len(tokens) - 2:
                    found.append(Guess(answer=index, row=row - step, step=step, logits=said))
    return found


class Offline:
    """What the reference says of the same answers: the draft as it is, or with other math."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.loaded: LoadedDraft = load_draft(served.plan)
        reference = Reference(served.target)
        embedding = load_file(served.target / "model.safetensors")["model.embed_tokens.weight"]
        self.target_embedding = embedding
        self.embedding = embedding if self.loaded.embedding is None else self.loaded.embedding
        self._continuations: list[Continuation] = []
        self._features: list[torch.Tensor] = []
        for answer in served.answers:
            tokens = greedy(reference, answer.continuation.tokens, STEPS - 1)  # the last step may overrun
            states = reference.states(tokens)
            self._continuations.append(attrs.evolve(answer.continuation, tokens=tokens))
            self._features.append(torch.cat([states[k] for k in self.loaded.boundaries], dim=-1))

    def counts(self) -> list[Counts]:
        """Verify steps and accepted drafts of each answer."""
        return replay(
            self.loaded.draft,
            continuations=self._continuations,
            features=self._features,
            embedding=self.embedding,
            draft_to_target=self.loaded.draft_to_target,
            steps=STEPS,
            max_new_tokens=NEW_TOKENS,
        )

    def logits(self, *, embedding: torch.Tensor | None = None, bypass_fc: bool = False) -> list[torch.Tensor]:
        """[steps, rows, draft vocabulary] of each answer's unroll."""
        with torch.no_grad():
            return [
                self.loaded.draft(
                    features[None, :-1],
                    torch.tensor([continuation.tokens]),
                    self.embedding if embedding is None else embedding,
                    steps=STEPS,
                    draft_to_target=self.loaded.draft_to_target,
                    bypass_fc=bypass_fc,
                )[:, 0]
                for continuation, features in zip(self._continuations, self._features, strict=True)
            ]

    def without(self, flag: str) -> list[torch.Tensor]:
        """The same with one flag of the math off, its weights unused."""
        whole = self.loaded
        config = self._served.plan.config
        other = build_draft(
            config,
            attrs.evolve(self._served.plan.math, **{flag: False}),
            states=len(whole.boundaries),
            state_width=self._served.plan.state_width,
            vocab_size=self._served.plan.target_vocab_size,
            draft_vocab_size=self._served.plan.draft_vocab_size,
        )
        other.load_state_dict(whole.draft.state_dict(), strict=False)
        self.loaded = attrs.evolve(whole, draft=other.eval())
        try:
            return self.logits()
        finally:
            self.loaded = whole


def farthest(found: list[Guess], said: list[torch.Tensor], steps: range = range(STEPS)) -> float:
    """Largest difference of the engine's logits from others', as a part of the largest logit; over some steps."""
    largest = max(float(logits.abs().max()) for logits in said)
    differences = [(one.logits - said[one.answer][one.step, one.row]).abs().max() for one in found if one.step in steps]
    return float(torch.stack(differences).max()) / largest


def _answer(engine: Any, prompt: list[int], records: Path) -> dict[str, Any]:
    before = {file.name for file in records.iterdir()}
    sampling = {"temperature": 0, "max_new_tokens": NEW_TOKENS, "ignore_eos": True}
    result = engine.generate(input_ids=prompt, sampling_params=sampling)
    return {
        "prompt": prompt,
        "output": result["output_ids"],
        "verifies": result["meta_info"]["spec_verify_ct"],
        "accepted": result["meta_info"]["spec_num_correct_drafts"],
        "forwards": sorted(file.name for file in records.iterdir() if file.name not in before),
    }


def main() -> None:
    """``python -m support.flagged ARGUMENTS OUTPUT RECORDS``."""
    arguments, output, records = json.loads(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    assert max(TARGET_IDS) < VOCABULARY
    with cpu_engine(log_level="info", disable_radix_cache=True, **arguments) as engine:
        answers = [_answer(engine, prompt, records) for prompt in prompts()]
    output.write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
    sys.stderr.flush()
    # As in serve.py: sockets of the engine would keep the interpreter waiting.
    os._exit(0)
