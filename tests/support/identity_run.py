"""One boot of support.identity_engine: a random target, a draft fitted to its boundaries, everything recorded."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from click.testing import CliRunner

from eagle3_adapters.cli import main
from eagle3_adapters.reference import Counts
from eagle3_adapters.rehearsal.engine import cpu_environment
from support.boundary_states import Reference, answers_of
from support.fitted_drafts import fit, offline
from support.identity_engine import MOST, known_prompts
from support.pair import STEPS, plan
from support.random_targets import DEEPSEEK, KIMI, LAYERS, write_draft, write_target
from support.serve import SECONDS, environment, speculation
from support.transformers_targets import CLASSES, WRAPPERS, Made, write_transformers_target, write_wrapped_target

RECORDER = Path(__file__).parent / "recorder"
BOUNDARIES = tuple(range(LAYERS + 1))
#: The order in which the draft's fc was trained on them: none stands where SGLang concatenates it.
LISTED = (5, 7, 8, 4, 3, 0, 1, 2, 6)


def random_sets(count: int = 40) -> list[tuple[list[int], bool]]:
    """Sets of boundaries to switch to, of every size, and whether all of each are injected."""
    generator = random.Random(3)  # noqa: S311 - test data, not secrets
    sizes = [1 + i % len(BOUNDARIES) for i in range(count)]
    return [(sorted(generator.sample(BOUNDARIES, size)), i % 4 > 1) for i, size in enumerate(sizes)]


@attrs.frozen(kw_only=True)
class Run:
    """What one boot left behind."""

    target: Path
    #: By transformers: of the target, or of a checkpoint of the same weights where it does not know the class.
    reference: Reference
    #: As it was trained, in speculators' format, and in the order in which its fc reads the boundaries.
    draft: Path
    listed: tuple[int, ...]
    #: One file a forward, see tests/support/recorder.
    records: Path
    answers: dict[str, dict[str, Any]]
    log: str

    @property
    def fc_blocks(self) -> dict[int, torch.Tensor]:
        """Boundary -> the columns of the engine's fc that must read it."""
        loaded = torch.load(self.records / "fc.pt").chunk(len(self.listed), dim=-1)
        return dict(zip(sorted(self.listed), loaded, strict=True))

    def counts(self) -> dict[str, Counts]:
        """What the engine reported of each request that it finished."""
        return {
            name: Counts(verifies=answer["verifies"], accepted=answer["accepted"])
            for name, answer in self.answers.items()
            if name != "doomed"  # given up in the middle of a step
        }

    def offline(self, shift: int = 0) -> dict[str, Counts]:
        """The same by plain forwards of target and draft; ``shift``: on states so many boundaries off."""
        ended = {name: self.answers[name] for name in self.counts()}
        return offline(plan(self.target, self.draft, boundaries=self.listed), self.reference, ended, STEPS, shift)


def _targets(directory: Path, architecture: str) -> tuple[Path, Path]:
    """A target, and what transformers knows of it."""
    if architecture in WRAPPERS:
        return write_wrapped_target(directory, architecture)
    if architecture in CLASSES:
        target = write_transformers_target(directory / "target", architecture)
    else:
        target = write_target(directory / "target", architecture)
    return target, write_target(directory / "known", DEEPSEEK) if architecture == KIMI else target


def _fitted(directory: Path, target: Path, reference: Reference, listed: tuple[int, ...], *, latent: bool) -> Path:
    """A draft of the target that knows what the script will ask for."""
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    draft = write_draft(directory / "draft", config.get("text_config", config), listed, latent=latent)
    made = plan(target, draft, boundaries=listed)
    fit(made, reference, known_prompts().values(), new_tokens=MOST, steps=STEPS)
    return draft


@attrs.frozen(kw_only=True)
class Pair:
    """A target, what transformers computes of it, and its draft."""

    target: Path
    reference: Reference
    draft: Path


def make(directory: Path, architecture: str, *, latent: bool = False, listed: tuple[int, ...] = LISTED) -> Pair:
    """A pair of a class, below a directory."""
    target, known = _targets(directory, architecture)
    reference = Reference(known)
    draft = _fitted(directory, target, reference, listed, latent=latent)
    return Pair(target=target, reference=reference, draft=draft)


def run(
    directory: Path,
    architecture: str,
    *,
    latent: bool = False,
    listed: tuple[int, ...] = LISTED,
    format_: str | None = None,
    made: Pair | None = None,
    sets: Sequence[tuple[list[int], bool]] | None = None,
    ahead: Sequence[Path] = (),
) -> Run:
    """Make the pair, boot the engine, serve the script. RuntimeError where no answers came.

    ``listed``: boundaries in the order in which the draft reads them; ``format_``: served in another than its own;
    ``made``: by :func:`make`, where more than one boot has that pair; ``sets``: as of :func:`random_sets`; ``ahead``:
    folders of packages that the engine takes in place of those installed.
    """
    made = made or make(directory, architecture, latent=latent, listed=listed)
    target, draft = made.target, made.draft
    records, output = directory / "records", directory / "answers.json"
    records.mkdir()
    asked = {"EAGLE3_ADAPTER": "auto"}
    if format_ is None:
        served, asked["EAGLE3_BOUNDARIES"] = draft, ",".join(map(str, listed))
    else:
        served, asked["EAGLE3_FORMAT"] = directory / format_, format_
        words = [draft, served, "--to", format_, "--target", target, "--boundaries", ",".join(map(str, listed))]
        converted = CliRunner().invoke(main, ["convert", *map(str, words)])
        assert converted.exit_code == 0, converted.output
    special = CLASSES.get(architecture, Made(model_type=""))
    arguments: dict[str, Any] = {"model_path": str(target), **speculation(served), **special.engine}
    if architecture in (KIMI, *WRAPPERS):
        # Prompts are token ids: there is no image processor to load.
        arguments["enable_multimodal"] = False
    done = subprocess.run(
        [sys.executable, "-m", "support.identity_engine", json.dumps(arguments), output],
        env=cpu_environment(
            environment(
                RECORDER_OUTPUT=str(records),
                # The plan of a smaller draft does not say what the class leaves to be injected of the others.
                RECORDER_SETS=json.dumps((sets or random_sets()) if listed == LISTED else []),
                PYTHONPATH=os.pathsep.join(map(str, (RECORDER, *special.plugins, *ahead))),
                **special.environment,
                **asked,
            )
        ),
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if not output.exists():
        raise RuntimeError(f"the engine's process ended with {done.returncode}\n{done.stderr[-6000:]}")
    return Run(
        target=target,
        reference=made.reference,
        draft=draft,
        listed=listed,
        records=records,
        answers=answers_of(output),
        log=done.stderr,
    )
