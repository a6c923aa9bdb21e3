"""``eagle3-adapters inspect``: what a draft checkpoint is."""

from __future__ import annotations

import sys

import attrs
import click

from eagle3_adapters import checkpoint
from eagle3_adapters.boundaries import describe_all
from eagle3_adapters.canonical import VOCABULARY
from eagle3_adapters.cli.options import adapter_option, format_option
from eagle3_adapters.cli.output import exit_code, finding_data, json_option, print_json, print_table, stop
from eagle3_adapters.engine_version import installed_version
from eagle3_adapters.errors import FindingsError
from eagle3_adapters.locate import locate
from eagle3_adapters.pair import Request, choose_adapter, plan_pair, read_format
from eagle3_adapters.planning.ids import resolve_reading
from eagle3_adapters.registry import Registry
from eagle3_adapters.render import write_findings
from eagle3_adapters.report import Report
from eagle3_adapters.values import CaptureLayers, FormatReading, IdReading, TargetModel

_CONFIG_KEYS = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "draft_vocab_size",
    "max_position_embeddings",
    "rope_theta",
)


@click.command()
@click.argument("draft")
@click.option("--target", help="Target: directory or Hub name; says what the ids mean on its class.")
@adapter_option
@format_option
@json_option
def inspect(draft: str, target: str | None, adapter: str, format_: str, as_json: bool) -> None:  # noqa: FBT001 - by name
    """Say what DRAFT (a directory or Hub name) is: format and why, layer ids, flags, tensors."""
    try:
        registry = Registry.installed()
        reading = read_format(checkpoint.read_draft(locate(draft)), format_, registry)
        report = Report()
        model, capture = None, None
        if target is not None:
            model = checkpoint.read_target(locate(target, config_only=True))
            chosen = choose_adapter(model, adapter, registry, report)
            capture = chosen.capture_layers(model)
            request = Request(target=target, draft=draft, adapter=adapter, format=format_)
            report = Report()
            report.extend(plan_pair(request, registry, installed_version()).findings)
        else:
            report.extend(reading.findings)
    except FindingsError as error:
        stop("inspect", error, as_json=as_json)
    ids = [_describe_ids(id_reading, model, capture) for id_reading in reading.id_readings]
    if as_json:
        print_json("inspect", _data(reading, ids) | {"findings": [finding_data(one) for one in report.findings]})
        sys.exit(exit_code(report.findings))
    facts = [
        ("format", f"{reading.format}: {'; '.join(reading.evidence)}"),
        *((f"layer ids, reading {number}", text) for number, text in enumerate(ids, 1)),
        ("state order", "as listed" if reading.listed_order else "ascending boundaries"),
        ("flags", ", ".join(name for name, on in attrs.asdict(reading.math).items() if on) or "none: plain EAGLE-3"),
        ("vocabulary map", _vocabulary(reading)),
        *((key, str(reading.draft.config[key])) for key in _CONFIG_KEYS if key in reading.draft.config),
    ]
    print_table(str(reading.draft.path), ("fact", "value"), facts)
    click.echo()
    tensors = reading.draft.tensors.values()
    print_table(
        f"{len(tensors)} tensors",
        ("name", "dtype", "shape"),
        [(tensor.name, tensor.dtype, str(list(tensor.shape))) for tensor in tensors],
    )
    write_findings(report.findings, sys.stdout)
    sys.exit(exit_code(report.findings))


def _vocabulary(reading: FormatReading) -> str:
    """What is there, and how this format writes it; what the numbers are is the plan's to say."""
    tensors = reading.draft.tensors
    maps = [
        f"{name} {list(tensor.shape)}"
        for name, tensor in tensors.items()
        if reading.keys.takes(name) and reading.keys.apply(name) in VOCABULARY
    ]
    return f"{', '.join(maps)}; this format writes {reading.draft.vocab_encoding.value}s" if maps else "none"


def _describe_ids(reading: IdReading, target: TargetModel | None, capture: CaptureLayers | None) -> str:
    ids = "no ids: the default" if reading.ids is None else str(list(reading.ids))
    if target is None or capture is None:
        return f"{ids}; {reading.meaning}"
    boundaries = resolve_reading(reading, target, capture)
    words = describe_all(boundaries, target.num_layers)
    return f"{ids}; {reading.meaning}: boundaries {list(boundaries)} = {words}"


def _data(reading: FormatReading, ids: list[str]) -> dict[str, object]:
    return {
        "path": str(reading.draft.path),
        "format": reading.format,
        "evidence": list(reading.evidence),
        "trainer_version": reading.trainer_version,
        "layer_ids": [
            {"ids": None if one.ids is None else list(one.ids), "meaning": text}
            for one, text in zip(reading.id_readings, ids, strict=True)
        ],
        "flags": attrs.asdict(reading.math),
        "vocabulary_map": _vocabulary(reading),
        "config": dict(reading.draft.config),
        "tensors": {
            name: {"dtype": tensor.dtype, "shape": list(tensor.shape)} for name, tensor in reading.draft.tensors.items()
        },
        "findings": [finding_data(finding) for finding in reading.findings],
    }
