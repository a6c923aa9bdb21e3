"""A draft with latent attention on a Kimi target: its class loads every tensor, and the output stays the target's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.boundary_states import Reference
from support.identity_run import BOUNDARIES, LISTED, Run, run
from support.random_targets import DEEPSEEK, KIMI, write_target

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


def test_tokens_are_the_targets_own_and_some_drafts_are_taken(served: Run, tmp_path: Path) -> None:
    reference = Reference(write_target(tmp_path / "deepseek", DEEPSEEK))
    for name, answer in served.answers.items():
        sequence = [*answer["prompt"], *answer["output"]]
        best = reference.next_tokens(sequence)
        for position in range(len(answer["prompt"]), len(sequence)):
            token, lead = best[position - 1]
            assert token == sequence[position] or lead < TIE, (name, position)
    assert sum(answer["accepted"] for answer in served.answers.values()) > 0
