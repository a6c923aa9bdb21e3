"""Owns the places of a conversion: the output directory, the temporary one beside it, and how one becomes the other.

While a conversion runs, ``.NAME.eagle3-tmp-PID`` stands beside ``NAME``: ``new`` in it is what is being written, with
``--force`` an ``old-0`` is for a moment what stood there before. The running process holds a lock on the directory, so
that a later one can tell what the dead have left; it puts back what they had moved aside.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from eagle3_adapters.errors import FindingsError, fault

_MARK = "eagle3-tmp"
#: Others may clear or replace the same places; after so many tries they are not merely in passing.
_TRIES = 20
#: A rename onto a directory meets these where it is not empty or no directory.
_OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


def unwritable(where: Path, found: str, remedy: str = "") -> FindingsError:
    """output-unwritable."""
    remedy = remedy or f"free space in {where.parent}, or name an output directory that you may create"
    return FindingsError([fault("output-unwritable", where, "a directory that can be written", found, remedy=remedy)])


def _exists(output: Path, found: str) -> FindingsError:
    remedy = "name another output directory, or replace this one with --force"
    return FindingsError([fault("output-exists", output, "no such file, or an empty directory", found, remedy=remedy)])


def resolved(output: Path) -> Path:
    """Where the output is, links followed. FindingsError where they lead in a circle."""
    try:
        return output.resolve()
    except RuntimeError as error:
        raise unwritable(output, str(error)) from error


def refuse_source(output: Path, source: Path) -> None:
    """FindingsError: output-is-source, where the output directory is the source's, in it or around it."""
    output, source = resolved(output), source.resolve()
    for inner, outer, found in ((output, source, f"a place in {source}"), (source, output, f"a parent of {source}")):
        if _is_within(inner, outer):
            raise FindingsError(
                [
                    fault(
                        "output-is-source",
                        output,
                        "a directory apart from the source",
                        "the source itself" if output == source else found,
                        why="the source is never touched",
                        remedy="name an output directory that neither holds the source nor lies in it",
                    )
                ]
            )


def _is_within(inner: Path, outer: Path) -> bool:
    if outer in (inner, *inner.parents):
        return True
    # Bind mounts and file systems that ignore case have several names for one directory.
    return outer.exists() and any(place.exists() and place.samefile(outer) for place in (inner, *inner.parents))


def check_output(output: Path, *, force: bool) -> None:
    """FindingsError: output-exists, where something stands at ``output`` that may not be replaced."""
    if force or not os.path.lexists(output):
        return
    if not output.is_dir():
        raise _exists(output, "a file")
    if any(output.iterdir()):
        raise _exists(output, "a directory that is not empty")


def clear_leftovers(output: Path) -> None:
    """Remove what dead conversions to ``output`` have left. What cannot be removed stays."""
    prefix = f".{output.name}.{_MARK}-"
    with contextlib.suppress(OSError):
        for place in output.parent.iterdir():
            if place.name.startswith(prefix) and place.name[len(prefix) :].isdecimal() and not place.is_symlink():
                _clear(place, output)


def _clear(place: Path, output: Path) -> None:
    with contextlib.suppress(OSError):
        lock = _lock(place)
        if lock is not None:
            try:
                _put_back(place, output)
                shutil.rmtree(place)
            finally:
                os.close(lock)


def _lock(place: Path) -> int | None:
    """An open directory whose lock ends with this process; None where a living one has it."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Some network file systems lock no directories: there, the process in the name has to answer.
        if isinstance(error, BlockingIOError) or _is_alive(int(place.name.rpartition("-")[2])):
            os.close(descriptor)
            return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return process != os.getpid()


def _put_back(place: Path, output: Path) -> None:
    """Where a conversion ended between moving the old output aside and the new one in, undo the first."""
    aside = sorted(place.glob("old-*"))
    if aside and not os.path.lexists(output):
        aside[-1].rename(output)


def sync_directory(directory: Path) -> None:
    """Have the names in a directory on the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Staging:
    """The temporary directory of one conversion; leaving the context removes it, whatever has happened."""

    def __init__(self, output: Path) -> None:
        """``output`` must be resolved: what a link leads to is replaced, on its own file system, and not the link."""
        self._output = output
        self._root = output.parent / f".{output.name}.{_MARK}-{os.getpid()}"
        #: Where to write.
        self.new = self._root / "new"
        self._locked: int | None = None
        self._identity: tuple[int, int] | None = None
        self._is_made = self._was_empty = self._is_published = False

    def __enter__(self) -> Self:
        try:
            self._claim()
            self.new.mkdir()
            status = self.new.stat()
            self._identity = status.st_dev, status.st_ino
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _claim(self) -> None:
        for _ in range(_TRIES):
            with contextlib.suppress(FileExistsError):
                self._root.mkdir(mode=0o700)
                self._is_made = True
            with contextlib.suppress(FileNotFoundError):
                self._locked = self._lock_empty()
            if self._locked is not None:
                return
            self._is_made = False
            time.sleep(0.01)
        raise unwritable(self._output, f"another conversion to it, in {self._root}", "wait for its end")

    def _lock_empty(self) -> int | None:
        """A lock on the directory; None where it is another's, or a leftover, which is then removed."""
        lock = _lock(self._root)
        if lock is None:
            return None
        try:
            # One that clears leftovers may have taken it between: then its name is gone or leads to another directory.
            if os.path.samestat(os.fstat(lock), self._root.stat()) and not any(self._root.iterdir()):
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
        _clear(self._root, self._output)
        return None

    def _unlock(self) -> None:
        if self._locked is not None:
            os.close(self._locked)
            self._locked = None

    def publish(self, *, force: bool) -> None:
        """Make ``new`` the output. FindingsError or OSError, after which the output is what it was."""
        sync_directory(self.new)
        for number in range(_TRIES):
            if force and os.path.lexists(self._output):
                self._output.rename(self._root / f"old-{number}")
            else:
                check_output(self._output, force=force)
                self._was_empty = self._output.is_dir()
            try:
                self.new.rename(self._output)
                break
            except OSError as error:
                if error.errno not in _OCCUPIED:
                    raise
        else:
            raise _exists(self._output, "what another conversion has just written")
        sync_directory(self._output.parent)
        self._is_published = True
        self._remove_old()

    def _remove_old(self) -> None:
        for place in self._root.glob("old-*"):
            try:
                shutil.rmtree(place) if place.is_dir() else place.unlink()
            except OSError as error:
                found = f"{error}; the new checkpoint is in place, what it replaced is not removed"
                raise unwritable(place, found, f"rm -r {self._root}") from error

    def _end(self) -> None:
        if self._locked is None:
            if self._is_made:
                with contextlib.suppress(OSError):
                    self._root.rmdir()
            return
        try:
            self._clean()
        except BaseException:
            # Ctrl-C in the midst of it.
            self._clean()
            raise
        finally:
            self._unlock()

    def _clean(self) -> None:
        if not self._is_published:
            self._undo()
        shutil.rmtree(self._root, ignore_errors=True)

    def _undo(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            status = self._output.stat()
            if (status.st_dev, status.st_ino) == self._identity:
                self._output.rename(self.new)
                if self._was_empty:
                    self._output.mkdir()
        _put_back(self._root, self._output)
