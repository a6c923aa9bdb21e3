"""Names that SGLang imports on a CPU for every hybrid target, whatever layers it has; a rehearsal calls none of them.

Imported by srt/layers/attention/linear/gdn_backend.py, kda_backend.py and kernels/gdn_triton.py, where the attention
backend of any target with a Mamba cache is chosen. They serve gated delta nets, which no adapter knows.
"""

from __future__ import annotations

import torch

from .absent import absent

causal_conv1d_fn_cpu = absent("causal_conv1d_fn_cpu")
causal_conv1d_update_cpu = absent("causal_conv1d_update_cpu")
chunk_gated_delta_rule_cpu = absent("chunk_gated_delta_rule_cpu")
# The same modules read these two out of torch.ops right afterwards.
for _name in ("fused_gdn_gating_cpu", "fused_sigmoid_gating_delta_rule_update_cpu"):
    setattr(torch.ops.sgl_kernel, _name, absent(_name))
