"""``eagle3-adapters doctor``: versions, plugins, seams, requests in the environment, device."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping

import click

from eagle3_adapters.cli.output import exit_code, finding_data, json_option, print_json, print_table
from eagle3_adapters.engine_version import installed_version
from eagle3_adapters.errors import Finding, FindingsError, fault
from eagle3_adapters.pair import AUTO
from eagle3_adapters.registry import Registry
from eagle3_adapters.render import write_findings
from eagle3_adapters.sglang import compat, request, seams

_DISTRIBUTIONS = ("eagle3-adapters", "sglang", "torch", "transformers", "safetensors", "pluggy", "attrs")


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _device() -> str:
    try:
        import torch  # noqa: PLC0415 - seconds; only this command wants it
    except ImportError:
        return "unknown: torch is not installed"
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def _plugins() -> tuple[dict[str, str], list[Finding]]:
    """Adapter and format -> ``ok`` or what is wrong."""
    states: dict[str, str] = {}
    findings: list[Finding] = []
    try:
        registry = Registry.installed()
    except FindingsError as error:
        return {}, list(error.findings)
    for registration in (*registry.adapters, *registry.formats):
        is_adapter = registration in registry.adapters
        label = f"{'adapter' if is_adapter else 'format'} {registration.name} ({registration.origin})"
        try:
            if is_adapter:
                registry.adapter(registration.name)
            else:
                registry.format(registration.name)
            states[label] = "ok"
        except FindingsError as error:
            states[label] = "broken"
            findings.extend(error.findings)
    return states, findings


def _excluded(environment: Mapping[str, str]) -> Finding | None:
    allowed = environment.get("SGLANG_PLUGINS")
    if not allowed or "eagle3_adapters" in {name.strip() for name in allowed.split(",")}:
        return None
    return fault(
        "plugin-excluded",
        "SGLANG_PLUGINS",
        "eagle3_adapters among the names",
        allowed,
        why="SGLang would start without this package and say nothing",
        remedy=f"SGLANG_PLUGINS={allowed},eagle3_adapters",
    )


def _requests(environment: Mapping[str, str]) -> list[Finding]:
    """Variables that ask for something that is not there, and misspelt ones."""
    findings = list(request.misspelt_variables(environment))
    try:
        wish = request.read(object(), environment)
        if wish is not None and wish.adapter != AUTO:
            Registry.installed().adapter(wish.adapter)
        if wish is not None and wish.format != AUTO:
            Registry.installed().format(wish.format)
    except FindingsError as error:
        findings.extend(error.findings)
    return findings


@click.command()
@json_option
def doctor(as_json: bool) -> None:  # noqa: FBT001 - click passes options by name
    """Show versions, plugins, the seams found in the installed SGLang, requests in the environment and the device."""
    version = installed_version()
    plugins, findings = _plugins()
    sources = seams.installed()
    found_seams = {} if sources is None else seams.found(version, sources)
    missing_facts = () if sources is None else seams.missing_facts(version, sources)
    findings.extend(finding for finding in (compat.version_finding(version), _excluded(os.environ)) if finding)
    findings.extend(_requests(os.environ))
    findings.extend(seams.finding(seam, version) for seam, there in found_seams.items() if not there)
    findings.extend(seams.fact_finding(fact, version) for fact in missing_facts)
    asked = {name: os.environ[name] for name in request.VARIABLES.values() if name in os.environ}
    device, versions = _device(), _versions()
    if as_json:
        print_json(
            "doctor",
            {
                "versions": versions,
                "plugins": plugins,
                "seams": {seam.path: there for seam, there in found_seams.items()},
                "environment": asked,
                "device": device,
                "findings": [finding_data(finding) for finding in findings],
            },
        )
    else:
        print_table("Versions", ("what", "version"), [*versions.items(), ("device", device)])
        click.echo()
        print_table("Plugins", ("plugin", "state"), list(plugins.items()))
        click.echo()
        rows = [(seam.name, seam.path, "found" if there else "MISSING") for seam, there in found_seams.items()]
        print_table(f"Seams of SGLang {version}", ("seam", "where", "state"), rows)
        click.echo()
        print_table("Asked for by the environment", ("variable", "value"), list(asked.items()) or [("none", "")])
        write_findings(findings, sys.stdout)
    sys.exit(exit_code(findings))
