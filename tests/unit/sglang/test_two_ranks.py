"""A state is captured whole where SGLang leaves its sum over ranks to the next norm: two ranks, gloo, on the CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.sglang

PROGRAM = """
import sys
import torch
from sglang.srt.distributed import parallel_state
from sglang.srt.runtime_context import get_parallel
from eagle3_adapters.sglang.target_class import residual_stream

class Layer(torch.nn.Module):
    def forward(self, positions, hidden_states, forward_batch, residual):
        return hidden_states, residual

rank, store = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
group = parallel_state.GroupCoordinator(
    group_ranks=[[0, 1]], local_rank=rank, torch_distributed_backend="gloo", use_pynccl=False, use_mscclpp=False,
    use_custom_allreduce=False, use_torch_symm_mem_all_reduce=False, use_hpu_communicator=False,
    use_xpu_communicator=False, group_name="tp",
)
read = residual_stream(Layer())
for owed, expected in ((True, 100 + 1 + 2), (False, 100 + rank + 1)):
    part, residual = torch.full((3, 4), rank + 1.0), torch.full((3, 4), 100.0)
    if owed:
        part._sglang_needs_allreduce_fusion = True
    with get_parallel().override(tp_group=group):
        state = read((None, part, None, residual), {})
    assert torch.equal(state, torch.full((3, 4), float(expected))), state
    # What the layer goes on with is what it was given.
    assert torch.equal(part, torch.full((3, 4), rank + 1.0))
    assert getattr(part, "_sglang_needs_allreduce_fusion", False) is owed
"""


def test_a_sum_that_is_owed_is_made_for_the_snapshot_and_left_to_the_norm(tmp_path: Path) -> None:
    words = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    store = str(tmp_path / "store")
    ranks = [
        subprocess.Popen([*words, str(rank), store], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for rank in range(2)
    ]
    for process in ranks:
        _, told = process.communicate(timeout=120)
        assert process.returncode == 0, told[-3000:]
