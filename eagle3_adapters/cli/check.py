"""``eagle3-adapters check``: the findings of a pair, from headers alone."""

from __future__ import annotations

import json
import os
import sys

import click

from eagle3_adapters.boundaries import Ids
from eagle3_adapters.cli.options import adapter_option, boundaries_option, format_option
from eagle3_adapters.cli.output import exit_code, finding_data, json_option, print_json, stop
from eagle3_adapters.engine_version import installed_version
from eagle3_adapters.errors import FindingsError
from eagle3_adapters.pair import Request, plan_pair
from eagle3_adapters.registry import Registry
from eagle3_adapters.render import write_findings
from eagle3_adapters.report import Report
from eagle3_adapters.sglang import request
from eagle3_adapters.wiring import Planning, WiringPlan


@click.command()
@click.option("--target", required=True, help="Target: directory or Hub name.")
@click.option("--draft", required=True, help="Draft: directory or Hub name.")
@adapter_option
@format_option
@boundaries_option
@click.option("--deep", is_flag=True, help="Open norms and embeddings too: NaN, zeros, a trained embedding.")
@click.option("--strict", is_flag=True, help="Exit 1 on a warning too.")
@json_option
def check(
    target: str,
    draft: str,
    adapter: str,
    format_: str,
    boundaries: Ids | None,
    deep: bool,  # noqa: FBT001 - click passes options by name
    strict: bool,  # noqa: FBT001 - as above
    as_json: bool,  # noqa: FBT001 - as above
) -> None:
    """Say whether a draft will be wired right to a target, and how.

    Without --deep only headers and the vocabulary map are read.
    """
    try:
        registry = Registry.installed()
    except FindingsError as error:
        stop("check", error, as_json=as_json)
    asked = Request(target=target, draft=draft, adapter=adapter, format=format_, boundaries=boundaries)
    planning = plan_pair(asked, registry, installed_version())
    misspelt = request.misspelt_variables(os.environ)
    planning = Planning(findings=(*planning.findings, *misspelt), plan=planning.plan)
    if deep and planning.plan is not None:
        planning = _deepened(planning, planning.plan)
    if as_json:
        plan = None if planning.plan is None else json.loads(planning.plan.to_json())
        print_json("check", {"findings": [finding_data(finding) for finding in planning.findings], "plan": plan})
    else:
        write_findings(planning.findings, sys.stdout)
        if planning.plan is None:
            errors = len(planning.errors)
            click.echo(f"\nNot wired: {errors} error{'s' * (errors > 1)}. Mend the first one first.")
        else:
            click.echo(f"{'' if not planning.findings else chr(10)}Wired: {planning.plan.summary()}")
    sys.exit(exit_code(planning.findings, strict=strict))


def _deepened(planning: Planning, plan: WiringPlan) -> Planning:
    # Late: it imports torch.
    from eagle3_adapters.deep import check_tensors  # noqa: PLC0415

    report = Report()
    try:
        report.extend(check_tensors(plan))
    except ImportError as error:
        message = f"--deep opens tensors and needs torch and safetensors ({error}): pip install torch safetensors"
        raise click.UsageError(message) from error
    report.extend(planning.findings)
    return Planning(findings=report.findings, plan=None if report.failed() else plan)
