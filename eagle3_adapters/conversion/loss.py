"""Owns reading a converted draft back before it is written: whatever would come back different is an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from eagle3_adapters import canonical
from eagle3_adapters.boundaries import Ids, default_boundaries, describe_all
from eagle3_adapters.conversion.content import Beside, Understood, boundaries_of
from eagle3_adapters.conversion.tensors import Placed, order_of
from eagle3_adapters.errors import FindingsError, Severity, UnmappedKeyError
from eagle3_adapters.formats import Format
from eagle3_adapters.planning.vocabulary import reads_both_ways
from eagle3_adapters.report import Report
from eagle3_adapters.values import DraftModel, FormatReading, FormatWriting, TensorInfo

#: Named by each dialect in its own way, after the shape of the attention.
_NAMED = ("architectures", "model_type")
#: What a loader assumes where a config says nothing; a dialect may say it.
_ASSUMED = {"rope_theta": 10000.0, "tie_word_embeddings": False}


def check_loss(
    understood: Understood, to: Format, writing: FormatWriting, placed: Iterable[Placed], beside: Beside, report: Report
) -> None:
    """Read the result as ``to`` reads it and tell every difference as not-representable."""
    placed = tuple(placed)
    result = result_of(understood, writing, placed)
    try:
        reading = to.read(result)
    except FindingsError as error:
        _tell(report, to, "a file that this format reads", str(error.findings[0]))
        return
    for finding in reading.findings:
        if finding.severity is Severity.ERROR:
            _tell(report, to, finding.expected, f"{finding.found} ({finding.code})")
    _names(reading, placed, to, report)
    for flag, wanted in attrs.asdict(understood.content.math).items():
        found = getattr(reading.math, flag)
        if found != wanted:
            _tell(report, to, f"{flag} {wanted}".lower(), f"read back as {found}".lower())
    _boundaries(understood, reading, writing, beside, to, report)
    _config(understood.content.config, reading.draft.config, to, report)
    vocabulary = understood.vocabulary
    if vocabulary is not None and "t2d" not in result.tensors and reads_both_ways(vocabulary):
        _tell(report, to, "t2d, without which this d2t reads as offsets and as target ids", "no t2d in such files")
    if understood.content.embedding_trained and not reading.embedding_trained:
        _tell(report, to, "an embedding that was trained with the draft", "nothing that says so")


def result_of(understood: Understood, writing: FormatWriting, placed: Iterable[Placed]) -> DraftModel:
    """The result as whoever reads it will see it: config and headers."""
    tensors = {
        one.output.name: TensorInfo(
            name=one.output.name, dtype=one.output.dtype, shape=one.output.shape, file=one.beside, start=0, stop=0
        )
        for one in placed
    }
    return DraftModel(path=understood.reading.draft.path, config=writing.config, tensors=tensors)


def _names(reading: FormatReading, placed: Iterable[Placed], to: Format, report: Report) -> None:
    for one in placed:
        try:
            back: object = reading.keys.apply(one.output.name)
        except UnmappedKeyError:
            back = "no tensor that it knows"
        if back != one.canonical:
            _tell(report, to, f"{one.output.name} read as {one.canonical}", str(back))


def _boundaries(
    understood: Understood, reading: FormatReading, writing: FormatWriting, beside: Beside, to: Format, report: Report
) -> None:
    listed = understood.content.boundaries
    wanted = None if listed is None else tuple(listed[block] for block in order_of(understood, writing))
    told = Report()
    found = boundaries_of(reading, attrs.evolve(beside, boundaries=None), told)
    for finding in told.findings:
        if finding.severity is Severity.ERROR:
            _tell(report, to, finding.expected, f"{finding.found} ({finding.code})")
    if not told.failed() and _meant(found, beside) != _meant(wanted, beside):
        _tell(report, to, f"states {_words(wanted)}", f"read back as {_words(found)}")


def _meant(boundaries: Ids | None, beside: Beside) -> Ids | None:
    """The default triple by its numbers, where a target tells N: a draft may name it, and a dialect leave it unsaid."""
    return boundaries or (default_boundaries(beside.target.num_layers) if beside.target else None)


def _words(boundaries: Ids | None) -> str:
    return "of the default triple" if boundaries is None else describe_all(boundaries, None)


def _config(wanted: Mapping[str, Any], found: Mapping[str, Any], to: Format, report: Report) -> None:
    for key in sorted({*wanted, *found} - {*_NAMED, *canonical.ABOUT}):
        before, after = wanted.get(key, _ASSUMED.get(key)), found.get(key, _ASSUMED.get(key))
        if before != after:
            _tell(report, to, f"{key} {before!r} in config.json", f"read back as {after!r}")


def _tell(report: Report, to: Format, expected: str, found: str) -> None:
    report.error(
        "not-representable",
        f"--to {to.name}",
        expected,
        found,
        why="a file of this format cannot say it, so the draft would compute something else",
        remedy="choose a format that can: eagle3-adapters adapters lists them",
    )
