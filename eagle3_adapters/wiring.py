"""Owns the wiring plan: the fully resolved answer for one (target, draft, adapter, format, engine version).

It is data that crosses processes as JSON. Everything that serves, converts or rehearses a draft reads it and decides
nothing more.
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import Any, Literal

import attrs

from eagle3_adapters.boundaries import Ids, describe_all, is_reordered
from eagle3_adapters.canonical import EMBEDDING
from eagle3_adapters.errors import Finding, Severity
from eagle3_adapters.values import CaptureSite, DraftMath, EmbedCapture
from eagle3_adapters.vocab import VocabEncoding

#: What happens to a tensor on its way: nothing; its column blocks (one for each state) reordered; ids made offsets.
Transform = Literal["none", "columns", "offsets"]


@attrs.frozen(kw_only=True)
class TensorRoute:
    """Where one tensor of the file goes: to a name of SGLang's draft class, or nowhere for a reason."""

    #: Name in the file, and the canonical name (states counted in the trainer's order).
    source: str
    canonical: str
    target: str | None
    #: Why it is dropped; empty where it is not.
    reason: str = ""
    transform: Transform = "none"


@attrs.frozen(kw_only=True)
class Unfilled:
    """A parameter of the draft class that no tensor fills, rightly."""

    parameter: str
    reason: str


@attrs.frozen(kw_only=True)
class WiringPlan:
    """How one draft is wired to one target."""

    adapter: str
    #: ``eagle3-adapters-llama 0.1.0``
    adapter_origin: str
    format: str
    engine: str
    target_path: Path
    target_architecture: str
    num_layers: int
    draft_path: Path
    #: The class that serves the draft, by its name in draft_classes.py: SGLang's own or ours.
    draft_class: str
    #: Captured boundaries, ascending: the order in which SGLang concatenates them.
    boundaries: Ids
    #: Those of them that the target's class does not capture and this package does: 0, N, both or none.
    injected: Ids
    #: Chunk p of what SGLang concatenates belongs to column block ``column_order[p]`` of the trained ``fc``.
    column_order: Ids
    #: Width of one state: the target's hidden size.
    state_width: int
    routes: tuple[TensorRoute, ...]
    unfilled: tuple[Unfilled, ...]
    vocab_encoding: VocabEncoding | None
    target_vocab_size: int
    draft_vocab_size: int
    math: DraftMath
    capture: CaptureSite
    embed: EmbedCapture
    #: The config.json that SGLang must see, without the private architecture name.
    config: dict[str, Any] = attrs.field(repr=False)

    @property
    def draft_architecture(self) -> str:
        """The name by which SGLang's configuration knows the draft: that of its own class, whoever serves it."""
        architecture: str = self.config["architectures"][0]
        return architecture

    @property
    def keeps_embedding(self) -> bool:
        """Whether the draft's own embedding is loaded and stays."""
        return any(route.canonical == EMBEDDING and route.target is not None for route in self.routes)

    @property
    def permuted(self) -> bool:
        """Whether the trained ``fc`` expects another order than SGLang's."""
        return is_reordered(self.column_order)

    @property
    def native(self) -> Ids:
        """The boundaries that go into the class's own list."""
        return tuple(boundary for boundary in self.boundaries if boundary not in self.injected)

    def summary(self) -> str:
        """One line that says what was wired."""
        vocabulary = (
            f"{self.draft_vocab_size} of {self.target_vocab_size} tokens"
            if self.vocab_encoding
            else f"all {self.target_vocab_size} tokens"
        )
        loaded = sum(route.target is not None for route in self.routes)
        order = f", fc columns reordered {list(self.column_order)}" if self.permuted else ""
        injected = f", {list(self.injected)} injected" if self.injected else ""
        return (
            f"{self.adapter} x {self.format} -> {self.draft_class}: boundaries {list(self.boundaries)} = "
            f"{describe_all(self.boundaries, self.num_layers)}{injected}{order}; {loaded} tensors loaded, "
            f"{len(self.routes) - loaded} dropped with a reason; vocabulary {vocabulary}"
        )

    def to_json(self) -> str:
        """Stable JSON: the same plan gives the same text."""
        return json.dumps(_converter().unstructure(self), sort_keys=True, indent=1)

    @classmethod
    def from_json(cls, text: str) -> WiringPlan:
        """Read :meth:`to_json` back. Raises ValueError or cattrs' errors where it is something else."""
        plan: WiringPlan = _converter().structure(json.loads(text), cls)
        return plan

    def fingerprint(self) -> str:
        """Names the plan in the cache and in the translated config."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]


@functools.cache
def _converter() -> Any:  # noqa: ANN401 - cattrs is imported late and is not part of the interface
    # Late: reading headers and printing findings must not pay for it.
    import cattrs  # noqa: PLC0415

    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_unstructure_hook(Path, str)
    converter.register_structure_hook(Path, lambda value, _: Path(value))
    return converter


@attrs.frozen(kw_only=True)
class Planning:
    """What planning came to: all findings, most urgent first, and the plan unless one of them is an error."""

    findings: tuple[Finding, ...]
    plan: WiringPlan | None

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that stop."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)
