"""Owns reading a checkpoint without its weights: config.json, the index, safetensors headers, single small tensors.

Standard library only. Nothing is unpickled, nothing outside the checkpoint is opened, and every size that a file claims
is checked against the file before memory is allocated for it.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eagle3_adapters.errors import CheckpointError, fault
from eagle3_adapters.values import Config, DraftModel, TargetModel, TensorInfo

CONFIG = "config.json"
QUANTIZATION = "hf_quant_config.json"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
#: The safetensors specification's own limit for a header.
_MAX_HEADER = 100_000_000
_MAX_CONFIG = 50_000_000
#: Bytes of one element, by safetensors dtype.
ITEM_SIZE = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E4M3FN": 1, "F8_E8M0": 1, "I16": 2, "U16": 2}
ITEM_SIZE |= {"F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8}
_INTEGER_CODE = {"I64": "q", "I32": "i", "I16": "h", "I8": "b", "U8": "B", "BOOL": "B"}
#: Keys under which wrapper configs nest the text model, in the order in which SGLang's get_hf_text_config looks.
_TEXT_KEYS = ("text_config", "language_config", "llm_config", "thinker_config")


def _fail(code: str, where: object, expected: str, found: str, remedy: str = "") -> CheckpointError:
    return CheckpointError(
        [
            fault(
                code,
                where,
                expected,
                found,
                remedy=remedy,
            )
        ]
    )


def unreadable(where: object, expected: str, found: str, remedy: str) -> CheckpointError:
    """checkpoint-unreadable, for whoever finds checkpoints."""
    return _fail("checkpoint-unreadable", where, expected, found, remedy)


def read_config(directory: Path, name: str = CONFIG) -> dict[str, Any]:
    """The config.json of a checkpoint directory, or another JSON object in it. CheckpointError: config-unreadable."""
    file = directory / name
    remedy = f"check that {directory} is a complete checkpoint directory"
    if not file.is_file():
        raise _fail("config-unreadable", file, "a regular file", "none", remedy)
    if file.stat().st_size > _MAX_CONFIG:
        raise _fail("config-unreadable", file, f"at most {_MAX_CONFIG} bytes", f"{file.stat().st_size}", remedy)
    try:
        # utf-8-sig: two trainers have written configs with a byte order mark.
        text = file.read_text(encoding="utf-8-sig")
        if text.startswith("version https://git-lfs"):
            raise _fail("config-unreadable", file, "JSON", "a git-lfs pointer", f"git lfs pull --include {file.name}")
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _fail("config-unreadable", file, "JSON in UTF-8", f"{type(error).__name__}: {error}", remedy) from error
    except OSError as error:
        raise _fail("config-unreadable", file, "a readable file", str(error), remedy) from error
    if not isinstance(config, dict):
        raise _fail("config-unreadable", file, "a JSON object", type(config).__name__, remedy)
    return config


def integer(config: Config, key: str, file: Path) -> int:
    """A required positive integer field. Raises CheckpointError: no default is ever invented."""
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _fail(
            "config-unreadable", f"{file}: {key}", "a positive integer", json.dumps(value), f'set "{key}" in {file}'
        )
    return value


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        msg = "a key stands twice"
        raise ValueError(msg)
    return result


def read_header(file: Path) -> dict[str, TensorInfo]:
    """All tensors of one safetensors file, by name. Reads the header only. Raises CheckpointError."""
    header, data_start, size = _raw_header(file)
    header.pop("__metadata__", None)
    try:
        tensors = {name: _tensor(name, entry, file, data_start) for name, entry in header.items()}
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(file, "a safetensors header", f"{type(error).__name__}: {error}") from error
    for tensor in tensors.values():
        if tensor.stop > size:
            found = f"{tensor.name} ends at byte {tensor.stop}"
            raise _damaged(file, f"tensors within {size} bytes (truncated?)", found)
    return tensors


def read_metadata(file: Path) -> dict[str, str] | None:
    """What a safetensors file says of itself (``__metadata__``), None where nothing. Raises CheckpointError."""
    metadata = _raw_header(file)[0].get("__metadata__")
    if metadata is None:
        return None
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _damaged(file, "__metadata__ that holds strings", json.dumps(metadata)[:80])
    return metadata


def _damaged(file: Path, expected: str, found: str) -> CheckpointError:
    remedy = f"copy {file.name} again; its size or header is damaged"
    return _fail("checkpoint-unreadable", file, expected, found, remedy)


def _raw_header(file: Path) -> tuple[dict[str, Any], int, int]:
    """The header as JSON, where the data begin, and the size of the file."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            prefix = stream.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else size
            raw = stream.read(length) if length <= min(_MAX_HEADER, size - 8) else b""
    except OSError as error:
        raise _damaged(file, "a readable file", str(error)) from error
    if prefix == b"version ":
        raise unreadable(file, "the weights", "a git-lfs pointer to them", f"git lfs pull --include {file.name}")
    if not raw:
        raise _damaged(file, "a safetensors header within the file", f"{length} bytes of header in a file of {size}")
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_reject_duplicates)
    except (ValueError, RecursionError) as error:
        raise _damaged(file, "a safetensors header", f"{type(error).__name__}: {error}") from error
    if not isinstance(header, dict):
        raise _damaged(file, "a safetensors header", f"TypeError: {type(header).__name__} instead of an object")
    return header, 8 + length, size


def _tensor(name: str, entry: Mapping[str, Any], file: Path, data_start: int) -> TensorInfo:
    shape = tuple(entry["shape"])
    start, stop = entry["data_offsets"]
    numbers = (*shape, start, stop)
    if any(isinstance(number, bool) or not isinstance(number, int) or number < 0 for number in numbers):
        msg = f"{name}: shape and offsets must be non-negative integers"
        raise TypeError(msg)
    count = 1
    for dimension in shape:
        count *= dimension
    item = ITEM_SIZE.get(entry["dtype"])
    # Sub-byte dtypes are left to the engine: this package never reads them.
    if stop < start or (item is not None and stop - start != count * item):
        msg = f"{name}: {stop - start} bytes do not hold {list(shape)} of {entry['dtype']}"
        raise ValueError(msg)
    return TensorInfo(
        name=name, dtype=entry["dtype"], shape=shape, file=file, start=data_start + start, stop=data_start + stop
    )


def _check_inside(directory: Path, file: Path) -> None:
    """A link may lead into the same Hub repository's blobs, nowhere else."""
    try:
        real, root = file.resolve(), directory.resolve()
    except RuntimeError as error:  # a link that leads to itself
        raise _fail("checkpoint-unreadable", file, "a file", str(error), "download the checkpoint again") from error
    blobs = root.parent.parent / "blobs"
    if root not in real.parents and not (root.parent.name == "snapshots" and blobs in real.parents):
        raise _fail("shard-escape", file, f"a file inside {directory}", str(real), "copy the file into the checkpoint")


def weight_files(directory: Path) -> tuple[Path, ...]:
    """The safetensors files of a checkpoint, as SGLang's loader picks them: those that the index names, else all."""
    index = directory / INDEX
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            found = f"{type(error).__name__}: {error}"
            raise _fail("checkpoint-unreadable", index, 'an object "weight_map" of file names', found) from error
        for name in names:
            if not isinstance(name, str) or Path(name).name != name:
                raise _fail("shard-escape", index, "plain file names", json.dumps(name), "write the index again")
            if not (directory / name).exists():
                raise _fail("shard-missing", index, f"{name} in {directory}", "no such file", f"download {name}")
        files = [directory / name for name in names]
    else:
        files = sorted(directory.glob("*.safetensors"))
    if not files:
        pickles = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in directory.glob(pattern))
        if pickles:
            raise _fail(
                "pickle-refused",
                directory,
                "safetensors weights",
                f"only {', '.join(pickles[:3])}",
                "convert them with the trainer's own export; this package never unpickles",
            )
        raise _fail("checkpoint-unreadable", directory, "safetensors files", "none", "download the checkpoint again")
    for file in files:
        _check_inside(directory, file)
    return tuple(files)


def read_tensors(directory: Path) -> dict[str, TensorInfo]:
    """All tensors of a checkpoint by name, headers only. Raises CheckpointError, also where two files hold one name."""
    tensors: dict[str, TensorInfo] = {}
    for file in weight_files(directory):
        for name, tensor in read_header(file).items():
            if name in tensors:
                where = f"{directory}: {name}"
                found = f"in {tensors[name].file.name} and {file.name}"
                raise _fail("weight-collision", where, "one tensor of this name", found, "remove the stale file")
            tensors[name] = tensor
    return tensors


def read_integers(tensor: TensorInfo) -> Sequence[int]:
    """The values of a small integer or bool tensor (``d2t``, ``t2d``), flat."""
    code = _INTEGER_CODE.get(tensor.dtype)
    if code is None:
        raise _fail("checkpoint-unreadable", f"{tensor.file}: {tensor.name}", "an integer or bool tensor", tensor.dtype)
    values = array(code)
    with tensor.file.open("rb") as stream:
        stream.seek(tensor.start)
        values.frombytes(stream.read(tensor.stop - tensor.start))
    if struct.pack("=H", 1) != struct.pack("<H", 1):
        values.byteswap()
    return values


def _text_part(config: Config) -> Config:
    for key in _TEXT_KEYS:
        nested = config.get(key)
        if isinstance(nested, dict) and "num_hidden_layers" in nested:
            return nested
    return config


def _num_layers(text: Config, file: Path) -> int:
    """How many layers; newer files of hybrid targets (Nemotron 3 Ultra) tell the kind of each and no number."""
    kinds = text.get("layers_block_type")
    if "num_hidden_layers" not in text and isinstance(kinds, list) and kinds:
        return len(kinds)
    return integer(text, "num_hidden_layers", file)


def read_target(directory: Path) -> TargetModel:
    """The target of a directory, from its config.json alone. Raises CheckpointError."""
    config = read_config(directory)
    file = directory / CONFIG
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
        found = json.dumps(architectures)
        raise _fail("config-unreadable", f"{file}: architectures", "a list of one class name", found)
    text = _text_part(config)
    return TargetModel(
        path=directory,
        architecture=architectures[0],
        config=config,
        text=text,
        num_layers=_num_layers(text, file),
        hidden_size=integer(text, "hidden_size", file),
        vocab_size=integer(text if "vocab_size" in text else config, "vocab_size", file),
    )


def read_draft(directory: Path) -> DraftModel:
    """The draft of a directory: config and headers, names as in the files. Raises CheckpointError."""
    beside = read_config(directory, QUANTIZATION) if (directory / QUANTIZATION).exists() else None
    return DraftModel(
        path=directory,
        config=read_config(directory),
        tensors=read_tensors(directory),
        quantization_file=beside,
    )
