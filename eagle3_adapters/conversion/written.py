"""Owns how far an output file has been written, as the threads that follow the writer see it."""

from __future__ import annotations

import threading


class StoppedError(Exception):
    """Raised in a thread that follows once another has failed."""


class Written:
    """How far a file has been written, for the threads that follow."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._position, self._ended, self.stopped = 0, False, False

    def advance(self, position: int) -> None:
        """Say that all bytes before ``position`` are written."""
        with self._changed:
            self._position = position
            self._changed.notify_all()

    def end(self) -> None:
        """Say that nothing follows."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Make all that wait, or ever will, raise StoppedError."""
        with self._changed:
            self.stopped = True
            self._changed.notify_all()

    def wait(self, position: int) -> tuple[int, bool]:
        """Wait for the bytes before ``position``, or the end; returns what is written and whether it is all."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopped or self._ended or self._position >= position)
            if self.stopped:
                raise StoppedError
            return self._position, self._ended
