"""Whatever a body captures by itself, with an injection it returns exactly the planned states, ascending."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.plans import tiny_plan
from support.toy_target import TOKENS, WIDTH, Body, Layer, Norm, Processor, Target
from torch import nn

from eagle3_adapters.errors import WiringRefusedError
from eagle3_adapters.sglang import target_class
from eagle3_adapters.sglang.capture import Observer, TargetCapture
from eagle3_adapters.sglang.injection import Injection
from eagle3_adapters.values import CaptureSite, EmbedCapture
from eagle3_adapters.wiring import WiringPlan

SITE = CaptureSite(body="model")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> WiringPlan:
    return tiny_plan(tmp_path_factory.mktemp("pair"))


def planned(base: WiringPlan, num_layers: int, boundaries: tuple[int, ...], injected: tuple[int, ...]) -> WiringPlan:
    return attrs.evolve(
        base,
        num_layers=num_layers,
        boundaries=boundaries,
        injected=tuple(k for k in boundaries if k in injected),
        state_width=WIDTH,
        target_architecture="Target",
        capture=SITE,
        embed=EmbedCapture(module="model.embed_tokens", merged=True),
    )


def untouched(target: nn.Module) -> bool:
    """Whether nothing of ours is on the way."""
    return not any(
        module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module) for module in target.modules()
    )


@given(st.data())
def test_every_set_of_boundaries_arrives_whole_and_ascending_and_is_switched_while_it_runs(
    base: WiringPlan, data: st.DataObject
) -> None:
    num_layers, packed = data.draw(st.integers(1, 9)), data.draw(st.booleans())
    # 0.5.22 on: N alone; before, in the Llama classes, 0 as well; all, where a class captures nothing or the wrong.
    injected = data.draw(st.sampled_from([(num_layers,), (0, num_layers), tuple(range(num_layers + 1))]))
    target = Target(num_layers, packed=packed)
    capture = TargetCapture(planned(base, num_layers, (0,), injected))
    sets = st.sets(st.integers(0, num_layers), min_size=1, max_size=num_layers + 1)
    for chosen in data.draw(st.lists(sets, min_size=1, max_size=4)):
        boundaries = tuple(sorted(chosen))
        capture.assign(target, planned(base, num_layers, boundaries, injected))
        assert target.states() == list(boundaries)


@pytest.mark.parametrize("packed", [False, True])
def test_states_are_of_the_kind_that_the_class_returns(base: WiringPlan, packed: bool) -> None:  # noqa: FBT001 - a parameter
    target = Target(packed=packed)
    TargetCapture(base).assign(target, planned(base, 5, (0, 2, 5), (0, 5)))
    batch = SimpleNamespace(forward_mode=SimpleNamespace(is_idle=lambda: False))
    _, states = target.model(torch.zeros(TOKENS), None, batch)
    assert isinstance(states, torch.Tensor if packed else list)


def test_an_injected_state_is_no_view_of_what_the_target_goes_on_with(base: WiringPlan) -> None:
    """The norm's storage is borrowed: a kernel of the next layer stack may write there."""
    target = Target()
    TargetCapture(base).assign(target, planned(base, 5, (5,), (5,)))
    streams: list[torch.Tensor] = []
    target.model.norm.register_forward_hook(lambda norm, args, output: streams.append(output[1]))
    batch = SimpleNamespace(forward_mode=SimpleNamespace(is_idle=lambda: False))
    _, states = target.model(torch.zeros(TOKENS), None, batch)
    streams[0].fill_(7.0)
    assert states[0].eq(5.0).all()


@pytest.mark.parametrize("packed", [False, True])
def test_an_idle_batch_ends_before_the_norm_and_has_as_many_states(base: WiringPlan, packed: bool) -> None:  # noqa: FBT001 - a parameter
    target = Target(packed=packed)
    TargetCapture(base).assign(target, planned(base, 5, (0, 2, 5), (5,)))
    assert len(target.states(tokens=0, idle=True)) == 3
    assert target.states() == [0, 2, 5]


def test_a_batch_with_tokens_that_passes_the_norm_by_is_refused(base: WiringPlan) -> None:
    target = Target()
    TargetCapture(base).assign(target, planned(base, 5, (2, 5), (5,)))
    target.model.norm = Norm()
    with pytest.raises(WiringRefusedError, match="capture-mismatch"):
        target.states()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("boundaries", [(0, 2, 5), (5,), (0, 5)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_torch_compile_traces_it_in_one_piece(base: WiringPlan, packed: bool, boundaries: tuple[int, ...]) -> None:  # noqa: FBT001 - a parameter
    """SGLang compiles the body whole for prompts in graphs; a break in the graph ends its start."""
    target = Target(packed=packed)
    TargetCapture(base).assign(target, planned(base, 5, boundaries, (0, 5)))
    # What was compiled for another target of this process is not guarded against hooks of this one.
    torch.compiler.reset()
    compiled = torch.compile(target.model.forward, fullgraph=True, backend="eager")
    batch = SimpleNamespace(forward_mode=SimpleNamespace(is_idle=bool))
    for tokens in (TOKENS, 2 * TOKENS):
        _, states = compiled(torch.zeros(tokens), None, batch)
        joined = states if isinstance(states, torch.Tensor) else torch.cat(states, dim=-1)
        chunks = torch.split(joined, WIDTH, dim=-1)
        assert all(bool(chunk.eq(k).all()) for chunk, k in zip(chunks, boundaries, strict=True))


class Stateless(nn.Module):
    """A class that knows no states: no setter, no flag, and what its body returns goes to the processor as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Body(5, packed=False, embedding=False)
        self.model.embed_tokens = nn.Embedding(7, WIDTH)
        self.lm_head = nn.Linear(WIDTH, 7, bias=False)
        self.logits_processor = Processor()

    def forward(self) -> None:
        batch = SimpleNamespace(forward_mode=SimpleNamespace(is_idle=lambda: False))
        self.logits_processor(self.model(torch.zeros(TOKENS), None, batch))


ALL = CaptureSite(body="model", capture_list="", capture_flags=())


def test_a_class_without_a_word_for_states_hands_them_to_its_processor(base: WiringPlan) -> None:
    target, seen = Stateless(), []
    own = target.logits_processor.forward

    def processor(hidden_states: torch.Tensor, aux_hidden_states: Any = None) -> torch.Tensor:
        seen.append((hidden_states, aux_hidden_states))
        return own(hidden_states)

    target.logits_processor.forward = processor  # type: ignore[method-assign]  # a test's look
    plan = attrs.evolve(planned(base, 5, (0, 1, 4, 5), tuple(range(6))), capture=ALL)
    capture = TargetCapture(plan)
    capture.assign(target, plan)
    with Observer(target, plan) as observer:
        target()
    assert observer.complete
    observer.verify()
    hidden, states = seen[0]
    assert hidden.shape == (TOKENS, WIDTH)
    assert [int(state.unique()) for state in states] == [0, 1, 4, 5]
    capture.assign(target, attrs.evolve(plan, boundaries=(), injected=()))
    target()
    assert seen[-1][1] is None
    assert not any("forward" in vars(module) for module in (target.model, *target.model.layers))


def test_the_states_are_split_off_however_the_processor_is_called() -> None:
    def forward(input_ids: Any, hidden_states: Any, lm_head: Any, aux_hidden_states: Any = None) -> None: ...

    split = target_class.split_states(forward)
    assert split((1, ("hidden", "states"), 2), {}) == ((1, "hidden", 2), {"aux_hidden_states": "states"})
    named = {"hidden_states": ("hidden", "states"), "lm_head": 2}
    assert split((1,), named) == ((1,), {"hidden_states": "hidden", "lm_head": 2, "aux_hidden_states": "states"})
    assert split((1, "hidden", 2), {"aux_hidden_states": "own"}) == ((1, "hidden", 2), {"aux_hidden_states": "own"})


def test_a_layer_that_is_passed_by_is_refused(base: WiringPlan) -> None:
    target = Target()
    plan = planned(base, 5, (1, 3), tuple(range(6)))
    TargetCapture(base).assign(target, plan)
    target.model.layers[3] = Layer()
    with pytest.raises(WiringRefusedError, match="capture-mismatch"):
        target.states()


def test_what_sglang_asks_a_target_for_is_supplied_where_its_class_has_it_not() -> None:
    target = Stateless()
    target_class.supply_methods(target, "model.embed_tokens", "lm_head")
    assert target.set_eagle3_layers_to_capture([1, 2]) is None  # type: ignore[operator]  # supplied
    embed, head = target.get_embed_and_head()  # type: ignore[operator]  # supplied
    assert embed is target.get_parameter("model.embed_tokens.weight")
    assert head is target.lm_head.weight
    again = target.get_embed_and_head
    target_class.supply_methods(target, "model.embed_tokens", "lm_head")
    assert target.get_embed_and_head is again, "once"
    with pytest.raises(AttributeError, match="'output'"):
        target_class.supply_methods(Stateless(), "model.embed_tokens", "output")


def test_sglang_reads_the_signature_of_the_class_s_own_forward(base: WiringPlan) -> None:
    target = Target()
    own = inspect.signature(target.model.forward)
    TargetCapture(base).assign(target, planned(base, 5, (2, 5), (5,)))
    assert inspect.signature(target.model.forward) == own


def test_without_injected_boundaries_the_target_is_left_as_its_class_made_it(base: WiringPlan) -> None:
    target = Target()
    capture = TargetCapture(base)
    capture.assign(target, planned(base, 5, (0, 5), (0, 5)))
    capture.assign(target, planned(base, 5, (2, 4), (0, 5)))
    assert target.states() == [2, 4]
    assert "forward" not in vars(target.model)
    assert untouched(target)


def test_a_forward_that_somebody_else_had_replaced_is_put_back(base: WiringPlan) -> None:
    target = Target()
    theirs = target.model.forward
    target.model.forward = theirs  # type: ignore[method-assign]  # as SGLang does around a graph replay
    injection = Injection(target, SITE, (5,), 5)
    injection.remove()
    assert vars(target.model)["forward"] is theirs


def test_a_place_that_is_missing_is_named_and_leaves_no_hook() -> None:
    target = Target()
    with pytest.raises(AttributeError, match="ln_f"):
        Injection(target, CaptureSite(body="model", final_norm="ln_f"), (0, 5), 5)
    assert untouched(target)


def test_the_final_norm_s_input_is_a_snapshot_with_the_residual_added() -> None:
    hidden = torch.ones(2, WIDTH)
    alone, added = target_class.before_norm((hidden,)), target_class.before_norm((hidden, 2 * hidden))
    hidden.fill_(9.0)
    assert alone.eq(1.0).all()
    assert added.eq(3.0).all()
    assert target_class.normed_stream((hidden,), torch.zeros(1)) is hidden


def test_the_first_prompt_proves_the_last_boundary_by_a_snapshot_of_its_own(base: WiringPlan) -> None:
    plan, target = planned(base, 5, (0, 2, 5), (0, 5)), Target()
    TargetCapture(plan).assign(target, plan)
    with Observer(target, plan) as observer:
        target()
    assert observer.complete
    observer.verify()
    target.error = 1.0
    with Observer(target, attrs.evolve(plan, boundaries=(5,), injected=(5,))) as observer:
        TargetCapture(plan).assign(Target(), plan)
        target()
    with pytest.raises(WiringRefusedError, match="capture-mismatch"):
        observer.verify()
