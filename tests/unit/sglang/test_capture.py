"""The first prompt shows whether the target hands out the planned boundaries; nothing stays behind afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch
from support.plans import tiny_plan
from torch import nn

from eagle3_adapters.errors import WiringRefusedError
from eagle3_adapters.sglang import target_class
from eagle3_adapters.sglang.capture import ATTEMPTS, Observer, TargetCapture, relative_error
from eagle3_adapters.values import CaptureSite, EmbedCapture
from eagle3_adapters.wiring import WiringPlan

WIDTH, LAYERS, TOKENS = 6, 5, 4
BOUNDARIES = (0, 2, 4)
Chunks = list[torch.Tensor]


class Layer(nn.Module):
    """Half of a decoder layer: hidden states and the residual that SGLang adds later."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(
        self, positions: Any, hidden_states: torch.Tensor, forward_batch: Any, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        residual = hidden_states if residual is None else hidden_states + residual
        return self.linear(residual), residual


class Processor(nn.Module):
    """SGLang's signature."""

    def forward(
        self,
        input_ids: Any,
        hidden_states: torch.Tensor,
        lm_head: Any,
        logits_metadata: Any,
        aux_hidden_states: Any = None,
        hidden_states_before_norm: torch.Tensor | None = None,
    ) -> torch.Tensor:
        return hidden_states


class Body(nn.Module):
    """Captures at the input of each listed layer, as llama.py does."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(10, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.layers_to_capture: list[int] = []
        self.scale = 1.0

    def forward(self, input_ids: torch.Tensor, forward_batch: Any) -> tuple[torch.Tensor, Chunks]:
        hidden: torch.Tensor = self.embed_tokens(input_ids) * self.scale
        residual: torch.Tensor | None = None
        chunks = []
        for position, layer in enumerate(self.layers):
            if position in self.layers_to_capture:
                chunks.append(hidden if residual is None else hidden + residual)
            hidden, residual = layer(None, hidden, forward_batch, residual)
        return hidden, chunks


class RuleTarget(nn.Module):
    """A target whose captured states a test may spoil on their way."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = Body()
        self.model.layers_to_capture = list(BOUNDARIES)
        self.capture_aux_hidden_states = True
        self.logits_processor = Processor()
        self.lm_head = nn.Linear(WIDTH, 10, bias=False)
        self.spoil: Callable[[Chunks], Any] = lambda chunks: torch.cat(chunks, dim=-1)
        self.requires_grad_(requires_grad=False)

    def forward(self, input_ids: torch.Tensor, forward_batch: Any) -> torch.Tensor:
        hidden, chunks = self.model(input_ids, forward_batch)
        result: torch.Tensor = self.logits_processor(input_ids, hidden, None, forward_batch, self.spoil(chunks))
        return result


class Runner:
    """SGLang's ModelRunner, as far as one forward goes."""

    is_draft_worker = False

    def __init__(self, model: RuleTarget) -> None:
        self.model = model
        self.server_args = SimpleNamespace(enable_dp_attention=False)
        self.prefill_cuda_graph_runner: object = None

    def forward(self, forward_batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        result: torch.Tensor = self.model(forward_batch.input_ids, forward_batch)
        return result


def batch(tokens: int = TOKENS, *, prompt: bool = True) -> SimpleNamespace:
    mode = SimpleNamespace(is_extend_without_speculative=lambda: prompt)
    return SimpleNamespace(input_ids=torch.arange(tokens) % 10, forward_mode=mode)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> WiringPlan:
    made = tiny_plan(tmp_path_factory.mktemp("pair"))
    return attrs.evolve(
        made,
        boundaries=BOUNDARIES,
        state_width=WIDTH,
        num_layers=LAYERS,
        target_architecture="RuleTarget",
        capture=CaptureSite(body="model"),
        embed=EmbedCapture(module="model.embed_tokens"),
    )


@pytest.fixture
def target() -> RuleTarget:
    return RuleTarget()


@pytest.fixture
def runner(plan: WiringPlan, target: RuleTarget) -> Runner:
    made = Runner(target)
    TargetCapture(plan).after_load_model(None, made)
    return made


def hooks(target: RuleTarget) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in target.modules())


def refusal(run: Callable[[], object]) -> str:
    with pytest.raises(WiringRefusedError) as caught:
        run()
    (finding,) = caught.value.findings
    assert finding.code == "capture-mismatch"
    return str(finding)


# The first prompt.


@pytest.mark.parametrize("as_list", [False, True], ids=["one tensor", "a list"])
def test_the_planned_boundaries_pass(runner: Runner, target: RuleTarget, as_list: bool) -> None:  # noqa: FBT001 - a parameter
    if as_list:
        target.spoil = list
    expected = Runner(target).forward(batch())
    assert torch.equal(runner.forward(batch()), expected)


@pytest.mark.parametrize("wrong", [(0, 2, 3), (0, 1, 4), (1, 2, 4)])
def test_a_state_one_layer_off_is_refused_by_its_place_and_boundary(
    runner: Runner, target: RuleTarget, wrong: tuple[int, ...]
) -> None:
    target.model.layers_to_capture = list(wrong)
    text = refusal(lambda: runner.forward(batch()))
    place = next(i for i in range(3) if wrong[i] != BOUNDARIES[i])
    assert f"chunk {place}" in text
    assert f"boundary {BOUNDARIES[place]}" in text


@pytest.mark.parametrize(
    "spoil",
    [
        lambda chunks: torch.cat([chunks[1], chunks[0], chunks[2]], dim=-1),
        lambda chunks: torch.cat(chunks[:2], dim=-1),
        lambda chunks: chunks[:2],
        lambda chunks: [*chunks, chunks[0]],
        lambda chunks: torch.cat([chunk[:, :-1] for chunk in chunks], dim=-1),
        lambda chunks: [chunks[0], chunks[1], chunks[2][:, :-1]],
        lambda chunks: [],
        lambda chunks: None,
        lambda chunks: torch.cat([chunks[0], chunks[1], chunks[2] * float("nan")], dim=-1),
        lambda chunks: torch.cat([chunks[0], chunks[1], chunks[2] * 1.1], dim=-1),
        lambda chunks: torch.cat(chunks, dim=-1)[:1],
    ],
    ids=[
        "two swapped",
        "one missing",
        "one of the list missing",
        "one too many",
        "all narrow",
        "one narrow",
        "empty",
        "none at all",
        "not a number",
        "scaled",
        "rows missing",
    ],
)
def test_captured_states_that_are_not_the_plan_s_are_refused(
    runner: Runner, target: RuleTarget, spoil: Callable[[Chunks], Any]
) -> None:
    target.spoil = spoil
    refusal(lambda: runner.forward(batch()))


def test_rounding_once_more_is_no_mismatch(runner: Runner, target: RuleTarget) -> None:
    target.spoil = lambda chunks: torch.cat([chunk.bfloat16() for chunk in chunks], dim=-1)
    runner.forward(batch())
    assert "forward" not in vars(runner)


def test_boundary_0_is_compared_with_the_embedding_and_not_with_the_first_layer_s_input(
    plan: WiringPlan, target: RuleTarget
) -> None:
    """The target scales its embedding before layer 0, and the adapter says so: without it the pair is refused."""
    target.model.scale = 3.0
    scaled = Runner(target)
    TargetCapture(attrs.evolve(plan, embed=EmbedCapture(module="model.embed_tokens", scale=3.0))).after_load_model(
        None, scaled
    )
    scaled.forward(batch())
    unscaled = Runner(target)
    TargetCapture(plan).after_load_model(None, unscaled)
    assert "embedding" in refusal(lambda: unscaled.forward(batch()))


def test_a_merged_embedding_is_compared_with_what_enters_the_first_layer(plan: WiringPlan, target: RuleTarget) -> None:
    """Multimodal rows replace rows of the embedding's output, so the module's own output is not boundary 0."""
    target.model.scale = 3.0
    merged = Runner(target)
    TargetCapture(attrs.evolve(plan, embed=EmbedCapture(module="model.embed_tokens", merged=True))).after_load_model(
        None, merged
    )
    merged.forward(batch())
    assert "forward" not in vars(merged)


# Nothing stays behind.


def test_after_the_first_prompt_forward_is_the_class_s_own_and_no_hook_is_left(
    runner: Runner, target: RuleTarget
) -> None:
    assert "forward" in vars(runner)
    runner.forward(batch())
    assert "forward" not in vars(runner)
    assert hooks(target) == 0


def test_a_refused_prompt_leaves_no_hook(runner: Runner, target: RuleTarget) -> None:
    target.spoil = lambda chunks: None
    refusal(lambda: runner.forward(batch()))
    assert hooks(target) == 0


def test_a_forward_that_raises_leaves_no_hook_and_the_next_prompt_is_observed(
    runner: Runner, target: RuleTarget
) -> None:
    def out_of_memory(chunks: Chunks) -> Any:
        raise MemoryError

    working, target.spoil = target.spoil, out_of_memory
    with pytest.raises(MemoryError):
        runner.forward(batch())
    assert hooks(target) == 0
    target.spoil = lambda chunks: working(chunks[::-1])
    refusal(lambda: runner.forward(batch()))


@pytest.mark.parametrize("unobserved", [batch(1), batch(prompt=False)], ids=["one token", "decode or verify"])
def test_a_batch_that_shows_nothing_is_not_observed(
    runner: Runner, target: RuleTarget, unobserved: SimpleNamespace
) -> None:
    target.spoil = lambda chunks: None
    runner.forward(unobserved)
    assert "forward" in vars(runner)
    refusal(lambda: runner.forward(batch()))


def test_a_prompt_whose_layers_did_not_run_in_python_proves_nothing(runner: Runner, target: RuleTarget) -> None:
    """A graph replay: the watch goes on until a prompt that runs eagerly."""
    eager = target.model.forward
    target.model.forward = lambda input_ids, forward_batch: (torch.zeros(TOKENS, WIDTH), [])  # type: ignore[method-assign]  # on purpose
    target.spoil = lambda chunks: None
    runner.forward(batch())
    assert "forward" in vars(runner)
    target.model.forward = eager  # type: ignore[method-assign]  # on purpose
    refusal(lambda: runner.forward(batch()))


def test_a_place_that_is_missing_leaves_no_hook(plan: WiringPlan, target: RuleTarget) -> None:
    astray = attrs.evolve(plan, capture=CaptureSite(body="model", logits_processor="elsewhere"))
    with pytest.raises(AttributeError, match="elsewhere"), Observer(target, astray):
        pass
    assert hooks(target) == 0


def test_a_draft_worker_is_not_watched(plan: WiringPlan, target: RuleTarget) -> None:
    drafting = Runner(target)
    drafting.is_draft_worker = True
    TargetCapture(plan).after_load_model(None, drafting)
    assert "forward" not in vars(drafting)


# Before the first prompt.


def configure(plan: WiringPlan, model: Any, *, wanted: bool = True) -> None:
    TargetCapture(plan).after_configure(None, model=model, eagle_use_aux_hidden_state=wanted)


def test_the_loaded_target_is_told_the_planned_boundaries(plan: WiringPlan, target: RuleTarget) -> None:
    target.model.layers_to_capture, target.capture_aux_hidden_states = [1, 3], False
    configure(plan, target)
    assert target.model.layers_to_capture == list(BOUNDARIES)
    assert target.capture_aux_hidden_states is True


def test_a_subclass_of_the_planned_target_is_that_target(plan: WiringPlan) -> None:
    class Patched(RuleTarget):
        pass

    model = Patched()
    model.model.layers_to_capture = []
    configure(plan, model)
    assert model.model.layers_to_capture == list(BOUNDARIES)


def test_another_target_than_planned_is_refused_by_both_names(plan: WiringPlan) -> None:
    text = refusal(lambda: configure(plan, nn.Identity()))
    assert "RuleTarget" in text
    assert "Identity" in text


def test_an_adapter_that_names_a_place_that_is_not_there_is_refused_by_name(
    plan: WiringPlan, target: RuleTarget
) -> None:
    text = refusal(lambda: configure(attrs.evolve(plan, capture=CaptureSite(body="language_model.model")), target))
    assert "language_model" in text
    assert plan.adapter_origin in text


def test_a_model_that_sglang_does_not_ask_for_states_is_left_alone(plan: WiringPlan, target: RuleTarget) -> None:
    target.model.layers_to_capture = []
    configure(plan, target, wanted=False)
    assert target.model.layers_to_capture == []


# What is measured.


def test_the_residual_stream_is_a_snapshot() -> None:
    """SGLang's kernels write into the hidden states in place."""
    hidden = torch.ones(2, WIDTH)
    read = target_class.residual_stream(Layer())
    stream = read((None, hidden, None, None), {})
    hidden.fill_(7.0)
    assert stream.eq(1.0).all()
    assert read((None, hidden), {"forward_batch": None, "residual": hidden}).eq(14.0).all()
    assert read((None,), {"hidden_states": hidden, "forward_batch": None}).eq(7.0).all()


def test_a_sum_over_ranks_that_sglang_fuses_into_the_next_norm_is_made_for_the_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """0.5.17 to 0.5.21 mark the tensor; this rank's part alone was captured in the field."""
    reduced: list[torch.Tensor] = []

    def all_reduce(part: torch.Tensor) -> torch.Tensor:
        reduced.append(part)
        return part.mul_(2)

    distributed = SimpleNamespace(tensor_model_parallel_all_reduce=all_reduce)
    monkeypatch.setitem(sys.modules, "sglang.srt.distributed", distributed)
    hidden, residual = torch.ones(2, WIDTH), torch.full((2, WIDTH), 10.0)
    read = target_class.residual_stream(Layer())
    assert read((None, hidden, None, residual), {}).eq(11.0).all()
    assert not reduced
    hidden._sglang_needs_allreduce_fusion = True  # type: ignore[attr-defined]  # as SGLang marks it
    assert read((None, hidden, None, residual), {}).eq(12.0).all()
    assert hidden.eq(1.0).all(), "the layer reduces its own"


@pytest.mark.parametrize(
    ("found", "expected", "error"),
    [
        (torch.ones(2, 2), torch.ones(2, 2), 0.0),
        (torch.zeros(2, 2), torch.zeros(2, 2), 0.0),
        (torch.ones(2, 2), torch.zeros(2, 2), float("inf")),
        (torch.ones(2, 3), torch.ones(2, 2), float("inf")),
        (torch.full((2, 2), 1.5), torch.ones(2, 2), 0.5),
        (torch.full((400, 400), 200.0).half(), torch.full((400, 400), 100.0).half(), 1.0),
    ],
    ids=["equal", "both zero", "of zero", "another shape", "half", "sums beyond the dtype"],
)
def test_the_error_is_relative_and_survives_the_edges(
    found: torch.Tensor, expected: torch.Tensor, error: float
) -> None:
    assert relative_error(found, expected) == pytest.approx(error)


def test_prompts_that_replay_a_graph_are_given_up_after_a_few(
    plan: WiringPlan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A replay runs no layer in Python: say once that nothing was verified, and leave the path of later batches."""
    runner = Runner(RuleTarget())
    monkeypatch.setattr(Runner, "forward", lambda *_: torch.zeros(1))
    TargetCapture(plan).after_load_model(None, runner)
    for _ in range(ATTEMPTS + 2):
        runner.forward(batch())
    assert "forward" not in vars(runner)
    assert [record.getMessage().count("not verified") for record in caplog.records] == [1]


def test_under_dp_attention_no_rank_starts_a_collective_by_itself(plan: WiringPlan) -> None:
    runner = Runner(RuleTarget())
    runner.server_args.enable_dp_attention = True
    TargetCapture(plan).after_load_model(None, runner)
    assert "forward" not in vars(runner)


def test_the_observed_prompt_runs_without_graphs_and_later_ones_with_them(plan: WiringPlan) -> None:
    seen: list[object] = []

    class Graphs(Runner):
        def forward(self, forward_batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            seen.append(self.prefill_cuda_graph_runner)
            return super().forward(forward_batch, *args, **kwargs)

    runner, graphs = Graphs(RuleTarget()), object()
    runner.prefill_cuda_graph_runner = graphs
    TargetCapture(plan).after_load_model(None, runner)
    for _ in range(2):
        runner.forward(batch())
    assert seen == [None, graphs]
    assert runner.prefill_cuda_graph_runner is graphs
