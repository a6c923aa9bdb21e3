"""Which state each captured chunk is: every boundary of every class that boots on a CPU, told by transformers.

One boot a class with a draft that reads all N + 1 states, in an order of its own; before each forward of the target the
same batch runs with another random set. Prefix caching is on, a prompt crosses a chunk's border, batches are ragged, a
request is aborted, the engine idles and goes on.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from safetensors.torch import load_file
from support import identity_checks as checks
from support.boundary_states import Chunk, Reference, chunks, distance, records, requests_of
from support.identity_engine import CHUNK, RAGGED
from support.identity_run import BOUNDARIES, LISTED, Run, run
from support.random_targets import DEEPSEEK, KIMI, LLAMA
from support.transformers_targets import CLASSES, WRAPPERS

pytestmark = pytest.mark.engine

Boot = Callable[[str], Run]


@pytest.fixture(scope="module")
def boot(tmp_path_factory: pytest.TempPathFactory) -> Boot:
    """One boot for each architecture, when it is first asked for."""
    done: dict[str, Run] = {}

    def get(architecture: str) -> Run:
        if architecture not in done:
            done[architecture] = run(tmp_path_factory.mktemp(architecture), architecture)
        return done[architecture]

    return get


#: In the gate: each plugin's own class, and those whose states are injected whole.
GATE = (LLAMA, DEEPSEEK, KIMI, "MixtralForCausalLM", "Gemma3ForCausalLM")
OTHERS = sorted({*CLASSES, *WRAPPERS} - {*GATE, "MistralForCausalLM"})


@pytest.fixture(scope="module", params=[*GATE, *(pytest.param(one, marks=pytest.mark.thorough) for one in OTHERS)])
def served(request: pytest.FixtureRequest, boot: Boot) -> Run:
    return boot(request.param)


@pytest.fixture(scope="module")
def reference(served: Run) -> Reference:
    return served.reference


@pytest.fixture(scope="module")
def seen(served: Run, reference: Reference) -> list[Chunk]:
    return list(chunks(reference, served.records, served.answers))


@pytest.mark.parametrize("prompt", [True, False], ids=["prefill", "decode"])
def test_each_captured_state_is_its_own_boundary_by_far(seen: list[Chunk], prompt: bool) -> None:  # noqa: FBT001 - a parameter
    of_kind = [chunk for chunk in seen if chunk.prompt is prompt]
    assert {chunk.planned for chunk in of_kind} == set(BOUNDARIES)
    checks.states_are_their_own_boundaries_by_far(of_kind)


def test_every_token_of_every_request_was_looked_at_with_all_boundaries_and_with_others(served: Run) -> None:
    looked: dict[str, set[int]] = {}
    sets = set()
    for record in records(served.records):
        if record["boundaries"] != BOUNDARIES:
            sets.add(tuple(record["boundaries"]))
            continue
        for request, rows in requests_of(record):
            looked.setdefault(request, set()).update(record["positions"][rows])
    for request, answer in served.answers.items():
        # The last token was emitted and never read.
        assert set(range(answer["cached"], len(answer["prompt"]) + len(answer["output"]) - 1)) <= looked[request]
    assert {len(one) for one in sets} == set(range(1, len(BOUNDARIES)))
    assert len(sets) > 20


def test_injected_states_are_those_that_the_class_captures_bit_for_bit(served: Run) -> None:
    checks.injected_states_are_those_of_the_class_bit_for_bit(served)


def test_the_script_did_what_it_is_for(served: Run) -> None:
    answers, written = served.answers, list(records(served.records))
    # Of a window's layers the cache keeps less than of the others.
    assert min(answers["again"]["cached"], answers["fork"]["cached"]) > 30, "prefix cache"
    pieces = [record for record in written if record["prompt"] and "long" in record["requests"]]
    assert max(len(record["tokens"]) for record in pieces) <= CHUNK < len(answers["long"]["prompt"]), "chunked"
    assert any(len(set(record["lengths"])) > 1 for record in written), "ragged"
    assert any(set(record["requests"]) == set(RAGGED) for record in written if not record["prompt"]), "batched"
    assert 0 < len(answers["doomed"]["output"]) < 300, "aborted"
    assert "captured states verified" in served.log


def test_column_blocks_of_fc_follow_their_boundaries(served: Run) -> None:
    """Block j of the file was trained on boundary LISTED[j]; SGLang concatenates ascending."""
    file = load_file(served.draft / "model.safetensors")["fc.weight"].chunk(len(LISTED), dim=-1)
    for boundary, block in served.fc_blocks.items():
        assert torch.equal(block, file[LISTED.index(boundary)])


def test_drafts_are_taken_exactly_where_plain_forwards_say(served: Run) -> None:
    checks.drafts_are_taken_exactly_where_plain_forwards_say(served)


def test_tokens_are_the_targets_own(served: Run) -> None:
    checks.tokens_are_the_targets_own(served)


def test_kimi_agrees_with_deepseek(boot: Boot) -> None:
    """The same weights behind a wrapper: the same tokens, and the same states for the same batch."""
    kimi, deepseek = boot(KIMI), boot(DEEPSEEK)
    for name in kimi.answers.keys() - {"doomed"}:
        assert kimi.answers[name]["output"] == deepseek.answers[name]["output"]
    theirs = {_batch(record): record["states"] for record in records(deepseek.records)}
    both = [(record["states"], theirs[_batch(record)]) for record in records(kimi.records) if _batch(record) in theirs]
    assert len(both) > 20
    assert max(distance(mine, other) for mine, other in both) < checks.OWN


def _batch(record: dict[str, object]) -> str:
    return repr([record[key] for key in ("boundaries", "requests", "positions", "tokens")])
