"""The sentinel in the real engine: it speaks of a miswired pair and of a repeating benchmark, and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pair import DRAFT, TARGET, prompts
from support.serve import serve, speculation
from support.server import started

from eagle3_adapters.sglang.sentinel import REQUESTS, WINDOW, WINDOWS

pytestmark = pytest.mark.engine

NEW_TOKENS = 160
#: Tokens that the target goes on repeating once it has read them often enough.
REPEATED = (20, 56, 64, 92)


def test_a_miswired_pair_is_told_once_and_with_the_next_command() -> None:
    """Boundaries (0, 2, 5) were trained; with these the server looks healthy and accepts nothing."""
    served = serve(speculation(DRAFT), new_tokens=NEW_TOKENS, EAGLE3_ADAPTER="auto", EAGLE3_BOUNDARIES="1,3,6")
    assert not served.error, served.log[-3000:]
    assert served.accept_length.value < 1.15
    assert served.log.count("acceptance-floor") == 1
    said = served.log[served.log.index("eagle3-adapters: ERROR acceptance-floor: ") :].splitlines()
    assert said[4] == f"    next      eagle3-adapters check --target {TARGET} --draft {DRAFT}"
    assert "output-loop" not in served.log


def test_a_good_pair_is_left_alone_until_its_output_repeats(tmp_path: Path) -> None:
    assert len(prompts()) * NEW_TOKENS > WINDOW * WINDOWS
    with started(tmp_path) as server:
        server.wait_for(server.ready)
        server.generate(prompts(), NEW_TOKENS)
        assert "acceptance-floor" not in server.text()
        assert "output-loop" not in server.text()
        for _ in range(2):
            server.generate([[token] * 64 for token in REPEATED] * (REQUESTS // len(REPEATED)), NEW_TOKENS)
        server.wait_for(lambda: "output-loop" in server.text())
        assert server.text().count("WARNING output-loop: ") == 1
        assert "acceptance-floor" not in server.text()
