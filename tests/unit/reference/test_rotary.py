"""Every kind of rotary embedding against transformers' own; what the reference does not know is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from eagle3_adapters.reference.rotary import Rotary

# See test_pair_script.py: transformers is imported while the test's own filter is in force.
pytestmark = pytest.mark.filterwarnings("ignore:builtin type [Ss]wig:DeprecationWarning")

HEAD_DIM, HEADS, ROWS, THETA = 16, 2, 50, 500.0
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 3.0},
    "llama3": LLAMA3,
    "yarn": YARN,
    "yarn, betas": {**YARN, "beta_fast": 8, "beta_slow": 2},
    "yarn, untruncated": {**YARN, "truncate": False},
    "yarn, both gains": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5},
    "yarn, one gain": {**YARN, "mscale": 0.7},
}


def theirs(rope: dict[str, Any], heads: torch.Tensor, partial: float) -> torch.Tensor:
    from transformers import PhiConfig  # noqa: PLC0415
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb  # noqa: PLC0415
    from transformers.models.phi.modeling_phi import PhiRotaryEmbedding  # noqa: PLC0415

    # Of Llama's family the one with a partial rotary embedding; the rest is the same.
    config = PhiConfig(
        hidden_size=HEADS * HEAD_DIM,
        num_attention_heads=HEADS,
        max_position_embeddings=64,
        rope_parameters={**rope, "rope_theta": THETA, "partial_rotary_factor": partial},
    )
    cos, sin = PhiRotaryEmbedding(config)(heads, torch.arange(3, 3 + ROWS)[None])
    width = cos.shape[-1]
    turned, _ = apply_rotary_pos_emb(heads[..., :width], heads[..., :width], cos, sin)
    return torch.cat([turned, heads[..., width:]], dim=-1)


@pytest.mark.parametrize("partial", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("rope", KINDS.values(), ids=KINDS)
def test_heads_turn_as_transformers_turns_them(rope: dict[str, Any], partial: float) -> None:
    heads = torch.randn(2, HEADS, ROWS, HEAD_DIM, generator=torch.Generator().manual_seed(4))
    found = Rotary(HEAD_DIM, THETA, rope, partial=partial)(heads, 3)
    torch.testing.assert_close(found, theirs(rope, heads, partial), rtol=1e-5, atol=1e-5)
    # Another kind turns otherwise: the comparison can fail.
    if rope["rope_type"] != "default":
        assert not torch.allclose(found, theirs(KINDS["plain"], heads, partial), atol=1e-2)


def test_the_older_spelling_of_the_kind_means_the_same() -> None:
    heads = torch.randn(1, HEADS, ROWS, HEAD_DIM)
    old = {"type": "linear", "factor": 3.0}
    assert torch.equal(Rotary(HEAD_DIM, THETA, old)(heads, 0), Rotary(HEAD_DIM, THETA, KINDS["linear"])(heads, 0))


@pytest.mark.parametrize(
    ("rope", "said"),
    [
        ({"rope_type": "default", "mrope_section": [2, 3, 3]}, "'mrope'"),
        ({"type": "mrope", "mrope_section": [2, 3, 3]}, "'mrope'"),
        ({"rope_type": "dynamic", "factor": 2.0}, "'dynamic'"),
        ({"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}, "'longrope'"),
        ({"rope_type": "proportional"}, "'proportional'"),
        ({**YARN, "attention_factor": 1.2}, "attention_factor"),
    ],
)
def test_an_unknown_kind_is_refused_by_name(rope: dict[str, Any], said: str) -> None:
    with pytest.raises(NotImplementedError, match=said):
        Rotary(HEAD_DIM, THETA, rope)
