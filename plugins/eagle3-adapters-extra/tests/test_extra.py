"""What each row says of a target, against the classes of sglang/srt/models; the wheel claims what it serves."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest

from eagle3_adapters.checkpoint import read_target
from eagle3_adapters.errors import RegistryError
from eagle3_adapters.pair import AUTO, choose_adapter
from eagle3_adapters.registry import ADAPTERS, ARCHITECTURES, Adapter, Registry
from eagle3_adapters.report import Report
from eagle3_adapters.values import TargetModel

WHEEL = "eagle3-adapters-extra"
N = 48
#: Architecture -> adapter, boundaries that are injected in SGLang 0.5.17 and in 0.5.23.
SERVED = {
    "Qwen2ForCausalLM": ("qwen", [0, N], [N]),
    "Qwen3ForCausalLM": ("qwen", [0, N], [N]),
    "Qwen2MoeForCausalLM": ("qwen_moe", [0, N], [N]),
    "Qwen3MoeForCausalLM": ("qwen_moe", [0, N], [N]),
    "Qwen3VLForConditionalGeneration": ("qwen3_vl", [0, N], [N]),
    "Glm4ForCausalLM": ("glm4", [0, N], [N]),
    "Mistral3ForConditionalGeneration": ("mistral3", [0, N], [N]),
    "GptOssForCausalLM": ("gpt_oss", [0], []),
    "NemotronHForCausalLM": ("nemotron_h", list(range(N + 1)), []),
    "MixtralForCausalLM": ("mixtral", list(range(N + 1)), list(range(N + 1))),
    "Gemma3ForCausalLM": ("gemma3", list(range(N + 1)), list(range(N + 1))),
}


@pytest.fixture(params=sorted(SERVED))
def target(request: pytest.FixtureRequest, tmp_path: Path) -> TargetModel:
    text = {"num_hidden_layers": N, "hidden_size": 4096, "vocab_size": 131072}
    wrapper = request.param.endswith("ForConditionalGeneration")
    config = {"architectures": [request.param], **({"text_config": text} if wrapper else text)}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return read_target(tmp_path)


@pytest.fixture
def adapter(target: TargetModel) -> Adapter:
    return choose_adapter(target, AUTO, Registry.installed(), Report())


def test_auto_finds_the_row(adapter: Adapter, target: TargetModel) -> None:
    assert adapter.registration.name == SERVED[target.architecture][0]


@pytest.mark.parametrize(("version", "column"), [((0, 5, 17), 1), ((0, 5, 23), 2)])
def test_what_the_class_does_not_capture_is_injected(
    adapter: Adapter, target: TargetModel, version: tuple[int, int, int], column: int
) -> None:
    capture = adapter.capture_layers(target)
    absent = [k for k in range(N + 1) if not capture.is_native(k, version)]
    assert absent == SERVED[target.architecture][column]
    assert all(capture.is_injected(k, version) for k in absent)


@pytest.mark.parametrize(("version", "known"), [((0, 5, 18), False), ((0, 5, 19), True), (None, True)])
def test_nemotron_hs_class_knows_no_states_before_it_captures(
    version: tuple[int, int, int] | None,
    known: bool,  # noqa: FBT001 - a parameter
    tmp_path: Path,
) -> None:
    """Its list and its flag came with its capture: asked for earlier, they end the start."""
    config = {"architectures": ["NemotronHForCausalLM"], "num_hidden_layers": N, "hidden_size": 8, "vocab_size": 8}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    target = read_target(tmp_path)
    capture = choose_adapter(target, AUTO, Registry.installed(), Report()).capture_layers(target)
    site = capture.site_in(version)
    assert (bool(site.capture_list), bool(site.capture_flags)) == (known, known)
    assert (site.body, site.final_norm) == ("model", "norm_f")
    assert {capture.is_native(k, version) for k in range(1, N + 1)} == {known}


def test_ids_are_outputs_of_layers_but_for_gpt_oss_with_the_last_one(adapter: Adapter, target: TargetModel) -> None:
    rule = adapter.capture_layers(target).id_rule
    assert rule.to_boundaries((1, 23, 44), N) == (2, 24, 45)
    last = rule.to_boundaries((1, 23, N), N)
    assert last == ((1, 23, N) if target.architecture == "GptOssForCausalLM" else (2, 24, N + 1))
    assert adapter.capture_layers(target).default == (2, 24, 45)


def test_nemotron_h_alone_captures_from_a_later_version_on(adapter: Adapter, target: TargetModel) -> None:
    late = target.architecture == "NemotronHForCausalLM"
    assert adapter.capture_layers(target).captures_since == ((0, 5, 19) if late else (0, 5, 17))


def test_the_wheel_claims_exactly_what_it_serves() -> None:
    points = importlib.metadata.distribution(WHEEL).entry_points
    assert {point.name for point in points.select(group=ADAPTERS)} == {name for name, _, _ in SERVED.values()}
    assert {point.name: point.value for point in points.select(group=ARCHITECTURES)} == {
        architecture: name for architecture, (name, _, _) in SERVED.items()
    }


@pytest.mark.parametrize("architecture", sorted(SERVED))
def test_the_core_names_this_wheel_where_it_is_not_installed(architecture: str) -> None:
    with pytest.raises(RegistryError) as caught:
        Registry([]).owner_of(architecture)
    assert WHEEL in caught.value.findings[0].remedy
