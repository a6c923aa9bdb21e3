"""``python -m eagle3_adapters.findings > eagle3_adapters/findings/FINDINGS.md``: the table of all codes as markdown."""

from __future__ import annotations

import sys

from eagle3_adapters.findings import EXPLANATIONS

_HEAD = """\
# Findings

Made by `python -m eagle3_adapters.findings`; edit the modules beside this file, not the table.

Severity: **E** stops the start, **W** goes on and says what it costs, **I** tells what was decided, **fixed** is
corrected by the plan and told, **served** is computed by the package's own draft class. Where several stand, the pair
decides.
`eagle3-adapters explain CODE` says who writes such files, what it costs and how to mend it.

| code | severity | what it is |
|---|---|---|
"""


def markdown() -> str:
    """The whole of FINDINGS.md."""
    rows = (f"| `{entry.code}` | {entry.severity} | {entry.title} |\n" for entry in EXPLANATIONS.values())
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(markdown())
