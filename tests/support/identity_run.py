"""One boot of support.identity_engine: a random target, a draft that reads every boundary, everything recorded."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs

from eagle3_adapters.rehearsal.engine import cpu_environment
from support.boundary_states import answers_of
from support.random_targets import DEEPSEEK, KIMI, LAYERS, write_draft, write_target
from support.serve import SECONDS, environment
from support.transformers_targets import CLASSES, WRAPPERS, write_transformers_target, write_wrapped_target

RECORDER = Path(__file__).parent / "recorder"
BOUNDARIES = tuple(range(LAYERS + 1))
#: The order in which the draft's fc was trained on them: none stands where SGLang concatenates it.
LISTED = (5, 7, 8, 4, 3, 0, 1, 2, 6)
STEPS = 3


def random_sets(count: int = 40) -> list[tuple[list[int], bool]]:
    """Sets of boundaries to switch to, of every size, and whether all of each are injected."""
    generator = random.Random(3)  # noqa: S311 - test data, not secrets
    sizes = [1 + i % len(BOUNDARIES) for i in range(count)]
    return [(sorted(generator.sample(BOUNDARIES, size)), i % 4 > 1) for i, size in enumerate(sizes)]


@attrs.frozen(kw_only=True)
class Run:
    """What one boot left behind."""

    target: Path
    #: What transformers computes: the target, or a checkpoint of the same weights where it does not know the class.
    known: Path
    draft: Path
    #: One file a forward, see tests/support/recorder.
    records: Path
    answers: dict[str, dict[str, Any]]
    log: str


def run(directory: Path, architecture: str, *, latent: bool = False) -> Run:
    """Make the pair, boot the engine, serve the script. RuntimeError where no answers came."""
    if architecture in WRAPPERS:
        target, known = write_wrapped_target(directory, architecture)
    elif architecture in CLASSES:
        target = known = write_transformers_target(directory / "target", architecture)
    else:
        target = known = write_target(directory / "target", architecture)
        if architecture == KIMI:
            known = write_target(directory / "known", DEEPSEEK)
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    draft = write_draft(directory / "draft", config.get("text_config", config), BOUNDARIES, latent=latent)
    records, output = directory / "records", directory / "answers.json"
    records.mkdir()
    arguments: dict[str, Any] = {
        "model_path": str(target),
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": str(draft),
        "speculative_num_steps": STEPS,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": STEPS + 1,
    }
    if "text_config" in config:
        # A wrapper. Prompts are token ids: there is no image processor to load.
        arguments["enable_multimodal"] = False
    done = subprocess.run(
        [sys.executable, "-m", "support.identity_engine", json.dumps(arguments), output],
        env=cpu_environment(
            environment(
                EAGLE3_ADAPTER="auto",
                EAGLE3_BOUNDARIES=",".join(map(str, LISTED)),
                RECORDER_OUTPUT=str(records),
                RECORDER_SETS=json.dumps(random_sets()),
                PYTHONPATH=str(RECORDER),
            )
        ),
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if not output.exists():
        raise RuntimeError(f"the engine's process ended with {done.returncode}\n{done.stderr[-6000:]}")
    return Run(target=target, known=known, draft=draft, records=records, answers=answers_of(output), log=done.stderr)
