"""Owns the way from two names to a plan: locate, read, choose format and adapter, plan. Used by every front end."""

from __future__ import annotations

from pathlib import Path

import attrs

from eagle3_adapters import checkpoint, formats
from eagle3_adapters.boundaries import Ids
from eagle3_adapters.errors import FindingsError
from eagle3_adapters.locate import locate
from eagle3_adapters.planning.plan import plan_wiring
from eagle3_adapters.registry import Adapter, Registry
from eagle3_adapters.report import Report
from eagle3_adapters.values import DraftModel, FormatReading, TargetModel
from eagle3_adapters.wiring import Planning

AUTO = "auto"
#: Fields that only a draft's config has.
_DRAFT_MARKS = ("draft_vocab_size", "eagle_config", "speculators_model_type", "speculators_config")


@attrs.frozen(kw_only=True)
class Request:
    """What the user asked for: names as typed, ``auto`` where the package decides."""

    target: str
    draft: str
    target_revision: str | None = None
    draft_revision: str | None = None
    adapter: str = AUTO
    format: str = AUTO
    #: Boundary of each column block of fc, in their order: overrides what the file's ids mean.
    boundaries: Ids | None = None
    #: Served context in tokens, where it is not the target's own.
    context_length: int | None = None


def read_format(draft: DraftModel, name: str, registry: Registry) -> FormatReading:
    """Read a draft in the named format, or in the one that claims it. Raises FindingsError."""
    if name != AUTO:
        return formats.read(draft, registry.format(name))
    installed = (registry.format(registration.name) for registration in registry.formats)
    return formats.read(draft, formats.choose(draft, installed))


def choose_adapter(target: TargetModel, name: str, registry: Registry, report: Report) -> Adapter:
    """The named adapter, or the one that owns the target's architecture. Raises FindingsError."""
    adapter = registry.adapter(registry.owner_of(target.architecture).name if name == AUTO else name)
    if target.architecture not in adapter.architectures:
        report.error(
            "adapter-mismatch",
            f"{target.path / checkpoint.CONFIG}: architectures",
            f"one of {', '.join(adapter.architectures)}, which adapter {name} owns",
            target.architecture,
            why="its layers, id rule and embedding are another class's",
            remedy="--eagle3-adapter auto",
        )
    return adapter


def plan_pair(request: Request, registry: Registry, engine: str) -> Planning:
    """Headers only, no torch, no SGLang. Never raises for a fault of the pair: it is a finding."""
    report = Report()
    target = reading = adapter = None
    try:
        target_path = locate(request.target, request.target_revision, config_only=True)
        _check_swapped(target_path, report)
        if not report.failed():
            target = checkpoint.read_target(target_path)
    except FindingsError as error:
        report.extend(error.findings)
    try:
        draft_path = locate(request.draft, request.draft_revision)
        if target is not None and _same(target.path, draft_path):
            report.error(
                "draft-is-target",
                str(draft_path),
                "a draft's checkpoint",
                "the target's own",
                remedy="--speculative-draft-model-path DRAFT",
            )
        else:
            draft = checkpoint.read_draft(draft_path)
            reading = read_format(draft, request.format, registry)
    except FindingsError as error:
        report.extend(error.findings)
    if target is not None:
        try:
            adapter = choose_adapter(target, request.adapter, registry, report)
        except FindingsError as error:
            report.extend(error.findings)
    plan = None
    if target is not None and reading is not None and adapter is not None:
        try:
            planning = plan_wiring(
                target=target,
                reading=reading,
                adapter=adapter,
                engine=engine,
                boundaries=request.boundaries,
                context_length=request.context_length,
            )
            plan = planning.plan
            report.extend(planning.findings)
        except FindingsError as error:  # an adapter that answers with something else
            report.extend(error.findings)
    if request.format != AUTO and report.failed():
        _suspect_format(request, registry, report)
    return Planning(findings=report.findings, plan=None if report.failed() else plan)


def _same(left: Path, right: Path) -> bool:
    return left.resolve() == right.resolve()


def _check_swapped(target: Path, report: Report) -> None:
    """A target's config never has a draft's fields."""
    config = checkpoint.read_config(target)
    marks = [key for key in _DRAFT_MARKS if key in config]
    if marks:
        report.error(
            "pair-swapped",
            str(target / checkpoint.CONFIG),
            "the target's config",
            f"a draft's: it has {', '.join(marks)}",
            why="the two paths were given in the other's place",
            remedy="give the target's directory; if the two were swapped, swap --target and --draft "
            "(--model-path and --speculative-draft-model-path)",
        )


def _suspect_format(request: Request, registry: Registry, report: Report) -> None:
    """A named format that does not know the file, while another claims it: likelier the cause than the file."""
    try:
        draft = checkpoint.read_draft(locate(request.draft, request.draft_revision))
        claims = {one.name: registry.format(one.name).claim(draft) for one in registry.formats}
    except FindingsError:
        return  # told already
    if request.format not in claims or claims[request.format]:
        return
    # A format that is chosen by name only reads another's files on purpose: that one's claim contradicts nothing.
    named = registry.format(request.format)
    others = {
        name: claim for name, claim in claims.items() if claim and not isinstance(named, type(registry.format(name)))
    }
    if others:
        name, claim = next(iter(others.items()))
        report.prepend_error(
            "format-mismatch",
            f"--eagle3-format {request.format}",
            f"{name}, by the files: {'; '.join(claim)}",
            request.format,
            why="the findings below come from reading the files in another dialect",
            remedy=f"drop --eagle3-format {request.format}, or name {name}",
        )
