"""The one directory that is written for a server: what it says, and that it is complete or not there."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest
from support.plans import tiny_plan

from eagle3_adapters.errors import WiringRefusedError
from eagle3_adapters.sglang import overlay
from eagle3_adapters.wiring import WiringPlan


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> WiringPlan:
    return tiny_plan(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "plans"


def complete(directory: Path, plan: WiringPlan) -> bool:
    return (directory / overlay.CONFIG).read_text() == overlay.translated_config(plan) and WiringPlan.from_json(
        (directory / overlay.PLAN).read_text()
    ) == plan


def entries(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir())


def test_the_translated_config_dies_without_the_plugin_and_holds_the_truth_for_it(plan: WiringPlan) -> None:
    config = json.loads(overlay.translated_config(plan))
    assert config["architectures"] == [overlay.PRIVATE_ARCHITECTURE]
    assert config[overlay.KEY] == {"fingerprint": plan.fingerprint(), "config": plan.config}
    assert config[overlay.KEY]["config"]["architectures"] == [plan.draft_class]
    assert {key: value for key, value in config.items() if key not in ("architectures", overlay.KEY)} == {
        key: value for key, value in plan.config.items() if key != "architectures"
    }


def test_a_plan_is_stored_under_its_fingerprint(plan: WiringPlan, cache: Path) -> None:
    directory = overlay.store(plan, cache)
    assert directory == cache / plan.fingerprint()
    assert complete(directory, plan)
    assert entries(cache) == [directory.name]


def test_storing_again_touches_nothing(plan: WiringPlan, cache: Path) -> None:
    directory = overlay.store(plan, cache)
    before = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in (directory, *sorted(directory.iterdir()))]
    assert overlay.store(plan, cache) == directory
    after = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in (directory, *sorted(directory.iterdir()))]
    assert before == after


def test_two_plans_have_two_entries(plan: WiringPlan, cache: Path) -> None:
    other = attrs.evolve(plan, engine="0.5.22")
    assert overlay.store(plan, cache) != overlay.store(other, cache)
    assert complete(cache / plan.fingerprint(), plan)
    assert complete(cache / other.fingerprint(), other)


@pytest.mark.parametrize("file", [overlay.CONFIG, overlay.PLAN])
@pytest.mark.parametrize("damage", [b"", b"{", b"{}", b"\xff\xfe\x00", None])
def test_a_damaged_entry_is_replaced(plan: WiringPlan, cache: Path, file: str, damage: bytes | None) -> None:
    damaged = overlay.store(plan, cache) / file
    damaged.unlink()
    if damage is not None:
        damaged.write_bytes(damage)
    assert complete(overlay.store(plan, cache), plan)
    assert entries(cache) == [plan.fingerprint()]


def test_a_temporary_that_a_dead_process_left_is_not_taken_for_an_entry(plan: WiringPlan, cache: Path) -> None:
    left = cache / f".{plan.fingerprint()}.abandoned"
    left.mkdir(parents=True)
    (left / overlay.CONFIG).write_text(overlay.translated_config(plan)[:100])
    directory = overlay.store(plan, cache)
    assert directory.name == plan.fingerprint()
    assert complete(directory, plan)


def test_nothing_is_left_behind_where_writing_fails(
    plan: WiringPlan, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WiringRefusedError, match="No space left"):
        overlay.store(plan, cache)
    assert entries(cache) == []


def test_an_entry_appears_when_all_of_it_is_on_the_disk(
    plan: WiringPlan, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, seen = os.fsync, []

    def fsync(descriptor: int) -> None:
        seen.append((cache / plan.fingerprint()).exists())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    overlay.store(plan, cache)
    assert seen == [False, False]


def test_stores_at_once_all_end_with_the_one_complete_entry(plan: WiringPlan, tmp_path: Path) -> None:
    workers = 8
    for turn in range(10):
        cache, barrier = tmp_path / str(turn), threading.Barrier(workers)

        def store(cache: Path = cache, barrier: threading.Barrier = barrier) -> Path:
            barrier.wait()
            return overlay.store(plan, cache)

        with ThreadPoolExecutor(workers) as pool:
            stored = {future.result() for future in [pool.submit(store) for _ in range(workers)]}
        assert stored == {cache / plan.fingerprint()}
        assert entries(cache) == [plan.fingerprint()]
        assert complete(cache / plan.fingerprint(), plan)


def test_an_entry_that_another_server_completed_meanwhile_is_left_alone(
    plan: WiringPlan, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its children may be opening it: taken away for a moment, they would die."""
    sync, inode = os.fsync, None

    def fsync(descriptor: int) -> None:
        nonlocal inode
        sync(descriptor)
        if inode is None:
            inode = 0  # the other server's own writes
            inode = overlay.store(plan, cache).stat().st_ino

    monkeypatch.setattr(os, "fsync", fsync)
    directory = overlay.store(plan, cache)
    assert directory.stat().st_ino == inode
    assert complete(directory, plan)
    assert entries(cache) == [plan.fingerprint()]


@pytest.mark.parametrize("below", [(), ("deeper",)])
def test_a_cache_that_cannot_be_written_is_a_finding(plan: WiringPlan, tmp_path: Path, below: tuple[str, ...]) -> None:
    # A file in its place: file modes do not stop root.
    (tmp_path / "file").write_text("in the way")
    cache = tmp_path.joinpath("file", *below)
    with pytest.raises(WiringRefusedError) as caught:
        overlay.store(plan, cache)
    (finding,) = caught.value.findings
    assert finding.code == "cache-unwritable"
    assert finding.where == str(cache)
    assert overlay.CACHE_VARIABLE in finding.remedy
    assert (tmp_path / "file").read_text() == "in the way"


def test_the_cache_is_where_the_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(overlay.CACHE_VARIABLE, str(tmp_path))
    assert overlay.cache_directory() == tmp_path
    monkeypatch.setenv(overlay.CACHE_VARIABLE, "")
    assert overlay.cache_directory() != Path()
    assert overlay.cache_directory().is_absolute()
