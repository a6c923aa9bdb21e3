"""``eagle3-adapters inspect``: what a draft checkpoint is."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import attrs
import click

from eagle3_adapters import checkpoint
from eagle3_adapters.cli.options import adapter_option, format_option
from eagle3_adapters.cli.output import exit_code, finding_data, json_option, print_json, print_table, stop
from eagle3_adapters.description import Row, describe_draft, describe_ids, vocabulary_maps
from eagle3_adapters.engine_version import installed_version
from eagle3_adapters.errors import Finding, FindingsError
from eagle3_adapters.locate import locate
from eagle3_adapters.pair import Request, choose_adapter, plan_pair, read_format
from eagle3_adapters.registry import Adapter, Registry
from eagle3_adapters.render import write_findings
from eagle3_adapters.report import Report
from eagle3_adapters.stock import stock_reading
from eagle3_adapters.values import CaptureLayers, DraftModel, FormatReading, TargetModel


@attrs.frozen(kw_only=True)
class _Inspected:
    """Everything that both forms of the output are made of."""

    raw: DraftModel
    reading: FormatReading
    target: TargetModel | None = None
    adapter: Adapter | None = None
    capture: CaptureLayers | None = None
    findings: tuple[Finding, ...]


@click.command()
@click.argument("draft")
@click.option("--target", help="Target: directory or Hub name; says what the ids mean on its class.")
@click.option("--tensors", is_flag=True, help="List every tensor.")
@adapter_option
@format_option
@json_option
def inspect(draft: str, target: str | None, tensors: bool, adapter: str, format_: str, as_json: bool) -> None:  # noqa: FBT001 - by name
    """Say what DRAFT (a directory or Hub name) is: format and why, states, shape, vocabulary, math.

    The last lines say what SGLang alone would make of the files.
    """
    try:
        found = _inspect(draft, target, adapter, format_)
    except FindingsError as error:
        stop("inspect", error, as_json=as_json)
    if as_json:
        print_json("inspect", _data(found))
        sys.exit(exit_code(found.findings))
    print_table(str(found.raw.path), ("fact", "value"), _rows(found))
    if tensors:
        click.echo()
        all_tensors = found.raw.tensors.values()
        print_table(
            f"{len(all_tensors)} tensors",
            ("name", "dtype", "shape"),
            [(tensor.name, tensor.dtype, str(list(tensor.shape))) for tensor in all_tensors],
        )
    write_findings(found.findings, sys.stdout)
    sys.exit(exit_code(found.findings))


def _inspect(draft: str, target: str | None, adapter: str, format_: str) -> _Inspected:
    registry = Registry.installed()
    raw = checkpoint.read_draft(locate(draft))
    reading = read_format(raw, format_, registry)
    if target is None:
        return _Inspected(raw=raw, reading=reading, findings=reading.findings)
    model, report = checkpoint.read_target(locate(target, config_only=True)), Report()
    chosen = choose_adapter(model, adapter, registry, report)
    request = Request(target=target, draft=draft, adapter=adapter, format=format_)
    return _Inspected(
        raw=raw,
        reading=reading,
        target=model,
        adapter=chosen,
        capture=chosen.capture_layers(model),
        findings=plan_pair(request, registry, installed_version()).findings,
    )


def _rows(found: _Inspected) -> Iterator[Row]:
    yield from describe_draft(found.raw, found.reading, found.target, found.capture)
    for number, line in enumerate(stock_reading(found.raw, found.reading)):
        yield "" if number else "stock SGLang", line
    if found.target is not None and found.adapter is not None and found.capture is not None:
        target = found.target
        sizes = f"{target.num_layers} layers, hidden {target.hidden_size}, {target.vocab_size} tokens"
        yield "target", f"{target.architecture}, {sizes}; adapter {found.adapter.registration.name}"
        yield "", f"its class reads ids as {found.capture.id_rule.meaning}"


def _data(found: _Inspected) -> dict[str, object]:
    reading = found.reading
    return {
        "path": str(reading.draft.path),
        "format": reading.format,
        "evidence": list(reading.evidence),
        "trainer_version": reading.trainer_version,
        "layer_ids": [
            {
                "ids": None if one.ids is None else list(one.ids),
                "meaning": describe_ids(one, found.target, found.capture),
            }
            for one in reading.id_readings
        ],
        "listed_order": reading.listed_order,
        "flags": attrs.asdict(reading.math),
        "embedding_trained": reading.embedding_trained,
        "vocabulary_map": vocabulary_maps(reading),
        "stock_sglang": list(stock_reading(found.raw, reading)),
        "config": dict(reading.draft.config),
        "tensors": {
            name: {"dtype": tensor.dtype, "shape": list(tensor.shape)} for name, tensor in found.raw.tensors.items()
        },
        "findings": [finding_data(finding) for finding in found.findings],
    }
