"""Sources read without an import, and facts seen in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle3_adapters.errors import Severity
from eagle3_adapters.sglang import seams
from eagle3_adapters.sglang.facts import FACTS, Fact, Has, Says, Takes
from eagle3_adapters.sglang.sources import Sources

BASE = """
class Base:
    shared: int = 0

    def __init__(self):
        self.marked = False
"""
MODULE = """
from sglang.srt.base import Base as Parent
from sglang.srt import elsewhere

class Child(Parent):
    field: int
    constant = 1

    def method(self, first, second=None, *, third):
        self.assigned, (self.unpacked, _) = first, second
        other.foreign = third
        tensor._mark = True

def function(first, *rest): ...
"""


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    folder = tmp_path / "sglang" / "srt"
    (folder / "package").mkdir(parents=True)
    (folder / "base.py").write_text(BASE)
    # As one of SGLang's files is: with a byte-order mark.
    (folder / "module.py").write_text(MODULE, encoding="utf-8-sig")
    (folder / "package" / "__init__.py").write_text("from sglang.srt.module import Child\n")
    (folder / "package" / "inner.py").write_text("class Inner:\n    deep = 1\n")
    return Sources(tmp_path)


def test_attributes_are_a_classes_own_its_bases_and_what_methods_give_it(sources: Sources) -> None:
    found = sources.find("sglang.srt.module.Child")
    assert found is not None
    assert sources.attributes(found) == {
        *("field", "constant", "method", "assigned", "unpacked"),
        *("__init__", "shared", "marked"),
    }


def test_a_class_may_have_the_name_of_the_one_that_it_inherits_from(sources: Sources, tmp_path: Path) -> None:
    """As SGLang's draft layer has the name of the target's."""
    again = "from sglang.srt.base import Base\n\nclass Base(Base):\n    more = 1\n"
    (tmp_path / "sglang" / "srt" / "again.py").write_text(again)
    found = sources.find("sglang.srt.again.Base")
    assert found is not None
    assert sources.attributes(found) == {"more", "__init__", "shared", "marked"}


def test_a_name_means_what_the_module_defines_or_imports(sources: Sources) -> None:
    for module, name in (("sglang.srt.module", "Parent"), ("sglang.srt.base", "Base")):
        found = sources.named(module, name)
        assert found is not None
        assert (found.module, found.node.name) == ("sglang.srt.base", "Base")
    imported = sources.named("sglang.srt.package", "Child")
    assert imported is not None
    assert imported.module == "sglang.srt.module"
    assert sources.named("sglang.srt.module", "elsewhere") is None
    assert sources.named("sglang.srt.gone", "Child") is None


METHOD = "sglang.srt.module.Child.method"


@pytest.mark.parametrize(
    ("fact", "holds"),
    [
        (Takes(METHOD, ("self", "first")), True),
        (Takes(METHOD, ("first",)), False),
        (Takes(METHOD, ("self", "first", "second", "third")), False),
        (Takes(METHOD, names=("second", "third")), True),
        (Takes(METHOD, names=("fourth",)), False),
        (Takes(METHOD, keywords=("third",)), True),
        (Takes(METHOD, keywords=("second",)), False),
        (Takes("sglang.srt.module.function", ("first",)), True),
        (Takes("sglang.srt.module.function", ("first", "rest")), False),
        (Takes("sglang.srt.module.Child"), False),
        (Takes("sglang.srt.module.gone"), False),
        (Has("sglang.srt.module.Child", ("field", "marked")), True),
        (Has("sglang.srt.module.Child", ("field", "foreign")), False),
        (Has("sglang.srt.package", ("deep",)), True),
        (Has("sglang.srt.package", ("deep", "field")), False),
        (Has("sglang.srt", ("deep", "field")), True),
        (Has("sglang.srt.gone", ("field",)), False),
        (Says("sglang.srt.module", "_mark"), True),
        (Says("sglang.srt", "_mark"), True),
        (Says("sglang.srt.base", "_mark"), False),
        (Says("sglang.srt.gone", "_mark"), False),
    ],
)
def test_a_fact_holds_where_the_sources_say_so(fact: Fact, holds: bool, sources: Sources) -> None:  # noqa: FBT001 - a column of the table above
    assert fact.holds(sources) is holds


@pytest.mark.parametrize(
    ("version", "expected"), [("0.5.18", False), ("0.5.19", True), ("0.5.20.post1", True), ("0.5.21", False)]
)
def test_a_fact_is_expected_in_its_range(version: str, expected: bool) -> None:  # noqa: FBT001 - as above
    assert Says("sglang", "word", first=(0, 5, 19), last=(0, 5, 20)).expected(version) is expected


def test_what_a_version_lacks_is_told_with_its_place(sources: Sources) -> None:
    """In these sources there is nothing of SGLang's."""
    for version in ("0.5.17", "0.5.23"):
        missing = seams.missing_facts(version, sources)
        assert missing == tuple(fact for fact in FACTS if fact.expected(version))
        for fact in missing:
            finding = seams.fact_finding(fact, version)
            assert (finding.code, finding.severity, finding.where) == ("engine-version", Severity.ERROR, fact.path)
            assert version in finding.expected
            assert fact.told in finding.expected
