"""Owns what the other side will take a converted draft for, when nobody names its format."""

from __future__ import annotations

from collections.abc import Iterable

from eagle3_adapters.errors import FindingsError
from eagle3_adapters.formats import Format, choose
from eagle3_adapters.report import Report
from eagle3_adapters.values import DraftModel


def tell_detection(result: DraftModel, to: Format, formats: Iterable[Format], report: Report) -> None:
    """Say so where the files alone do not lead to ``to``."""
    try:
        found = f"they are read as {choose(result, formats).name}"
    except FindingsError as error:
        found = f"they are refused ({error.findings[0].code})"
    if found == f"they are read as {to.name}":
        return
    report.info(
        "format-by-name",
        f"--to {to.name}",
        "files that are recognised as what they are",
        f"{found} unless the format is named",
        why="files of this format do not say who wrote them",
        remedy=f"--eagle3-format {to.name}",
    )
