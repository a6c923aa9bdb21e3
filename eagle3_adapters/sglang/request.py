"""Owns what the user asked SGLang for: three flags in its parser, three variables for ``sglang.Engine``.

A flag beats a variable. Absent all six there is no request and SGLang runs as without the package.
"""

from __future__ import annotations

import argparse
import contextvars
import difflib
from collections.abc import Mapping
from typing import Any

import attrs

from eagle3_adapters.boundaries import Ids
from eagle3_adapters.errors import Finding, FindingsError, Severity, fault
from eagle3_adapters.pair import AUTO
from eagle3_adapters.sglang import overlay

#: Where the flags ride on ServerArgs: not a field, survives pickling to the children.
ATTRIBUTE = "_eagle3_request"
#: Flags of a ServerArgs that is being built: up to 0.5.18 SGLang resolves in the constructor, before ATTRIBUTE is set.
PENDING: contextvars.ContextVar[Mapping[str, str] | None] = contextvars.ContextVar("eagle3_pending", default=None)
VARIABLES = {"adapter": "EAGLE3_ADAPTER", "format": "EAGLE3_FORMAT", "boundaries": "EAGLE3_BOUNDARIES"}


@attrs.frozen(kw_only=True)
class Wish:
    """Adapter, format and boundaries as asked for."""

    adapter: str = AUTO
    format: str = AUTO
    boundaries: Ids | None = None


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The three flags, in SGLang's own parser."""
    group = parser.add_argument_group("eagle3-adapters", "Serve an EAGLE-3 draft with its training-time math.")
    group.add_argument(
        "--eagle3-adapter",
        metavar="{auto,NAME}",
        help="Wire the draft with this adapter; auto picks it by the target's architecture.",
    )
    group.add_argument("--eagle3-format", metavar="NAME", help="The trainer's format, where the files do not decide.")
    group.add_argument(
        "--eagle3-boundaries",
        metavar="K,K,K",
        help="Boundary of each column block of fc, in their order; overrides what the layer ids mean. "
        "0 is the embedding, k the output of layer k-1.",
    )


def parse_boundaries(text: str, where: str) -> Ids:
    """``0,3,31`` as numbers. Raises FindingsError."""
    try:
        boundaries = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise FindingsError(
            [
                fault(
                    "layer-ids-out-of-range",
                    where,
                    "numbers separated by commas, as in 0,3,31",
                    repr(text),
                    remedy=f"{where}{' ' if where.startswith('-') else '='}0,3,31",
                )
            ]
        ) from error
    return boundaries


def from_flags(args: argparse.Namespace) -> Mapping[str, str]:
    """The flags that were given, by field."""
    given = {field: getattr(args, f"eagle3_{field}", None) for field in VARIABLES}
    return {field: value for field, value in given.items() if value is not None}


def misspelt_variables(environment: Mapping[str, str]) -> tuple[Finding, ...]:
    """Variables that look like ours and that nothing reads: what they ask for would be ignored in silence."""
    known = {*VARIABLES.values(), *overlay.VARIABLES}
    told = sorted({*VARIABLES.values(), overlay.CACHE_VARIABLE})
    findings = []
    for name in sorted(environment):
        if not name.startswith("EAGLE3_") or name in known:
            continue
        close = difflib.get_close_matches(name, told, n=1, cutoff=0.7)
        findings.append(
            Finding(
                code="environment-variable",
                severity=Severity.WARNING,
                where=name,
                expected=f"one of {', '.join(told)}",
                found="a name that nothing reads",
                why="what it asks for is ignored",
                remedy=f"unset {name}; export {close[0]}=…" if close else f"unset {name}",
            )
        )
    return tuple(findings)


def recorded_flags(server_args: Any) -> Mapping[str, str] | None:
    """Flags of a server that a command line started, None for any other."""
    recorded: Mapping[str, str] | None = getattr(server_args, ATTRIBUTE, None)
    return PENDING.get() if recorded is None else recorded


def read(server_args: Any, environment: Mapping[str, str]) -> Wish | None:
    """The request of one server, None where nothing was asked. Raises FindingsError for boundaries that are none."""
    flags = recorded_flags(server_args) or {}
    variables = {field: environment[name] for field, name in VARIABLES.items() if environment.get(name)}
    asked = variables | dict(flags)
    if not asked:
        return None
    boundaries = asked.get("boundaries")
    where = "--eagle3-boundaries" if "boundaries" in flags else VARIABLES["boundaries"]
    return Wish(
        adapter=asked.get("adapter", AUTO),
        format=asked.get("format", AUTO),
        boundaries=None if boundaries is None else parse_boundaries(boundaries, where),
    )
