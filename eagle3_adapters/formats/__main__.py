"""``python -m eagle3_adapters.formats`` prints the table of installed formats that stands in README.md.

Every cell is asked of the format itself: a plain draft is written and read back, once for each flag.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import attrs

from eagle3_adapters import canonical
from eagle3_adapters.boundaries import OUTPUT_OF_LAYER
from eagle3_adapters.formats import Format
from eagle3_adapters.registry import Registry
from eagle3_adapters.values import DraftContent, DraftMath, DraftModel, FormatWriting, TensorInfo

_COLUMNS = (
    "format",
    "written by",
    "recognised by",
    "layer",
    "layers",
    "states",
    "MLA",
    "math flags",
    "d2t, t2d",
    "own embedding",
)
_LAYER = "layers.0.mlp.up_proj.weight"
_PLAIN = DraftContent(
    config={"hidden_size": 8, "vocab_size": 8, "bos_token_id": 1, "eos_token_id": 2},
    math=DraftMath(),
    boundaries=None,
    id_rule=OUTPUT_OF_LAYER,
    tensors=frozenset((*canonical.CORE, *(f"layers.0.{name}" for name in canonical.LLAMA_LAYER))),
    states=3,
    depth=1,
)


def table(formats: Iterable[Format]) -> str:
    """Markdown: one row a format."""
    rows = [_COLUMNS, tuple("---" for _ in _COLUMNS), *(_row(one) for one in formats)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(format_: Format) -> tuple[str, ...]:
    written = format_.write(_PLAIN)
    own = str(written.keys.inverse().apply(_LAYER)).removesuffix(".mlp.up_proj.weight")
    flags = [flag for flag in attrs.fields_dict(DraftMath) if _keeps(format_, flag)]
    embedding = any(written.keys.takes(f"{root}{canonical.EMBEDDING}") for root in ("", "model."))
    return (
        f"`{format_.name}`",
        format_.title,
        format_.looks_for,
        f"`{own}`",
        str(written.depth or "any"),
        str(written.states or "any"),
        "yes" if written.latent else "no",
        ", ".join(f"`{flag}`" for flag in flags) or "none",
        written.maps.value,
        "yes" if embedding else "no",
    )


def _keeps(format_: Format, flag: str) -> bool:
    """Whether a draft with one flag comes back with it."""
    content = attrs.evolve(_PLAIN, math=DraftMath(**{flag: True}))
    written = format_.write(content)
    back = format_.read(DraftModel(path=Path("draft"), config=written.config, tensors=_tensors(written)))
    return bool(getattr(back.math, flag))


def _tensors(written: FormatWriting) -> dict[str, TensorInfo]:
    inverse = written.keys.inverse()
    names = [str(inverse.apply(name)) for name in _PLAIN.tensors]
    return {name: TensorInfo(name=name, dtype="F32", shape=(8,), file=Path("draft"), start=0, stop=0) for name in names}


if __name__ == "__main__":
    registry = Registry.installed()
    print(table(registry.format(one.name) for one in registry.formats if one.distribution == "eagle3-adapters"))  # noqa: T201 - a program
