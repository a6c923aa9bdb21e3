"""SGLang's own engine on a CPU: the only place of this project that starts one.

SGLang 0.5.17 to 0.5.23 has a CPU backend, but no CPU build of its kernel package is published. `KERNELS` holds
reference kernels under that package's name; a process that has the folder in front of its path, and SGLang's CPU switch
in its environment, runs the real scheduler, models and speculation without a GPU. Nothing of SGLang is patched, so the
same settings serve three ways in:

    with cpu_engine(model_path=target, speculative_algorithm="EAGLE3", …) as engine:
        engine.generate(input_ids=prompts, sampling_params={"temperature": 0, "max_new_tokens": 64})

    command = [sys.executable, "-m", "sglang.launch_server", *cpu_command_line(model_path=target, port=port)]
    subprocess.Popen(command, env=cpu_environment())

    command = ["sglang", "serve", *cpu_command_line(model_path=target, port=port)]

This module imports neither SGLang nor PyTorch until an engine is asked for.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import signal
import socket
import sys
import threading
import warnings
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eagle3_adapters.engine_version import installed_version, version_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

KERNELS: Final = Path(__file__).parent / "kernels"
"""The folder that holds the package `sgl_kernel`; the rest of the project never has it on its path."""

_EXIT_SECONDS: Final = 10.0

_BACKENDS: Final = {"prefill_attention_backend": "intel_amx", "decode_attention_backend": "intel_amx"}
# 0.5.17 goes back to the common option where both split options name one backend. Decoding without speculation is then
# PyTorch's own; with it the target only reads prompts and verifies, which SGLang counts among prefills.
_BACKENDS_0_5_17: Final = {
    "prefill_attention_backend": "intel_amx",
    "decode_attention_backend": "torch_native",
    "speculative_draft_attention_backend": "intel_amx",
}


def cpu_environment(base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Make the environment of a process in which SGLang runs on the CPU with the reference kernels.

    Args:
        base: what to start from. Of the variables set here, it may override those that only keep a rehearsal quiet and
            offline.

    Returns:
        A new mapping, for `subprocess.Popen(..., env=...)`.
    """
    preferences = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore",
        # Compiling SGLang's small helpers costs 15 s in the first request, many times what a rehearsal's requests take.
        "TORCHDYNAMO_DISABLE": "1",
    }
    path = [
        str(KERNELS),
        *(entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if entry not in {"", str(KERNELS)}),
    ]
    needed = {
        "PYTHONPATH": os.pathsep.join(path),
        "SGLANG_USE_CPU_ENGINE": "1",
        # Some models call Triton kernels of SGLang's on whatever device they run; Triton's interpreter runs those here.
        "TRITON_INTERPRET": "1",
        # A GPU that the machine may have belongs to somebody else's work.
        "CUDA_VISIBLE_DEVICES": "",
        # Three processes share the cores, and OpenMP threads that spin while they wait starve the one that works.
        "OMP_WAIT_POLICY": "passive",
    }
    return {**preferences, **base, **needed}


def cpu_server_arguments(**overrides: object) -> dict[str, object]:
    """Make the keywords for `sglang.Engine` (fields of SGLang's `ServerArgs`) that make it run on the CPU.

    The attention backend is asked for by SGLang's two split options. By the common one,
    `attention_backend="intel_amx"`, SGLang would choose `torch_native` on a processor without AMX
    (`_attention_backend_platform_fallbacks` in srt/arg_groups/overrides.py), which EAGLE refuses; the split options
    beat the common one and are not second-guessed, and the AMX instructions themselves are only used by compiled
    kernels. So no answer of SGLang's has to be forged, in any process.

    Args:
        overrides: further fields, or other values for these; `None` takes a default out.

    Returns:
        A new dictionary. Prompts and results are token ids unless `skip_tokenizer_init=False` is asked for.
    """
    defaults: dict[str, object] = {
        "device": "cpu",
        "dtype": "float32",
        **(_BACKENDS_0_5_17 if version_numbers(installed_version()) == (0, 5, 17) else _BACKENDS),
        "disable_cuda_graph": True,
        "mem_fraction_static": 0.05,
        "max_total_tokens": 4096,
        "skip_tokenizer_init": True,
        "random_seed": 0,
    }
    return {name: value for name, value in {**defaults, **overrides}.items() if value is not None}


def cpu_command_line(**overrides: object) -> list[str]:
    """Write `cpu_server_arguments` as options for `python -m sglang.launch_server` and `sglang serve`.

    Args:
        overrides: as for `cpu_server_arguments`. True becomes a bare flag, False and `None` nothing, a sequence one
            option with several values, a mapping its JSON.
    """
    options: list[str] = []
    for name, value in cpu_server_arguments(**overrides).items():
        if value is False:
            continue
        options.append("--" + name.replace("_", "-"))
        if isinstance(value, dict):
            options.append(json.dumps(value))
        elif isinstance(value, list | tuple):
            options.extend(str(item) for item in value)
        elif value is not True:
            options.append(str(value))
    return options


def free_port() -> int:
    """Find a TCP port of this machine on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def cpu_engine(**server_arguments: object) -> Iterator[Any]:
    """Run an `sglang.Engine` on the CPU in this process, and leave no process of it behind.

    On exit SGLang kills every child of this process, not only the engine's own: keep no other child while an engine
    runs.

    Args:
        server_arguments: as for `cpu_server_arguments`; at least `model_path`. The port is chosen unless given.

    Yields:
        The engine; untyped, because SGLang ships no types.

    Raises:
        ModuleNotFoundError: SGLang is not installed.
        RuntimeError: this process already runs SGLang for a GPU, or a process of the engine died.
    """
    with ExitStack() as stack:
        stack.enter_context(_process_state())
        os.environ.update(cpu_environment())
        sys.path.insert(0, str(KERNELS))
        _check_kernels()
        stack.enter_context(_no_child_left())
        arguments = cpu_server_arguments(**{"port": free_port(), **server_arguments})
        if threading.current_thread() is threading.main_thread():
            arguments.setdefault("custom_sigquit_handler", _child_failed)
        with warnings.catch_warnings():
            # SGLang warns of every accelerator that it misses, Python of the resource tracker that an engine killed.
            warnings.simplefilter("ignore")
            import sglang  # noqa: PLC0415 - a rehearsal alone pays for it

            engine = sglang.Engine(**arguments)
        stack.callback(engine.shutdown)
        yield engine


def _check_kernels() -> None:
    """Refuse a process in which SGLang has already chosen another device, for its modules remember what they found."""
    spec = importlib.util.find_spec("sgl_kernel")
    if spec is None or spec.origin is None or not Path(spec.origin).is_relative_to(KERNELS):
        message = (
            f"sgl_kernel: expected the reference kernels in {KERNELS}, found {spec and spec.origin}, imported before; "
            "start the engine in a fresh process"
        )
        raise RuntimeError(message)
    # Without a GPU it does not matter that SGLang was imported before the switch was set (tried on 0.5.23): what asks
    # for the kernels runs in children, and those start with the right environment.
    common = sys.modules.get("sglang.srt.utils.common")
    if common is not None and not common.is_cpu() and (common.is_cuda() or common.is_hip()):
        message = (
            "sglang: imported in this process before its CPU engine was chosen, so it found the GPU; start the engine "
            "in a fresh process, or start this process with the environment of cpu_environment()"
        )
        raise RuntimeError(message)


@contextmanager
def _process_state() -> Iterator[None]:
    """Restore what an engine changes in its parent: environment, path, signal handlers, how children start."""
    environment, path = dict(os.environ), list(sys.path)
    start_method = multiprocessing.get_start_method(allow_none=True)
    in_main_thread = threading.current_thread() is threading.main_thread()
    handled = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD) if in_main_thread else ()
    handlers = {number: signal.getsignal(number) for number in handled}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path
        multiprocessing.set_start_method(start_method, force=True)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _no_child_left() -> Iterator[None]:
    """Kill every process that descends from this one now and did not before, whatever happened in between."""
    import psutil  # noqa: PLC0415 - SGLang brings it; without SGLang there is nothing to end

    before = {child.pid for child in psutil.Process().children(recursive=True)}
    try:
        yield
    finally:
        started = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
        for child in started:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(started, timeout=_EXIT_SECONDS)


def _child_failed(_signal: int, _frame: FrameType | None) -> None:
    """Answer the SIGQUIT that an engine's process sends when it dies; SGLang's own answer would kill this process."""
    raise RuntimeError("a process of the SGLang engine died; what it said is printed above")
