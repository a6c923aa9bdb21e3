"""Each supported version of SGLang, on the CPU: native and injected states of every class that boots there.

One boot a version and class, as in tests/sglang/test_identity.py. What passes is written to record.json, by which
`eagle3_adapters.engine_version.INJECTED` says in which versions captures of our own were run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from support import identity_checks as checks
from support.boundary_states import Chunk, chunks
from support.engine_wheels import VERSIONS, ahead
from support.identity_run import BOUNDARIES, Pair, Run, make, random_sets, run
from support.paper_targets import owner, paper_target
from support.random_targets import DEEPSEEK, KIMI, LAYERS, LLAMA
from support.transformers_targets import CLASSES, WRAPPERS

from eagle3_adapters.engine_version import version_numbers
from eagle3_adapters.sglang import overlay
from eagle3_adapters.wiring import WiringPlan

pytestmark = pytest.mark.versions

SERVED = (LLAMA, DEEPSEEK, KIMI, *sorted({*CLASSES, *WRAPPERS} - {"MistralForCausalLM"}))
NATIVE, INJECTED = "native", "injected"
#: All boundaries injected in the first forward, a prompt's, and in every other one.
SETS = [one for other in random_sets(20) for one in ((list(BOUNDARIES), True), other)]


@attrs.frozen(kw_only=True)
class Boot:
    """One boot: what it left behind, the plan that it ran by, and all of its states."""

    run: Run
    plan: WiringPlan
    seen: tuple[Chunk, ...]


def _native(architecture: str, version: str) -> set[int]:
    """Boundaries that the adapter leaves to the class."""
    target = paper_target(architecture, LAYERS)
    capture = owner(target).capture_layers(target)
    return {k for k in BOUNDARIES if capture.is_native(k, version_numbers(version))}


def _cases() -> list[tuple[str, str, str]]:
    """A class that captures nothing by itself has all injected, and no more to show."""
    return [
        (version, architecture, way)
        for architecture in SERVED
        for version in VERSIONS
        for way in ((NATIVE, INJECTED) if _native(architecture, version) else (INJECTED,))
    ]


@pytest.fixture(scope="module")
def boot(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Boot]:
    """One boot for each version and class, of one pair a class; the last of each are kept."""
    pairs: dict[str, Pair] = {}
    boots: dict[tuple[str, str], Boot] = {}

    def get(version: str, architecture: str) -> Boot:
        if architecture not in pairs:
            pairs.clear()
            pairs[architecture] = make(tmp_path_factory.mktemp(architecture), architecture)
        if (version, architecture) not in boots:
            boots.clear()
            directory = tmp_path_factory.mktemp(f"{architecture}-{version}-")
            boots[version, architecture] = _boot(directory, version, architecture, pairs[architecture])
        return boots[version, architecture]

    return get


def _boot(directory: Path, version: str, architecture: str, pair: Pair) -> Boot:
    cache = directory / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(overlay.CACHE_VARIABLE, str(cache))
        ran = run(directory, architecture, made=pair, sets=SETS, ahead=ahead(version))
    (file,) = cache.glob(f"*/{overlay.PLAN}")
    seen = tuple(chunks(ran.reference, ran.records, ran.answers))
    return Boot(run=ran, plan=WiringPlan.from_json(file.read_text(encoding="utf-8")), seen=seen)


@pytest.mark.parametrize(("version", "architecture", "way"), _cases())
def test_states_tokens_and_accepted_drafts(
    version: str, architecture: str, way: str, boot: Callable[[str, str], Boot], passed: Callable[[], None]
) -> None:
    booted = boot(version, architecture)
    plan = booted.plan
    assert (plan.engine, plan.target_architecture) == (version, architecture)
    native = _native(architecture, version)
    assert set(plan.native) == native
    if way == NATIVE:
        seen = [chunk for chunk in booted.seen if not chunk.injected and chunk.planned in native]
    else:
        seen = [chunk for chunk in booted.seen if chunk.injected or chunk.planned not in native]
        checks.injected_states_are_those_of_the_class_bit_for_bit(booted.run)
    for prompt in (True, False):
        of_kind = [chunk for chunk in seen if chunk.prompt is prompt]
        assert {chunk.planned for chunk in of_kind} == (native if way == NATIVE else set(BOUNDARIES))
        checks.states_are_their_own_boundaries_by_far(of_kind)
    checks.tokens_are_the_targets_own(booted.run)
    checks.drafts_are_taken_exactly_where_plain_forwards_say(booted.run)
    assert "captured states verified" in booted.run.log
    passed()
