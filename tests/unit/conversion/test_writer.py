"""A checkpoint is written whole, compared and on the disk, or not at all; the source is never touched."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from support.checkpoints import Array, draft_tensors, write_draft, write_safetensors

from eagle3_adapters.checkpoint import INDEX, read_header, read_tensors
from eagle3_adapters.conversion import comparison, transfer
from eagle3_adapters.conversion.layout import PAGE, OutputFile, header_of
from eagle3_adapters.conversion.pieces import Columns, Content, Copy, Made, OutputTensor, Rows
from eagle3_adapters.conversion.places import refuse_source
from eagle3_adapters.conversion.sources import Stamp
from eagle3_adapters.conversion.writer import planned_bytes, write_checkpoint
from eagle3_adapters.errors import FindingsError
from eagle3_adapters.values import TensorInfo

NAME = "model.safetensors"
TEXTS = {"config.json": b'{"architectures": []}'}


def unheard(count: int) -> None:
    pass


def code_of(action: Callable[[], object]) -> str:
    with pytest.raises(FindingsError) as caught:
        action()
    return caught.value.findings[0].code


def renamed(tensors: dict[str, TensorInfo], **changed: Content) -> tuple[OutputTensor, ...]:
    """The tensors under other names; ``changed`` by the first part of the name."""
    contents = {name: changed.get(name.split(".")[0], Copy(tensor=one)) for name, one in tensors.items()}
    return tuple(
        OutputTensor(
            name=f"new.{name}",
            dtype=one.dtype,
            shape=getattr(contents[name], "shape", one.shape),
            content=contents[name],
        )
        for name, one in tensors.items()
    )


@attrs.frozen
class Job:
    """One conversion of a small draft: renames, other columns, fewer rows, a new map, a tokenizer beside."""

    source: Path
    output: Path
    files: tuple[OutputFile, ...]

    def __call__(self, *, force: bool = False, progress: Callable[[int], None] = unheard) -> None:
        copies = [self.source / "tokenizer.json"]
        write_checkpoint(self.output, self.files, TEXTS, copies=copies, force=force, progress=progress)

    def places(self) -> list[str]:
        return sorted(path.name for path in self.output.parent.iterdir())

    def check(self) -> None:
        assert self.places() == [self.output.name]
        assert (self.output / "config.json").read_bytes() == TEXTS["config.json"]
        assert (self.output / "tokenizer.json").read_bytes() == b"words" * 1000
        old, new = read_tensors(self.source), read_tensors(self.output)
        assert list(new) == [f"new.{name}" for name in old]
        for name, one in old.items():
            if name.split(".")[0] not in {"fc", "lm_head", "d2t"}:
                assert bytes_of(new[f"new.{name}"]) == bytes_of(one)
        floats = struct.Struct("<24f")
        row = floats.unpack(bytes_of(old["fc.weight"])[:96])
        assert floats.unpack(bytes_of(new["new.fc.weight"])[:96]) == (*row[16:], *row[:16])
        assert bytes_of(new["new.lm_head.weight"]) == bytes_of(old["lm_head.weight"])[32:128]
        assert bytes_of(new["new.d2t"]) == bytes(64)


def bytes_of(one: TensorInfo) -> bytes:
    return one.file.read_bytes()[one.start : one.stop]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    tensors = draft_tensors() | {"fc.weight": Array("F32", (8, 24), range(192))}
    tensors["lm_head.weight"] = Array("F32", (8, 8), range(64))
    source = write_draft(tmp_path / "source", {}, tensors)
    (source / "tokenizer.json").write_bytes(b"words" * 1000)
    found = read_tensors(source)
    new = renamed(
        found,
        fc=Columns(tensor=found["fc.weight"], order=(2, 0, 1)),
        lm_head=Rows(tensor=found["lm_head.weight"], rows=(1, 2, 3)),
        d2t=Made(data=bytes(64)),
    )
    (tmp_path / "out").mkdir()
    return Job(source, tmp_path / "out" / "draft", (OutputFile(name=NAME, tensors=new, metadata={"format": "pt"}),))


def content(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_everything_arrives_and_progress_adds_up(job: Job) -> None:
    before, told = content(job.source), list[int]()
    job(progress=told.append)
    job.check()
    assert content(job.source) == before
    assert sum(told) == planned_bytes(job.files, TEXTS, [job.source / "tokenizer.json"])
    assert sum(told) == sum(len(data) for data in content(job.output).values())


def test_header_has_metadata_and_aligned_data(job: Job) -> None:
    job()
    raw = (job.output / NAME).read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    assert json.loads(raw[8 : 8 + length])["__metadata__"] == {"format": "pt"}
    assert length % 8 == 0


@pytest.mark.parametrize("metadata", [None, {"note": "ü" * 50}, {"note": "x" * 5000}])
def test_what_is_copied_keeps_its_place_in_its_pages(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    source = tmp_path / NAME
    write_safetensors(source, {name: Array("F32", (64, 8)) for name in "abcdefgh"}, {"pad": "x" * 5})
    for pad in range(8):
        source.unlink()
        write_safetensors(source, {name: Array("F32", (64, 8)) for name in "abcd"}, {"pad": "x" * pad})
        found = read_header(source)
        start = len(header_of(OutputFile(name=NAME, tensors=renamed(found), metadata=metadata)))
        assert start % 8 == 0
        if found["a"].start % 8 == 0:
            assert start % PAGE == found["a"].start % PAGE
        # A new map before them moves them by a multiple of eight bytes.
        first = OutputTensor(name="d2t", dtype="I64", shape=(3,), content=Made(data=bytes(24)))
        start = len(header_of(OutputFile(name=NAME, tensors=(first, *renamed(found)), metadata=metadata)))
        assert start % 8 == 0
        if found["a"].start % 8 == 0:
            assert (start + 24) % PAGE == found["a"].start % PAGE


def test_renames_alone_are_one_copy_in_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, calls = write_draft(tmp_path / "source"), list[int]()
    kernel = os.copy_file_range

    def counted(source: int, target: int, length: int, start: int, place: int) -> int:
        calls.append(length)
        return kernel(source, target, length, start, place)

    monkeypatch.setattr("os.copy_file_range", counted)
    files = [OutputFile(name=NAME, tensors=renamed(read_tensors(source)))]
    write_checkpoint(tmp_path / "out", files, {}, force=False, progress=unheard)
    # Up to the end of the first page, and all the rest.
    size = sum(one.content.size for one in files[0].tensors)
    assert len(calls) <= 2
    assert sum(calls) == size


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO, 0])
@pytest.mark.parametrize("late", [False, True])
def test_where_the_kernel_does_not_copy_this_process_does(
    job: Job, monkeypatch: pytest.MonkeyPatch, number: int, *, late: bool
) -> None:
    kernel, calls = os.copy_file_range, itertools.count()

    def refused(source: int, target: int, length: int, start: int, place: int) -> int:
        if late and next(calls) < 1:
            return kernel(source, target, min(length, 7), start, place)
        if number:
            raise OSError(number, os.strerror(number))
        return 0

    monkeypatch.setattr("os.copy_file_range", refused)
    job()
    job.check()


def test_short_copies_and_short_writes_are_continued(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, write = os.copy_file_range, os.pwrite
    monkeypatch.setattr(
        "os.copy_file_range", lambda a, b, length, start, place: kernel(a, b, min(length, 50), start, place)
    )
    monkeypatch.setattr("os.pwrite", lambda target, data, place: write(target, data[:100], place))
    job()
    job.check()


def test_shards_and_an_index(tmp_path: Path) -> None:
    source = write_draft(tmp_path / "source")
    tensors = renamed(read_tensors(source))
    halves = {"model-1.safetensors": tensors[:5], "model-2.safetensors": tensors[5:]}
    files = [OutputFile(name=name, tensors=half) for name, half in halves.items()]
    index = {"weight_map": {one.name: name for name, half in halves.items() for one in half}}
    texts = {INDEX: json.dumps(index).encode()}
    write_checkpoint(tmp_path / "out", files, texts, force=False, progress=unheard)
    assert {name: one.file.name for name, one in read_tensors(tmp_path / "out").items()} == index["weight_map"]
    # An index that leaves a shard out would lose its tensors in silence.
    index["weight_map"] = {one.name: "model-1.safetensors" for one in tensors}
    texts = {INDEX: json.dumps(index).encode()}
    again = tmp_path / "again"
    assert code_of(lambda: write_checkpoint(again, files, texts, force=False, progress=unheard)) == "output-differs"
    assert not again.exists()


def test_a_hub_snapshot_is_read_through_its_links(job: Job, tmp_path: Path) -> None:
    repository = tmp_path / "models--x"
    snapshot = repository / "snapshots" / "abc"
    shutil.copytree(job.source, repository / "blobs")
    snapshot.mkdir(parents=True)
    for file in (repository / "blobs").iterdir():
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    files = [OutputFile(name=NAME, tensors=renamed(read_tensors(snapshot)))]
    copies = [snapshot / "tokenizer.json"]
    write_checkpoint(job.output, files, {}, copies=copies, force=False, progress=unheard)
    assert all(path.is_file() and not path.is_symlink() for path in job.output.iterdir())
    for place in (repository / "blobs", repository, snapshot / "deeper"):
        assert code_of(lambda: write_checkpoint(place, files, {}, force=True, progress=unheard)) == "output-is-source"  # noqa: B023


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_exists_is_replaced_only_with_force(job: Job, kind: str) -> None:
    elsewhere = job.source.parent / "elsewhere"
    if kind == "file":
        job.output.write_text("mine")
    elif kind == "directory":
        (job.output / "deep").mkdir(parents=True)
    else:
        elsewhere.mkdir()
        (elsewhere / "mine").touch()
        job.output.symlink_to(elsewhere)
    assert code_of(job) == "output-exists"
    assert job.places() == ["draft"]
    job(force=True)
    job.check()
    # A link stays one: what it leads to has become the checkpoint.
    assert job.output.is_symlink() == (kind == "link")
    assert not (elsewhere / "mine").exists()


@pytest.mark.parametrize("force", [False, True])
def test_an_empty_directory_is_fine(job: Job, *, force: bool) -> None:
    job.output.mkdir()
    job(force=force)
    job.check()


def test_output_and_source_are_apart(job: Job, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(job.source)
    for place in (job.source, job.source / "out", tmp_path, link, link / "out", job.source / ".." / "source"):
        assert code_of(lambda: refuse_source(place, job.source)) == "output-is-source"  # noqa: B023
        assert code_of(attrs.evolve(job, output=place)) == "output-is-source"
    refuse_source(tmp_path / "source2", job.source)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert code_of(attrs.evolve(job, output=loop)) == "output-unwritable"


@pytest.mark.parametrize("place", ["absent/draft", "source/config.json/draft"])
def test_a_parent_that_cannot_hold_it(job: Job, tmp_path: Path, place: str) -> None:
    files = (OutputFile(name=NAME, tensors=()),)
    output = tmp_path / place
    assert code_of(lambda: write_checkpoint(output, files, {}, force=False, progress=unheard)) == "output-unwritable"
    assert not (tmp_path / "absent").exists()


def test_names_are_names_and_differ(job: Job) -> None:
    for name in ("../x", "a/b", "", ".", ".."):
        with pytest.raises(ValueError, match="name of a file"):
            OutputFile(name=name, tensors=())
        with pytest.raises(ValueError, match="name of a file"):
            write_checkpoint(job.output, (), {name: b""}, force=False, progress=unheard)
    with pytest.raises(ValueError, match="two files"):
        write_checkpoint(job.output, job.files, {NAME: b""}, force=False, progress=unheard)
    made = OutputTensor(name="a", dtype="U8", shape=(1,), content=Made(data=b"x"))
    with pytest.raises(ValueError, match="one name"):
        OutputFile(name=NAME, tensors=(made, made))
    with pytest.raises(ValueError, match="strings"):
        OutputFile(name=NAME, tensors=(made,), metadata={"step": 3})  # type: ignore[dict-item]
    assert job.places() == []


#: Every call through which a conversion changes the disk, or has it there.
CALLS = ("open", "mkdir", "pwrite", "copy_file_range", "fsync", "rename", "stat", "preadv", "scandir")


class Fault:
    """Lets ``passing`` of the calls through and raises in the next one, once."""

    def __init__(self, patch: pytest.MonkeyPatch, passing: int, error: BaseException, calls: tuple[str, ...]) -> None:
        self.left, self.error, self.name = passing, error, ""
        self.lock = threading.Lock()
        for name in calls:
            patch.setattr(os, name, self.around(name, getattr(os, name)))

    def around(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with self.lock:
                self.left -= 1
                if self.left == -1:
                    self.name = name
                    raise self.error
            return real(*arguments, **options)

        return call


def faults(
    error: BaseException, calls: tuple[str, ...], action: Callable[[], None]
) -> Iterator[tuple[Fault, BaseException]]:
    """Run ``action`` with a fault in the first call, the second and so on, until it meets none."""
    for passing in itertools.count():
        caught: BaseException | None = None
        with pytest.MonkeyPatch.context() as patch:
            fault = Fault(patch, passing, error, calls)
            try:
                action()
            except (FindingsError, KeyboardInterrupt) as raised:
                caught = raised
        if not fault.name:
            assert caught is None
            return
        if caught is not None:
            yield fault, caught


@pytest.mark.parametrize("force", [False, True])
def test_a_full_disk_leaves_what_was_there(job: Job, *, force: bool) -> None:
    if force:
        job.output.mkdir()
        (job.output / "mine").write_text("mine")
    error = OSError(errno.ENOSPC, "No space left on device")
    calls, met = ("mkdir", "pwrite", "copy_file_range", "fsync", "rename"), set()
    for fault, caught in faults(error, calls, lambda: job(force=force)):
        assert isinstance(caught, FindingsError)
        assert caught.findings[0].code == "output-unwritable", fault.name
        assert "No space left" in str(caught)
        assert job.places() == (["draft"] if force else []), fault.name
        assert not force or content(job.output) == {"mine": b"mine"}, fault.name
        met.add(fault.name)
    assert met == {"mkdir", "pwrite", "copy_file_range", "fsync", "rename"}
    job.check()


@pytest.mark.parametrize("force", [False, True])
def test_an_interrupt_leaves_what_was_there_or_all_of_the_new(job: Job, *, force: bool) -> None:
    def run() -> None:
        if job.output.exists():
            shutil.rmtree(job.output)
        if force:
            job.output.mkdir()
            (job.output / "mine").write_text("mine")
        job(force=force)

    count = 0
    for fault, _ in faults(KeyboardInterrupt(), CALLS, run):
        count += 1
        if (job.output / NAME).exists():
            job.check()
        else:
            assert job.places() in ([], ["draft"]), fault.name
            assert not job.output.exists() or content(job.output) == {"mine": b"mine"}, fault.name
    assert count > 40
    job.check()


def test_a_progress_that_raises_ends_the_conversion(job: Job) -> None:
    def broken(count: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        job(progress=broken)
    assert job.places() == []


@pytest.mark.parametrize("name", [NAME, "config.json", "tokenizer.json"])
@pytest.mark.parametrize("place", [0, 9, -1, "longer", "shorter"])
def test_a_byte_that_changes_before_it_is_compared_is_found(
    job: Job, monkeypatch: pytest.MonkeyPatch, name: str, place: int | str
) -> None:
    compare = comparison.compare

    def corrupted(path: Path, descriptor: int, parts: Any, sources: Any, written: Any) -> None:
        written.wait(1 << 40)
        if path.name == name:
            data = bytearray(path.read_bytes())
            if isinstance(place, int):
                data[place] ^= 1
            path.write_bytes(data + b"x" if place == "longer" else data[:-1] if place == "shorter" else data)
        compare(path, descriptor, parts, sources, written)

    monkeypatch.setattr(transfer, "compare", corrupted)
    assert code_of(job) == "output-differs"
    assert job.places() == []


@pytest.mark.parametrize("how", ["touched", "replaced", "removed", "rewritten"])
def test_a_source_that_changes_meanwhile_is_found(job: Job, how: str) -> None:
    file, changes = job.source / NAME, itertools.count()

    def change(count: int) -> None:
        if next(changes) != 1:
            return
        if how == "touched":
            os.utime(file, ns=(1, 1))
        elif how == "replaced":
            shutil.copy2(file, file.with_suffix(".new"))
            file.with_suffix(".new").replace(file)
        elif how == "removed":
            file.unlink()
        else:
            file.write_bytes(bytes(file.stat().st_size))

    assert code_of(lambda: job(progress=change)) == "source-changed"
    assert job.places() == []


def test_a_source_that_changed_since_its_header_was_read_is_found(job: Job) -> None:
    file = job.source / NAME
    stamps = {file: Stamp.of(file.stat())}
    os.utime(file, ns=(1, 1))
    with pytest.raises(FindingsError, match="source-changed"):
        write_checkpoint(job.output, job.files, {}, force=False, progress=unheard, stamps=stamps)


def dead_process() -> int:
    with subprocess.Popen(["true"]) as process:
        pass
    return process.pid


@pytest.mark.parametrize("own", [False, True])
def test_what_a_dead_conversion_left_is_cleared(job: Job, *, own: bool) -> None:
    parent = job.output.parent
    # In a container the process before often had the same number.
    left = parent / f".draft.eagle3-tmp-{os.getpid() if own else dead_process()}"
    (left / "new").mkdir(parents=True)
    (left / "new" / NAME).touch()
    for name in (".draft.eagle3-tmp-x", ".draft2.eagle3-tmp-1", ".draft.eagle3-tmp-"):
        (parent / name).mkdir()
    job()
    assert job.places() == [".draft.eagle3-tmp-", ".draft.eagle3-tmp-x", ".draft2.eagle3-tmp-1", "draft"]


def test_what_a_dead_conversion_moved_aside_comes_back(job: Job) -> None:
    left = job.output.parent / f".draft.eagle3-tmp-{dead_process()}"
    (left / "old-0").mkdir(parents=True)
    (left / "old-0" / "mine").write_text("mine")
    assert code_of(job) == "output-exists"
    assert content(job.output) == {"mine": b"mine"}
    assert job.places() == ["draft"]


def test_what_a_living_conversion_has_is_left_alone(job: Job) -> None:
    parent = job.output.parent
    other, mine = parent / ".draft.eagle3-tmp-1", parent / f".draft.eagle3-tmp-{os.getpid()}"
    locks = []
    for place in (other, mine):
        place.mkdir()
        locks.append(os.open(place, os.O_RDONLY))
        fcntl.flock(locks[-1], fcntl.LOCK_EX)
    assert code_of(job) == "output-unwritable"
    os.close(locks.pop())
    job()
    os.close(locks.pop())
    assert job.places() == [".draft.eagle3-tmp-1", "draft"]


def test_where_directories_cannot_be_locked_the_process_is_asked(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    parent = job.output.parent
    living, dead = parent / ".draft.eagle3-tmp-1", parent / f".draft.eagle3-tmp-{dead_process()}"
    living.mkdir()
    dead.mkdir()
    job()
    assert job.places() == [".draft.eagle3-tmp-1", "draft"]


WRITE = """
import sys
from pathlib import Path
from eagle3_adapters.checkpoint import read_tensors
from eagle3_adapters.conversion.layout import OutputFile
from eagle3_adapters.conversion.pieces import Columns, Copy, OutputTensor
from eagle3_adapters.conversion.writer import write_checkpoint
from eagle3_adapters.errors import FindingsError

source, output, force, order = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "force", sys.argv[4:]
tensors = tuple(
    OutputTensor(
        name=one.name,
        dtype=one.dtype,
        shape=one.shape,
        content=Columns(tensor=one, order=tuple(map(int, order))) if order and one.name == "fc" else Copy(tensor=one),
    )
    for one in read_tensors(source).values()
)
files = [OutputFile(name="model.safetensors", tensors=tensors)]
try:
    write_checkpoint(output, files, {"who": source.name.encode()}, force=force, progress=lambda count: None)
except FindingsError as error:
    print(error.findings[0].code)
    sys.exit(1)
"""


@pytest.mark.parametrize("force", ["", "force"])
def test_of_two_conversions_to_one_output_one_is_whole(tmp_path: Path, force: str) -> None:
    sources = [tmp_path / "a", tmp_path / "b"]
    for number, source in enumerate(sources):
        source.mkdir()
        write_safetensors(source / NAME, {"fc": Array("F32", (300, 1000), number)})
    output = tmp_path / "out" / "draft"
    output.parent.mkdir()
    commands = [[sys.executable, "-W", "error", "-c", WRITE, str(source), str(output), force] for source in sources]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    said = [process.communicate(timeout=30)[0].strip() for process in running]
    assert said == ["", ""] if force else sorted(said) == ["", "output-exists"]
    who = (output / "who").read_text()
    assert bytes_of(read_tensors(output)["fc"]) == bytes_of(read_tensors(tmp_path / who)["fc"])
    assert force or said["ab".index(who)] == ""
    assert [path.name for path in output.parent.iterdir()] == ["draft"]


def test_memory_does_not_grow_with_the_checkpoint(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    header = {
        "fc": {"dtype": "BF16", "shape": [2048, 24576], "data_offsets": [0, 100663296]},
        "embed": {"dtype": "BF16", "shape": [100000, 1024], "data_offsets": [100663296, 305463296]},
    }
    encoded = json.dumps(header).encode()
    with (source / NAME).open("wb") as stream:
        stream.write(struct.pack("<Q", len(encoded)) + encoded)
        stream.truncate(8 + len(encoded) + 305463296)
    # Not getrusage: its peak begins with that of the process that starts this one, here pytest.
    report = "\nprint(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    # Where the kernel does not copy, everything passes through the process.
    without = "import os\ndel os.copy_file_range\n"
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        without + WRITE + report,
        str(source),
        str(tmp_path / "out"),
        "",
        "2",
        "0",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) / 1024 < 150
    assert read_tensors(tmp_path / "out").keys() == {"fc", "embed"}
    shutil.rmtree(tmp_path / "out")
