"""Owns what a format is and how one is chosen. One module beside this one for each trainer's dialect.

A format claims a draft by facts of its tensors and config (never by a name alone) and reads it into canonical form.
Third parties register theirs under the entry-point group ``eagle3_adapters.formats``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from eagle3_adapters.errors import FindingsError, UnmappedKeyError, fault
from eagle3_adapters.values import DraftContent, DraftModel, FormatReading, FormatWriting


class Format(Protocol):
    """One trainer's dialect."""

    name: str
    #: One line for ``eagle3-adapters adapters``.
    title: str
    #: What identifies a file of this format, for the message when none does.
    looks_for: str

    def claim(self, draft: DraftModel) -> tuple[str, ...]:
        """Facts of this file that identify the format; empty where it is not one."""

    def read(self, draft: DraftModel) -> FormatReading:
        """The canonical draft and everything that the dialect leaves unsaid. Raises FindingsError."""

    def write(self, content: DraftContent) -> FormatWriting:
        """A draft in this dialect's words; what it has no words for is left out. Raises FindingsError (target-needed).

        ``convert`` reads the result back with :meth:`read` and refuses whatever differs, so nothing is lost in silence.
        """


def why_not_eagle3(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Why tensors (name -> shape) are no EAGLE-3 head; empty where they are one.

    An EAGLE-3 head has an ``fc`` that maps n states of the target to its hidden size, and a first layer whose query
    projection (``q_proj``, or the two projections to latents) reads twice the hidden size.
    """
    parallel = next((name for name in shapes if _ends(name, "mask_hidden")), None)
    if parallel is not None:
        return f"{parallel}, which a P-EAGLE head has: it drafts all tokens at once"
    joins = {name: shape for name, shape in shapes.items() if _ends(name, "fc.weight")}
    queries = {
        name: shape
        for name, shape in shapes.items()
        if any(_ends(name, f"self_attn.{part}.weight") for part in ("q_proj", "q_a_proj", "kv_a_proj_with_mqa"))
    }
    if not joins:
        return "no fc.weight"
    fc_name, fc_shape = next(iter(joins.items()))
    if len(fc_shape) != 2:
        return f"{fc_name} has shape {list(fc_shape)}"
    if not queries:
        return "no self_attn.q_proj.weight"
    if all(len(shape) != 2 or shape[1] != 2 * fc_shape[0] for shape in queries.values()):
        name, shape = next(iter(queries.items()))
        return f"{name} has shape {list(shape)}, an EAGLE-3 first layer reads {2 * fc_shape[0]} columns"
    return ""


def _lacks_only_fc(shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """A first layer that reads twice what it writes, but no fc: an incomplete head, told with its other tensors."""
    query = shapes.get("layers.0.self_attn.q_proj.weight", ())
    output = shapes.get("layers.0.self_attn.o_proj.weight", ())
    return "fc.weight" not in shapes and query[-1:] == tuple(2 * size for size in output[:1]) and bool(query)


def _ends(name: str, suffix: str) -> bool:
    return name == suffix or name.endswith("." + suffix)


def _not_eagle3(draft: DraftModel, reason: str) -> FindingsError:
    return FindingsError(
        [
            fault(
                "not-eagle3",
                draft.path,
                "an EAGLE-3 head: fc [h, n*h] and a first layer that reads 2h",
                reason,
                remedy="other heads: --speculative-algorithm EAGLE or NEXTN without --eagle3-adapter; "
                "an EAGLE-3 head under tensor names of its own: --eagle3-format NAME",
            )
        ]
    )


def read(draft: DraftModel, format_: Format) -> FormatReading:
    """Read a draft, and check by its canonical names that it is an EAGLE-3 head. Raises FindingsError (not-eagle3)."""
    reading = format_.read(draft)
    shapes: dict[str, tuple[int, ...]] = {}
    strangers = False
    for name, tensor in reading.draft.tensors.items():
        try:
            canonical = reading.keys.apply(name)
        except UnmappedKeyError:
            # Told with all the other tensors, unless it makes the head another kind of head.
            if _ends(name, "mask_hidden"):
                shapes[name] = tensor.shape
            strangers = True
            continue
        if isinstance(canonical, str):
            shapes[canonical] = tensor.shape
    reason = why_not_eagle3(shapes)
    # Where names are unknown, the missing ones may be among them: that is told name by name.
    renamed = strangers and reason.startswith("no ")
    if reason and not renamed and not _lacks_only_fc(shapes):
        raise _not_eagle3(draft, reason)
    return reading


def choose(draft: DraftModel, formats: Iterable[Format]) -> Format:
    """The one format that claims a draft. Raises FindingsError: not-eagle3, format-unknown or format-ambiguous."""
    candidates = tuple(formats)
    claims = {format_.name: format_.claim(draft) for format_ in candidates}
    claimed = [format_ for format_ in candidates if claims[format_.name]]
    if len(claimed) == 1:
        return claimed[0]
    if not claimed:
        reason = why_not_eagle3({name: tensor.shape for name, tensor in draft.tensors.items()})
        if reason:
            raise _not_eagle3(draft, reason)
        looked = "; ".join(f"{format_.name}: {format_.looks_for}" for format_ in candidates)
        found = f"architectures {draft.config.get('architectures')!r}, config keys {sorted(draft.config)[:8]}"
        raise FindingsError(
            [
                fault(
                    "format-unknown",
                    draft.config_file,
                    f"one of the known formats ({looked})",
                    found,
                    remedy="name it: --eagle3-format NAME  (eagle3-adapters adapters lists the names)",
                )
            ]
        )
    names = ", ".join(format_.name for format_ in claimed)
    raise FindingsError(
        [
            fault(
                "format-ambiguous",
                draft.config_file,
                "facts of one format",
                "; ".join(f"{format_.name}: {', '.join(claims[format_.name])}" for format_ in claimed),
                remedy=f"name it: --eagle3-format NAME  with one of {names}",
            )
        ]
    )
