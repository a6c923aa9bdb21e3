"""Reference kernels in plain PyTorch, under the name of the compiled package that SGLang imports.

SGLang's CPU engine calls compiled functions of a package `sgl_kernel`, of which only a CUDA build is published. With
this folder's parent first on the path (see `eagle3_adapters.rehearsal.engine`) it calls these instead. They compute the
same thing, only slowly, and hold for SGLang 0.5.17 to 0.5.23:

- `tree`: the shape of a draft tree, and its greedy verification;
- `cache`: which slot of the key-value pool holds which token;
- `attention`: decode and extend attention, registered as `torch.ops.sgl_kernel.*`;
- `older`: both as SGLang 0.5.17 to 0.5.19 calls them;
- `device`: waiting for a GPU that is not there;
- `interpreter`: what SGLang's own Triton kernels, which Triton's interpreter runs, ask of a GPU around them;
- `mamba`: names that SGLang imports for every hybrid target.

Every other name is a function that raises `NotImplementedError` when called: SGLang imports many that a rehearsal never
calls. A submodule that the compiled package has and this one lacks raises `ModuleNotFoundError`, for which SGLang has
fallbacks of its own (srt/layers/quantization/utils.py); a stand-in would hide them.

`convert_weight_packed` must stay undefined, here and in `torch.ops.sgl_kernel`: SGLang takes it as the sign of a build
with the AMX kernels (`cpu_has_amx_support` in srt/utils/common.py), and on a processor that has AMX would leave PyTorch
for kernels that are not here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from .absent import absent
from .attention import decode_attention_cpu, extend_attention_cpu
from .cache import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from .device import without_a_gpu
from .interpreter import interpreted
from .older import unscaled_decode_attention_cpu, unscaled_extend_attention_cpu
from .tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]

without_a_gpu(torch.cuda)
if os.environ.get("TRITON_INTERPRET") == "1":
    import triton

    interpreted(torch.cpu, triton.runtime.driver)

# SGLang looks both attention kernels up in torch.ops. FRAGMENT, because a namespace can be defined only once in a
# process. The library object must live as long as its operators do. `Any`, because PyTorch leaves this class
# unannotated.
_Library: Any = torch.library.Library
_OPERATORS = _Library("sgl_kernel", "FRAGMENT")
_OPERATORS.define(
    "extend_attention_cpu(Tensor q_extend, Tensor? k_extend, Tensor? v_extend, Tensor(a!) o_extend, Tensor k_buffer, "
    "Tensor v_buffer, float k_scale, float v_scale, Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, "
    "Tensor extend_seq_lens, Tensor extend_start_loc, int max_len_extend, float sm_scale, float logit_cap, "
    "bool is_cross_attn, int sliding_window_size, Tensor? encoder_lens, Tensor? sinks, Tensor? tree_mask, "
    "bool is_causal) -> ()"
)
_OPERATORS.define(
    "decode_attention_cpu(Tensor query, Tensor(a!) k_buffer, Tensor(b!) v_buffer, float k_scale, float v_scale, "
    "Tensor(c!) output, Tensor? key, Tensor? value, Tensor loc, Tensor attn_logits, Tensor req_to_token, "
    "Tensor req_pool_indices, Tensor seq_lens, float sm_scale, float logit_cap, bool is_cross_attn, "
    "int sliding_window_size, Tensor? encoder_lens, Tensor? sinks) -> ()"
)
_OPERATORS.impl("extend_attention_cpu", extend_attention_cpu, "CPU")
_OPERATORS.impl("decode_attention_cpu", decode_attention_cpu, "CPU")
# SGLang 0.5.17 to 0.5.19 hands over no scales. An overload each: PyTorch chooses by the arguments of a call.
_OPERATORS.define(
    "extend_attention_cpu.unscaled(Tensor q_extend, Tensor? k_extend, Tensor? v_extend, Tensor(a!) o_extend, "
    "Tensor k_buffer, Tensor v_buffer, Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, "
    "Tensor extend_seq_lens, Tensor extend_start_loc, int max_len_extend, float sm_scale, float logit_cap, "
    "bool is_cross_attn, int sliding_window_size, Tensor? encoder_lens, Tensor? sinks, Tensor? tree_mask, "
    "bool is_causal=True) -> ()"
)
_OPERATORS.define(
    "decode_attention_cpu.unscaled(Tensor query, Tensor(a!) k_buffer, Tensor(b!) v_buffer, Tensor(c!) output, "
    "Tensor? key, Tensor? value, Tensor loc, Tensor attn_logits, Tensor req_to_token, Tensor req_pool_indices, "
    "Tensor seq_lens, float sm_scale, float logit_cap, bool is_cross_attn, int sliding_window_size, "
    "Tensor? encoder_lens, Tensor? sinks) -> ()"
)
_OPERATORS.impl("extend_attention_cpu.unscaled", unscaled_extend_attention_cpu, "CPU")
_OPERATORS.impl("decode_attention_cpu.unscaled", unscaled_decode_attention_cpu, "CPU")


def __getattr__(name: str) -> Callable[..., NoReturn]:
    # Dunder names are the import system's questions about this module; answering them with a function would mislead it.
    if name == "convert_weight_packed" or name.startswith("__"):
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)

    return absent(name)
