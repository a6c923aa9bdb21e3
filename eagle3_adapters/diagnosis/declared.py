"""Owns the wiring that a pair's files declare, also where they leave it open. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from eagle3_adapters import checkpoint
from eagle3_adapters.boundaries import INPUT_OF_LAYER, OUTPUT_OF_LAYER, Ids
from eagle3_adapters.diagnosis.wirings import Surroundings, Wiring
from eagle3_adapters.errors import ConventionError, Finding, FindingsError
from eagle3_adapters.locate import locate
from eagle3_adapters.pair import Request, choose_adapter, plan_pair, read_format
from eagle3_adapters.planning.config_checks import rope_settings
from eagle3_adapters.planning.ids import nameable, resolve_reading
from eagle3_adapters.planning.plan import plan_wiring
from eagle3_adapters.registry import Adapter, Registry
from eagle3_adapters.report import Report
from eagle3_adapters.values import CaptureLayers, Config, FormatReading, IdReading, TargetModel
from eagle3_adapters.vocab import VocabEncoding
from eagle3_adapters.wiring import Planning, WiringPlan

#: Findings of a format that measuring can decide -> the flag that they leave open.
_OPEN = {"norm-before-residual": "norm_before_residual"}
#: Finding of a map that is one in two encodings.
_BOTH_WAYS = "vocab-map-absolute"
_READ_AS = (INPUT_OF_LAYER, OUTPUT_OF_LAYER)


@attrs.frozen(kw_only=True)
class Declared:
    """A pair that can be measured: its plan as the files declare it, and what of that is open to doubt."""

    plan: WiringPlan
    wiring: Wiring
    around: Surroundings
    #: The draft's config.json as it stands.
    config: Config = attrs.field(repr=False)
    #: What the files leave open: ``boundaries``, ``encoding``, or a flag. Measuring decides it.
    undecided: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()


@attrs.frozen(kw_only=True)
class _Pair:
    """What one plan after the other is made of."""

    target: TargetModel
    adapter: Adapter
    reading: FormatReading
    engine: str

    def planning(self, boundaries: Ids | None, encoding: VocabEncoding) -> Planning:
        """The plan, whatever flag the files leave open."""
        reading = attrs.evolve(
            self.reading,
            findings=tuple(one for one in self.reading.findings if one.code not in _OPEN),
            draft=attrs.evolve(self.reading.draft, vocab_encoding=encoding),
        )
        return plan_wiring(
            target=self.target, reading=reading, adapter=self.adapter, engine=self.engine, boundaries=boundaries
        )

    def first(self, lists: Sequence[Ids | None]) -> tuple[Ids | None, tuple[VocabEncoding, ...], WiringPlan] | None:
        """The first of some lists of boundaries with a plan, and the encodings in which d2t is a map.

        Two of them where nothing in the file decides; then the plan has the one that its format means.
        """
        own = self.reading.draft.vocab_encoding
        for boundaries in lists:
            planning = self.planning(boundaries, own)
            if planning.plan is not None:
                return boundaries, (own,), planning.plan
            if {one.code for one in planning.errors} == {_BOTH_WAYS}:
                other = self.planning(boundaries, VocabEncoding.ABSOLUTE)
                if other.plan is not None:
                    plan = attrs.evolve(other.plan, vocab_encoding=own)
                    return boundaries, (own, VocabEncoding.ABSOLUTE), plan
        return None


def declared(request: Request, registry: Registry, engine: str) -> Declared:
    """The declared wiring of a pair. Raises FindingsError with what makes the pair unmeasurable."""
    planning = plan_pair(request, registry, engine)
    try:
        target, raw = checkpoint.read_target(locate(request.target)), checkpoint.read_draft(locate(request.draft))
        reading = read_format(raw, request.format, registry)
        adapter = choose_adapter(target, request.adapter, registry, Report())
        capture = adapter.capture_layers(target)
    except FindingsError as error:
        raise FindingsError(planning.errors or error.findings) from error
    pair = _Pair(target=target, adapter=adapter, reading=reading, engine=engine)
    read = tuple(_readings(reading, target, capture))
    # What the files say first; then what they may mean.
    first = pair.first((request.boundaries, *(listed for _, listed in read)))
    if first is None:
        raise FindingsError(planning.errors)
    boundaries, encodings, plan = first
    undecided = {flag for code, flag in _OPEN.items() if any(one.code == code for one in reading.findings)}
    undecided |= {"boundaries"} if boundaries != request.boundaries else set()
    undecided |= {"encoding"} if len(encodings) > 1 else set()
    return Declared(
        plan=plan,
        wiring=Wiring(
            boundaries=_listed(plan), math=plan.math, rope_theta=rope_theta(plan.config), encoding=plan.vocab_encoding
        ),
        around=Surroundings(
            num_layers=target.num_layers,
            readings=read,
            target_theta=_theta(target.text),
            encodings=encodings if len(encodings) > 1 else (),
        ),
        config=raw.config,
        undecided=frozenset(undecided),
        findings=planning.findings,
    )


def _readings(reading: FormatReading, target: TargetModel, capture: CaptureLayers) -> Iterator[tuple[str, Ids]]:
    """What the file's ids can mean: by its format's readings, by the class's rule, by either plain convention."""
    ids = reading.id_readings[0].ids
    plain = () if ids is None else (capture.id_rule, *_READ_AS)
    asked = (*reading.id_readings, *(IdReading(meaning=one.meaning, ids=ids, convention=one) for one in plain))
    for one in asked:
        try:
            listed = resolve_reading(one, target, capture)
        except ConventionError:
            continue
        if nameable(listed, target):
            yield f"read as: {one.meaning}", listed


def _listed(plan: WiringPlan) -> Ids:
    """Boundary of each column block of fc, in the trainer's order."""
    blocks = sorted(zip(plan.column_order, plan.boundaries, strict=True))
    return tuple(boundary for _, boundary in blocks)


def _theta(config: Config) -> float | None:
    stated = rope_settings(config).get("rope_theta") or config.get("rope_theta")
    return None if stated is None else float(stated)


def rope_theta(config: Config) -> float:
    """The rotary base of a plan's config; SGLang's own where it names none."""
    stated = _theta(config)
    return 10000.0 if stated is None else stated


def with_rope_theta(config: Config, theta: float) -> dict[str, object]:
    """A plan's config with another rotary base, wherever it states one."""
    changed = {**config, "rope_theta": theta}
    for key in ("rope_parameters", "rope_scaling"):
        nested = config.get(key)
        if isinstance(nested, dict) and "rope_theta" in nested:
            changed[key] = {**nested, "rope_theta": theta}
    return changed
