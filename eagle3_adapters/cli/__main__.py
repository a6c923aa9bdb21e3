"""``python -m eagle3_adapters.cli``."""

from __future__ import annotations

from eagle3_adapters.cli import main

main(prog_name="eagle3-adapters")
