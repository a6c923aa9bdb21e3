"""Owns what a format is and how one is chosen. One module beside this one for each trainer's dialect.

A format claims a draft by facts of its tensors and config (never by a name alone) and reads it into canonical form.
Third parties register theirs under the entry-point group ``eagle3_adapters.formats``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from eagle3_adapters.errors import Finding, FindingsError, Severity
from eagle3_adapters.values import DraftModel, FormatReading


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


def is_eagle3(draft: DraftModel) -> str:
    """Why a draft is not an EAGLE-3 head, by its tensors; empty where it is one.

    An EAGLE-3 head has an ``fc`` that maps n states of the target to its hidden size, and a first layer whose query
    projection (``q_proj``, or ``q_a_proj`` with latent attention) reads twice the hidden size.
    """
    by_suffix: dict[str, list[tuple[str, tuple[int, ...]]]] = {
        suffix: [] for suffix in ("fc.weight", "self_attn.q_proj.weight", "self_attn.q_a_proj.weight")
    }
    for name, tensor in draft.tensors.items():
        for suffix, found in by_suffix.items():
            if name == suffix or name.endswith("." + suffix):
                found.append((name, tensor.shape))
    if not by_suffix["fc.weight"]:
        return "no fc.weight"
    fc_name, fc_shape = by_suffix["fc.weight"][0]
    if len(fc_shape) != 2:
        return f"{fc_name} has shape {list(fc_shape)}"
    queries = by_suffix["self_attn.q_proj.weight"] + by_suffix["self_attn.q_a_proj.weight"]
    if not queries:
        return "no self_attn.q_proj.weight"
    hidden = fc_shape[0]
    if all(len(shape) != 2 or shape[1] != 2 * hidden for _, shape in queries):
        name, shape = queries[0]
        return f"{name} has shape {list(shape)}, an EAGLE-3 first layer reads {2 * hidden} columns"
    return ""


def choose(draft: DraftModel, formats: Iterable[Format]) -> Format:
    """The one format that claims a draft. Raises FindingsError: not-eagle3, format-unknown, format-ambiguous."""
    reason = is_eagle3(draft)
    if reason:
        raise FindingsError(
            [
                Finding(
                    code="not-eagle3",
                    severity=Severity.ERROR,
                    where=str(draft.path),
                    expected="an EAGLE-3 head: fc [h, n*h] and a first layer that reads 2h",
                    found=reason,
                    remedy="use --speculative-algorithm EAGLE or NEXTN without --eagle3-adapter for other heads",
                )
            ]
        )
    candidates = tuple(formats)
    claims = {format_.name: format_.claim(draft) for format_ in candidates}
    claimed = [format_ for format_ in candidates if claims[format_.name]]
    if len(claimed) == 1:
        return claimed[0]
    if not claimed:
        looked = "; ".join(f"{format_.name}: {format_.looks_for}" for format_ in candidates)
        found = f"architectures {draft.config.get('architectures')!r}, config keys {sorted(draft.config)[:8]}"
        raise FindingsError(
            [
                Finding(
                    code="format-unknown",
                    severity=Severity.ERROR,
                    where=str(draft.config_file),
                    expected=f"one of the known formats ({looked})",
                    found=found,
                    remedy="name it: --eagle3-format NAME  (eagle3-adapters adapters lists the names)",
                )
            ]
        )
    names = ", ".join(format_.name for format_ in claimed)
    raise FindingsError(
        [
            Finding(
                code="format-ambiguous",
                severity=Severity.ERROR,
                where=str(draft.config_file),
                expected="facts of one format",
                found="; ".join(f"{format_.name}: {', '.join(claims[format_.name])}" for format_ in claimed),
                remedy=f"name it: --eagle3-format NAME  with one of {names}",
            )
        ]
    )
