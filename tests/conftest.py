"""How Hypothesis runs here: no deadlines, since speed belongs in `make bench`; in CI the same examples every time."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("explore", deadline=None)
settings.register_profile("gate", deadline=None, derandomize=True)
settings.load_profile("gate" if os.environ.get("CI") else "explore")
