"""Owns what an output safetensors file looks like: its header, and the place of each tensor in it."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from eagle3_adapters.conversion.pieces import Copy, OutputTensor
from eagle3_adapters.values import TensorInfo

#: Blocks can be shared between files only where both begin at a multiple of this.
PAGE = 4096
#: The format's own alignment of the data section.
_ALIGNMENT = 8


def check_name(name: str) -> None:
    """ValueError unless ``name`` is the name of a file in the output directory, and not a path."""
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        msg = f"{name!r} is not the name of a file"
        raise ValueError(msg)


@attrs.frozen(kw_only=True)
class OutputFile:
    """A safetensors file to write: its tensors in the order of their bytes, and its metadata or None."""

    name: str
    tensors: tuple[OutputTensor, ...] = attrs.field(repr=False)
    metadata: Mapping[str, str] | None = None

    def __attrs_post_init__(self) -> None:
        check_name(self.name)
        names = [tensor.name for tensor in self.tensors]
        if len(set(names)) != len(names) or "__metadata__" in names:
            msg = f"{self.name}: two tensors of one name, or one with the name of the metadata"
            raise ValueError(msg)
        if not all(isinstance(value, str) for value in (self.metadata or {}).values()):
            msg = f"{self.name}: the metadata of a safetensors file are strings"
            raise ValueError(msg)

    def offsets(self) -> Iterator[tuple[OutputTensor, int]]:
        """Each tensor with the place of its first byte in the data section."""
        offset = 0
        for tensor in self.tensors:
            yield tensor, offset
            offset += tensor.content.size


def header_of(file: OutputFile) -> bytes:
    """Everything that comes before the first tensor."""
    header: dict[str, Any] = {} if file.metadata is None else {"__metadata__": dict(file.metadata)}
    for tensor, offset in file.offsets():
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.content.size],
        }
    encoded = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    padding = _padding(8 + len(encoded), _wanted_start(file))
    return struct.pack("<Q", len(encoded) + padding) + encoded + b" " * padding


def _padding(end: int, wanted: int) -> int:
    """Bytes that move ``end`` to ``wanted`` in a page; to the format's alignment only, where that breaks it."""
    return -end % _ALIGNMENT if wanted % _ALIGNMENT else (wanted - end) % PAGE


def _wanted_start(file: OutputFile) -> int:
    """Where in a page the data must begin for the longest copied stretch to have the same place in its pages."""
    longest, wanted, run, last = 0, 0, 0, None
    for tensor, offset in file.offsets():
        last, before = tensor.content.tensor if isinstance(tensor.content, Copy) else None, last
        if last is None:
            continue
        run = (run if before is not None and _adjoin(before, last) else 0) + tensor.content.size
        if run > longest:
            longest, wanted = run, last.start - offset
    return wanted % PAGE


def _adjoin(first: TensorInfo, second: TensorInfo) -> bool:
    return (first.file, first.stop) == (second.file, second.start)


def expected_tensors(file: OutputFile, path: Path, data_start: int) -> dict[str, TensorInfo]:
    """What a reader must find in the header of the written file."""
    return {
        tensor.name: TensorInfo(
            name=tensor.name,
            dtype=tensor.dtype,
            shape=tensor.shape,
            file=path,
            start=data_start + offset,
            stop=data_start + offset + tensor.content.size,
        )
        for tensor, offset in file.offsets()
    }
