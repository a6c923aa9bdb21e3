"""Whatever the pair, the target ends with exactly the K states that its draft reads, or a finding says why not.

The adapters of the wheels plan; SGLang's own setter, called unbound, chooses by the translated config what it chooses;
then the capture is assigned to a small target that captures as SGLang's classes of that version do.
"""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.checkpoints import HIDDEN, VOCAB, draft_tensors, sglang_config, speculators_config
from support.engine_modules import load
from support.toy_target import Target

from eagle3_adapters.formats.ids import IDS
from eagle3_adapters.formats.sglang import FORMAT as SGLANG
from eagle3_adapters.formats.speculators import FORMAT as SPECULATORS
from eagle3_adapters.planning.plan import plan_wiring
from eagle3_adapters.registry import Registry
from eagle3_adapters.sglang import compat
from eagle3_adapters.sglang.capture import TargetCapture
from eagle3_adapters.values import DraftModel, TargetModel, TensorInfo
from eagle3_adapters.wiring import Planning

pytestmark = pytest.mark.sglang

VERSIONS = range(compat.FIRST[2], compat.LAST[2] + 1)
#: Architecture -> module and class of SGLang whose setter is called.
SETTERS = {
    "LlamaForCausalLM": ("llama", "LlamaForCausalLM"),
    "DeepseekV2ForCausalLM": ("deepseek_v2", "DeepseekV2ForCausalLM"),
    "DeepseekV3ForCausalLM": ("deepseek_v2", "DeepseekV3ForCausalLM"),
    "MistralLarge3ForCausalLM": ("deepseek_v2", "DeepseekV3ForCausalLM"),
    "KimiK25ForConditionalGeneration": ("deepseek_v2", "DeepseekV3ForCausalLM"),
}
REGISTRY = Registry.installed()


@attrs.frozen
class Case:
    architecture: str
    version: int
    num_layers: int
    format: str
    #: As the file lists them.
    ids: tuple[int, ...]
    #: What the user asks for instead, None: nothing.
    asked: tuple[int, ...] | None


@st.composite
def cases(draw: st.DrawFn) -> Case:
    num_layers = draw(st.integers(1, 40))
    number = st.integers(-2, num_layers + 2) | st.sampled_from((0, 1, num_layers - 1, num_layers))
    ids = draw(st.lists(number, min_size=2, max_size=6))
    asked = draw(st.none() | st.lists(number, min_size=2, max_size=6).map(tuple))
    return Case(
        draw(st.sampled_from(sorted(SETTERS))),
        draw(st.sampled_from(VERSIONS)),
        num_layers,
        draw(st.sampled_from(("sglang", "speculators"))),
        tuple(ids),
        asked,
    )


def plan(case: Case) -> Planning:
    tensors = draft_tensors(states=len(case.asked or case.ids))
    infos = {
        name: TensorInfo(name=name, dtype=one.dtype, shape=one.shape, file=Path("none"), start=0, stop=0)
        for name, one in tensors.items()
        if name not in ("d2t", "t2d", "lm_head.weight")
    }
    whole = {"draft_vocab_size": VOCAB}
    if case.format == "sglang":
        reading = SGLANG.read(DraftModel(path=Path("draft"), config=sglang_config(case.ids) | whole, tensors=infos))
    else:
        config = speculators_config(**{IDS: list(case.ids)}) | whole
        reading = SPECULATORS.read(DraftModel(path=Path("draft"), config=config, tensors=infos))
    text = {"rope_theta": 10000.0}
    target = TargetModel(
        path=Path("target"),
        architecture=case.architecture,
        config=text,
        text=text,
        num_layers=case.num_layers,
        hidden_size=HIDDEN,
        vocab_size=VOCAB,
    )
    return plan_wiring(
        target=target,
        reading=reading,
        adapter=REGISTRY.adapter(REGISTRY.owner_of(case.architecture).name),
        engine=f"0.5.{case.version}",
        boundaries=case.asked,
    )


def loaded(case: Case) -> tuple[Any, Target]:
    """What SGLang would load: the target itself or a wrapper around it, and the target."""
    llama = case.architecture == "LlamaForCausalLM"
    own: type[Target] = type(case.architecture, (Target,), {})
    text = own(case.num_layers, packed=not llama, embedding=not llama or case.version >= 22)
    if case.architecture != "KimiK25ForConditionalGeneration":
        return text, text
    wrapper: Any = type(case.architecture, (types.SimpleNamespace,), {})
    return wrapper(language_model=text), text


@pytest.fixture(scope="module")
def setters() -> dict[str, Any]:
    return {
        architecture: getattr(load(f"sglang.srt.models.{module}"), cls).set_eagle3_layers_to_capture
        for architecture, (module, cls) in SETTERS.items()
    }


@given(cases())
def test_exactly_k_states_or_a_finding(setters: dict[str, Any], case: Case) -> None:
    planning = plan(case)
    if planning.plan is None:
        assert planning.errors
        return
    made = planning.plan
    model, text = loaded(case)
    shell = types.SimpleNamespace(
        pp_group=types.SimpleNamespace(is_last_rank=True),
        config=types.SimpleNamespace(num_hidden_layers=case.num_layers),
        model=text.model,
    )
    setters[case.architecture](shell, list(made.config["eagle_config"][IDS]))
    TargetCapture(made).after_configure(None, model=model, eagle_use_aux_hidden_state=True)
    assert text.states() == list(made.boundaries)
    assert text.capture_aux_hidden_states
    assert text.states(tokens=0, idle=True) == [-1] * len(made.boundaries)
    # Block column_order[p] of fc was trained on what stands at p.
    if case.asked is not None:
        assert [case.asked[block] for block in made.column_order] == list(made.boundaries)
    elif case.format == "speculators":
        assert set(case.ids) == set(made.boundaries)


@pytest.mark.parametrize("architecture", sorted(SETTERS))
@pytest.mark.parametrize("version", VERSIONS)
def test_all_boundaries_at_once(setters: dict[str, Any], architecture: str, version: int) -> None:
    """No class and no version leaves one out."""
    every = tuple(range(9))
    case = Case(architecture, version, 8, "speculators", every, every[::-1])
    assert plan(case).plan is not None
    test_exactly_k_states_or_a_finding.hypothesis.inner_test(setters, case)  # type: ignore[attr-defined]  # hypothesis adds it
