"""The parts of tests/gpu/identity.py that need no GPU: its pairs can be planned, and its verdicts are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from gpu import cases, engines, judge
from support.boundary_states import Chunk

from eagle3_adapters.pair import Request, plan_pair
from eagle3_adapters.registry import Registry

#: Widths that matter to a GPU's kernels and not to a plan.
SMALL = {"hidden_size": 32, "intermediate_size": 32, "q_lora_rank": 8, "kv_lora_rank": 8, "moe_intermediate_size": 8}


@pytest.mark.parametrize(
    ("case", "engine", "injected"),
    [
        ("llama", "0.5.17", (0, 8)),
        ("llama", "0.5.23", (8,)),
        ("deepseek", "0.5.17", (8,)),
        ("kimi", "0.5.17", (8,)),
        ("kimi", "0.5.23", (8,)),
        ("mixtral", "0.5.17", (0, 3, 8)),
        ("gemma3", "0.5.17", (0, 3, 8)),
    ],
)
def test_every_pair_is_planned_with_the_embedding_and_the_last_boundary(
    case: str, engine: str, injected: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    architecture, sizes = cases.CASES[case]
    small = {name: size for name, size in SMALL.items() if name in sizes}
    monkeypatch.setitem(cases.CASES, case, (architecture, {**sizes, **small}))
    for name in ("PROMPTS", "NEW_TOKENS"):
        monkeypatch.setattr(cases, name, 1)
    cases.make(case, tmp_path, "cpu")
    target, draft = (str(tmp_path / name) for name in ("target", "draft"))
    planning = plan_pair(Request(target=target, draft=draft), Registry.installed(), engine)
    assert planning.plan is not None, planning.errors
    assert (planning.plan.boundaries, planning.plan.injected) == (cases.BOUNDARIES, injected)


@pytest.mark.parametrize("case", cases.CASES)
def test_sizes_fit_into_each_other(case: str) -> None:
    _, sizes = cases.CASES[case]
    if "head_dim" in sizes:
        assert sizes["hidden_size"] == sizes["num_attention_heads"] * sizes["head_dim"]
    else:
        groups, experts = sizes["n_group"], sizes["n_routed_experts"]
        assert experts % groups == 0
        assert sizes["num_experts_per_tok"] <= sizes["topk_group"] * experts // groups


def test_two_ranks_are_served_beside_one_and_injected_where_the_class_captures() -> None:
    assert [way.name for way in engines.ways(["llama"], 1)] == ["llama-plain", "llama-eagle"]
    assert [(way.name, way.ranks, way.inject) for way in engines.ways(["llama", "mixtral"], 2) if way.speculate] == [
        ("llama-eagle", 1, False),
        ("llama-injected", 1, True),
        ("llama-eagle-2-ranks", 2, False),
        ("llama-injected-2-ranks", 2, True),
        ("mixtral-eagle", 1, False),
        ("mixtral-eagle-2-ranks", 2, False),
    ]


def test_deepseek_runs_with_attention_parallel_over_data_and_with_fused_sums_where_flashinfer_is() -> None:
    spread, *fused = engines.ways(["deepseek"], 2, fused=True)[-3:]
    off = {"enforce_disable_flashinfer_allreduce_fusion": True}
    assert spread.arguments() == {"tp_size": 2, "enable_dp_attention": True, "dp_size": 2, **off}
    assert [(way.inject, way.arguments()) for way in fused] == [
        (inject, {"tp_size": 2, "flashinfer_allreduce_fusion_backend": "trtllm"}) for inject in (False, True)
    ]
    assert not any(way.fused for way in engines.ways(["deepseek"], 2))


def record(folder: Path, number: int, states: list[list[float]], *, first: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    one = {"requests": ["one"], "lengths": [len(states)], "positions": list(range(first, first + len(states)))}
    torch.save(one | {"tokens": [7] * len(states), "states": torch.tensor(states)}, folder / f"{number:05d}.pt")


def test_runs_are_compared_where_their_contexts_are_the_same(tmp_path: Path) -> None:
    """Rows of two runs share a place only with the very tokens before it; past an answer's end there is none."""
    served = {"one": {"prompt": [1, 2], "output": [7, 7]}}
    record(tmp_path / "a", 0, [[1.0, 2.0, 4.0], [1.0, 1.0, 1.0]], first=2)
    record(tmp_path / "a", 1, [[9.0, 9.0, 9.0]], first=6)
    record(tmp_path / "b", 0, [[1.0, 2.0, 5.0]], first=2)
    one, other = (judge.rows(tmp_path / name, served) for name in "ab")
    assert set(one) == {(1, 2, 7), (1, 2, 7, 7)}
    found = judge.between(one, other)
    assert (found["rows"], found["distance"]) == (1, [0.0, 0.0, pytest.approx(0.2)])


def test_a_rank_with_other_states_is_counted(tmp_path: Path) -> None:
    for number, value in enumerate((1.0, 2.0)):
        record(tmp_path, number, [[value]], first=0)
        record(tmp_path / "rank1", number, [[1.0]], first=0)
    assert judge.same_on_ranks(tmp_path) == (1, 2)


def test_the_prompts_are_ragged_and_within_the_vocabulary() -> None:
    asked = cases.prompts()
    assert len({len(prompt) for prompt in asked.values()}) == cases.PROMPTS
    assert all(0 < token < cases.VOCABULARY - 2 for prompt in asked.values() for token in prompt)


def chunk(planned: int, *distances: float) -> Chunk:
    return Chunk(request="one", prompt=True, planned=planned, distances=distances)


def test_a_state_of_another_boundary_is_counted_and_the_worst_numbers_are_told() -> None:
    right, wrong = chunk(0, 0.02, 0.6, 0.8), chunk(1, 0.5, 0.9, 0.3)
    alone = judge.verdict([right])
    assert (alone.states, alone.wrong, alone.own) == (1, 0, 0.02)
    assert alone.margin == pytest.approx(30.0)
    both = judge.verdict([right, wrong])
    assert (both.states, both.wrong, both.own) == (2, 1, 0.9)
    assert both.margin == pytest.approx(1 / 3)


def test_nothing_captured_is_no_pass() -> None:
    with pytest.raises(ValueError, match="empty"):
        judge.verdict([])


class Known:
    """In place of a forward: the likeliest next tokens and their leads, whatever the sequence."""

    def __init__(self, tokens: list[int], leads: list[float]) -> None:
        self.found = torch.zeros(len(tokens), 10)
        self.found[range(len(tokens)), tokens] = torch.tensor(leads)

    def logits(self, tokens: list[int]) -> torch.Tensor:
        assert len(tokens) == len(self.found)
        return self.found


def answer(output: list[int], *again: list[int]) -> dict[str, Any]:
    return {"one": {"prompt": [1, 2], "output": output, "again": list(again), "verifies": 2}}


#: The first is one of the prompt.
LEADS = [0.5, 9.0, 0.25, 3.0, 5.0]
#: Each lead changed by 0.05: six standard deviations are 0.3.
NEAR = [0.45, 9.05, 0.3, 2.95, 5.05]


@pytest.mark.parametrize(
    ("mine", "again", "low", "tie", "parted", "tied"),
    [
        ([5, 6, 7], [5, 6, 7], LEADS, 0.0, {}, {}),
        ([5, 8, 9], [5, 6, 7], LEADS, 0.0, {"one": (1, 0.25)}, {}),
        ([5, 8, 9], [5, 9, 7], LEADS, 0.25, {}, {"one": (1, 0.25)}),
        ([5, 8, 9], [5, 6, 7], NEAR, 0.3, {}, {"one": (1, 0.25)}),
        ([8, 6, 7], [5, 8, 7], NEAR, 0.3, {"one": (0, 9.0)}, {}),
    ],
    ids=["equal", "parted", "turned in another batch", "within bf16's noise", "no tie"],
)
def test_only_a_lead_that_bf16_or_another_batch_turns_excuses_another_token(
    mine: list[int],
    again: list[int],
    low: list[float],
    tie: float,
    parted: dict[str, tuple[int, float]],
    tied: dict[str, tuple[int, float]],
) -> None:
    expected, other = Known([9, 5, 6, 7, 8], LEADS), Known([9, 5, 6, 7, 8], low)
    found = judge.compare_tokens(expected, other, answer(mine), answer([5, 6, 7], again))  # type: ignore[arg-type]  # the one method it calls
    assert found["tie"] == pytest.approx(tie, abs=1e-6)
    assert (found["parted"], found["tied"]) == (parted, tied)
    assert (found["requests"], found["equal"]) == (1, mine == [5, 6, 7])
    assert (found["agains"], found["again"]) == (1, again == [5, 6, 7])


def test_the_accept_length_is_the_engines_own_count_over_all_requests() -> None:
    counts = [(4, 5), (1, 0), (0, 0)]
    answers = {str(i): {"verifies": steps, "accepted": taken} for i, (steps, taken) in enumerate(counts)}
    assert judge.accept_length(answers) == 2.0


RESULT: dict[str, Any] = {
    "prefill": attrs.asdict(judge.Verdict(states=3, wrong=0, own=0.01, margin=20.0)),
    "decode": attrs.asdict(judge.Verdict(states=3, wrong=0, own=0.01, margin=20.0)),
    "parted": {},
    "accept_length": 1.5,
    "offline": 1.55,
    "log": ["boundaries [0, 3, 8]", "captured states verified", "[8] injected"],
    "expected": ["boundaries [0, 3, 8]", "captured states verified"],
}


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        ({}, False),
        ({"decode": {**RESULT["decode"], "wrong": 1}}, True),
        ({"parted": {"request-1": (3, 1.5)}}, True),
        ({"log": ["boundaries [0, 3, 8]"]}, True),
        ({"accept_length": 1.4}, True),
    ],
    ids=["sound", "another boundary", "another token", "never verified", "another accept length"],
)
def test_what_fails_the_run(change: dict[str, Any], fails: bool) -> None:  # noqa: FBT001 - a column of the table above
    assert judge.failed({**RESULT, **change}) is fails
    (way,) = engines.ways(["llama"], 1)[1:]
    record = judge.recorded(way, {**RESULT, **change})
    assert (record["architecture"], record["ranks"], record["passed"]) == ("LlamaForCausalLM", 1, not fails)


def test_a_process_without_an_answer_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "llama-eagle.log").write_text("out of memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        engines.answers(tmp_path, "llama-eagle")
