"""``eagle3-adapters diagnose``: which wiring of a draft its target's own text speaks for."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from eagle3_adapters.boundaries import Ids
from eagle3_adapters.cli.options import adapter_option, boundaries_option, format_option
from eagle3_adapters.cli.output import finding_data, json_option, print_json, print_table, progress, stop
from eagle3_adapters.diagnosis.declared import Declared, declared
from eagle3_adapters.diagnosis.prompts import DiagnosisError, chosen, read_prompts, tokenised
from eagle3_adapters.diagnosis.search import COARSE, Measured
from eagle3_adapters.diagnosis.verdict import WEAK_BELOW
from eagle3_adapters.diagnosis.wirings import read_by, spell
from eagle3_adapters.engine_version import installed_version
from eagle3_adapters.errors import FindingsError
from eagle3_adapters.pair import Request
from eagle3_adapters.registry import Registry

if TYPE_CHECKING:
    from eagle3_adapters.diagnosis.run import Diagnosis
    from eagle3_adapters.diagnosis.target import Recording

#: Share of the time budget after which no further prompt is begun.
_FOR_TARGET = 0.6
#: Rows of the table; --json has all.
_SHOWN = 12


@attrs.frozen(kw_only=True)
class _Settings:
    """How much is run, and where."""

    prompts: Path
    most: int
    new_tokens: int
    steps: int
    seed: int
    device: str
    expected: float
    budget: float
    started: float = attrs.Factory(time.monotonic)

    def spent(self, share: float) -> bool:
        """Whether this share of the time budget is gone."""
        return time.monotonic() - self.started > share * self.budget


@click.command()
@click.option("--target", required=True, help="Target: directory or Hub name.")
@click.option("--draft", required=True, help="Draft: directory or Hub name.")
@click.option(
    "--prompts",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON array or JSON lines of text or token ids.",
)
@adapter_option
@format_option
@boundaries_option
@click.option("--max-prompts", default=24, show_default=True, type=click.IntRange(min=COARSE), help="Prompts to use.")
@click.option("--new-tokens", default=64, show_default=True, type=click.IntRange(min=8), help="Tokens a prompt.")
@click.option("--steps", default=3, show_default=True, type=click.IntRange(min=1), help="Draft tokens a verify step.")
@click.option("--seed", default=0, show_default=True, help="Draws the prompts where the file has more.")
@click.option("--device", default="cpu", show_default=True, help="As torch calls it: cpu, cuda, cuda:1.")
@click.option(
    "--expected", default=WEAK_BELOW, show_default=True, help="Accept length below which the draft is called weak."
)
@click.option(
    "--time-budget",
    default=900.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="After it only what a verdict needs is run.",
)
@json_option
def diagnose(
    target: str,
    draft: str,
    prompts: Path,
    adapter: str,
    format_: str,
    boundaries: Ids | None,
    max_prompts: int,
    new_tokens: int,
    steps: int,
    seed: int,
    device: str,
    expected: float,
    time_budget: float,
    as_json: bool,  # noqa: FBT001 - click passes options by name
) -> None:
    """Find the wiring that a draft was trained with: run the target once, try what can be confused, rank it.

    Needs torch and transformers, no server. Exit code 0: the declared wiring is best; 1: a finding.
    """
    settings = _Settings(
        prompts=prompts,
        most=max_prompts,
        new_tokens=new_tokens,
        steps=steps,
        seed=seed,
        device=device,
        expected=expected,
        budget=time_budget,
    )
    asked = Request(target=target, draft=draft, adapter=adapter, format=format_, boundaries=boundaries)
    try:
        found = declared(asked, Registry.installed(), installed_version())
        recording, result = _run(found, settings)
    except FindingsError as error:
        stop("diagnose", error, as_json=as_json)
    except DiagnosisError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        print_json("diagnose", _data(found, recording, result))
    else:
        _print(found, recording, result)
    sys.exit(result.verdict.exit_code)


def _run(found: Declared, settings: _Settings) -> tuple[Recording, Diagnosis]:
    read = read_prompts(settings.prompts)
    # Late: they import torch.
    try:
        from eagle3_adapters.diagnosis import run, target  # noqa: PLC0415
    except ImportError as error:
        msg = f"diagnose runs models and needs torch, safetensors and transformers ({error})"
        raise DiagnosisError(msg) from error

    directory = found.plan.target_path
    some = chosen(read, settings.most, settings.seed)
    tokens = tokenised(some, lambda: target.load_encoder(directory))
    kept = read_by(found.wiring, found.around)
    with progress("target", len(tokens)) as advance:
        recording = target.record(
            target.load_target(directory, settings.device),
            tokens,
            num_layers=found.plan.num_layers,
            keep=kept,
            new_tokens=settings.new_tokens,
            steps=settings.steps,
            least=COARSE,
            out_of_time=lambda: settings.spent(_FOR_TARGET),
            progress=advance,
        )
    found = attrs.evolve(found, around=attrs.evolve(found.around, recorded=kept))
    with progress("wirings", None) as advance:
        result = run.diagnose(
            found,
            recording,
            steps=settings.steps,
            device=settings.device,
            expected=settings.expected,
            out_of_time=lambda: settings.spent(1.0),
            progress=advance,
        )
    return recording, result


def _print(found: Declared, recording: Recording, result: Diagnosis) -> None:
    ranking, plan = result.ranking, found.plan
    title = (
        f"{plan.format} draft on {plan.target_architecture}, declared boundaries {spell(found.wiring.boundaries)}: "
        f"{len(ranking.measured)} wirings, {len(recording.prompts)} prompts"
    )
    rows = [_row(place, one) for place, one in enumerate(ranking.measured[:_SHOWN], start=1)]
    print_table(title, ("", "wiring", "accept length", "against declared", "prompts"), rows)
    left = ranking.measured[_SHOWN:]
    if left:
        click.echo(f"and {len(left)} more, none above {max(one.length.value for one in left):.3f} (--json has all)")
    for line in _partial(recording, result):
        click.echo(line)
    click.echo(f"\n{result.verdict.kind.value}: {result.verdict.text}")
    for step in result.verdict.steps:
        click.echo(f"    next  {step}")


def _row(place: int, one: Measured) -> tuple[str, ...]:
    return (str(place), one.wiring.name, str(one.length), str(one.gain), str(one.prompts))


def _partial(recording: Recording, result: Diagnosis) -> Iterator[str]:
    """What was left out."""
    if recording.too_short:
        yield f"left out: {recording.too_short} prompts that the target ended after a few tokens"
    if recording.untried:
        yield f"out of time: {recording.untried} prompts not run (--time-budget)"
    if result.ranking.untried:
        untried = result.ranking.untried
        yield f"out of time: {len(untried)} wirings not tried, first {untried[0]} (--time-budget)"


def _data(found: Declared, recording: Recording, result: Diagnosis) -> dict[str, object]:
    return {
        "verdict": {
            "kind": result.verdict.kind.value,
            "text": result.verdict.text,
            "steps": list(result.verdict.steps),
        },
        "advice": {
            "boundaries": result.advice.boundaries,
            "edits": [{"path": list(edit.path), "value": edit.value} for edit in result.advice.edits],
            "t2d_of": None if result.advice.encoding is None else result.advice.encoding.value,
        },
        "ranking": [_measured(one) for one in result.ranking.measured],
        "close": list(result.ranking.close),
        "undecided": sorted(found.undecided),
        "vocabulary_coverage": result.coverage,
        "prompts": {"run": len(recording.prompts), "too_short": recording.too_short, "untried": recording.untried},
        "untried": list(result.ranking.untried),
        "findings": [finding_data(finding) for finding in found.findings],
    }


def _measured(one: Measured) -> dict[str, object]:
    return {
        "wiring": one.wiring.name,
        "boundaries": list(one.wiring.boundaries),
        "flags": attrs.asdict(one.wiring.math),
        "rope_theta": one.wiring.rope_theta,
        "vocabulary": None if one.wiring.encoding is None else one.wiring.encoding.value,
        "accept_length": one.length.value,
        "standard_error": one.length.error,
        "gain": one.gain.value,
        "gain_error": one.gain.error,
        "prompts": one.prompts,
    }
