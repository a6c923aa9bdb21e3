"""A server that fails in a child: the finding comes before SGLang's traceback, and nothing is left of the server."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from support.pair import DRAFT, prompts
from support.saboteur.saboteur import FOLDER, MESSAGE, RAISES
from support.server import END_SECONDS, Server, started

pytestmark = pytest.mark.engine

#: What a scheduler writes in front of the traceback that ends it.
LAST_WORDS = "Scheduler hit an exception"


def sabotaged(folder: Path, fault: str) -> AbstractContextManager[Server]:
    return started(folder, SABOTEUR=fault, PYTHONPATH=str(FOLDER))


def ends_with(server: Server, message: str) -> None:
    """Assert that the server prints ``message`` and ends."""
    server.wait_for(lambda: message in server.text() or server.process.poll() is not None)
    assert message in server.text(), server.text()[-4000:]
    server.ends()
    assert LAST_WORDS in server.text()


def fails(server: Server, finding: str) -> None:
    """Assert that the server ends, and that ``finding`` comes before the traceback with which it does."""
    ends_with(server, finding)
    assert server.text().index(finding) < server.text().index(LAST_WORDS)


def with_nan(output: Path) -> Path:
    import safetensors.torch  # noqa: PLC0415 - torch is slow to import and only this needs it

    shutil.copytree(DRAFT, output)
    tensors = safetensors.torch.load_file(DRAFT / "model.safetensors")
    tensors["fc.weight"][0, 0] = float("nan")
    safetensors.torch.save_file(tensors, output / "model.safetensors")
    return output


def test_a_seam_that_sglang_moved_is_told_before_the_draft_is_read(tmp_path: Path) -> None:
    with sabotaged(tmp_path, "seam-gone") as server:
        fails(server, "ERROR hook-not-applied: ")
        assert server.text().count("ERROR hook-not-applied: ") == 1


def test_a_draft_with_a_nan_is_refused_while_it_is_loaded(tmp_path: Path) -> None:
    with started(tmp_path, draft=with_nan(tmp_path / "draft")) as server:
        fails(server, "ERROR weight-missing: LlamaForCausalLMEagle3.")


#: Runs a command as process 1 of a namespace of its own, as a container does; its exit code is the command's.
CONTAINER = ("unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.mark.thorough
@pytest.mark.skipif(
    subprocess.run([*CONTAINER, "true"], check=False, capture_output=True).returncode != 0,
    reason="no namespaces here",
)
def test_a_server_that_is_process_1_of_a_container_ends_as_well(tmp_path: Path) -> None:
    """The kernel lets nobody kill process 1, which is how SGLang means to end."""
    with started(tmp_path, draft=with_nan(tmp_path / "draft"), wrapper=CONTAINER) as server:
        fails(server, "ERROR weight-missing: LlamaForCausalLMEagle3.")
        assert server.process.returncode == 1


def test_a_target_that_captures_elsewhere_is_found_at_its_first_prompt(tmp_path: Path) -> None:
    with sabotaged(tmp_path, "one-layer-late") as server:
        fails(server, "ERROR capture-mismatch: captured chunk 0")


@pytest.mark.thorough
def test_a_place_that_an_adapter_names_wrongly_is_found_before_the_first_prompt(tmp_path: Path) -> None:
    with sabotaged(tmp_path, "no-capture-list") as server:
        fails(server, "ERROR capture-mismatch: adapter llama")


@pytest.mark.thorough
def test_a_plan_that_vanished_is_told(tmp_path: Path) -> None:
    with sabotaged(tmp_path, "plan-gone") as server:
        fails(server, "ERROR hook-not-applied: ")


@pytest.mark.thorough
@pytest.mark.parametrize("fault", RAISES)
def test_an_exception_in_any_of_our_hooks_ends_the_server(tmp_path: Path, fault: str) -> None:
    with sabotaged(tmp_path, fault) as server:
        ends_with(server, MESSAGE)


def test_a_scheduler_that_is_killed_while_it_serves_takes_the_server_with_it(tmp_path: Path) -> None:
    with started(tmp_path) as server:
        server.wait_for(server.ready)
        load = threading.Thread(target=generate, args=(server,))
        load.start()
        server.wait_for(lambda: "Decode batch" in server.text())
        server.scheduler().kill()
        server.ends()
        load.join(END_SECONDS)
        assert not load.is_alive()
        assert "crashed with exit code -9" in server.text()


def generate(server: Server) -> None:
    """Ask for more than is answered before the server is gone."""
    with contextlib.suppress(OSError):
        server.generate(prompts(), new_tokens=400)


@pytest.mark.thorough
def test_a_scheduler_that_is_killed_while_it_loads_takes_the_server_with_it(tmp_path: Path) -> None:
    with started(tmp_path) as server:
        server.wait_for(lambda: "Load weight begin" in server.text())
        server.scheduler().kill()
        server.ends()
