"""Latent attention of the reference draft against transformers' DeepSeek-V3, and unrolled against itself."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import torch

from eagle3_adapters.reference.caches import Unrolled
from eagle3_adapters.reference.layers import LatentAttention, LatentSizes
from eagle3_adapters.reference.rotary import PairedRotary

# See test_pair_script.py: transformers is imported while the test's own filter is in force.
pytestmark = pytest.mark.filterwarnings("ignore:builtin type [Ss]wig:DeprecationWarning")

WIDTH, HEADS, ROWS, THETA = 24, 3, 40, 100.0
SIZES = LatentSizes(q_lora_rank=10, kv_lora_rank=8, qk_nope_head_dim=6, qk_rope_head_dim=8, v_head_dim=5)
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 0.7,
}
SCALINGS = [pytest.param(None, id="plain"), pytest.param(YARN, id="yarn")]


def attention() -> LatentAttention:
    torch.manual_seed(3)
    made = LatentAttention(input_size=WIDTH, hidden_size=WIDTH, num_heads=HEADS, eps=1e-6, sizes=SIZES)
    for parameter in made.parameters():
        parameter.data.normal_(std=0.5)
    return made


@pytest.mark.parametrize("scaling", SCALINGS)
@torch.no_grad()
def test_a_first_step_is_what_transformers_computes(scaling: dict[str, Any] | None) -> None:
    from transformers import DeepseekV3Config  # noqa: PLC0415
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as theirs  # noqa: PLC0415

    rope = {"rope_theta": THETA, **(scaling or {"rope_type": "default"})}
    config = DeepseekV3Config(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        rms_norm_eps=1e-6,
        max_position_embeddings=64,
        rope_parameters=rope,
        attn_implementation="eager",
        **attrs.asdict(SIZES),
    )
    mine, other = attention(), theirs.DeepseekV3Attention(config, 0).eval()
    other.load_state_dict(mine.state_dict())
    states = torch.randn(2, ROWS, WIDTH)
    positions = torch.arange(ROWS)[None]
    angles = theirs.DeepseekV3RotaryEmbedding(config)(states, positions)
    mask = torch.full((ROWS, ROWS), float("-inf")).triu(1)[None, None]
    expected = other(states, angles, mask)[0]
    found = mine(states, PairedRotary(SIZES.qk_rope_head_dim, THETA, scaling), Unrolled())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scaling", SCALINGS)
@torch.no_grad()
def test_later_steps_see_what_a_cache_holds(scaling: dict[str, Any] | None) -> None:
    """Row t at step s is token t + s of a sequence whose first t + 1 tokens are the rows of step 0."""
    layer, rotary, steps = attention(), PairedRotary(SIZES.qk_rope_head_dim, THETA, scaling), 3
    inputs = torch.randn(steps, 1, 6, WIDTH)
    cache = Unrolled()
    outputs = [layer(inputs[step], rotary, cache) for step in range(steps)]
    for row in range(6):
        for step in range(1, steps):
            own = [inputs[later, :, row : row + 1] for later in range(1, step + 1)]
            sequence = torch.cat([inputs[0, :, : row + 1], *own], dim=1)
            whole = layer(sequence, rotary, Unrolled())
            torch.testing.assert_close(outputs[step][:, row], whole[:, -1], rtol=1e-4, atol=1e-4)
