"""Names of SGLang by version, and seams found in sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle3_adapters.errors import Severity
from eagle3_adapters.sglang import compat, seams
from eagle3_adapters.sglang.sources import Sources


@pytest.mark.parametrize(
    ("version", "function"),
    [
        ("0.5.17", "__post_init__"),
        ("0.5.18", "__post_init__"),
        ("0.5.18.post1", "__post_init__"),
        ("0.5.19", "resolve_once"),
        ("0.5.23", "resolve_once"),
        # Outside the range: the nearest, so that asking fails there and not here.
        ("0.5.9", "__post_init__"),
        ("0.4.30", "__post_init__"),
        ("0.5.24", "resolve_once"),
        ("0.6.0", "resolve_once"),
        ("none", "resolve_once"),
    ],
)
def test_the_resolve_seam_is_the_one_of_the_version(version: str, function: str) -> None:
    assert compat.seam("resolve", version).path == f"sglang.srt.server_args.ServerArgs.{function}"


@pytest.mark.parametrize("patch", range(compat.FIRST[2], compat.LAST[2] + 1))
def test_every_supported_version_has_exactly_one_seam_of_each_name(patch: int) -> None:
    version = (0, 5, patch)
    for name in {seam.name for seam in compat.SEAMS}:
        matching = [seam for seam in compat.SEAMS if seam.name == name and seam.first <= version <= seam.last]
        assert matching == [compat.seam(name, f"0.5.{patch}")]


@pytest.mark.parametrize("version", ["0.5.17", "0.5.20", "0.5.23", "0.5.23.post2", "0.5.18+cpu"])
def test_a_version_inside_the_range_is_no_finding(version: str) -> None:
    assert compat.version_finding(version) is None


@pytest.mark.parametrize("version", ["0.5.16", "0.5.24", "0.5.2", "0.6.0", "1.5.20", "0.5", "none", "main"])
def test_a_version_outside_the_range_is_an_error_that_names_it_and_one_to_install(version: str) -> None:
    finding = compat.version_finding(version)
    assert finding is not None
    assert (finding.code, finding.severity, finding.found) == ("engine-version", Severity.ERROR, version)
    assert "sglang==0.5.23" in finding.remedy


# Seams in sources.

SOURCE = """
class Outer:
    attribute = 1

    class Inner:
        def method(self): ...

    def method(self): ...

def function():
    def local(): ...

class Empty:
    pass
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "sglang" / "srt"
    folder.mkdir(parents=True)
    (folder / "module.py").write_text(SOURCE)
    return tmp_path


@pytest.mark.parametrize("name", ["Outer.method", "Outer.Inner.method", "function"])
def test_a_function_is_found_where_the_path_says(root: Path, name: str) -> None:
    assert seams.in_sources(f"sglang.srt.module.{name}", Sources(root))


@pytest.mark.parametrize(
    "path",
    [
        "sglang.srt.module.Outer",
        "sglang.srt.module.Outer.attribute",
        "sglang.srt.module.Outer.function",
        "sglang.srt.module.Inner.method",
        "sglang.srt.module.Empty.method",
        "sglang.srt.module.method",
        "sglang.srt.module.function.local",
        "sglang.srt.module.gone",
        "sglang.srt.gone.function",
        "sglang.module.function",
    ],
)
def test_what_is_not_that_function_is_missing(root: Path, path: str) -> None:
    assert not seams.in_sources(path, Sources(root))


def test_the_seams_wanted_of_a_version_are_its_own_and_the_loaders() -> None:
    paths = {seam.path for seam in seams.wanted("0.5.18")}
    assert "sglang.srt.server_args.ServerArgs.__post_init__" in paths
    assert "sglang.srt.server_args.ServerArgs.resolve_once" not in paths
    assert set(compat.DRAFT_LOADERS.values()) <= paths
