"""SGLang's own options beside a plan: each that would undo it is told, and its nearest harmless neighbour is not."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.engine_modules import load
from support.pair import plan

from eagle3_adapters.draft_classes import LATENT, LLAMA
from eagle3_adapters.errors import Severity
from eagle3_adapters.report import Report
from eagle3_adapters.sglang import overlay, server_options

E, W, I = Severity.ERROR, Severity.WARNING, Severity.INFO  # noqa: E741 - as findings are spelt

SOUND = {
    "speculative_algorithm": "EAGLE3",
    "pp_size": 1,
    "use_ray": False,
    "load_format": "auto",
    "speculative_draft_load_format": None,
    "speculative_adaptive": False,
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
    "speculative_token_map": None,
    "speculative_draft_window_size": None,
    "json_model_override_args": "{}",
    "decrypted_draft_config_file": None,
    "quantization": None,
    "speculative_draft_model_quantization": None,
    "attention_backend": None,
    "speculative_draft_attention_backend": None,
}


def arguments(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**SOUND | changes)


def tree(steps: int | None, topk: int | None, tokens: int | None) -> dict[str, int | None]:
    return {
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": tokens,
    }


ROWS: tuple[tuple[str, Severity, dict[str, Any], dict[str, Any]], ...] = (
    ("algorithm", E, {"speculative_algorithm": "EAGLE"}, {"speculative_algorithm": "eagle3"}),
    ("algorithm", E, {"speculative_algorithm": None}, {}),
    ("parallelism", E, {"pp_size": 2}, {"pp_size": 1}),
    ("parallelism", E, {"use_ray": True}, {}),
    ("parallelism", E, {"enable_two_batch_overlap": True}, {"enable_two_batch_overlap": False}),
    ("load-format-dummy", E, {"load_format": "dummy"}, {"load_format": "safetensors"}),
    ("load-format-dummy", E, {"speculative_draft_load_format": "dummy"}, {"speculative_draft_load_format": "auto"}),
    ("draft-config-given", E, {"decrypted_draft_config_file": "config.json"}, {}),
    ("draft-tokens", E, tree(3, 1, 8), tree(3, 1, 4)),
    ("draft-tokens", E, tree(None, 4, 8), tree(None, None, None)),
    ("draft-tokens", E, tree(3, None, None), tree(3, 1, None)),
    ("draft-tokens", E, tree(3, 4, None), tree(3, 4, 8)),
    ("draft-tokens", E, tree(1, 2, 4), tree(1, 2, 3)),
    ("draft-tokens", E, tree(3, 4, 1), tree(3, 4, 2)),
    ("draft-tokens", E, tree(2, 2, 8), tree(2, 2, 7)),
    ("token-map", W, {"speculative_token_map": "hot.pt"}, {}),
    ("draft-window", W, {"speculative_draft_window_size": 64}, {}),
    ("override-both", I, {"json_model_override_args": '{"rope_theta": 5}'}, {"json_model_override_args": " {} "}),
    ("quantization-inherited", I, {"quantization": "fp8"}, {}),
    (
        "quantization-inherited",
        I,
        {"quantization": "awq"},
        {"quantization": "awq", "speculative_draft_model_quantization": "unquant"},
    ),
    (
        "attention-backend",
        W,
        {"attention_backend": "flashmla"},
        {"attention_backend": "flashmla", "speculative_draft_attention_backend": "triton"},
    ),
    ("attention-backend", W, {"attention_backend": "trtllm_mla"}, {"attention_backend": "triton"}),
)


def found(options: dict[str, Any]) -> set[tuple[str, Severity]]:
    report = Report()
    server_options.check_before(arguments(**options), report)
    server_options.correct(arguments(**options), LLAMA.name, report)
    return {(finding.code, finding.severity) for finding in report.findings}


@pytest.mark.parametrize(("code", "severity", "options", "near"), ROWS)
def test_an_option_that_would_undo_the_plan_is_told(
    code: str, severity: Severity, options: dict[str, Any], near: dict[str, Any]
) -> None:
    assert found(options) == {(code, severity)}
    assert found(near) == set()


def test_every_code_has_a_row() -> None:
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(server_options))) if isinstance(node, ast.Call)]
    told = {
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in ("error", "warning", "info")
        and isinstance(call.args[0], ast.Constant)
    }
    assert told == {code for code, *_ in ROWS}


@pytest.mark.parametrize("options", [tree(3, 1, 8), tree(None, 4, 8), tree(1, 2, 4), tree(3, 4, 1), tree(2, 2, 8)])
def test_the_corrected_triple_is_one_that_is_accepted(options: dict[str, int | None]) -> None:
    report = Report()
    server_options.check_before(arguments(**options), report)
    words = report.findings[0].remedy.split()
    numbers = {flag.removeprefix("--").replace("-", "_"): int(value) for flag, value in zip(words[::2], words[1::2])}  # noqa: B905 - pairs
    assert set(numbers) == set(options)
    assert found(numbers) == set()


def test_a_plain_draft_is_kept_plain_beside_a_quantised_target() -> None:
    unquantised = {"speculative_draft_model_quantization": "unquant"}
    assert server_options.correct(arguments(quantization="fp8"), LLAMA.name, Report()) == unquantised
    assert server_options.correct(arguments(), LLAMA.name, Report()) == {}
    assert server_options.correct(arguments(quantization="fp8", **unquantised), LLAMA.name, Report()) == {}


def test_a_latent_draft_shares_the_backend_of_a_latent_target() -> None:
    report = Report()
    server_options.correct(arguments(attention_backend="flashmla"), LATENT.name, report)
    assert report.findings == ()


@pytest.mark.sglang
def test_every_option_is_a_field_of_sglangs_arguments() -> None:
    make: Callable[..., Any] = load("sglang.srt.server_args").ServerArgs
    real = make(model_path="dummy")
    assert [name for name in SOUND if not hasattr(real, name)] == []


def test_arguments_that_already_name_our_config_are_a_copy_of_ours(tmp_path: Path) -> None:
    config = overlay.store(plan(), tmp_path) / overlay.CONFIG
    assert found({"decrypted_draft_config_file": str(config)}) == set()
