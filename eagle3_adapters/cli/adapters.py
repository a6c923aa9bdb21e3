"""``eagle3-adapters adapters``: what is installed."""

from __future__ import annotations

import click

from eagle3_adapters.cli.output import json_option, print_json, print_table, stop
from eagle3_adapters.errors import FindingsError
from eagle3_adapters.registry import Registry


@click.command()
@json_option
def adapters(as_json: bool) -> None:  # noqa: FBT001 - click passes options by name
    """List adapters, the architectures that they own, and formats."""
    try:
        registry = Registry.installed()
        loaded = [registry.adapter(registration.name) for registration in registry.adapters]
        formats = [(registration, registry.format(registration.name)) for registration in registry.formats]
    except FindingsError as error:
        stop("adapters", error, as_json=as_json)
    if as_json:
        print_json(
            "adapters",
            {
                "adapters": [
                    {
                        "name": adapter.registration.name,
                        "distribution": adapter.registration.distribution,
                        "version": adapter.registration.version,
                        "architectures": list(adapter.architectures),
                    }
                    for adapter in loaded
                ],
                "formats": [
                    {
                        "name": registration.name,
                        "title": format_.title,
                        "distribution": registration.distribution,
                        "version": registration.version,
                    }
                    for registration, format_ in formats
                ],
            },
        )
        return
    print_table(
        "Adapters (--eagle3-adapter NAME)",
        ("name", "from", "architectures"),
        [
            (adapter.registration.name, adapter.registration.origin, ", ".join(adapter.architectures))
            for adapter in loaded
        ],
    )
    click.echo()
    print_table(
        "Formats (--eagle3-format NAME)",
        ("name", "from", "what it is"),
        [(registration.name, registration.origin, format_.title) for registration, format_ in formats],
    )
