"""A draft with latent attention on a Kimi target: its class loads every tensor, and the output stays the target's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.boundary_states import Reference
from support.identity_run import BOUNDARIES, LISTED, STEPS, Run, run
from support.pair import plan
from support.random_targets import DEEPSEEK, KIMI, write_target

from eagle3_adapters.reference import Continuation, replay
from eagle3_adapters.reference.load import load_draft

pytestmark = pytest.mark.engine
#: As in test_identity.py.
TIE = 1e-3


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("latent"), KIMI, latent=True)


def test_all_tensors_are_loaded_by_the_class_for_latent_attention(served: Run) -> None:
    """The loader fuses the two projections to latents; unfilled parameters would have ended the start."""
    tensors = len(load_file(served.draft / "model.safetensors"))
    assert "kimi_k25 x speculators -> Eagle3DeepseekV2ForCausalLM" in served.log
    assert f"{tensors} tensors loaded, 0 dropped" in served.log
    assert "captured states verified" in served.log


def test_column_blocks_of_fc_follow_their_boundaries(served: Run) -> None:
    file = load_file(served.draft / "model.safetensors")["fc.weight"].chunk(len(LISTED), dim=-1)
    loaded = torch.load(served.records / "fc.pt").chunk(len(LISTED), dim=-1)
    for boundary, block in zip(BOUNDARIES, loaded, strict=True):
        assert torch.equal(block, file[LISTED.index(boundary)])


@pytest.fixture(scope="module")
def deepseek(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same weights without Kimi's wrapper, which transformers knows."""
    return write_target(tmp_path_factory.mktemp("deepseek"), DEEPSEEK)


@pytest.fixture(scope="module")
def reference(deepseek: Path) -> Reference:
    return Reference(deepseek)


def test_tokens_are_the_targets_own(served: Run, reference: Reference) -> None:
    for name, answer in served.answers.items():
        sequence = [*answer["prompt"], *answer["output"]]
        best = reference.next_tokens(sequence)
        for position in range(len(answer["prompt"]), len(sequence)):
            token, lead = best[position - 1]
            assert token == sequence[position] or lead < TIE, (name, position)


def test_drafts_are_taken_exactly_where_a_plain_forward_of_the_draft_says(
    served: Run, reference: Reference, deepseek: Path
) -> None:
    """Its latent attention, its norms and the order of its states, without any code of SGLang."""
    made = plan(served.target, served.draft, boundaries=LISTED)
    loaded = load_draft(made)
    assert loaded.boundaries == LISTED
    embedding = load_file(deepseek / "model.safetensors")["model.embed_tokens.weight"]
    taken = 0
    for name, answer in served.answers.items():
        if name == "doomed":
            continue  # it was given up in the middle of a step
        prompt, new_tokens = answer["prompt"], len(answer["output"])
        tokens = [*prompt, *answer["output"]]
        for _ in range(STEPS - 1):  # the last step may overrun
            tokens.append(reference.next_tokens(tokens)[-1][0])
        states = reference.states(tokens)
        (counts,) = replay(
            loaded.draft,
            continuations=[Continuation(tokens=tuple(tokens), prompt_length=len(prompt))],
            features=[torch.cat([states[k] for k in loaded.boundaries], dim=-1)],
            embedding=embedding,
            draft_to_target=loaded.draft_to_target,
            steps=STEPS,
            max_new_tokens=new_tokens,
        )
        assert (counts.verifies, counts.accepted) == (answer["verifies"], answer["accepted"]), name
        taken += counts.accepted
    assert taken > 0
