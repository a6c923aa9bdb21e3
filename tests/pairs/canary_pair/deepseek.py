"""The DeepSeek-V3 pair: multi-head latent attention, and routed experts from the second layer on."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, PreTrainedModel

from canary_pair.recipe import SEED
from canary_pair.shape import COMMON, MAX_POSITIONS, ROPE_THETA, DraftShape, PairShape, Tensors

_YARN_FACTOR = 4
_BIAS_STEP = 1e-3

CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "torch_dtype": "bfloat16",
    **COMMON,
    "intermediate_size": 384,
    "moe_intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 96,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 32,
    "v_head_dim": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "num_nextn_predict_layers": 0,
    "ep_size": 1,
    "pretraining_tp": 1,
    "attention_dropout": 0.0,
    # transformers norms the latents with 1e-6 whatever stands here, SGLang with this: only 1e-6 means the same in both.
    "rms_norm_eps": 1e-6,
    "rope_theta": ROPE_THETA,
    # SGLang has no other rotary embedding for this architecture on a CPU.
    "rope_scaling": {
        "type": "yarn",
        "factor": _YARN_FACTOR,
        "original_max_position_embeddings": MAX_POSITIONS // _YARN_FACTOR,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
    "use_cache": True,
}


class DenseExperts(nn.Module):
    """All experts for every token, the unchosen ones weighted zero: what the experts of transformers compute.

    Theirs loop over experts and wait for the device in each turn; experts this small are faster as one wide block.
    Parameters and their names are taken over from ``experts``. ``load`` counts, while training, the tokens that chose
    each expert.
    """

    load: Tensor

    def __init__(self, experts: Any) -> None:
        super().__init__()
        self.gate_up_proj = experts.gate_up_proj
        self.down_proj = experts.down_proj
        self.register_buffer("load", torch.zeros(len(self.down_proj)), persistent=False)

    def forward(self, states: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Weighted sum of the chosen experts: ``states`` [tokens, hidden], ``chosen`` and ``weights`` [tokens, k]."""
        experts, hidden, inner = self.down_proj.shape
        spread = states.new_zeros(len(states), experts).scatter(1, chosen, weights.to(states.dtype))
        if self.training:
            self.load += (spread.detach() > 0).sum(0)
        gate, up = functional.linear(states, self.gate_up_proj.flatten(0, 1)).view(-1, experts, 2 * inner).chunk(2, -1)
        weighted = functional.silu(gate) * up * spread[..., None]
        return functional.linear(weighted.flatten(1), self.down_proj.transpose(0, 1).reshape(hidden, experts * inner))


def build() -> PreTrainedModel:
    """A freshly initialised target in float32 on the CPU."""
    torch.manual_seed(SEED)
    # A copy: transformers adds to the rotary settings that it is given.
    model = DeepseekV3ForCausalLM(DeepseekV3Config(**copy.deepcopy(CONFIG))).float()
    for layer in _sparse_layers(model):
        layer.mlp.experts = DenseExperts(layer.mlp.experts)
    return model


@torch.no_grad()
def balance(model: PreTrainedModel) -> None:
    """Move each expert's selection bias one step towards an even load: DeepSeek-V3's balance without a loss."""
    for layer in _sparse_layers(model):
        load = layer.mlp.experts.load
        layer.mlp.gate.e_score_correction_bias.add_(_BIAS_STEP * (load.mean() - load).sign())
        load.zero_()


def checkpoint(model: PreTrainedModel) -> Tensors:
    """bf16, but float32 for the selection biases, and three tensors an expert as in DeepSeek's own files."""
    tensors: Tensors = {}
    for name, value in model.state_dict().items():
        if name.endswith(".e_score_correction_bias"):
            tensors[name] = value.cpu()
            continue
        rounded = value.to("cpu", torch.bfloat16)
        prefix, _, kind = name.rpartition(".")
        if kind == "gate_up_proj":
            for expert, both in enumerate(rounded):
                gate, up = both.chunk(2)
                tensors[f"{prefix}.{expert}.gate_proj.weight"] = gate.clone()
                tensors[f"{prefix}.{expert}.up_proj.weight"] = up.clone()
        elif kind == "down_proj":
            tensors |= {f"{prefix}.{expert}.down_proj.weight": down.clone() for expert, down in enumerate(rounded)}
        else:
            tensors[name] = rounded.contiguous()
    return tensors


def _sparse_layers(model: PreTrainedModel) -> list[Any]:
    return list(model.model.layers[CONFIG["first_k_dense_replace"] :])


DEEPSEEK = PairShape(
    config=CONFIG,
    build=build,
    checkpoint=checkpoint,
    after_step=balance,
    draft=DraftShape(
        boundaries=(0, 3, 5),
        vocab_size=768,
        intermediate_size=768,
        num_attention_heads=8,
        num_key_value_heads=4,
        rms_norm_eps=1e-6,
    ),
)
