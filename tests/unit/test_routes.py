"""Every naming that a format accepts leads each tensor to the same parameter of SGLang's draft class."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.checkpoints import draft_tensors, sglang_config, target_config, write_draft, write_target

from eagle3_adapters.pair import Request, plan_pair
from eagle3_adapters.registry import Registry


@pytest.mark.parametrize("layer", ["layers.0", "midlayer"])
@pytest.mark.parametrize("prefix", ["", "model."])
def test_old_and_new_names_lead_to_the_same_parameters(tmp_path: Path, layer: str, prefix: str) -> None:
    outside = ("lm_head.weight", "d2t", "t2d")
    tensors = {
        name if name in outside else prefix + name: tensor for name, tensor in draft_tensors(layer=layer).items()
    }
    target = write_target(tmp_path / "target", target_config())
    draft = write_draft(tmp_path / "draft", sglang_config(), tensors)
    planning = plan_pair(Request(target=str(target), draft=str(draft)), Registry.installed(), "0.5.23")
    assert planning.plan is not None, planning.findings
    routes = {route.source: route.target for route in planning.plan.routes}
    assert routes == {
        name if name in outside else prefix + name: canonical_target(name) for name in draft_tensors(layer=layer)
    }


def canonical_target(name: str) -> str | None:
    """Parameter of LlamaForCausalLMEagle3 that a tensor of SGLang's dialect belongs to."""
    if name == "t2d":
        return None
    return name if name in ("lm_head.weight", "d2t") else "model." + name.replace("midlayer.", "layers.0.")
