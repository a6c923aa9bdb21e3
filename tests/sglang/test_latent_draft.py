"""Drafts with latent attention on every kind of target, in every format that can hold them: served as trained."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from support import identity_checks as checks
from support.identity_run import LISTED, Run, run
from support.random_targets import DEEPSEEK, KIMI, LLAMA

pytestmark = pytest.mark.engine
#: What TorchSpec's and NeMo's drafts read, ascending since NeMo writes no ids.
TRIPLE = (2, 4, 5)
#: Target, format, boundaries in the order in which the draft reads them. None: the draft's own, speculators'.
CASES = {
    "kimi-sglang": (KIMI, "sglang", LISTED),
    "kimi-speculators": (KIMI, None, LISTED),
    "deepseek-nemo": (DEEPSEEK, "nemo", TRIPLE),
    "llama-sglang": (LLAMA, "sglang", LISTED),
    "llama-modelopt": (LLAMA, "modelopt", LISTED),
    "llama-torchspec": (LLAMA, "torchspec", TRIPLE),
}
#: In the gate: published drafts for Kimi are in SGLang's dialect.
GATE = "kimi-sglang"


@pytest.fixture(
    scope="module", params=[GATE, *(pytest.param(c, marks=pytest.mark.thorough) for c in CASES if c != GATE)]
)
def case(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def served(case: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    architecture, format_, listed = CASES[case]
    return run(tmp_path_factory.mktemp(case), architecture, latent=True, format_=format_, listed=listed)


def test_all_tensors_are_loaded_by_the_class_for_latent_attention(case: str, served: Run) -> None:
    """The loader fuses the two projections to latents; unfilled parameters would have ended the start."""
    tensors = len(load_file(served.draft / "model.safetensors"))
    assert f" x {CASES[case][1] or 'speculators'} -> Eagle3DeepseekV2ForCausalLM" in served.log
    assert f"{tensors} tensors loaded, 0 dropped" in served.log
    assert "captured states verified" in served.log


def test_column_blocks_of_fc_follow_their_boundaries(served: Run) -> None:
    file = load_file(served.draft / "model.safetensors")["fc.weight"].chunk(len(served.listed), dim=-1)
    for boundary, block in served.fc_blocks.items():
        assert torch.equal(block, file[served.listed.index(boundary)])


def test_tokens_are_the_targets_own(served: Run) -> None:
    checks.tokens_are_the_targets_own(served)


def test_drafts_are_taken_exactly_where_a_plain_forward_of_the_draft_says(served: Run) -> None:
    """Its latent attention, its norms and the order of its states, without any code of SGLang."""
    checks.drafts_are_taken_exactly_where_plain_forwards_say(served)
