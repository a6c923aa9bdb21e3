"""``eagle3-adapters convert``: a draft in another trainer's format."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from eagle3_adapters import checkpoint
from eagle3_adapters.boundaries import Ids
from eagle3_adapters.cli.options import adapter_option, boundaries_option, format_option
from eagle3_adapters.cli.output import finding_data, json_option, print_json, progress, stop
from eagle3_adapters.conversion.content import Beside
from eagle3_adapters.conversion.convert import Conversion, plan_conversion
from eagle3_adapters.errors import FindingsError
from eagle3_adapters.locate import locate
from eagle3_adapters.pair import choose_adapter, read_format
from eagle3_adapters.registry import Registry
from eagle3_adapters.render import write_findings
from eagle3_adapters.report import Report


@click.command()
@click.argument("draft")
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--to", "to", required=True, metavar="NAME", help="Format to write.")
@click.option("--target", help="Target: directory or Hub name; where ids count by its class or layers.")
@adapter_option
@format_option
@boundaries_option
@click.option("--force", is_flag=True, help="Replace OUTPUT where it exists.")
@click.option("--dry-run", is_flag=True, help="Say what would be written, and write nothing.")
@json_option
def convert(
    draft: str,
    output: Path,
    to: str,
    target: str | None,
    adapter: str,
    format_: str,
    boundaries: Ids | None,
    force: bool,  # noqa: FBT001 - click passes options by name
    dry_run: bool,  # noqa: FBT001 - click passes options by name
    as_json: bool,  # noqa: FBT001 - click passes options by name
) -> None:
    """Write DRAFT (a directory or Hub name) to the directory OUTPUT in another format.

    Whatever the other format cannot say is an error that names it. OUTPUT appears whole or not at all.
    """
    try:
        registry = Registry.installed()
        reading = read_format(checkpoint.read_draft(locate(draft)), format_, registry)
        beside = _beside(target, adapter, boundaries, registry)
        installed = [registry.format(one.name) for one in registry.formats]
        conversion = plan_conversion(reading, registry.format(to), beside, installed)
        if not dry_run:
            with progress("writing", conversion.size, in_bytes=True) as advance:
                conversion.write(output, force=force, progress=advance)
    except FindingsError as error:
        stop("convert", error, as_json=as_json)
    if as_json:
        print_json("convert", _data(conversion, reading.format, to, output, written=not dry_run))
        return
    write_findings(conversion.findings, sys.stdout)
    verb = "would be" if dry_run else "written and compared"
    click.echo(
        f"{reading.format} -> {to}: {output} {verb}: {conversion.renamed} tensors byte for byte, "
        f"{conversion.changed} put together anew, {len(conversion.copies)} other files"
    )


def _beside(target: str | None, adapter: str, boundaries: Ids | None, registry: Registry) -> Beside:
    if target is None:
        return Beside(boundaries=boundaries)
    model, report = checkpoint.read_target(locate(target, config_only=True)), Report()
    chosen = choose_adapter(model, adapter, registry, report)
    if report.failed():
        raise FindingsError(report.findings)
    return Beside(target=model, target_name=target, capture=chosen.capture_layers(model), boundaries=boundaries)


def _data(conversion: Conversion, source: str, to: str, output: Path, *, written: bool) -> dict[str, object]:
    return {
        "from": source,
        "to": to,
        "output": str(output),
        "written": written,
        "config": dict(conversion.config),
        "tensors": {one.name: type(one.content).__name__.lower() for file in conversion.files for one in file.tensors},
        "files": [
            *(file.name for file in conversion.files),
            *conversion.texts,
            *(one.name for one in conversion.copies),
        ],
        "findings": [finding_data(finding) for finding in conversion.findings],
    }
