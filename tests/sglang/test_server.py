"""The server forms: launch_server with flags, `sglang serve` with a config file; HTTP and the OpenAI client."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest
from support.pair import DRAFT, NEW_TOKENS, TARGET, prompts
from support.serve import environment, speculation

from eagle3_adapters.rehearsal.engine import cpu_command_line, cpu_environment, free_port

pytestmark = pytest.mark.engine

SGLANG = str(Path(sys.executable).with_name("sglang"))
READY_SECONDS, END_SECONDS = 240, 30


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310 - loopback
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 - loopback
        return json.load(answer)


@contextmanager
def server(command: Sequence[str], port: int, log: Path) -> Iterator[str]:
    """A running server's URL; afterwards asserts that it ends on SIGTERM and leaves no process and no listener."""
    with log.open("w") as stream:
        process = subprocess.Popen(command, env=cpu_environment(environment()), stdout=stream, stderr=stream)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(process, url, log)
        children = psutil.Process(process.pid).children(recursive=True)
        yield url
        process.send_signal(signal.SIGTERM)
        process.wait(END_SECONDS)
        _, alive = psutil.wait_procs(children, timeout=END_SECONDS)
        assert not alive
    finally:
        for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
            child.kill()
        process.kill()


def wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-4000:]
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):  # noqa: S310 - loopback
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"not ready after {READY_SECONDS} s\n{log.read_text()[-4000:]}")


def counts_over_http(url: str) -> tuple[list[int], list[int]]:
    sampling = {"temperature": 0, "max_new_tokens": NEW_TOKENS, "ignore_eos": True}
    answers = post(f"{url}/generate", {"input_ids": prompts(), "sampling_params": sampling})
    metas = [answer["meta_info"] for answer in answers]
    return [meta["spec_verify_ct"] for meta in metas], [meta["spec_num_correct_drafts"] for meta in metas]


def test_launch_server_with_the_flag(tmp_path: Path, report: dict[str, Any]) -> None:
    port, log = free_port(), tmp_path / "log"
    options = cpu_command_line(model_path=TARGET, port=port, skip_tokenizer_init=False, **speculation(DRAFT))
    command = [sys.executable, "-m", "sglang.launch_server", *options, "--eagle3-adapter", "llama"]
    with server(command, port, log) as url:
        verifies, accepted = counts_over_http(url)
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
        completion = client.completions.create(model="default", prompt="def main(", max_tokens=8, temperature=0)
        client.close()
        assert completion.usage is not None
        assert completion.usage.completion_tokens == 8
        assert completion.choices[0].text
        information = urllib.request.urlopen(f"{url}/server_info", timeout=30)  # noqa: S310 - loopback
        with information:
            state = json.load(information)["internal_states"][0]
        assert state["avg_spec_accept_length"] >= 1.8
    assert (verifies, accepted) == (report["adapter"]["verifies"], report["adapter"]["accepted"])
    assert log.read_text().count("boundaries [0, 2, 5] = embedding") == 1


def test_sglang_serve_with_a_config_file(tmp_path: Path, report: dict[str, Any]) -> None:
    port, log, config = free_port(), tmp_path / "log", tmp_path / "server.yaml"
    config.write_text("eagle3-adapter: auto\nspeculative-algorithm: EAGLE3\n", encoding="utf-8")
    asked = speculation(DRAFT)
    del asked["speculative_algorithm"]
    options = cpu_command_line(model_path=TARGET, port=port, **asked)
    with server([SGLANG, "serve", *options, "--config", str(config)], port, log) as url:
        verifies, accepted = counts_over_http(url)
    assert (verifies, accepted) == (report["adapter"]["verifies"], report["adapter"]["accepted"])


def test_a_refused_start_ends_with_the_finding_and_nothing_else(tmp_path: Path) -> None:
    """No boot: the draft lacks its map, which SGLang alone would serve at the floor."""
    options = cpu_command_line(model_path=TARGET, **speculation(without_map(tmp_path / "draft")))
    command = [sys.executable, "-m", "sglang.launch_server", *options, "--eagle3-adapter", "auto"]
    done = subprocess.run(
        command, env=cpu_environment(environment()), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1
    assert "ERROR vocab-map-missing" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Load weight" not in done.stderr


def without_map(output: Path) -> Path:
    import safetensors.torch  # noqa: PLC0415 - torch is slow to import and only this needs it

    output.mkdir()
    (output / "config.json").write_bytes((DRAFT / "config.json").read_bytes())
    tensors = safetensors.torch.load_file(DRAFT / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if name not in ("d2t", "t2d")}
    safetensors.torch.save_file(kept, output / "model.safetensors")
    return output
