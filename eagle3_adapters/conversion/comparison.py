"""Owns reading an output file back, while it is still being written, and comparing it with what it is made of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import attrs

from eagle3_adapters.conversion.pieces import Chunk, Range
from eagle3_adapters.conversion.sources import Sources
from eagle3_adapters.conversion.written import Written
from eagle3_adapters.errors import FindingsError, fault

#: Bytes that are compared at a time: two such buffers fit into the cache of a core.
_BUFFER = 1 << 18


@attrs.frozen(kw_only=True)
class Part:
    """Bytes of an output file that are reported under one name: its header, a tensor, or all of a small file."""

    name: str
    chunks: Callable[[Sources], Iterator[Chunk]]


def compare(path: Path, descriptor: int, parts: Iterable[Part], sources: Sources, written: Written) -> None:
    """Read back what is written, up to the end, and compare each part. FindingsError: output-differs."""
    position = 0
    comparison = _Comparison(descriptor, sources)
    for part in parts:
        begin = position
        for chunk in part.chunks(sources):
            for piece in _pieces(chunk):
                written.wait(position + _length(piece))
                if not comparison.same(piece, position):
                    sources.check_unchanged()
                    raise differs(
                        f"{path}: {part.name}", f"another byte within {_BUFFER} of its byte {position - begin}"
                    )
                position += _length(piece)
    written.wait(position + 1)  # for its end
    size = os.fstat(descriptor).st_size
    if size != position:
        raise differs(path, f"{size} bytes instead of {position}")


def differs(where: object, found: str) -> FindingsError:
    """output-differs."""
    return FindingsError(
        [
            fault(
                "output-differs",
                where,
                "the bytes that were written",
                found,
                why="the disk, its memory or another process changed them; nothing was kept",
                remedy="convert again, to another disk if it happens again",
            )
        ]
    )


def _length(piece: Chunk) -> int:
    return piece.stop - piece.start if isinstance(piece, Range) else len(piece)


def _pieces(chunk: Chunk) -> Iterator[Chunk]:
    """The chunk in parts that fit a buffer."""
    for start in range(0, _length(chunk), _BUFFER):
        if isinstance(chunk, Range):
            yield Range(chunk.file, chunk.start + start, min(chunk.stop, chunk.start + start + _BUFFER))
        else:
            yield chunk[start : start + _BUFFER]


class _Comparison:
    """Compares parts of a file with what they should be."""

    def __init__(self, descriptor: int, sources: Sources) -> None:
        self._descriptor, self._sources = descriptor, sources
        self._mine, self._theirs = bytearray(_BUFFER), bytearray(_BUFFER)

    def same(self, piece: Chunk, position: int) -> bool:
        """Whether the file has ``piece`` at ``position``."""
        length = _length(piece)
        if length != len(self._mine):
            self._mine, self._theirs = bytearray(length), bytearray(length)
        view = memoryview(self._mine)
        while view:
            count = os.preadv(self._descriptor, [view], position + length - len(view))
            if not count:
                return False
            view = view[count:]
        view.release()
        if isinstance(piece, Range):
            self._sources.read_into(piece.file, (self._theirs,), piece.start)
            return self._mine == self._theirs
        # The order matters: a bytearray compares bytes, a memoryview element by element.
        return self._mine == piece
