"""Wrong exports of the trained pairs: the true wiring comes first, and the advice given restores its accept length."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from click.testing import CliRunner, Result
from support.boundary_states import Reference, distance
from support.miswired import Files, Plant, Planted, apply, mask, planted, read, write
from support.pair import DEEPSEEK, PAIR, prompts

from eagle3_adapters.cli import main
from eagle3_adapters.cli.output import WIDTH
from eagle3_adapters.diagnosis.declared import Declared, declared
from eagle3_adapters.diagnosis.evaluate import Evaluator
from eagle3_adapters.diagnosis.prompts import DiagnosisError
from eagle3_adapters.diagnosis.run import Diagnosis, diagnose
from eagle3_adapters.diagnosis.statistics import Tallies
from eagle3_adapters.diagnosis.target import Recording, load_encoder, load_target, record
from eagle3_adapters.diagnosis.verdict import Kind
from eagle3_adapters.errors import FindingsError
from eagle3_adapters.pair import Request
from eagle3_adapters.registry import Registry

pytestmark = pytest.mark.slow

STEPS, NEW_TOKENS, PROMPTS, LAYERS = 3, 24, 5, 8
OWN = {PAIR: (0, 2, 5), DEEPSEEK: (0, 3, 5)}
SAID = {pair: list(itertools.chain(*prompts(pair, "greedy_token_ids"))) for pair in OWN}
CASES = [
    pytest.param(pair, one, id=f"{pair.name}-{one.name}")
    for pair, own in OWN.items()
    for one in planted(own, SAID[pair], llama=pair is PAIR)
]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Matrices are small: threads that wait for each other take ten times as long on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@functools.cache
def recording(pair: Path) -> Recording:
    return record(
        load_target(pair / "target", "cpu"),
        [tuple(prompt) for prompt in prompts(pair)[:PROMPTS]],
        num_layers=LAYERS,
        keep=range(LAYERS + 1),
        new_tokens=NEW_TOKENS,
        steps=STEPS,
    )


def asked(pair: Path, draft: Path) -> Request:
    return Request(target=str(pair / "target"), draft=str(draft))


def found(request: Request) -> Declared:
    return declared(request, Registry.installed(), "0.5.23")


def tallies(pair: Path, request: Request) -> Tallies:
    """Of each prompt, as the files and options of a request wire the draft."""
    one = found(request)
    return Evaluator(one.plan, recording(pair), steps=STEPS).measure(one.wiring, tuple(range(PROMPTS)))


def diagnosed(pair: Path, request: Request) -> Diagnosis:
    return diagnose(found(request), recording(pair), steps=STEPS)


@pytest.mark.parametrize("pair", OWN, ids=lambda pair: pair.name)
def test_the_target_is_continued_as_it_was_when_the_pair_was_made(pair: Path) -> None:
    known = prompts(pair, "greedy_token_ids")
    for one, expected in zip(recording(pair).prompts, known, strict=False):
        start = one.continuation.prompt_length
        assert list(one.continuation.tokens[start:]) == expected[: NEW_TOKENS + STEPS - 1]


@pytest.mark.parametrize("pair", OWN, ids=lambda pair: pair.name)
def test_a_correct_pair_is_told_to_be_one(pair: Path) -> None:
    result = diagnosed(pair, asked(pair, pair / "draft"))
    assert (result.verdict.kind, result.verdict.exit_code) == (Kind.DECLARED, 0)
    assert result.ranking.measured[0].wiring == result.ranking.declared
    assert (result.verdict.steps, result.ranking.close) == ((), ())


@pytest.mark.parametrize(("pair", "case"), CASES)
def test_the_advice_restores_the_accept_length(pair: Path, case: Planted, tmp_path: Path) -> None:
    draft = write(tmp_path / "draft", case.plant(*read(pair / "draft")))
    right = pair / "draft"
    if case.right is not None:
        right = write(tmp_path / "right", case.right(*read(pair / "draft")))
    request, best = asked(pair, draft), tallies(pair, asked(pair, right))
    before = tallies(pair, request)
    result = diagnosed(pair, request)
    assert result.verdict.kind is (Kind.UNDECIDED if case.open else Kind.BETTER), result.verdict
    first = result.ranking.measured[0]
    assert first == result.ranking.best
    assert first.wiring.boundaries == (case.order or OWN[pair])
    assert result.advice.beyond == ""
    assert tallies(pair, apply(result.advice, request)) == best
    assert case.open or before != best


def few_tokens(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Files:
    """A vocabulary of tokens that this text hardly has."""
    ids = tensors["d2t"] + torch.arange(len(tensors["d2t"]))
    rare = torch.tensor([row for row, token in enumerate(ids.tolist()) if token not in set(SAID[PAIR][:1000])])
    kept = ids[rare]
    found = {"lm_head.weight": tensors["lm_head.weight"][rare], "d2t": kept - torch.arange(len(kept))}
    return config | {"draft_vocab_size": len(kept)}, tensors | found | {"t2d": mask(kept, config)}


def untrained(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Files:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(tensors["lm_head.weight"].shape, generator=generator)
    return config, tensors | {"lm_head.weight": weight}


@pytest.mark.parametrize(("plant", "kind"), [(untrained, Kind.WEAK), (few_tokens, Kind.TEXT)])
def test_what_no_wiring_mends_is_told_as_such(plant: Plant, kind: Kind, tmp_path: Path) -> None:
    result = diagnosed(PAIR, asked(PAIR, write(tmp_path / "draft", plant(*read(PAIR / "draft")))))
    assert (result.verdict.kind, result.verdict.exit_code) == (kind, 1)


def test_a_pair_that_no_reading_wires_is_refused_with_its_findings(tmp_path: Path) -> None:
    config, tensors = read(PAIR / "draft")
    del tensors["fc.weight"]
    with pytest.raises(FindingsError) as caught:
        found(asked(PAIR, write(tmp_path / "draft", (config, tensors))))
    assert "weight-missing" in {one.code for one in caught.value.findings}


def test_fewer_prompts_than_say_anything_are_refused() -> None:
    few = attrs.evolve(recording(PAIR), prompts=recording(PAIR).prompts[:3])
    with pytest.raises(DiagnosisError, match="expected 4 or more prompts"):
        diagnose(found(asked(PAIR, PAIR / "draft")), few, steps=STEPS)


def test_only_the_states_asked_for_are_kept_and_time_ends_the_run() -> None:
    some = record(
        load_target(PAIR / "target", "cpu"),
        [tuple(prompt) for prompt in prompts(PAIR)[:3]],
        num_layers=LAYERS,
        keep=(0, LAYERS),
        new_tokens=8,
        steps=STEPS,
        least=2,
        out_of_time=lambda: True,
    )
    assert (len(some.prompts), some.untried) == (2, 1)
    full = recording(PAIR).prompts[0].states
    for boundary, state in some.prompts[0].states.items():
        assert torch.allclose(state, full[boundary][: len(state)], atol=1e-4)
    assert set(some.prompts[0].states) == {0, LAYERS}


def test_the_states_are_the_boundaries(tmp_path: Path) -> None:
    reference = Reference(PAIR / "target")
    one = recording(PAIR).prompts[0]
    for boundary, state in enumerate(reference.states(one.continuation.tokens[:-1])):
        assert distance(one.states[boundary], state) < 1e-5


def test_a_target_that_transformers_cannot_load_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Unheard"], "model_type": "unheard"}))
    with pytest.raises(DiagnosisError, match="cannot load this target as a causal language model"):
        load_target(tmp_path, "cpu")


def run(*arguments: str) -> Result:
    clean: dict[str, str | None] = dict.fromkeys(("EAGLE3_ADAPTER", "EAGLE3_FORMAT", "EAGLE3_BOUNDARIES"))
    return CliRunner().invoke(main, ["diagnose", "--max-prompts", "8", "--new-tokens", "24", *arguments], env=clean)


def files(draft: Path) -> list[str]:
    return ["--target", str(PAIR / "target"), "--draft", str(draft), "--prompts", str(PAIR / "prompts.json")]


def test_the_command_says_that_a_correct_pair_is_one_in_a_table_that_fits() -> None:
    result = run(*files(PAIR / "draft"))
    assert result.exit_code == 0, result.output
    assert "declared-best: the declared wiring is best" in result.stdout
    table = result.stdout.split("\n\n")[0].splitlines()
    assert max(map(len, table)) <= WIDTH
    assert table[2].split()[:3] == ["1", "as", "declared"]


def test_the_command_exits_1_with_the_option_that_mends_a_miswired_pair(tmp_path: Path) -> None:
    config, tensors = read(PAIR / "draft")
    draft = write(tmp_path / "draft", (config | {"eagle_aux_hidden_state_layer_ids": [1, 3, 6]}, tensors))
    result = run(*files(draft), "--json")
    data = json.loads(result.stdout)
    assert (result.exit_code, data["command"], data["verdict"]["kind"]) == (1, "diagnose", "better-wiring")
    assert (data["verdict"]["steps"], data["ranking"][0]["boundaries"]) == (["--eagle3-boundaries 0,2,5"], [0, 2, 5])
    again = run(*files(draft), "--json", "--boundaries", "0,2,5")
    assert (again.exit_code, json.loads(again.stdout)["verdict"]["kind"]) == (0, "declared-best")
    assert json.loads(run(*files(draft), "--json").stdout) == data


def test_the_command_without_time_measures_the_declared_wiring_and_says_what_it_left_out() -> None:
    result = run(*files(PAIR / "draft"), "--time-budget", "0")
    assert result.exit_code == 0, result.output
    assert "out of time: 4 prompts not run" in result.stdout
    assert "wirings not tried" in result.stdout


def test_text_goes_through_the_targets_tokenizer(tmp_path: Path) -> None:
    known = json.loads((PAIR / "prompts.json").read_text(encoding="utf-8"))[:5]
    encode = load_encoder(PAIR / "target")
    assert [encode(one["text"]) for one in known] == [one["token_ids"] for one in known]


def test_a_file_without_prompts_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "prompts").write_text("nothing")
    result = run(*files(PAIR / "draft")[:-1], str(tmp_path / "prompts"))
    assert result.exit_code == 2
    assert "expected a JSON array" in result.stderr


def test_there_are_twenty_kinds_and_more() -> None:
    assert len({one.name for one in planted(OWN[PAIR], SAID[PAIR], llama=True)}) >= 20
