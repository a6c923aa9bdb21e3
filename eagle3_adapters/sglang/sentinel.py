"""Owns what a running server says about its own acceptance, once: that a pair is broken, or that a benchmark loops.

The counts come from every verified batch. SGLang's own lifetime totals move at its decode log lines only, on the rank
that writes them, and are set back by a cache flush.
"""

from __future__ import annotations

import shlex
import sys
from collections import deque
from collections.abc import Sequence

import attrs

from eagle3_adapters.errors import Finding, Severity, fault
from eagle3_adapters.render import write_findings
from eagle3_adapters.sglang import compat
from eagle3_adapters.wiring import WiringPlan

#: An accept length below is the floor. Miswired pairs were reported at 1.00 to 1.15, weak drafts at 1.3 to 2.5.
FLOOR = 1.2
#: Verified tokens of one window. Over some 360 verify steps the standard error is 2%, here it is less: 1.15 and 1.3 lie
#: two and four of them away from the floor, and a weak draft would have to be that unlucky in every window.
WINDOW = 500
#: Batches of one window at least: on a busy server the first tokens of many answers say nothing about the rest of them.
WINDOW_BATCHES = 32
#: Windows in a row at the floor: 2,000 verified tokens or more.
WINDOWS = 4

#: Shorter outputs say nothing about repetition.
LONG = 64
#: Longest cycle that counts: a token, an alternating pair, up to a short line of text.
CYCLE = 16
#: Finished requests that are looked at together.
REQUESTS = 8


@attrs.frozen(kw_only=True)
class Ended:
    """One finished request: whether its output repeats itself, its verify steps and accepted drafts."""

    repeats: bool
    steps: int
    accepted: int


class Sentinel:
    """Decides from verify steps, accepted drafts and finished outputs, without SGLang. Tells each finding once."""

    def __init__(self, target: str, draft: str) -> None:
        self._draft = draft
        self._command = f"eagle3-adapters check --target {shlex.quote(target)} --draft {shlex.quote(draft)}"
        # Since the start, and since the last full window.
        self._steps = self._accepted = 0
        self._window_steps = self._window_accepted = self._window_batches = 0
        self._low_windows = 0
        self._floor_said = self._loop_said = False
        self._ended: deque[Ended] = deque(maxlen=REQUESTS)

    def verified(self, steps: int, accepted: int) -> Finding | None:
        """Count one batch: its verify steps (one a request) and the drafts that they accepted, without bonus tokens."""
        if self._floor_said or steps == 0:
            return None
        self._window_steps += steps
        self._window_accepted += accepted
        self._window_batches += 1
        if self._window_steps + self._window_accepted < WINDOW or self._window_batches < WINDOW_BATCHES:
            return None
        return self._close_window()

    def _close_window(self) -> Finding | None:
        steps, accepted = self._window_steps, self._window_accepted
        self._window_steps = self._window_accepted = self._window_batches = 0
        self._steps += steps
        self._accepted += accepted
        self._low_windows = self._low_windows + 1 if accept_length(steps, accepted) < FLOOR else 0
        length = accept_length(self._steps, self._accepted)
        # A pair that did well before is wired right: then it is the text that cannot be foreseen.
        if self._low_windows < WINDOWS or length >= FLOOR:
            return None
        self._floor_said = True
        return fault(
            "acceptance-floor",
            self._draft,
            "accept length 1.3 or more, which even a weak draft reaches",
            f"{length:.2f} over {self._steps + self._accepted} verified tokens",
            why="speculation only costs time: miswired (if check finds nothing, ids have lost their convention), or "
            "a draft of another target",
            remedy=self._command,
        )

    def finished(self, tokens: Sequence[int], steps: int, accepted: int) -> Finding | None:
        """Look at one finished request: its output, its verify steps and accepted drafts."""
        if self._loop_said or len(tokens) < LONG or steps == 0:
            return None
        self._ended.append(Ended(repeats=repeats(tokens), steps=steps, accepted=accepted))
        loops = [ended for ended in self._ended if ended.repeats]
        if len(self._ended) < REQUESTS or 2 * len(loops) <= REQUESTS:
            return None
        length = accept_length(sum(ended.steps for ended in loops), sum(ended.accepted for ended in loops))
        if length < FLOOR:
            # Nobody takes this for a pass.
            return None
        self._loop_said = True
        return Finding(
            code="output-loop",
            severity=Severity.WARNING,
            where=self._draft,
            expected="answers that go on saying something",
            found=f"{len(loops)} of {REQUESTS} answers repeat at most {CYCLE} tokens, accept length {length:.2f}",
            why="any draft foresees a repetition: this accept length is no pass",
            remedy="measure with real prompts, their chat template, and without ignore_eos",
        )


def accept_length(steps: int, accepted: int) -> float:
    """1 + accepted drafts / verify steps."""
    return 1 + accepted / steps


def repeats(tokens: Sequence[int]) -> bool:
    """Whether the last three quarters of an output are one cycle of at most CYCLE tokens, again and again."""
    tail = tokens[len(tokens) // 4 :]
    return any(tail[cycle:] == tail[:-cycle] for cycle in range(1, CYCLE + 1) if tail[0] == tail[cycle])


class SentinelHooks:
    """Feeds a Sentinel in the process of a scheduler; the first rank speaks."""

    def __init__(self, plan: WiringPlan) -> None:
        self._sentinel = Sentinel(str(plan.target_path), str(plan.draft_path))

    def after_verify(self, result: object, *args: object, **kwargs: object) -> None:
        """AFTER the verify-counts seam, once a verified batch."""
        _say(self._sentinel.verified(*compat.verify_counts(args, kwargs)))

    def after_release(self, result: object, *args: object, **kwargs: object) -> None:
        """AFTER the request-end seam, once a request."""
        ended = compat.finished_request(args, kwargs)
        if ended is not None:
            _say(self._sentinel.finished(*ended))


def _say(finding: Finding | None) -> None:
    if finding is not None and compat.is_first_rank():
        write_findings([finding], sys.stderr)
