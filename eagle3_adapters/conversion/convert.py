"""Owns a conversion from request to directory: read, ask the other format, check for loss, write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from eagle3_adapters import checkpoint
from eagle3_adapters.conversion.content import Beside, Understood, understand
from eagle3_adapters.conversion.detection import tell_detection
from eagle3_adapters.conversion.frozen import tell_missing, without_copy
from eagle3_adapters.conversion.layout import OutputFile
from eagle3_adapters.conversion.loss import check_loss, result_of
from eagle3_adapters.conversion.pieces import Copy
from eagle3_adapters.conversion.tensors import Placed, convert_tensors
from eagle3_adapters.conversion.writer import planned_bytes, write_checkpoint
from eagle3_adapters.errors import Finding, FindingsError
from eagle3_adapters.formats import Format
from eagle3_adapters.report import Report
from eagle3_adapters.values import FormatReading, FormatWriting


@attrs.frozen(kw_only=True)
class Conversion:
    """Everything that is to be written, and what there is to say about it."""

    findings: tuple[Finding, ...]
    config: Mapping[str, Any] = attrs.field(repr=False)
    files: tuple[OutputFile, ...]
    #: Small files made here, by name: config.json and the index.
    texts: Mapping[str, bytes] = attrs.field(repr=False)
    #: Files beside the weights, kept as they are.
    copies: tuple[Path, ...]

    @property
    def size(self) -> int:
        """Bytes that :meth:`write` reports to its ``progress``."""
        return planned_bytes(self.files, self.texts, self.copies)

    @property
    def renamed(self) -> int:
        """Tensors whose bytes stay."""
        return sum(isinstance(one.content, Copy) for file in self.files for one in file.tensors)

    @property
    def changed(self) -> int:
        """Tensors whose bytes are put together anew."""
        return sum(len(file.tensors) for file in self.files) - self.renamed

    def write(self, output: Path, *, force: bool, progress: Callable[[int], None]) -> None:
        """Write it all to ``output`` or nothing. Raises FindingsError; see :func:`write_checkpoint`."""
        write_checkpoint(output, self.files, self.texts, copies=self.copies, force=force, progress=progress)


def plan_conversion(reading: FormatReading, to: Format, beside: Beside, formats: Iterable[Format]) -> Conversion:
    """What ``to`` makes of a draft. Nothing is written and no weights are read, but for a copy of the embedding.

    ``formats`` are all that are installed: whoever gets the result chooses among them.

    Raises FindingsError with every finding, where one of them stops.
    """
    report = Report()
    understood = understand(reading, beside, report)
    if understood is None:
        raise FindingsError(report.findings)
    writing = to.write(understood.content)
    understood = without_copy(understood, writing, report)
    tell_missing(understood, writing, report)
    placed = convert_tensors(understood, writing, report)
    if not report.failed():
        check_loss(understood, to, writing, placed, beside, report)
    if report.failed():
        raise FindingsError(report.findings)
    tell_detection(result_of(understood, writing, placed), to, formats, report)
    return _conversion(understood, writing, placed, report)


def _conversion(understood: Understood, writing: FormatWriting, placed: Iterable[Placed], report: Report) -> Conversion:
    source = understood.reading.draft.path
    by_file: dict[Path, list[Placed]] = {}
    for one in placed:
        by_file.setdefault(one.beside, []).append(one)
    files = tuple(
        OutputFile(
            name=file.name,
            tensors=tuple(one.output for one in tensors),
            metadata=checkpoint.read_metadata(file),
        )
        for file, tensors in by_file.items()
    )
    texts = {checkpoint.CONFIG: _json(writing.config)}
    if (source / checkpoint.INDEX).is_file() or len(files) > 1:
        texts[checkpoint.INDEX] = _json(_index(source, files))
    taken = {*texts, *(path.name for path in checkpoint.weight_files(source)), checkpoint.INDEX}
    copies = tuple(path for path in sorted(source.iterdir()) if path.is_file() and path.name not in taken)
    return Conversion(findings=report.findings, config=writing.config, files=files, texts=texts, copies=copies)


def _index(source: Path, files: Iterable[OutputFile]) -> dict[str, Any]:
    """The index of the result; what else the source's index says of itself is kept."""
    old = checkpoint.read_config(source, checkpoint.INDEX) if (source / checkpoint.INDEX).is_file() else {}
    metadata = old.get("metadata")
    kept = dict(metadata) if isinstance(metadata, dict) else {}
    named = [(file.name, tensor) for file in files for tensor in file.tensors]
    return {
        **{key: value for key, value in old.items() if key != "weight_map"},
        "metadata": kept | {"total_size": sum(tensor.content.size for _, tensor in named)},
        "weight_map": {tensor.name: file for file, tensor in named},
    }


def _json(data: Mapping[str, Any]) -> bytes:
    return (json.dumps(data, indent=2, sort_keys=True) + "\n").encode()
