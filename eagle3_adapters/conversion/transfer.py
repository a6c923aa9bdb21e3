"""Owns getting one file onto the disk: copied, and meanwhile compared and written back by two threads that follow.

A conversion is bound by memory and disk, so the three overlap: what has been written is compared with its source while
both are in the page cache, and the kernel writes it back while the rest is still being copied.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from eagle3_adapters.conversion.comparison import Part, compare
from eagle3_adapters.conversion.layout import PAGE
from eagle3_adapters.conversion.pieces import Range, coalesce
from eagle3_adapters.conversion.sources import Sources
from eagle3_adapters.conversion.written import StoppedError, Written

#: Bytes that the kernel copies in one call: some 30 milliseconds, after which progress is told and Ctrl-C heard.
#: Smaller ones were slower: the writer contends with write-back at every call.
_SLICE = 1 << 26
#: Bytes that pass through this process at a time, where the kernel does not copy.
_BUFFER = 1 << 18
#: Bytes after which write-back is started.
_WRITE_BACK = 1 << 24
#: Errors of a copy inside the kernel that a copy through this process would meet as well.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_file(path: Path, parts: Iterable[Part], sources: Sources, progress: Callable[[int], None]) -> None:
    """Write a new file, compare all of it with its sources and have it on the disk. FindingsError or OSError."""
    parts = tuple(parts)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        _write_followed(path, descriptor, parts, sources, progress)
    finally:
        os.close(descriptor)


def _write_followed(
    path: Path, descriptor: int, parts: tuple[Part, ...], sources: Sources, progress: Callable[[int], None]
) -> None:
    written, followers = Written(), list[Future[None]]()
    pool = ThreadPoolExecutor(2)
    try:
        followers.append(pool.submit(_stopping, written, lambda: compare(path, descriptor, parts, sources, written)))
        followers.append(pool.submit(_stopping, written, lambda: _write_back(descriptor, written)))
        _Writer(descriptor, sources, written, progress).write(parts)
        written.end()
        for follower in followers:
            follower.result()
    except StoppedError:
        for follower in followers:
            if not isinstance(follower.exception(), StoppedError):
                follower.result()
        raise
    except BaseException:
        # The threads would wait for ever, and shutdown() for them.
        written.stop()
        raise
    finally:
        pool.shutdown()


def _stopping(written: Written, follow: Callable[[], None]) -> None:
    """Run a thread; where it fails, the others end."""
    try:
        follow()
    except BaseException:
        written.stop()
        raise


class _Writer:
    """Writes chunks one after the other into one file."""

    def __init__(self, descriptor: int, sources: Sources, written: Written, progress: Callable[[int], None]) -> None:
        self._descriptor, self._sources, self._written, self._progress = descriptor, sources, written, progress
        self._position = 0
        self._in_kernel = hasattr(os, "copy_file_range")

    def write(self, parts: Iterable[Part]) -> None:
        """Write all parts; ranges that adjoin in the source are copied as one."""
        for chunk in coalesce(chunk for part in parts for chunk in part.chunks(self._sources)):
            if isinstance(chunk, Range):
                self._copy(chunk)
            else:
                self._put(chunk)

    def _put(self, data: memoryview) -> None:
        while data:
            count = os.pwrite(self._descriptor, data, self._position)
            self._went(count)
            data = data[count:]

    def _went(self, count: int) -> None:
        self._position += count
        self._written.advance(self._position)
        if self._written.stopped:
            raise StoppedError
        self._progress(count)

    def _copy(self, chunk: Range) -> None:
        start = chunk.start
        while start < chunk.stop:
            # The first slice ends at a page, the others at multiples of the slice: file systems share whole blocks.
            unit = PAGE if self._position % PAGE else _SLICE
            length = min(chunk.stop - start, unit - self._position % unit)
            count = self._copy_in_kernel(chunk.file, start, length) if self._in_kernel else 0
            if count:
                self._went(count)
            else:
                self._copy_here(chunk.file, start, length)
                count = length
            start += count

    def _copy_in_kernel(self, file: Path, start: int, length: int) -> int:
        """Bytes copied; 0 where the kernel does not copy between these files."""
        try:
            count = os.copy_file_range(self._sources.descriptor(file), self._descriptor, length, start, self._position)
        except OSError as error:
            if error.errno in _FULL:
                raise
            # Other file systems, old kernels; a true fault of a disk comes again below, with the name of its file.
            count = 0
        self._in_kernel = count > 0
        return count

    def _copy_here(self, file: Path, start: int, length: int) -> None:
        buffer = memoryview(bytearray(min(_BUFFER, length)))
        for begin in range(start, start + length, len(buffer)):
            part = buffer[: min(len(buffer), start + length - begin)]
            self._sources.read_into(file, (part,), begin)
            self._put(part)


def _write_back(descriptor: int, written: Written) -> None:
    """Have the file on the disk soon after it is written, not only begin then."""
    position, ended = 0, False
    while not ended:
        start = position
        position, ended = written.wait(start + _WRITE_BACK)
        if not ended and hasattr(os, "posix_fadvise"):
            # Linux begins to write what is asked to leave the cache, and keeps it there while it does; unlike
            # fdatasync() this does not wait, so the disk never idles.
            os.posix_fadvise(descriptor, start, position - start, os.POSIX_FADV_DONTNEED)
    os.fsync(descriptor)
