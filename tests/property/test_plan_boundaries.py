"""For every id rule, every list of ids and both formats: the planned boundaries are those of the format's definition.

The definitions stand here a second time, written from SGLang's sources, so that the package cannot agree with itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.checkpoints import HIDDEN, INNER, VOCAB, sglang_config, speculators_config
from support.plugin_rules import INJECTED, architecture, registry

from eagle3_adapters.boundaries import CONVENTIONS
from eagle3_adapters.errors import Severity
from eagle3_adapters.formats.ids import IDS
from eagle3_adapters.formats.sglang import FORMAT as SGLANG
from eagle3_adapters.formats.speculators import FORMAT as SPECULATORS
from eagle3_adapters.planning.plan import plan_wiring
from eagle3_adapters.sglang import compat
from eagle3_adapters.values import DraftModel, TargetModel, TensorInfo
from eagle3_adapters.wiring import Planning

REGISTRY = registry()
ADAPTERS = {
    name: REGISTRY.adapter(name) for convention in CONVENTIONS for name in (convention.name, convention.name + INJECTED)
}
#: Every release that is supported, and one that is not known.
ENGINES = (*(f"0.5.{patch}" for patch in range(compat.FIRST[2], compat.LAST[2] + 1)), "none")
Rule = Callable[[Sequence[int], int], list[int]]
#: What `set_eagle3_layers_to_capture` of SGLang's classes makes of ids on a target of N layers.
RULES: dict[str, Rule] = {
    "input-of-layer": lambda ids, n: list(ids),
    "output-of-layer": lambda ids, n: [i + 1 for i in ids],
    "sglang-deepseek": lambda ids, n: [i + 1 for i in ids] if ids[0] == 1 else list(ids),
    "sglang-gpt-oss": lambda ids, n: list(ids) if max(ids) == n else [i + 1 for i in ids],
}


@attrs.frozen
class Case:
    rule: str
    format: str
    num_layers: int
    ids: tuple[int, ...]
    engine: str = "0.5.23"
    inject: bool = False

    @property
    def adapter(self) -> str:
        return self.rule + (INJECTED if self.inject else "")

    @property
    def native(self) -> set[int]:
        """What the class of these adapters captures by itself."""
        embedding = self.engine == "none" or int(self.engine.rsplit(".", 1)[1]) >= 22
        return set(range(0 if embedding else 1, self.num_layers))


@st.composite
def cases(draw: st.DrawFn, formats: Sequence[str] = ("sglang", "speculators")) -> Case:
    num_layers = draw(st.integers(5, 64))
    # From one before the embedding to one after the last boundary: the edges are where rules differ.
    numbers = st.integers(-1, num_layers + 1) | st.sampled_from((-1, 0, 1, 2, num_layers - 1, num_layers))
    ids = draw(st.lists(numbers, min_size=2, max_size=5, unique=True))
    return Case(
        draw(st.sampled_from(sorted(RULES))),
        draw(st.sampled_from(formats)),
        num_layers,
        tuple(ids),
        draw(st.sampled_from(ENGINES)),
        draw(st.booleans()),
    )


def draft(config: dict[str, Any], states: int) -> DraftModel:
    """A draft in memory, with the target's whole vocabulary: planning reads no file."""
    shapes = {
        "fc.weight": (HIDDEN, states * HIDDEN),
        "norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCAB, HIDDEN),
        **{
            f"layers.0.{name}.weight": (HIDDEN,)
            for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")
        },
        "layers.0.self_attn.q_proj.weight": (HIDDEN, 2 * HIDDEN),
        "layers.0.self_attn.k_proj.weight": (HIDDEN // 2, 2 * HIDDEN),
        "layers.0.self_attn.v_proj.weight": (HIDDEN // 2, 2 * HIDDEN),
        "layers.0.self_attn.o_proj.weight": (HIDDEN, HIDDEN),
        "layers.0.mlp.gate_proj.weight": (INNER, HIDDEN),
        "layers.0.mlp.up_proj.weight": (INNER, HIDDEN),
        "layers.0.mlp.down_proj.weight": (HIDDEN, INNER),
    }
    tensors = {
        name: TensorInfo(name=name, dtype="BF16", shape=shape, file=Path("none"), start=0, stop=0)
        for name, shape in shapes.items()
    }
    return DraftModel(path=Path("draft"), config=config | {"draft_vocab_size": VOCAB}, tensors=tensors)


def plan(case: Case, boundaries: tuple[int, ...] | None = None) -> Planning:
    text = {"rope_theta": 10000.0}
    target = TargetModel(
        path=Path("target"),
        architecture=architecture(case.adapter),
        config=text,
        text=text,
        num_layers=case.num_layers,
        hidden_size=HIDDEN,
        vocab_size=VOCAB,
    )
    if case.format == "sglang":
        reading = SGLANG.read(draft(sglang_config(case.ids), len(case.ids)))
    else:
        reading = SPECULATORS.read(draft(speculators_config(**{IDS: list(case.ids)}), len(case.ids)))
    return plan_wiring(
        target=target, reading=reading, adapter=ADAPTERS[case.adapter], engine=case.engine, boundaries=boundaries
    )


def test_every_convention_has_its_definition_here() -> None:
    assert set(RULES) == {convention.name for convention in CONVENTIONS}


@given(cases())
def test_boundaries_are_the_sorted_set_of_the_definition_or_the_pair_is_refused(case: Case) -> None:
    meant = RULES[case.rule](case.ids, case.num_layers) if case.format == "sglang" else list(case.ids)
    planning = plan(case)
    reachable = set(range(case.num_layers + 1)) if case.inject else case.native
    if set(meant) <= reachable:
        assert planning.plan is not None
        assert planning.plan.boundaries == tuple(sorted(set(meant)))
        assert not planning.plan.permuted
        assert set(planning.plan.native) == set(meant) & case.native
        assert set(planning.plan.injected) == set(meant) - case.native
    else:
        assert planning.plan is None
        codes = {finding.code for finding in planning.findings if finding.severity is Severity.ERROR}
        outside = any(not 0 <= k <= case.num_layers for k in meant)
        assert codes == {"layer-ids-out-of-range" if outside else "boundary-unreachable"}


@given(cases())
def test_the_ids_written_for_sglang_mean_the_planned_boundaries_to_its_own_class(case: Case) -> None:
    made = plan(case).plan
    if made is not None:
        written = made.config["eagle_config"][IDS]
        assert sorted(RULES[case.rule](written, case.num_layers)) == list(made.boundaries)


@given(cases(), st.data())
def test_boundaries_asked_for_are_captured_ascending_and_led_back_to_their_blocks(
    case: Case, data: st.DataObject
) -> None:
    size = len(case.ids)
    number = st.integers(0, case.num_layers) if case.inject else st.sampled_from(sorted(case.native))
    listed = tuple(data.draw(st.lists(number, min_size=size, max_size=size, unique=True)))
    made = plan(case, listed).plan
    assert made is not None
    assert made.boundaries == tuple(sorted(listed))
    assert sorted(made.column_order) == list(range(size))
    # What SGLang concatenates at p is what block column_order[p] of fc was trained on.
    assert [listed[block] for block in made.column_order] == list(made.boundaries)


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("format_", ["sglang", "speculators"])
def test_another_number_of_boundaries_than_fc_reads_is_refused(rule: str, format_: str) -> None:
    planning = plan(Case(rule, format_, 61, (2, 30, 58)), (2, 30))
    assert planning.plan is None
    assert "aux-count" in {finding.code for finding in planning.errors}
