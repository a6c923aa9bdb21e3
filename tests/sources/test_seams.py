"""Every seam and every fact of every supported version, against the sources that SGLang published."""

from __future__ import annotations

import ast

import pytest
from support.engine_wheels import VERSIONS, published

from eagle3_adapters.engine_version import version_numbers
from eagle3_adapters.sglang import compat, seams
from eagle3_adapters.sglang.drafts import stock
from eagle3_adapters.sglang.facts import FACTS
from eagle3_adapters.sglang.sources import Sources

pytestmark = pytest.mark.wheels


def test_no_release_of_the_range_is_left_out() -> None:
    assert published() == VERSIONS


def test_every_seam_of_the_version_is_there(version: str, sources: Sources) -> None:
    found = seams.found(version, sources)
    assert {seam.name for seam in compat.SEAMS} <= {seam.name for seam in found}
    overridden = {path for built in stock.PARTS.values() for path in built.draft.paths + built.layer.paths}
    assert {*compat.DRAFT_LOADERS.values(), *overridden} <= {seam.path for seam in found}
    assert not [seam for seam, there in found.items() if not there]


def test_a_seam_is_not_there_before_its_range_and_is_asked_for_in_it_alone(version: str, sources: Sources) -> None:
    number = version_numbers(version)
    assert number is not None
    wanted = seams.wanted(version)
    for seam in compat.SEAMS:
        assert (seam in wanted) == (seam.first <= number <= seam.last), seam
        assert number >= seam.first or not seams.in_sources(seam.path, sources), seam


def test_every_fact_is_so_in_its_versions_and_in_no_other(version: str, sources: Sources) -> None:
    assert not [fact for fact in FACTS if fact.holds(sources) != fact.expected(version)]


def test_where_the_resolve_seam_moved_the_old_function_does_nothing_any_more(version: str, sources: Sources) -> None:
    current = compat.seam("resolve", version)
    for seam in compat.SEAMS:
        found = sources.find(seam.path)
        if seam.name == "resolve" and found is not None:
            does = [one for one in found.node.body if not isinstance(one, ast.Expr) or isinstance(one.value, ast.Call)]
            assert bool(does) == (seam == current), seam
