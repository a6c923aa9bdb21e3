"""Owns what every command prints: JSON with a version, tables that fit 100 columns, findings, exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import attrs
import click

from eagle3_adapters.errors import Finding, FindingsError, Severity
from eagle3_adapters.render import write_findings

#: Raised when a field of any command's JSON changes its meaning or goes.
SCHEMA = 1
WIDTH = 100

json_option: Callable[[Any], Any] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of tables."
)


def finding_data(finding: Finding) -> Mapping[str, str]:
    """A finding as JSON data."""
    return attrs.asdict(finding, value_serializer=lambda _, __, value: getattr(value, "value", value))


def print_json(command: str, data: Mapping[str, Any]) -> None:
    """One JSON object on stdout, with the schema's version and the command's name."""
    click.echo(json.dumps({"schema": SCHEMA, "command": command, **data}, indent=2, sort_keys=True))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on stdout; in a pipe or on a dumb terminal without colour and box characters."""
    # Late: `--help` and `--json` must not pay for it.
    import rich.console  # noqa: PLC0415
    import rich.table  # noqa: PLC0415
    import rich.text  # noqa: PLC0415

    console = rich.console.Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console = rich.console.Console(file=sys.stdout, highlight=False, width=WIDTH)
    click.echo(title)
    table = rich.table.Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        # Text of users' files may hold brackets, which rich would take for markup.
        table.add_row(*(rich.text.Text(cell) for cell in row))
    console.print(table)


@contextmanager
def progress(what: str, total: int | None, *, in_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, where that is a terminal; what is yielded moves it on by so much. ``total`` None: not known."""
    # Late: as above.
    import rich.console  # noqa: PLC0415
    import rich.progress  # noqa: PLC0415

    console = rich.console.Console(file=sys.stderr)
    told = (
        (rich.progress.DownloadColumn(), rich.progress.TransferSpeedColumn())
        if in_bytes
        else (rich.progress.MofNCompleteColumn(), rich.progress.TimeElapsedColumn())
    )
    columns = (rich.progress.TextColumn("{task.description}"), rich.progress.BarColumn(), *told)
    with rich.progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


def exit_code(findings: Iterable[Finding], *, strict: bool = False) -> int:
    """0, or 1 where a finding stops."""
    stops = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    return int(any(finding.severity in stops for finding in findings))


def stop(command: str, error: FindingsError, *, as_json: bool) -> NoReturn:
    """Print an error's findings and exit 1."""
    if as_json:
        print_json(command, {"findings": [finding_data(finding) for finding in error.findings]})
    else:
        write_findings(error.findings, sys.stdout)
    sys.exit(1)
