"""Owns Explanation, the shape of one entry of the catalogue."""

from __future__ import annotations

import attrs
from attrs.validators import and_, matches_re, max_len, min_len

#: ``E`` stops, ``W`` goes on and costs, ``I`` tells; ``fixed``: the plan corrects it; ``served``: a draft class of this
#: package computes what SGLang's cannot. Several: which one depends on the pair, and the finding says.
_SEVERITY = r"(E|W|I|fixed|served)( / (E|W|I|fixed|served))*"


@attrs.frozen(kw_only=True)
class Explanation:
    """What a code of a finding stands for, who writes such files, what it costs and how to mend it."""

    code: str = attrs.field(validator=matches_re(r"[a-z0-9]+(-[a-z0-9]+)*"))
    #: One line, without the code.
    title: str = attrs.field(validator=and_(min_len(1), max_len(80)))
    severity: str = attrs.field(validator=matches_re(_SEVERITY))
    meaning: str = attrs.field(validator=min_len(1))
    #: Trainers, exports or habits that are known to produce it; empty where none is.
    writers: tuple[str, ...] = ()
    #: Accept lengths that were reported or measured; empty where none was.
    cost: str = ""
    #: A sentence or more; lines that start with four spaces are to be pasted.
    fix: str = attrs.field(validator=min_len(1))
    #: The smallest input that shows it, verbatim.
    example: str = attrs.field(validator=min_len(1))

    @property
    def severities(self) -> frozenset[str]:
        """The parts of :attr:`severity`."""
        return frozenset(self.severity.split(" / "))
