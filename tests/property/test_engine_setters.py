"""The layer-id rules against SGLang's own setters, called unbound on a stand-in: no copy of their code decides here."""

from __future__ import annotations

import types
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.engine_modules import load

from eagle3_adapters.boundaries import DEEPSEEK_RULE, GPT_OSS_RULE, OUTPUT_OF_LAYER, Convention, default_boundaries
from eagle3_adapters.errors import ConventionError
from eagle3_adapters.sglang import target_class
from eagle3_adapters.values import CaptureSite

pytestmark = pytest.mark.sglang

#: One class for each rule and, for the commonest rule, several that state it in their own words.
SETTERS = {
    "llama.LlamaForCausalLM": OUTPUT_OF_LAYER,
    "qwen2.Qwen2ForCausalLM": OUTPUT_OF_LAYER,
    "qwen3.Qwen3ForCausalLM": OUTPUT_OF_LAYER,
    "minimax_m2.MiniMaxM2ForCausalLM": OUTPUT_OF_LAYER,
    "glm4_moe.Glm4MoeForCausalLM": OUTPUT_OF_LAYER,
    "deepseek_v2.DeepseekV2ForCausalLM": DEEPSEEK_RULE,
    "gpt_oss.GptOssForCausalLM": GPT_OSS_RULE,
}
SITE = CaptureSite(body="model")


class Body:
    """What a setter touches of a decoder stack; ``layers`` is long enough for every N below."""

    def __init__(self) -> None:
        self.layers = [types.SimpleNamespace() for _ in range(128)]
        self.layers_to_capture: list[int] = []

    def set_eagle3_layers_to_capture(self, layers: list[int]) -> None:
        self.layers_to_capture = layers


def stand_in(num_layers: int) -> Any:
    config = types.SimpleNamespace(num_hidden_layers=num_layers)
    return types.SimpleNamespace(
        pp_group=types.SimpleNamespace(is_last_rank=True),
        config=config,
        model=Body(),
        capture_aux_hidden_states=False,
    )


@pytest.fixture(scope="module", params=SETTERS, ids=lambda name: name.split(".")[-1])
def setter(request: pytest.FixtureRequest) -> tuple[Any, Convention]:
    """SGLang's setter, and the rule by which we say that it reads ids."""
    module, cls = request.param.split(".")
    owner = getattr(load(f"sglang.srt.models.{module}"), cls)
    parallel = load("sglang.srt.runtime_context").get_parallel()

    def call(model: Any, ids: list[int] | None) -> None:
        # Some setters ask the process for its pipeline group, some the model.
        with parallel.override(pp_group=model.pp_group):
            owner.set_eagle3_layers_to_capture(model, ids)

    return call, SETTERS[request.param]


LAYERS = st.integers(min_value=6, max_value=64)
ONE_RUN = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def ids_of_a_target(draw: st.DrawFn) -> tuple[int, list[int]]:
    num_layers = draw(LAYERS)
    ids = st.integers(min_value=0, max_value=num_layers)
    return num_layers, draw(st.lists(ids, min_size=1, max_size=5, unique=True))


@ONE_RUN
@given(target=ids_of_a_target())
def test_a_file_in_sglangs_dialect_means_what_the_setter_makes_of_it(
    setter: tuple[Any, Convention], target: tuple[int, list[int]]
) -> None:
    (function, rule), (num_layers, ids) = setter, target
    model = stand_in(num_layers)
    function(model, list(ids))
    assert rule.to_boundaries(ids, num_layers) == tuple(model.model.layers_to_capture)


@ONE_RUN
@given(num_layers=LAYERS)
def test_without_ids_the_setter_takes_the_default(setter: tuple[Any, Convention], num_layers: int) -> None:
    model = stand_in(num_layers)
    setter[0](model, None)
    assert tuple(model.model.layers_to_capture) == default_boundaries(num_layers)


@ONE_RUN
@given(target=ids_of_a_target(), data=st.data())
def test_the_planned_boundaries_stand_whatever_the_setter_did_before(
    setter: tuple[Any, Convention], target: tuple[int, list[int]], data: st.DataObject
) -> None:
    (function, _), (num_layers, ids) = setter, target
    planned = tuple(
        sorted(data.draw(st.sets(st.integers(min_value=0, max_value=num_layers - 1), min_size=1, max_size=5)))
    )
    model = stand_in(num_layers)
    function(model, data.draw(st.sampled_from([list(ids), None])))
    target_class.assign_capture(model, SITE, planned)
    assert tuple(model.model.layers_to_capture) == planned
    assert model.capture_aux_hidden_states


@ONE_RUN
@given(num_layers=LAYERS, data=st.data())
def test_the_ids_that_we_write_make_the_setter_choose_the_planned_boundaries(
    setter: tuple[Any, Convention], num_layers: int, data: st.DataObject
) -> None:
    function, rule = setter
    planned = data.draw(st.sets(st.integers(min_value=0, max_value=num_layers - 1), min_size=1, max_size=5))
    try:
        ids = rule.to_ids(sorted(planned), num_layers)
    except ConventionError:
        assert (rule, planned) == (DEEPSEEK_RULE, {1})  # the one set that no list of ids can name
        return
    model = stand_in(num_layers)
    function(model, list(ids))
    assert set(model.model.layers_to_capture) == planned
