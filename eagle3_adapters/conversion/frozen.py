"""Owns the embedding: a copy of the target's goes where the other dialect's files hold none; one that lacks is told."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from eagle3_adapters import canonical
from eagle3_adapters.checkpoint import read_tensors
from eagle3_adapters.conversion.content import Understood
from eagle3_adapters.embedding import TARGET_EMBEDDINGS
from eagle3_adapters.errors import FindingsError, UnmappedKeyError
from eagle3_adapters.report import Report
from eagle3_adapters.values import FormatWriting, TensorInfo

_CHUNK = 1 << 20


def without_copy(understood: Understood, writing: FormatWriting, report: Report) -> Understood:
    """The draft without its embedding, where the result cannot hold it and it equals the target's byte for byte."""
    target = understood.content.target
    own = next((name for name, known in understood.names.items() if known == canonical.EMBEDDING), None)
    if own is None or target is None or _holds(writing):
        return understood
    try:
        theirs = _embedding_of(read_tensors(target.path))
    except FindingsError:
        return understood  # a target without weights at hand: nothing is proved
    mine = understood.reading.draft.tensors[own]
    if theirs is None or not _same_bytes(mine, theirs):
        return understood
    report.info(
        "embedding-copy",
        f"{understood.draft.path}: {own}",
        "no embedding in a file of this format",
        f"a copy of the target's {theirs.name}, byte for byte; left out",
    )
    names = {name: known for name, known in understood.names.items() if name != own}
    return attrs.evolve(understood, names=names)


def tell_missing(understood: Understood, writing: FormatWriting, report: Report) -> None:
    """A file without an embedding, which engines take from the target and the trainer's loader does not."""
    if writing.needs_embedding and canonical.EMBEDDING not in understood.names.values():
        report.info(
            "embedding-not-stored",
            f"{understood.draft.path}: {canonical.EMBEDDING}",
            "an embedding in the file, where the trainer's own loader is to read it",
            "none: SGLang and vLLM take the target's, the trainer's loader leaves it as memory was",
            remedy="to train on, load the target's embedding into the model after the draft",
        )


def _holds(writing: FormatWriting) -> bool:
    try:
        writing.keys.inverse().apply(canonical.EMBEDDING)
    except UnmappedKeyError:
        return False
    return True


def _embedding_of(tensors: Mapping[str, TensorInfo]) -> TensorInfo | None:
    return next((tensors[name] for name in TARGET_EMBEDDINGS if name in tensors), None)


def _same_bytes(left: TensorInfo, right: TensorInfo) -> bool:
    if (left.dtype, left.shape) != (right.dtype, right.shape):
        return False
    with left.file.open("rb") as one, right.file.open("rb") as other:
        one.seek(left.start)
        other.seek(right.start)
        remaining = left.stop - left.start
        while remaining > 0:
            size = min(_CHUNK, remaining)
            if one.read(size) != other.read(size):
                return False
            remaining -= size
    return True
