"""Owns the files that a conversion reads: each is opened once, read by position, and must not change meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs

from eagle3_adapters.checkpoint import unreadable
from eagle3_adapters.errors import FindingsError, fault

#: Linux takes this many buffers in one preadv (IOV_MAX).
MAX_BUFFERS = 1024


@attrs.frozen(kw_only=True)
class Stamp:
    """What tells one state of a file from another without reading it."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """The stamp of a file that has been asked for its status."""
        return cls(device=status.st_dev, inode=status.st_ino, size=status.st_size, mtime_ns=status.st_mtime_ns)


def _damaged(file: Path, error: OSError) -> FindingsError:
    return unreadable(file, "a readable file", str(error), f"check {file.name} and its permissions")


def changed(file: Path, found: str) -> FindingsError:
    """source-changed."""
    return FindingsError(
        [
            fault(
                "source-changed",
                file,
                "a file that stays as it is while it is read",
                found,
                why="the output would mix two checkpoints; nothing was written",
                remedy="convert again once the download or export has ended",
            )
        ]
    )


class Sources:
    """Open source files. Links are followed; positions are given with every read, so threads may share one instance."""

    def __init__(self, files: Iterable[Path], expected: Mapping[Path, Stamp] | None = None) -> None:
        """Open ``files``. FindingsError where one is no readable file, or not the one of its stamp in ``expected``."""
        self._descriptors: dict[Path, int] = {}
        self._stamps: dict[Path, Stamp] = {}
        try:
            for file in dict.fromkeys(files):
                self._open(file, (expected or {}).get(file))
        except BaseException:
            self.close()
            raise

    def _open(self, file: Path, expected: Stamp | None) -> None:
        try:
            # Without O_NONBLOCK a named pipe would wait for a writer.
            self._descriptors[file] = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            status = os.fstat(self._descriptors[file])
        except OSError as error:
            raise _damaged(file, error) from error
        if not stat.S_ISREG(status.st_mode):
            raise unreadable(file, "a regular file", stat.filemode(status.st_mode), f"remove {file.name}")
        self._stamps[file] = Stamp.of(status)
        if expected is not None and expected != self._stamps[file]:
            raise changed(file, "another size, time or inode than when its header was read")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all files."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def descriptor(self, file: Path) -> int:
        """The open file, for copying inside the kernel."""
        return self._descriptors[file]

    def size(self, file: Path) -> int:
        """Its size in bytes when it was opened."""
        return self._stamps[file].size

    def read_into(self, file: Path, buffers: Sequence[bytearray | memoryview], start: int) -> None:
        """Fill the buffers, one after the other, with the bytes from ``start`` on. FindingsError at the file's end."""
        for first in range(0, len(buffers), MAX_BUFFERS):
            start += self._fill(file, buffers[first : first + MAX_BUFFERS], start)

    def _fill(self, file: Path, buffers: Sequence[bytearray | memoryview], start: int) -> int:
        wanted, filled = sum(map(len, buffers)), 0
        while filled < wanted:
            try:
                count = os.preadv(self._descriptors[file], buffers, start + filled)
            except OSError as error:
                raise _damaged(file, error) from error
            if not count:
                raise changed(file, f"its end at byte {start + filled}")
            filled += count
            if filled < wanted:
                buffers = _without(buffers, count)
        return wanted

    def check_unchanged(self) -> None:
        """FindingsError: source-changed, where a name leads to another file than the one that was opened."""
        for file, stamp in self._stamps.items():
            try:
                now = Stamp.of(file.stat())
            except OSError as error:
                raise changed(file, str(error)) from error
            if now != stamp:
                raise changed(file, "another size, time or inode than at the start")


def _without(buffers: Sequence[bytearray | memoryview], count: int) -> list[bytearray | memoryview]:
    """What is left to fill after the first ``count`` bytes."""
    left: list[bytearray | memoryview] = []
    for buffer in buffers:
        if count < len(buffer):
            left.append(memoryview(buffer)[count:])
        count = max(0, count - len(buffer))
    return left
