"""Owns where the bytes of an output tensor come from: copied, with columns or rows in another order, or made here.

Nothing here holds a tensor: contents name the bytes of source files and hand them out in chunks of about a MiB.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import attrs

from eagle3_adapters.checkpoint import ITEM_SIZE
from eagle3_adapters.conversion.sources import MAX_BUFFERS, Sources
from eagle3_adapters.values import TensorInfo

#: Bytes that a transform assembles at a time.
_BATCH = 1 << 20
#: Buffers that a transform prepares at a time: each costs some 200 bytes.
_MAX_PIECES = 16 * MAX_BUFFERS
#: From this size on, neighbouring rows are left to the kernel instead of being read here.
_LONG_RUN = 1 << 16


@attrs.frozen
class Range:
    """Bytes ``[start, stop)`` of a source file."""

    file: Path
    start: int
    stop: int


#: A part of an output file. A memoryview is valid until the next chunk is asked for.
Chunk = Range | memoryview


def coalesce(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """The same bytes, with neighbouring ranges of one file joined and empty chunks left out."""
    last: Range | None = None
    for chunk in chunks:
        if isinstance(chunk, Range):
            if chunk.start == chunk.stop:
                continue
            if last is not None and (last.file, last.stop) == (chunk.file, chunk.start):
                last = Range(last.file, last.start, chunk.stop)
                continue
        if last is not None:
            yield last
        last = chunk if isinstance(chunk, Range) else None
        if isinstance(chunk, memoryview) and len(chunk):
            yield chunk
    if last is not None:
        yield last


@attrs.frozen(kw_only=True)
class Copy:
    """The bytes of a tensor as they are."""

    tensor: TensorInfo

    @property
    def size(self) -> int:
        """Bytes."""
        return self.tensor.stop - self.tensor.start

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return self.tensor.shape

    def chunks(self, sources: Sources) -> Iterator[Chunk]:
        """All bytes, in order."""
        yield Range(self.tensor.file, self.tensor.start, self.tensor.stop)


@attrs.frozen(kw_only=True)
class Columns:
    """A tensor whose last dimension, cut into ``len(order)`` equal blocks, gets block ``order[p]`` at place ``p``.

    ``fc.weight`` of a draft whose trainer concatenated its states in another order, or a norm over all of them.
    """

    tensor: TensorInfo
    order: tuple[int, ...]

    def __attrs_post_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.order))) or not 1 <= len(self.order) <= MAX_BUFFERS:
            msg = f"{self.tensor.name}: {list(self.order)} is no order of 1 to {MAX_BUFFERS} blocks"
            raise ValueError(msg)
        if not self.shape or self.shape[-1] % len(self.order):
            msg = f"{self.tensor.name}: {list(self.shape)} has no last dimension of {len(self.order)} equal blocks"
            raise ValueError(msg)
        if self.size and self.size % (self._rows * len(self.order)):
            msg = f"{self.tensor.name}: blocks of {self.tensor.dtype} do not begin at whole bytes"
            raise ValueError(msg)

    @property
    def size(self) -> int:
        """Bytes."""
        return self.tensor.stop - self.tensor.start

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return self.tensor.shape

    @property
    def _rows(self) -> int:
        return math.prod(self.shape[:-1])

    def chunks(self, sources: Sources) -> Iterator[Chunk]:
        """All bytes, in order. The kernel puts the blocks in place while it reads; none is moved afterwards."""
        if self.order == tuple(range(len(self.order))) or not self.size:
            yield Range(self.tensor.file, self.tensor.start, self.tensor.stop)
            return
        row = self.size // self._rows
        if row > _BATCH:
            yield from self._ranges(row)
            return
        batch = max(1, min(_BATCH // row, _MAX_PIECES // len(self.order), self._rows))
        buffer = memoryview(bytearray(batch * row))
        places = self._places(buffer, row)
        for first in range(0, self._rows, batch):
            count = min(batch, self._rows - first)
            sources.read_into(self.tensor.file, places[: count * len(self.order)], self.tensor.start + first * row)
            yield buffer[: count * row]

    def _ranges(self, row: int) -> Iterator[Range]:
        block = row // len(self.order)
        for begin in range(self.tensor.start, self.tensor.stop, row):
            for source in self.order:
                yield Range(self.tensor.file, begin + source * block, begin + (source + 1) * block)

    def _places(self, buffer: memoryview, row: int) -> list[memoryview]:
        """Where each block of the source, read in its own order, belongs in ``buffer``."""
        block = row // len(self.order)
        offsets = [self.order.index(source) * block for source in range(len(self.order))]
        return [
            buffer[begin + offset : begin + offset + block]
            for begin in range(0, len(buffer), row)
            for offset in offsets
        ]


def _numbers(values: Iterable[int]) -> tuple[int, ...]:
    """A sequence of numbers as a value that cannot change."""
    return tuple(values)


@attrs.frozen(kw_only=True)
class Rows:
    """Chosen rows of a tensor (its first dimension), in the order given; a row may be chosen twice."""

    tensor: TensorInfo
    rows: tuple[int, ...] = attrs.field(converter=_numbers, repr=False)

    def __attrs_post_init__(self) -> None:
        if not self.tensor.shape:
            msg = f"{self.tensor.name}: a scalar has no rows"
            raise ValueError(msg)
        have = self.tensor.shape[0]
        if self.rows and not 0 <= min(self.rows) <= max(self.rows) < have:
            msg = f"{self.tensor.name}: rows {min(self.rows)} to {max(self.rows)} of {have}"
            raise ValueError(msg)
        if have and (self.tensor.stop - self.tensor.start) % have:
            msg = f"{self.tensor.name}: rows of {self.tensor.dtype} do not begin at whole bytes"
            raise ValueError(msg)

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.rows) * self._row

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return (len(self.rows), *self.tensor.shape[1:])

    @property
    def _row(self) -> int:
        return (self.tensor.stop - self.tensor.start) // self.tensor.shape[0] if self.tensor.shape[0] else 0

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Bytes ``[start, stop)`` of neighbouring rows, in the order of the output."""
        first = last = None
        for row in self.rows:
            if first is None or last is None:
                first = row
            elif row != last + 1:
                yield first * self._row, (last + 1) * self._row
                first = row
            last = row
        if first is not None and last is not None:
            yield first * self._row, (last + 1) * self._row

    def chunks(self, sources: Sources) -> Iterator[Chunk]:
        """All bytes, in order."""
        file, begin = self.tensor.file, self.tensor.start
        buffer, filled = memoryview(bytearray(min(_BATCH, self.size))), 0
        for start, stop in self._runs():
            length = stop - start
            if filled and (length >= _LONG_RUN or filled + length > len(buffer)):
                yield buffer[:filled]
                filled = 0
            if length >= _LONG_RUN:
                yield Range(file, begin + start, begin + stop)
            else:
                sources.read_into(file, (buffer[filled : filled + length],), begin + start)
                filled += length
        yield buffer[:filled]


@attrs.frozen(kw_only=True)
class Made:
    """Bytes that no source has, such as a new ``d2t``."""

    data: bytes = attrs.field(repr=False)

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data)

    def chunks(self, sources: Sources) -> Iterator[Chunk]:
        """All bytes."""
        yield memoryview(self.data)


Content = Copy | Columns | Rows | Made


@attrs.frozen(kw_only=True)
class OutputTensor:
    """One tensor of an output file. ValueError where the content is of another dtype, shape or size."""

    name: str
    #: safetensors dtype string.
    dtype: str
    shape: tuple[int, ...]
    content: Content

    def __attrs_post_init__(self) -> None:
        if isinstance(self.content, Made):
            if self.content.size != math.prod(self.shape) * ITEM_SIZE.get(self.dtype, -1):
                msg = f"{self.name}: {self.content.size} bytes do not hold {list(self.shape)} of {self.dtype}"
                raise ValueError(msg)
            return
        have = (self.content.tensor.dtype, self.content.shape)
        if have != (self.dtype, self.shape):
            msg = f"{self.name}: {list(self.shape)} of {self.dtype} from {list(have[1])} of {have[0]}"
            raise ValueError(msg)


def files_of(tensors: Sequence[OutputTensor]) -> tuple[Path, ...]:
    """The source files of some tensors, each once."""
    contents = (tensor.content for tensor in tensors)
    return tuple(dict.fromkeys(content.tensor.file for content in contents if not isinstance(content, Made)))
