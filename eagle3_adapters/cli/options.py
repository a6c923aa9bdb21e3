"""Owns the options that several commands share: spelt as here or as in SGLang, with the same variables behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from eagle3_adapters.boundaries import Ids
from eagle3_adapters.pair import AUTO


class BoundariesType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on only
    """``0,3,31``."""

    name = "K,K,K"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Ids:
        """Numbers separated by commas."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 0,3,31", param, ctx)


adapter_option: Callable[[Any], Any] = click.option(
    "--adapter",
    "--eagle3-adapter",
    "adapter",
    envvar="EAGLE3_ADAPTER",
    default=AUTO,
    show_default=True,
    metavar="NAME",
    help="Adapter of the target's architecture.",
)
format_option: Callable[[Any], Any] = click.option(
    "--format",
    "--eagle3-format",
    "format_",
    envvar="EAGLE3_FORMAT",
    default=AUTO,
    show_default=True,
    metavar="NAME",
    help="Trainer's format of the draft.",
)
boundaries_option: Callable[[Any], Any] = click.option(
    "--boundaries",
    "--eagle3-boundaries",
    "boundaries",
    envvar="EAGLE3_BOUNDARIES",
    type=BoundariesType(),
    help="Boundary of each column block of fc, in their order; overrides what the layer ids mean.",
)
