"""What each content yields is what a naive list of its elements says, in chunks of bounded size."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle3_adapters.conversion import pieces
from eagle3_adapters.conversion.pieces import Chunk, Columns, Content, Copy, Made, OutputTensor, Range, Rows, coalesce
from eagle3_adapters.conversion.sources import Sources, Stamp
from eagle3_adapters.errors import FindingsError
from eagle3_adapters.values import TensorInfo

ITEM = 2


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "source"


def tensor(file: Path, *shape: int, start: int = 3) -> TensorInfo:
    """A BF16 tensor whose bytes all differ as far as they can; writes the file around it."""
    size = ITEM
    for dimension in shape:
        size *= dimension
    file.write_bytes(b"x" * start + bytes(i * 7 % 251 for i in range(size)) + b"after")
    return TensorInfo(name="fc.weight", dtype="BF16", shape=shape, file=file, start=start, stop=start + size)


def items(one: TensorInfo) -> list[bytes]:
    data = one.file.read_bytes()[one.start : one.stop]
    return [data[i : i + ITEM] for i in range(0, len(data), ITEM)]


def joined(chunks: Iterator[Chunk]) -> bytes:
    return b"".join(
        chunk.file.read_bytes()[chunk.start : chunk.stop] if isinstance(chunk, Range) else bytes(chunk)
        for chunk in chunks
    )


def yielded(content: Content) -> bytes:
    with Sources([] if isinstance(content, Made) else [content.tensor.file]) as sources:
        data = joined(content.chunks(sources))
        assert data == joined(coalesce(content.chunks(sources)))
    assert len(data) == content.size
    return data


def naive_columns(one: TensorInfo, order: tuple[int, ...]) -> bytes:
    values, width = items(one), one.shape[-1]
    block = width // len(order)
    result = []
    for row in range(len(values) // width if width else 0):
        for source in order:
            first = row * width + source * block
            result += values[first : first + block]
    return b"".join(result)


@st.composite
def column_cases(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    order = draw(st.permutations(range(draw(st.integers(1, 6)))))
    rows = draw(st.sampled_from([(), (0,), (1,), (5,), (40,)]))
    # From one row in several parts over several batches to all in one.
    return (*rows, len(order) * draw(st.integers(0, 9))), tuple(order), draw(st.sampled_from([1, 64, 200, 1 << 20]))


@settings(max_examples=50)
@given(case=column_cases())
def test_columns_are_the_blocks_in_their_order(case: tuple[tuple[int, ...], tuple[int, ...], int]) -> None:
    shape, order, batch = case
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_BATCH", batch)
        one = tensor(Path(directory) / "source", *shape)
        assert yielded(Columns(tensor=one, order=order)) == naive_columns(one, order)


@settings(max_examples=50)
@given(
    have=st.integers(1, 30),
    inner=st.sampled_from([(), (1,), (4,), (2, 3)]),
    batch=st.sampled_from([24, 64, 1 << 20]),
    data=st.data(),
)
def test_rows_are_gathered_in_their_order(have: int, inner: tuple[int, ...], batch: int, data: st.DataObject) -> None:
    chosen = data.draw(st.one_of(st.lists(st.integers(0, have - 1), max_size=40), st.just(list(range(have)))))
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_BATCH", batch)
        patch.setattr(pieces, "_LONG_RUN", 24)
        one = tensor(Path(directory) / "source", have, *inner)
        values, width = items(one), len(items(one)) // have
        expected = b"".join(b"".join(values[row * width : (row + 1) * width]) for row in chosen)
        assert yielded(Rows(tensor=one, rows=chosen)) == expected


def test_a_real_width_stays_in_a_batch(file: Path) -> None:
    one = tensor(file, 30, 3 * 7168)
    content = Columns(tensor=one, order=(2, 0, 1))
    with Sources([file]) as sources:
        sizes = [len(chunk) for chunk in content.chunks(sources) if isinstance(chunk, memoryview)]
    assert sum(sizes) == content.size
    assert max(sizes) <= 1 << 20
    assert yielded(content) == naive_columns(one, (2, 0, 1))


def test_more_blocks_than_one_call_takes(file: Path) -> None:
    order = tuple(reversed(range(1000)))
    one = tensor(file, 5, 2000)
    assert yielded(Columns(tensor=one, order=order)) == naive_columns(one, order)


def test_short_reads_are_continued(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = tensor(file, 7, 6)
    whole = os.preadv

    def short(descriptor: int, buffers: list[memoryview], start: int) -> int:
        first = next(buffer for buffer in buffers if len(buffer))
        return int(whole(descriptor, [memoryview(first)[:3]], start))

    monkeypatch.setattr("os.preadv", short)
    assert yielded(Columns(tensor=one, order=(1, 2, 0))) == naive_columns(one, (1, 2, 0))


def test_what_adjoins_is_one_range(file: Path) -> None:
    other = file.with_name("other")
    made = memoryview(b"made")
    chunks: list[Chunk] = [
        Range(file, 0, 5),
        Range(file, 5, 9),
        Range(file, 9, 9),
        Range(other, 9, 12),
        made,
        memoryview(b""),
        Range(other, 12, 13),
    ]
    assert list(coalesce(chunks)) == [Range(file, 0, 9), Range(other, 9, 12), made, Range(other, 12, 13)]


def test_made_and_copied(file: Path) -> None:
    assert yielded(Made(data=b"12345678")) == b"12345678"
    one = tensor(file, 3, 2)
    assert yielded(Copy(tensor=one)) == b"".join(items(one))


def test_contents_that_make_no_sense_cannot_be_built(file: Path) -> None:
    one = tensor(file, 4, 6)
    for order in ((), (0, 0), (1, 2), (0, 1, 3), (0, 1, 2, 3)):
        with pytest.raises(ValueError, match=r"order of|equal blocks"):
            Columns(tensor=one, order=order)
    for rows in ((4,), (-1,), (0, 9)):
        with pytest.raises(ValueError, match="rows"):
            Rows(tensor=one, rows=rows)
    scalar = tensor(file)
    with pytest.raises(ValueError, match="equal blocks"):
        Columns(tensor=scalar, order=(0,))
    with pytest.raises(ValueError, match="scalar"):
        Rows(tensor=scalar, rows=())
    half = TensorInfo(name="packed", dtype="F4", shape=(3, 2), file=file, start=0, stop=3)
    with pytest.raises(ValueError, match="whole bytes"):
        Columns(tensor=half, order=(1, 0))


@pytest.mark.parametrize(
    ("dtype", "shape", "content"),
    [
        ("BF16", (4, 5), "copy"),
        ("F16", (4, 6), "copy"),
        ("BF16", (6, 4), "copy"),
        ("BF16", (3, 6), "rows"),
        ("I64", (2,), "made"),
        ("F4", (8,), "made"),
    ],
)
def test_an_output_tensor_is_what_it_is_made_of(dtype: str, shape: tuple[int, ...], content: str, file: Path) -> None:
    one = tensor(file, 4, 6)
    contents: dict[str, Content] = {
        "copy": Copy(tensor=one),
        "rows": Rows(tensor=one, rows=(1, 2)),
        "made": Made(data=b"12345678"),
    }
    with pytest.raises(ValueError, match="fc"):
        OutputTensor(name="fc", dtype=dtype, shape=shape, content=contents[content])
    OutputTensor(name="fc", dtype="BF16", shape=(2, 6), content=contents["rows"])
    OutputTensor(name="d2t", dtype="I64", shape=(1,), content=contents["made"])


def test_a_source_that_ends_too_early_has_changed(file: Path) -> None:
    one = tensor(file, 4, 6)
    with Sources([file]) as sources:
        file.write_bytes(b"x" * 20)
        with pytest.raises(FindingsError) as caught:
            list(Columns(tensor=one, order=(1, 0)).chunks(sources))
    assert caught.value.findings[0].code == "source-changed"


def test_a_source_that_is_no_file_or_not_the_one_of_before(file: Path, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(FindingsError) as caught:
            Sources([path])
        assert caught.value.findings[0].code == "checkpoint-unreadable"
    tensor(file, 1)
    stamp = Stamp.of(file.stat())
    Sources([file], {file: stamp}).close()
    tensor(file, 2)
    with pytest.raises(FindingsError) as caught:
        Sources([file], {file: stamp})
    assert caught.value.findings[0].code == "source-changed"
