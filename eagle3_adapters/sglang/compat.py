"""Owns the names of SGLang's internals, with the versions in which they hold: functions to hook, runner, scheduler.

Those of target classes stand in target_class.py, those of what draft classes are built of in drafts/stock.py, what is
read of any of them in facts.py; nothing else in the package spells one.

Sources: the wheels of 0.5.17 to 0.5.23. Importing this module imports no part of SGLang.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from eagle3_adapters.engine_version import Version, spelled, version_numbers
from eagle3_adapters.errors import Finding, fault

FIRST: Version = (0, 5, 17)
LAST: Version = (0, 5, 23)


@attrs.frozen(kw_only=True)
class Seam:
    """One function of SGLang that the package hooks, and the versions that have it under this name."""

    name: str
    path: str
    first: Version = FIRST
    last: Version = LAST


SEAMS = (
    Seam(name="flags", path="sglang.srt.server_args.ServerArgs.add_cli_args"),
    Seam(name="request", path="sglang.srt.server_args.ServerArgs.from_cli_args"),
    # Where arguments are resolved, in the launching process, by Engine, launch_server and serve alike.
    Seam(name="resolve", path="sglang.srt.server_args.ServerArgs.__post_init__", last=(0, 5, 18)),
    Seam(name="resolve", path="sglang.srt.server_args.ServerArgs.resolve_once", first=(0, 5, 19)),
    Seam(name="draft-config", path="sglang.srt.configs.model_config.ModelConfig._config_draft_model"),
    Seam(
        name="capture",
        path="sglang.srt.model_executor.model_runner_components.attention_backend_setup"
        ".configure_aux_hidden_state_capture",
    ),
    Seam(name="model-load", path="sglang.srt.model_executor.model_runner.ModelRunner.load_model"),
    # Once a decoded batch with speculation, on every rank and whatever is logged.
    Seam(
        name="verify-counts",
        path="sglang.srt.managers.scheduler_components.metrics_reporter.SchedulerMetricsReporter.update_spec_metrics",
    ),
    # Once a request when it ends, and when it is put back into the queue.
    Seam(name="request-end", path="sglang.srt.mem_cache.common.release_kv_cache"),
    # How the launching process ends a server of which a child failed. Hooked where it is process 1, and only there.
    Seam(name="end", path="sglang.srt.utils.common.kill_process_tree"),
)
#: Draft class -> its weight loader.
DRAFT_LOADERS = {
    "LlamaForCausalLMEagle3": "sglang.srt.models.llama_eagle3.LlamaForCausalLMEagle3.load_weights",
    "Eagle3DeepseekV2ForCausalLM": "sglang.srt.models.kimi_k25_eagle3.Eagle3DeepseekV2ForCausalLM.load_weights",
}
#: Hooked wherever the package is installed; all run once at start.
PARENT_SEAMS = ("flags", "request", "resolve")
#: Hooked in a child process of a server that asked for an adapter.
CHILD_SEAMS = ("draft-config", "capture", "model-load", "verify-counts", "request-end")


def version_finding(version: str) -> Finding | None:
    """engine-version, where a version lies outside the supported range."""
    number = version_numbers(version)
    if number is not None and FIRST <= number <= LAST:
        return None
    first, last = spelled(FIRST), spelled(LAST)
    return fault(
        "engine-version",
        "sglang",
        f"{first} to {last}, in which every seam was checked",
        version,
        why="a seam that moved would leave the draft miswired in silence",
        remedy=f"pip install 'sglang=={last}'",
    )


def seam(name: str, version: str) -> Seam:
    """The seam of this name in a version; the nearest one outside the supported range, so that asking fails there."""
    number = version_numbers(version) or LAST
    named = [candidate for candidate in SEAMS if candidate.name == name]
    for candidate in named:
        if candidate.first <= number <= candidate.last:
            return candidate
    return named[-1] if number > LAST else named[0]


def hook_registry() -> Any:
    """SGLang's HookRegistry class."""
    return importlib.import_module("sglang.srt.plugins.hook_registry").HookRegistry


def hook(name: str, function: Callable[..., Any], kind: str, version: str) -> None:
    """Register ``function`` on a seam; SGLang applies all hooks when every plugin has registered."""
    _register(seam(name, version).path, function, kind)


def hook_loader(draft_class: str, function: Callable[..., Any]) -> None:
    """Register an AROUND hook on the weight loader of a draft class."""
    _register(DRAFT_LOADERS[draft_class], function, "AROUND")


def _register(path: str, function: Callable[..., Any], kind: str) -> None:
    types = importlib.import_module("sglang.srt.plugins.hook_registry").HookType
    hook_registry().register(path, function, types[kind])


def child_paths(draft_class: str, version: str) -> tuple[str, ...]:
    """Every path that is hooked in a child which serves a draft of this class."""
    return (*(seam(name, version).path for name in CHILD_SEAMS), DRAFT_LOADERS[draft_class])


def missing_hooks(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Paths whose hook SGLang did not apply: it only logs a hook that failed."""
    applied = hook_registry()._patched  # noqa: SLF001 - the only record of what was applied
    return tuple(path for path in paths if path not in applied)


def apply_now(name: str, function: Callable[..., Any], kind: str, version: str) -> None:
    """Hook a seam after SGLang applied its hooks; once a process, however often it is called."""
    path = seam(name, version).path
    registry = hook_registry()
    if path not in registry._patched:  # noqa: SLF001 - as above
        _register(path, function, kind)
        registry.apply_hooks()


def resolution_finished(server_args: Any) -> bool:
    """Whether arguments were resolved already: in a child, or on a second call."""
    return bool(getattr(server_args, "_resolution_finished", False))


def verify_counts(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, int]:
    """Of a call of the verify-counts seam: verify steps (one a request) and accepted drafts, without bonus tokens.

    Both are 0 while ``--speculative-adaptive`` has the draft rest, as it does for large batches.
    """
    worker = args[0].scheduler.draft_worker
    if getattr(worker, "speculative_num_steps", None) == 0:
        return 0, 0
    steps = kwargs["bs"] if "bs" in kwargs else args[1]
    accepted = kwargs["num_correct_drafts"] if "num_correct_drafts" in kwargs else args[2]
    return steps, accepted


def finished_request(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Sequence[int], int, int] | None:
    """Of a call of the request-end seam: output ids, verify steps, accepted drafts; None unless the request is done."""
    request = kwargs["req"] if "req" in kwargs else args[0]
    if not request.finished():
        return None
    return request.output_ids, request.spec_verify_ct, request.spec_num_correct_drafts


#: Methods of a draft class by which SGLang shares the target's embedding, without its head and with it.
EMBEDDING_SETTERS = ("set_embed", "set_embed_and_head")


def first_vocabulary_row(model: Any) -> int:
    """First row of the vocabulary that this rank's shard of the embedding holds."""
    indices = getattr(model.model.embed_tokens, "shard_indices", None)
    return 0 if indices is None else int(indices.org_vocab_start_index)


def is_first_rank() -> bool:
    """Whether this process speaks for the server: rank 0 of its group, or alone."""
    distributed = importlib.import_module("torch.distributed")
    return not distributed.is_initialized() or distributed.get_rank() == 0


def ranks_differ(runner: Any) -> bool:
    """Whether ranks of one group hold different batches: then none of them may start a collective by itself."""
    return bool(getattr(runner.server_args, "enable_dp_attention", False))


@contextlib.contextmanager
def eager_prompts(runner: Any) -> Iterator[None]:
    """Within, prompts run layer by layer and not as a CUDA graph: what SGLang does where no captured size fits."""
    graphs = getattr(runner, "prefill_cuda_graph_runner", None)
    if graphs is None:
        yield
        return
    runner.prefill_cuda_graph_runner = None
    try:
        yield
    finally:
        runner.prefill_cuda_graph_runner = graphs


def token_count(forward_batch: Any) -> int:
    """Tokens of a prompt batch, 0 for decode, verify and idle batches."""
    if not forward_batch.forward_mode.is_extend_without_speculative():
        return 0
    return int(forward_batch.input_ids.shape[0])
