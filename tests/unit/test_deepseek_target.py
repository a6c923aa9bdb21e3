"""The DeepSeek-V3 target of the pair script computes what transformers computes, and its experts share the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PAIRS = Path(__file__).parents[1] / "pairs"

# See test_pair_script.py: transformers is imported while the test's own filter is in force.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:builtin type [Ss]wig:DeprecationWarning")]


@pytest.fixture
def deepseek(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(PAIRS)
    from canary_pair import deepseek  # noqa: PLC0415

    return deepseek


def outspoken(model: Any) -> Any:
    """Weights large enough that routing, rope and experts show in the logits."""
    import torch  # noqa: PLC0415

    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=parameter.shape[-1] ** -0.5)
        for layer in model.model.layers[1:]:
            layer.mlp.gate.e_score_correction_bias.normal_(std=0.1)
    return model.eval()


def test_the_forward_equals_that_of_transformers(deepseek: Any, tmp_path: Path) -> None:
    import json  # noqa: PLC0415

    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415
    from safetensors.torch import save_file  # noqa: PLC0415

    model = outspoken(deepseek.build())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    save_file(deepseek.checkpoint(model), tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(deepseek.CONFIG), encoding="utf-8")
    stock = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    stock.set_experts_implementation("eager")
    assert type(stock.model.layers[1].mlp.experts) is not deepseek.DenseExperts
    tokens = torch.randint(0, 1024, (3, 160))
    with torch.no_grad():
        ours, theirs = model(tokens, output_hidden_states=True), stock(tokens, output_hidden_states=True)
    assert theirs.logits.std() > 0.3
    for mine, stocks in zip(ours.hidden_states, theirs.hidden_states, strict=True):
        torch.testing.assert_close(mine, stocks, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.logits, theirs.logits, rtol=1e-4, atol=1e-4)


def test_gradients_reach_every_parameter_that_was_used(deepseek: Any) -> None:
    import torch  # noqa: PLC0415

    model = outspoken(deepseek.build())
    torch.autograd.backward(model(torch.randint(0, 1024, (4, 64))).logits.square().mean())
    assert [name for name, parameter in model.named_parameters() if not parameter.grad.abs().sum() > 0] == []


def test_an_expert_that_draws_too_many_tokens_is_chosen_less(deepseek: Any) -> None:
    import torch  # noqa: PLC0415

    model = deepseek.build().train()
    mixture = model.model.layers[1].mlp
    mixture.gate.e_score_correction_bias[0] = 0.02
    states = torch.randn(4, 64, 128, generator=torch.Generator().manual_seed(0))

    def loads() -> list[int]:
        mixture.experts.load.zero_()
        mixture(states)
        counted: list[int] = mixture.experts.load.int().tolist()
        return counted

    before = loads()
    assert sum(before) == 4 * 64 * deepseek.CONFIG["num_experts_per_tok"]
    for _ in range(40):
        loads()
        deepseek.balance(model)
    assert max(loads()) < max(before)


def test_a_checkpoint_spells_its_tensors_as_deepseek_does(deepseek: Any) -> None:
    import torch  # noqa: PLC0415

    tensors = deepseek.checkpoint(deepseek.build())
    layer = "model.layers.3.mlp"
    expert = {f"{layer}.experts.7.{name}_proj.weight" for name in ("gate", "up", "down")}
    assert expert | {f"{layer}.gate.e_score_correction_bias"} <= set(tensors)
    assert not [name for name in tensors if "gate_up" in name]
    wide = [name for name, value in tensors.items() if value.dtype != torch.bfloat16]
    assert wide == [name for name in tensors if name.endswith(".e_score_correction_bias")]
    assert len({value.untyped_storage().data_ptr() for value in tensors.values()}) == len(tensors)
