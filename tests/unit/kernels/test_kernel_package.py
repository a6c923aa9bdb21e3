"""What the package promises by what it has, and by what it lacks."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import sgl_kernel
import torch
from sgl_kernel import device

from eagle3_adapters.rehearsal.engine import KERNELS

#: By its name, since the package answers for every name that it has not got yet.
MAMBA = importlib.import_module("sgl_kernel.mamba")


def test_the_reference_kernels_are_the_package_under_test() -> None:
    assert Path(str(sgl_kernel.__file__)).is_relative_to(KERNELS)


def test_another_name_can_be_imported_and_says_its_name_when_called() -> None:
    from sgl_kernel import top_k_renorm_prob  # noqa: PLC0415

    with pytest.raises(NotImplementedError, match=r"^top_k_renorm_prob$"):
        top_k_renorm_prob(1, joint=True)


def test_a_missing_submodule_is_missing() -> None:
    """SGLang falls back to a class of its own when `sgl_kernel.scalar_type` is missing, and trips over any stand-in."""
    with pytest.raises(ModuleNotFoundError, match=r"sgl_kernel\.scalar_type"):
        import sgl_kernel.scalar_type  # noqa: F401, PLC0415


@pytest.mark.parametrize("name", ["causal_conv1d_fn_cpu", "causal_conv1d_update_cpu", "chunk_gated_delta_rule_cpu"])
def test_what_sglang_imports_for_every_hybrid_target_says_its_name_when_called(name: str) -> None:
    with pytest.raises(NotImplementedError, match=f"^{name}$"):
        getattr(MAMBA, name)(torch.zeros(1))


@pytest.mark.parametrize("name", ["fused_gdn_gating_cpu", "fused_sigmoid_gating_delta_rule_update_cpu"])
def test_operators_for_gated_delta_nets_say_their_name_when_called(name: str) -> None:
    with pytest.raises(NotImplementedError, match=f"^{name}$"):
        getattr(torch.ops.sgl_kernel, name)(torch.zeros(1), scale=1.0)


def test_nothing_looks_like_a_build_with_amx_kernels() -> None:
    """With this name defined, SGLang on a processor with AMX calls compiled kernels that are not here."""
    assert not hasattr(sgl_kernel, "convert_weight_packed")
    assert not hasattr(torch.ops.sgl_kernel, "convert_weight_packed")


def test_both_attention_kernels_are_operators() -> None:
    assert callable(torch.ops.sgl_kernel.extend_attention_cpu)
    assert callable(torch.ops.sgl_kernel.decode_attention_cpu)


class Cuda:
    """``torch.cuda`` as far as waiting goes."""

    def __init__(self, *, available: bool) -> None:
        self.available = available
        self.waited = 0

    def is_available(self) -> bool:
        return self.available

    def synchronize(self, device: object = None) -> None:
        if not self.available:
            raise RuntimeError("Found no NVIDIA driver on your system")
        self.waited += 1


def test_without_a_gpu_there_is_nothing_to_wait_for() -> None:
    """SGLang's draft class for latent attention waits for one when it shares the embedding."""
    cuda = Cuda(available=False)
    device.without_a_gpu(cuda)
    cuda.synchronize()
    cuda.synchronize("cuda:0")


def test_a_gpu_is_waited_for() -> None:
    cuda = Cuda(available=True)
    device.without_a_gpu(cuda)
    cuda.synchronize()
    assert cuda.waited == 1
