"""``eagle3-adapters explain``: what the code of a finding means, what it costs and how to mend it."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import attrs
import click

from eagle3_adapters.cli.output import WIDTH, json_option, print_json, print_table

if TYPE_CHECKING:
    from eagle3_adapters.findings import Explanation

_PASTE = "    "


@click.command()
@click.argument("code", required=False)
@click.option("--all", "all_codes", is_flag=True, help="List every code with its severity and title.")
@json_option
def explain(code: str | None, all_codes: bool, as_json: bool) -> None:  # noqa: FBT001 - click passes options by name
    """Say what CODE, the name of a finding, means, who writes such files, what it costs and how to mend it."""
    # Late: the other commands have no use for the catalogue.
    from eagle3_adapters.findings import EXPLANATIONS, close_to, normal  # noqa: PLC0415

    if all_codes == (code is not None):
        raise click.UsageError("Give one CODE, or --all.")
    if code is None:
        entries = EXPLANATIONS.values()
        if as_json:
            print_json("explain", {"explanations": [attrs.asdict(entry) for entry in entries]})
        else:
            rows = [(entry.code, entry.severity, entry.title) for entry in entries]
            print_table("Findings (eagle3-adapters explain CODE)", ("code", "severity", "what it is"), rows)
        return
    entry = EXPLANATIONS.get(normal(code))
    if entry is None:
        near = ", ".join(close_to(normal(code)))
        hint = f"Close to it: {near}." if near else "eagle3-adapters explain --all lists every code."
        raise click.BadParameter(f"no finding has the code {code!r}. {hint}", param_hint="CODE")
    if as_json:
        print_json("explain", {"explanation": attrs.asdict(entry)})
    else:
        click.echo("\n".join(explanation_lines(entry)))


def explanation_lines(entry: Explanation) -> list[str]:
    """An entry as text; prose is wrapped, what is to be pasted is not: a line break would spoil it."""
    lines = [f"{entry.code} ({entry.severity}): {entry.title}"]
    facts = (
        ("meaning", entry.meaning),
        ("written by", "; ".join(entry.writers)),
        ("cost", entry.cost),
        ("fix", entry.fix),
        ("example", textwrap.indent(entry.example, _PASTE)),
    )
    for label, text in facts:
        if text:
            lines += ["", label]
            lines += _wrapped(text)
    return lines


def _wrapped(text: str) -> list[str]:
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(_PASTE):
            lines.append(_PASTE + line)
        else:
            lines += textwrap.wrap(line, WIDTH, initial_indent=_PASTE, subsequent_indent=_PASTE, break_on_hyphens=False)
    return lines
