"""Owns which tensors a converted draft has: names, order of columns, rows of the head, vocabulary maps."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path

import attrs

from eagle3_adapters import canonical
from eagle3_adapters.boundaries import Ids, is_reordered
from eagle3_adapters.conversion.content import Understood, is_unread
from eagle3_adapters.conversion.pieces import Columns, Content, Copy, Made, OutputTensor, Rows
from eagle3_adapters.errors import UnmappedKeyError
from eagle3_adapters.report import Report
from eagle3_adapters.values import FormatWriting, MapTensors, TensorInfo
from eagle3_adapters.vocab import VocabEncoding, VocabMap


@attrs.frozen(kw_only=True)
class Placed:
    """One tensor of the result: the source file that its output file is named after, and what it is canonically."""

    beside: Path
    canonical: str
    output: OutputTensor


def order_of(understood: Understood, writing: FormatWriting) -> Ids:
    """Block p of the result's fc is the source's block ``order[p]``."""
    listed = understood.content.boundaries
    if listed is None:
        return ()
    wanted = listed if writing.listed_order else tuple(sorted(listed))
    return tuple(listed.index(k) for k in wanted)


def convert_tensors(understood: Understood, writing: FormatWriting, report: Report) -> tuple[Placed, ...]:
    """Every tensor of the result, in the order of the source's bytes; findings for those that it cannot hold."""
    if _another_kind(understood, writing, report):
        return ()
    order = order_of(understood, writing)
    placed: list[Placed] = []
    back = writing.keys.inverse()
    in_order = sorted(understood.names, key=lambda name: _place(understood.reading.draft.tensors[name]))
    for source in in_order:
        name = understood.names[source]
        tensor = understood.reading.draft.tensors[source]
        if name in canonical.VOCABULARY:
            continue
        renamed = _renumbered(name, order)
        try:
            own = back.apply(renamed)
        except UnmappedKeyError:
            _tell_unheld(understood, source, name, writing, report)
            continue
        content = _content(tensor, name, order, understood)
        output = OutputTensor(name=str(own), dtype=tensor.dtype, shape=content.shape, content=content)
        placed.append(Placed(beside=tensor.file, canonical=renamed, output=output))
    if canonical.LM_HEAD not in understood.names.values() and not writing.shares_head:
        report.error(
            "not-representable",
            f"{understood.draft.path}: {canonical.LM_HEAD}",
            "a head of the draft's own, which every file of this format has",
            "none: the draft shares the target's",
            why="its loader would leave a random head in its place",
            remedy="--to sglang, whose files may leave it out",
        )
    placed.extend(_maps(understood, writing, report))
    return tuple(placed)


def _another_kind(understood: Understood, writing: FormatWriting, report: Report) -> bool:
    """Drafts that this trainer does not make at all: told once, not tensor by tensor."""
    content = understood.content
    told = Report()
    for can, has, what in (
        (writing.depth, content.depth, "decoder layers"),
        (writing.states, content.states, "states that fc reads"),
    ):
        if can is not None and has != can:
            _tell_kind(understood, writing, f"{can} {what}", str(has), told)
    if content.latent and not writing.latent:
        _tell_kind(understood, writing, "q_proj, k_proj and v_proj", "latent (MLA) attention", told)
    report.extend(told.findings)
    return told.failed()


def _tell_kind(understood: Understood, writing: FormatWriting, can: str, has: str, report: Report) -> None:
    report.error(
        "not-representable",
        str(understood.draft.path),
        f"{can}, as every draft of {writing.keys.owner} has",
        has,
        why="its own loader could not build the draft",
        remedy="choose a format that can: eagle3-adapters adapters lists them",
    )


def _place(tensor: TensorInfo) -> tuple[str, int]:
    return str(tensor.file), tensor.start


def _renumbered(name: str, order: Ids) -> str:
    """State j of the source is state p of the result, where ``order[p]`` is j."""
    if not is_reordered(order) or not name.startswith("fc_norm."):
        return name
    return f"fc_norm.{order.index(int(name.split('.')[1]))}.weight"


def _content(tensor: TensorInfo, name: str, order: Ids, understood: Understood) -> Copy | Columns | Rows:
    if name in ("fc.weight", canonical.INPUT_NORM) and is_reordered(order):
        return Columns(tensor=tensor, order=order)
    vocabulary = understood.vocabulary
    if name == canonical.LM_HEAD and vocabulary is not None and tensor.shape[0] != len(vocabulary.target_ids):
        # A head of the whole vocabulary beside a map: the rows of the draft's tokens.
        return Rows(tensor=tensor, rows=tuple(vocabulary.target_ids))
    return Copy(tensor=tensor)


def _tell_unheld(understood: Understood, source: str, name: str, writing: FormatWriting, report: Report) -> None:
    where = f"{understood.draft.path}: {source}"
    if is_unread(name):
        report.info("weight-unread", where, "tensors that are read", "a norm that no class applies; left out")
        return
    own = name == canonical.EMBEDDING
    report.error(
        "not-representable",
        where,
        f"a tensor that a file of {writing.keys.owner} can hold",
        "an embedding of the draft's own" if own else f"{name}, for which it has no name",
        why="the result would compute something else",
        remedy="--target TARGET: it may go where it equals the target's" if own else "choose another format",
    )


def _maps(understood: Understood, writing: FormatWriting, report: Report) -> Iterator[Placed]:
    """``d2t`` and ``t2d`` as the dialect has them: copied where they are the same, made where they are not."""
    vocabulary, draft = understood.vocabulary, understood.draft
    present = {name: draft.tensors[name] for name in canonical.VOCABULARY if name in draft.tensors}
    if vocabulary is None and writing.maps is not MapTensors.ALWAYS:
        if present:
            names = " and ".join(present)
            report.info(
                "vocab-map-identity",
                f"{draft.path}: {names}",
                "a map where the vocabulary is reduced",
                "the identity; left out",
            )
        return
    size = draft.config["vocab_size"]
    whole = vocabulary or VocabMap(range(size), size)
    offsets, mask = present.get("d2t"), present.get("t2d")
    # What is made here goes where the other half of the map is, else to the head that it belongs to.
    beside = (offsets or mask or draft.tensors.get(canonical.LM_HEAD) or next(iter(draft.tensors.values()))).file
    if offsets is not None and draft.vocab_encoding is writing.vocab_encoding:
        yield _map(offsets.file, writing, "d2t", offsets.dtype, Copy(tensor=offsets), len(whole.target_ids))
    else:
        yield _map(beside, writing, "d2t", "I64", _made(whole.encode(writing.vocab_encoding)), len(whole.target_ids))
    if writing.maps is MapTensors.OFFSETS_ONLY or writing.vocab_encoding is VocabEncoding.ABSOLUTE:
        return
    if mask is not None and mask.shape == (size,):
        yield _map(mask.file, writing, "t2d", mask.dtype, Copy(tensor=mask), size)
        return
    chosen = bytearray(size)
    for target_id in whole.target_ids:
        chosen[target_id] = 1
    yield _map(beside, writing, "t2d", "BOOL", Made(data=bytes(chosen)), size)


def _map(beside: Path, writing: FormatWriting, name: str, dtype: str, content: Content, length: int) -> Placed:
    own = str(writing.keys.inverse().apply(name))
    return Placed(
        beside=beside,
        canonical=name,
        output=OutputTensor(name=own, dtype=dtype, shape=(length,), content=content),
    )


def _made(values: array[int]) -> Made:
    little = array("q", values)
    if memoryview(array("H", [1])).cast("B")[0] == 0:
        little.byteswap()
    return Made(data=little.tobytes())
