"""Owns writing a checkpoint directory: all of it, compared and on the disk, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from eagle3_adapters.checkpoint import read_tensors
from eagle3_adapters.conversion.comparison import Part, differs
from eagle3_adapters.conversion.layout import OutputFile, check_name, expected_tensors, header_of
from eagle3_adapters.conversion.pieces import Chunk, Made, Range, files_of
from eagle3_adapters.conversion.places import (
    Staging,
    check_output,
    clear_leftovers,
    refuse_source,
    resolved,
    unwritable,
)
from eagle3_adapters.conversion.sources import Sources, Stamp
from eagle3_adapters.conversion.transfer import write_file
from eagle3_adapters.errors import CheckpointError
from eagle3_adapters.values import TensorInfo


@attrs.frozen
class _Whole:
    """A file as it is."""

    file: Path

    def chunks(self, sources: Sources) -> Iterator[Chunk]:
        yield Range(self.file, 0, sources.size(self.file))


def write_checkpoint(
    output: Path,
    files: Sequence[OutputFile],
    texts: Mapping[str, bytes],
    *,
    copies: Sequence[Path] = (),
    force: bool,
    progress: Callable[[int], None],
    stamps: Mapping[Path, Stamp] | None = None,
) -> None:
    """Write ``files``, ``texts`` and, under their own names, ``copies`` as the directory ``output``.

    ``progress`` receives the bytes written since its last call, :func:`planned_bytes` in all. ``stamps`` are those of
    the source files from before their headers were read; without them a change is noticed from here on.

    FindingsError: ``output-exists`` (with ``force`` what stands there is replaced), ``output-is-source``,
    ``output-unwritable``, ``output-differs``, ``source-changed``, ``checkpoint-unreadable``. After any error, and after
    Ctrl-C, ``output`` is what it was and nothing stands beside it. Python's ValueError where two files have one name.
    """
    _check_names([*(file.name for file in files), *texts, *(path.name for path in copies)])
    inputs = [path for file in files for path in files_of(file.tensors)] + list(copies)
    try:
        place = resolved(output)
        for directory in dict.fromkeys(parent for path in inputs for parent in (path.parent, path.resolve().parent)):
            refuse_source(place, directory)
        clear_leftovers(place)
        check_output(place, force=force)
        with Sources(inputs, stamps) as sources, Staging(place) as staging:
            _write_all(staging.new, files, texts, copies, sources, progress)
            _check_headers(staging.new, files)
            sources.check_unchanged()
            staging.publish(force=force)
    except OSError as error:
        raise unwritable(output, str(error)) from error


def planned_bytes(files: Sequence[OutputFile], texts: Mapping[str, bytes], copies: Sequence[Path] = ()) -> int:
    """What write_checkpoint tells its ``progress``, in all."""
    weights = sum(len(header_of(file)) + sum(tensor.content.size for tensor in file.tensors) for file in files)
    return weights + sum(map(len, texts.values())) + sum(path.stat().st_size for path in copies if path.is_file())


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        check_name(name)
    if len(set(names)) != len(names):
        msg = f"two files of one name: {sorted(names)}"
        raise ValueError(msg)


def _write_all(
    directory: Path,
    files: Iterable[OutputFile],
    texts: Mapping[str, bytes],
    copies: Iterable[Path],
    sources: Sources,
    progress: Callable[[int], None],
) -> None:
    parts: dict[str, list[Part]] = {}
    for name, text in texts.items():
        parts[name] = [Part(name=name, chunks=Made(data=text).chunks)]
    for path in copies:
        parts[path.name] = [Part(name=path.name, chunks=_Whole(path).chunks)]
    for file in files:
        header = Part(name="the header", chunks=Made(data=header_of(file)).chunks)
        parts[file.name] = [header, *(Part(name=one.name, chunks=one.content.chunks) for one in file.tensors)]
    for name, pieces in parts.items():
        write_file(directory / name, pieces, sources, progress)


def _check_headers(directory: Path, files: Iterable[OutputFile]) -> None:
    """Read the new checkpoint as an engine's loader does. FindingsError: output-differs."""
    expected: dict[str, TensorInfo] = {}
    for file in files:
        expected |= expected_tensors(file, directory / file.name, len(header_of(file)))
    if not expected:
        return
    try:
        found = read_tensors(directory)
    except CheckpointError as error:
        raise differs(directory, str(error)) from error
    if found != expected:
        names = sorted(name for name in expected | found if expected.get(name) != found.get(name))
        raise differs(directory, f"other headers for {', '.join(names[:5])}")
