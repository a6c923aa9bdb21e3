"""Owns what happens in the launching process: plan before SGLang resolves its arguments, or refuse to start."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from eagle3_adapters.engine_version import installed_version
from eagle3_adapters.errors import FindingsError, WiringRefusedError, fault
from eagle3_adapters.pair import Request, plan_pair
from eagle3_adapters.registry import Registry
from eagle3_adapters.render import write_findings
from eagle3_adapters.report import Report
from eagle3_adapters.sglang import compat, draft, overlay, request, server_options
from eagle3_adapters.wiring import Planning, WiringPlan

# SGLang ships no types, and hooks get whatever its functions get.
Original = Callable[..., Any]


def after_add_cli_args(result: Any, parser: Any) -> None:
    """AFTER ServerArgs.add_cli_args."""
    request.add_flags(parser)


def around_from_cli_args(original: Original, cls: Any, args: Any) -> Any:
    """AROUND ServerArgs.from_cli_args: record the flags, decide nothing."""
    flags = request.from_flags(args)
    if flags:
        # Here too, since a resolve seam that was not hooked could not say so.
        with _told(command_line=True):
            _check_hooks()
    token = request.PENDING.set(flags)
    try:
        server_args = original(cls, args)
    finally:
        request.PENDING.reset(token)
    setattr(server_args, request.ATTRIBUTE, dict(flags))
    return server_args


def around_resolve(original: Original, server_args: Any, *args: Any, **kwargs: Any) -> Any:
    """AROUND the parent seam: without a request nothing happens, with one the draft is wired or the start refused."""
    if compat.resolution_finished(server_args):
        return original(server_args, *args, **kwargs)
    os.environ.pop(overlay.PLAN_VARIABLE, None)
    # With a request or without: a variable that was meant as one and is none would leave SGLang to itself.
    write_findings(request.misspelt_variables(os.environ), sys.stderr)
    with _told(command_line=request.recorded_flags(server_args) is not None):
        wish = request.read(server_args, os.environ)
        if wish is not None:
            _check_hooks()
            _wire(server_args, wish)
    return original(server_args, *args, **kwargs)


@contextlib.contextmanager
def _told(*, command_line: bool) -> Iterator[None]:
    """Findings that stop go to the screen; on a command line they are the message, and a traceback would bury them."""
    try:
        yield
    except FindingsError as error:
        write_findings(error.findings, sys.stderr)
        if command_line:
            raise SystemExit(1) from error
        raise


def _check_hooks() -> None:
    version = installed_version()
    missing = compat.missing_hooks(tuple(compat.seam(name, version).path for name in compat.PARENT_SEAMS))
    outside = compat.version_finding(version)
    if outside is not None:
        raise WiringRefusedError([outside])
    if missing:
        raise WiringRefusedError(
            [
                fault(
                    "hook-not-applied",
                    ", ".join(missing),
                    "a hook that SGLang applied",
                    "none; its log says why",
                    remedy="eagle3-adapters doctor",
                )
            ]
        )


def _wire(server_args: Any, wish: request.Wish) -> None:
    version = installed_version()
    report = Report()
    plan = plan_server(server_args, wish, version, report)
    if plan is None:
        raise WiringRefusedError(report.findings)
    for field, value in server_options.correct(server_args, plan.draft_architecture, report).items():
        setattr(server_args, field, value)
    write_findings(report.findings, sys.stderr)
    directory = overlay.store(plan, overlay.cache_directory())
    server_args.decrypted_draft_config_file = str(directory / overlay.CONFIG)
    # Local snapshots: what was planned is what is served, even if a Hub name moves in between.
    server_args.speculative_draft_model_path = str(plan.draft_path)
    os.environ[overlay.PLAN_VARIABLE] = str(directory / overlay.PLAN)
    # The parent reads the draft's config too; its plugins were loaded before there was a plan.
    compat.apply_now("draft-config", draft.around_config_draft_model, "AROUND", version)


def plan_server(server_args: Any, wish: request.Wish, version: str, report: Report) -> WiringPlan | None:
    """The plan of a server's arguments, None where a finding stops."""
    server_options.check_before(server_args, report)
    if server_args.speculative_draft_model_path is None:
        report.error(
            "draft-is-target",
            "--speculative-draft-model-path",
            "the draft's directory or Hub name",
            "nothing",
            why="SGLang may take the target itself for the draft",
            remedy="--speculative-draft-model-path DRAFT",
        )
        return None
    asked = Request(
        target=server_args.model_path,
        draft=server_args.speculative_draft_model_path,
        target_revision=server_args.revision,
        draft_revision=server_args.speculative_draft_model_revision,
        adapter=wish.adapter,
        format=wish.format,
        boundaries=wish.boundaries,
        context_length=server_args.context_length,
    )
    try:
        planning = plan_pair(asked, Registry.installed(), version)
    except FindingsError as error:  # a registry with two claims on one name
        planning = Planning(findings=error.findings, plan=None)
    report.extend(planning.findings)
    return None if report.failed() else planning.plan
