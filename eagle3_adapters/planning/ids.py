"""Owns which boundaries a draft reads: from its ids, its format's default or the user, checked against fc's columns."""

from __future__ import annotations

from eagle3_adapters.boundaries import Ids, describe_all, is_reordered
from eagle3_adapters.engine_version import INJECTED, spelled, version_numbers
from eagle3_adapters.errors import ConventionError
from eagle3_adapters.report import Report
from eagle3_adapters.values import CaptureLayers, DraftModel, FormatReading, IdReading, TargetModel


def resolve_reading(reading: IdReading, target: TargetModel, capture: CaptureLayers) -> Ids:
    """Boundaries of one reading of the ids, in the order of the file's list. Raises ConventionError."""
    if reading.ids is None:
        return capture.default if reading.default is None else reading.default(target.num_layers)
    return (reading.convention or capture.id_rule).to_boundaries(reading.ids, target.num_layers)


def states_of(target: TargetModel, draft: DraftModel, report: Report) -> int | None:
    """Number of states that fc reads, by its columns."""
    fc = draft.tensors.get("fc.weight")
    if fc is None:
        return None  # weight-missing is told where all shapes are known
    columns = fc.shape[-1] if fc.shape else 0
    states, rest = divmod(columns, target.hidden_size)
    if rest or not states:
        report.error(
            "aux-count",
            f"{draft.path}: fc.weight",
            f"a multiple of {target.hidden_size} columns, the hidden size of {target.path}",
            f"{columns} columns",
            remedy="check that this draft was trained for this target",
        )
        return None
    return states


def listed_boundaries(
    reading: FormatReading,
    target: TargetModel,
    capture: CaptureLayers,
    override: Ids | None,
    states: int | None,
    engine: str,
    report: Report,
) -> Ids | None:
    """Boundary of each column block of fc, in the order of the blocks."""
    if override is not None:
        listed, where, default = override, "--eagle3-boundaries", False
        _tell_override(reading, target, capture, override, report)
    else:
        default = reading.id_readings[0].ids is None
        where = reading.ids_where
        resolved = read_ids(reading, target, capture, report)
        if resolved is None:
            return None
        listed = ordered(reading, resolved, target.num_layers, report)
    boundaries_possible(listed, where, target, report, default=default)
    _deliverable(listed, where, target, capture, engine, report)
    if states is not None and states != len(listed):
        report.error(
            "aux-count",
            where,
            f"{states} states, as fc.weight has columns for",
            f"{len(listed)} boundaries {list(listed)}",
            why="fc would read another number of states than it was trained on",
            remedy="correct the ids in the config, or name one boundary for each: --eagle3-boundaries "
            + ",".join("K" * states),
        )
        return None
    return listed


def ordered(reading: FormatReading, listed: Ids, num_layers: int | None, report: Report) -> Ids:
    """Boundaries of the list in the order in which fc was trained on them."""
    ascending = tuple(sorted(listed))
    if reading.listed_order is None and listed != ascending:
        orders = (listed, ascending)
        report.error(
            "format-ambiguous",
            reading.ids_where,
            "an ascending list, or a back end that the file names",
            "; ".join(f"{describe_all(order, num_layers)}: --eagle3-boundaries {_spell(order)}" for order in orders),
            why="the trainer joins states in the list's order with one back end and in the layers' with another",
            remedy="select one with the option printed beside it",
        )
    return listed if reading.listed_order else ascending


def _spell(boundaries: Ids) -> str:
    return ",".join(map(str, boundaries))


def _tell_override(
    reading: FormatReading, target: TargetModel, capture: CaptureLayers, override: Ids, report: Report
) -> None:
    """The user's boundaries beside what the file's ids mean, where the file leaves no doubt."""
    declared = reading.id_readings[0]
    if declared.ids is None or not reading.first_reading_decides:
        return
    try:
        meant = resolve_reading(declared, target, capture)
    except ConventionError:
        return
    if set(meant) != set(override):
        report.warning(
            "layer-ids-overridden",
            "--eagle3-boundaries",
            f"{list(meant)}, what the ids of {reading.ids_where} mean ({declared.meaning})",
            str(list(override)),
            why="a state one layer off is served without a word and accepts little",
            remedy="drop --eagle3-boundaries, unless you know that the file is wrong",
        )


def read_ids(reading: FormatReading, target: TargetModel, capture: CaptureLayers, report: Report) -> Ids | None:
    """The declared reading, with a finding where another reading gives another plan."""
    candidates: list[tuple[IdReading, Ids]] = []
    for id_reading in reading.id_readings:
        try:
            candidates.append((id_reading, resolve_reading(id_reading, target, capture)))
        except ConventionError as error:
            report.error("layer-ids-out-of-range", reading.ids_where, "ids with a meaning", str(error))
            return None
    if not reading.first_reading_decides:
        # A reading that names no state of this target is none.
        possible = [candidate for candidate in candidates if nameable(candidate[1], target)]
        candidates = possible or candidates
    declared = candidates[0][1]
    others = [
        candidate
        for candidate in candidates[1:]
        if set(candidate[1]) != set(declared) and nameable(candidate[1], target)
    ]
    if others and any(not 0 <= k <= target.num_layers for k in declared):
        meaning, meant = others[0][0].meaning, others[0][1]
        report.error(
            "layer-ids-out-of-range",
            reading.ids_where,
            f"boundaries in 0..{target.num_layers} {candidates[0][0].meaning}",
            f"{list(declared)}",
            why="SGLang's class captures fewer states than the draft reads and dies in the first request",
            remedy=f"if the ids mean {meaning}, that is {describe_all(meant, target.num_layers)}: "
            f"--eagle3-boundaries {_spell(meant)}",
        )
        return None
    if others:
        lines = [
            f"{list(k)} = {describe_all(k, target.num_layers)} ({candidate.meaning}): --eagle3-boundaries {_spell(k)}"
            for candidate, k in (candidates[0], *others)
        ]
        tell = report.warning if reading.first_reading_decides else report.error
        tell(
            "layer-ids-reading" if reading.first_reading_decides else "format-ambiguous",
            reading.ids_where,
            "ids with one meaning",
            f"{len(lines)} readings: " + "; ".join(lines),
            why="a state one layer off is served without a word and accepts little",
            remedy=("the first is used; select another" if reading.first_reading_decides else "select one")
            + " with the option printed beside it",
        )
    if candidates[0][0].ids is None:
        report.info(
            "layer-ids-missing",
            reading.ids_where,
            "layer ids",
            f"none; the default that this format trains with: {list(declared)} = "
            f"{describe_all(declared, target.num_layers)}",
        )
    return declared


def tell_order(order: Ids, where: str, listed: Ids, report: Report) -> None:
    """Say that column blocks of fc are reordered, where they are."""
    if is_reordered(order):
        report.info(
            "layer-ids-unordered",
            where,
            "ascending boundaries, the order in which SGLang concatenates",
            f"{list(listed)}; column blocks of fc reordered {list(order)}",
        )


def nameable(boundaries: Ids, target: TargetModel) -> bool:
    """Whether every boundary exists in the target and none stands twice."""
    return len(set(boundaries)) == len(boundaries) and all(0 <= k <= target.num_layers for k in boundaries)


def boundaries_possible(boundaries: Ids, where: str, target: TargetModel, report: Report, *, default: bool) -> None:
    """Within 0..N and distinct."""
    n = target.num_layers
    outside = [k for k in boundaries if not 0 <= k <= n]
    if outside:
        report.error(
            "layer-ids-out-of-range",
            where,
            f"boundaries in 0..{n} (of {n} layers)",
            f"{outside} in {list(boundaries)}",
            why="no such state exists in this target",
            remedy="check that the draft was trained for this target, or name boundaries: --eagle3-boundaries K,K,K",
        )
    elif len(set(boundaries)) != len(boundaries):
        report.error(
            "layer-ids-degenerate" if default else "layer-ids-duplicate",
            where,
            "distinct boundaries",
            str(list(boundaries)),
            why="SGLang captures a boundary once, so fc would read too few states",
            remedy="name boundaries: --eagle3-boundaries K,K,K",
        )


def injected_of(boundaries: Ids, capture: CaptureLayers, engine: str) -> Ids:
    """Those that the class does not deliver by itself in this version of SGLang."""
    version = version_numbers(engine)
    return tuple(k for k in boundaries if not capture.is_native(k, version))


def _deliverable(
    boundaries: Ids, where: str, target: TargetModel, capture: CaptureLayers, engine: str, report: Report
) -> None:
    """Every boundary of the target is captured by its class or by this package."""
    n, version = target.num_layers, version_numbers(engine)
    if any(not 0 <= k <= n for k in boundaries):
        return  # told
    native = [k for k in range(n + 1) if capture.is_native(k, version)]
    delivers = f"{target.architecture} delivers in SGLang {engine}"
    absent = injected_of(tuple(sorted(set(boundaries))), capture, engine)
    injected = [k for k in absent if capture.is_injected(k, version)]
    if injected and version is not None and version not in INJECTED:
        report.error(
            "engine-version",
            where,
            f"SGLang {', '.join(map(spelled, INJECTED))}, in which this package's own capture of {injected} was run",
            engine,
            why=f"boundaries in {_span(native)} alone are captured by {target.architecture} itself",
            remedy=f"pip install 'sglang=={spelled(INJECTED[-1])}'",
        )
    elif injected:
        report.info(
            "boundary-unreachable",
            where,
            f"boundaries in {_span(native)}, which {delivers} by itself",
            f"{injected} = {describe_all(injected, n)}; captured by this package",
        )
    unreachable = [k for k in absent if k not in injected]
    if unreachable == [0] and 0 in capture.native:
        report.error(
            "boundary-unreachable",
            where,
            f"boundaries from 1 on, which {delivers}",
            "0, the embedding",
            why="the class adds a residual that does not exist before the first layer, and fails in the first request",
            remedy=f"pip install 'sglang>={spelled(capture.embedding_since)}'",
        )
    elif unreachable:
        report.error(
            "boundary-unreachable",
            where,
            f"boundaries in {_span(native)}, which {delivers}",
            describe_all(unreachable, n),
            why="the class never captures it and says nothing",
            remedy="train the draft on other states; no injected capture exists for this class yet",
        )


def _span(native: list[int]) -> str:
    return f"{native[0]}..{native[-1]}" if native else "none"
