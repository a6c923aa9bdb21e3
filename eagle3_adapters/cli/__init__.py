"""The command line, one file a command. Stdout is data, stderr is talk.

Exit codes: 0 no error; 1 at least one error finding (with ``--strict`` a warning too); 2 wrong usage.
"""

from __future__ import annotations

import click

from eagle3_adapters import __version__
from eagle3_adapters.cli.adapters import adapters
from eagle3_adapters.cli.check import check
from eagle3_adapters.cli.convert import convert
from eagle3_adapters.cli.diagnose import diagnose
from eagle3_adapters.cli.doctor import doctor
from eagle3_adapters.cli.explain import explain
from eagle3_adapters.cli.inspect import inspect


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="eagle3-adapters")
def main() -> None:
    """Wire an EAGLE-3 draft to SGLang with its training-time math, or say why it cannot be."""


for command in (adapters, check, convert, diagnose, doctor, explain, inspect):
    main.add_command(command)
