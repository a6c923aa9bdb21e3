"""A server as a user starts it, watched until it ends: what it prints, which processes it has, how it stops."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import psutil
import pytest

from eagle3_adapters.rehearsal.engine import cpu_command_line, cpu_environment, free_port
from support.pair import DRAFT, TARGET
from support.serve import environment, speculation

START_SECONDS, END_SECONDS = 240, 30


@attrs.define(kw_only=True)
class Server:
    """A server as a user starts it, and every process that it ever had."""

    process: subprocess.Popen[bytes]
    port: int
    stderr: Path
    seen: set[psutil.Process] = attrs.Factory(set)

    def text(self) -> str:
        return self.stderr.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.text()[-4000:]
            if self.process.poll() is None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    self.seen.update(psutil.Process(self.process.pid).children(recursive=True))
            time.sleep(0.1)

    def ready(self) -> bool:
        assert self.process.poll() is None, self.text()[-4000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                return True
        except OSError:
            return False

    def ends(self) -> None:
        """Assert that it ends by itself from now on, by another code than 0, and that nothing of it is left."""
        deadline = time.monotonic() + END_SECONDS
        assert self.process.wait(END_SECONDS) != 0
        left = self.seen
        while left and time.monotonic() < deadline:
            left = {process for process in left if running(process)}
            time.sleep(0.1)
        assert not left
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", self.port))

    def scheduler(self) -> psutil.Process:
        """The process that holds the models."""
        for process in self.seen:
            with contextlib.suppress(psutil.NoSuchProcess):
                if "sglang::scheduler" in "".join(process.cmdline()):
                    return process
        pytest.fail(f"no scheduler among {self.seen}")

    def generate(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> None:
        """Answer ``prompts`` greedily with exactly ``new_tokens`` each; OSError where the server ends meanwhile."""
        sampling = {"temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": True}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/generate",
            json.dumps({"input_ids": prompts, "sampling_params": sampling}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 - loopback
            answer.read()

    def kill(self) -> None:
        for process in (*self.seen, psutil.Process(self.process.pid) if self.process.poll() is None else None):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process is not None:
                    process.kill()
        self.process.wait()


def running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextlib.contextmanager
def started(folder: Path, draft: Path = DRAFT, *, wrapper: Sequence[str] = (), **variables: str) -> Iterator[Server]:
    """A server of the pair with ``--eagle3-adapter auto``, not waited for; nothing of it is left afterwards."""
    port, stderr = free_port(), folder / "stderr"
    options = cpu_command_line(model_path=TARGET, port=port, **speculation(draft))
    command = [*wrapper, sys.executable, "-m", "sglang.launch_server", *options, "--eagle3-adapter", "auto"]
    with stderr.open("wb") as stream:
        process = subprocess.Popen(
            command, env=cpu_environment(environment(**variables)), stdout=subprocess.DEVNULL, stderr=stream
        )
    server = Server(process=process, port=port, stderr=stderr)
    try:
        yield server
    finally:
        server.kill()
