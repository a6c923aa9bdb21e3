"""Owns what there is to say about a draft in words: the rows of ``inspect``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import attrs

from eagle3_adapters.boundaries import describe_all
from eagle3_adapters.canonical import VOCABULARY
from eagle3_adapters.errors import ConventionError
from eagle3_adapters.formats.names import depth_of
from eagle3_adapters.planning.config_checks import rope_kind, rope_settings
from eagle3_adapters.planning.ids import resolve_reading
from eagle3_adapters.values import CaptureLayers, DraftModel, FormatReading, IdReading, TargetModel

Row = tuple[str, str]
_MEANING = {
    "norm_before_residual": "the first layer's residual is the normed state",
    "norm_before_fc": "one norm over all states before fc",
    "fc_norm": "a norm for each state before fc",
    "norm_output": "later draft steps continue from the normed output",
    "double_norm": "the state passes input_layernorm and hidden_norm before the first layer",
}


def describe_draft(
    raw: DraftModel, reading: FormatReading, target: TargetModel | None, capture: CaptureLayers | None
) -> tuple[Row, ...]:
    """Name and value of each fact, in the order of the data path. ``raw`` has the names of the file."""
    version = f" {reading.trainer_version}" if reading.trainer_version else ""
    ids = [describe_ids(one, target, capture) for one in reading.id_readings]
    listed = {
        True: "in the order of the list",
        False: "in the order of the layers",
        None: "in an order that the file does not say",
    }
    return (
        ("format", f"{reading.format}{version}"),
        ("because", "; ".join(reading.evidence)),
        ("states", ids[0] + f"; joined {listed[reading.listed_order]}"),
        *(("or", other) for other in ids[1:]),
        ("shape", "; ".join(_shape(raw, reading))),
        ("tensors", _tensors(raw)),
        ("vocabulary", _vocabulary(reading)),
        *_flags(reading),
        ("rotary", _rotary(reading)),
        ("embedding", _embedding(raw, reading)),
    )


def describe_ids(reading: IdReading, target: TargetModel | None, capture: CaptureLayers | None) -> str:
    """One reading of the ids: the numbers, what they mean, the states in words as far as they are known."""
    ids = "no ids, the default" if reading.ids is None else f"ids {list(reading.ids)}"
    try:
        if target is not None and capture is not None:
            words = describe_all(resolve_reading(reading, target, capture), target.num_layers)
        elif reading.ids is None or reading.convention is None:
            return f"{ids} ({reading.meaning}; --target says which states)"
        else:
            words = describe_all(reading.convention.to_boundaries(reading.ids, 0), None)
    except ConventionError as error:
        words = str(error)
    return f"{ids}: {words} ({reading.meaning})"


def _shape(raw: DraftModel, reading: FormatReading) -> Iterator[str]:
    config, names = reading.draft.config, raw.tensors
    depth = depth_of(names)
    yield f"{depth} decoder layer{'s' if depth > 1 else ''}"
    heads, keys, size = (config.get(key) for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    latent = any(name.endswith("kv_a_proj_with_mqa.weight") for name in names)
    attention = "latent (MLA) attention" if latent else f"{heads} heads ({keys or heads} for keys and values)"
    yield f"hidden {config.get('hidden_size')}, MLP {config.get('intermediate_size')}, {attention}"
    if size and not latent:
        yield f"head_dim {size}"
    joins = [tensor for name, tensor in names.items() if name.removeprefix("model.") == "fc.weight"]
    for fc in joins:
        yield f"fc {list(fc.shape)}"


def _tensors(raw: DraftModel) -> str:
    tensors = raw.tensors.values()
    kinds = Counter(tensor.dtype for tensor in tensors)
    size = sum(tensor.stop - tensor.start for tensor in tensors)
    files = len({tensor.file for tensor in tensors})
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return f"{len(tensors)} ({counts}), {size / 1e6:,.1f} MB in {files} file{'s' if files > 1 else ''}"


def _vocabulary(reading: FormatReading) -> str:
    config = reading.draft.config
    size, own = config.get("vocab_size"), config.get("draft_vocab_size") or config.get("vocab_size")
    return f"{own} of {size} target tokens; maps: {vocabulary_maps(reading)}"


def vocabulary_maps(reading: FormatReading) -> str:
    """The vocabulary tensors that the file has, by their canonical names, and what ``d2t`` holds."""
    known = {
        str(reading.keys.apply(name)): one for name, one in reading.draft.tensors.items() if reading.keys.takes(name)
    }
    found = [f"{name} {list(known[name].shape)}" for name in VOCABULARY if name in known]
    holds = f", d2t holds {reading.draft.vocab_encoding.value}s" if "d2t" in known else ""
    return (" and ".join(found) or "none") + holds


def _flags(reading: FormatReading) -> Iterator[Row]:
    on = [flag for flag, value in attrs.asdict(reading.math).items() if value]
    if not on:
        yield "math", "plain EAGLE-3: no flag is set"
    for flag in on:
        yield "math", f"{flag}: {_MEANING[flag]}"


def _rotary(reading: FormatReading) -> str:
    config = reading.draft.config
    settings = rope_settings(config)
    base = config.get("rope_theta", settings.get("rope_theta", "not stated"))
    kind = rope_kind(config)
    scaling = "no scaling" if kind == "default" else kind
    return f"base {base}, {scaling}, {config.get('max_position_embeddings', 'unknown')} positions"


def _embedding(raw: DraftModel, reading: FormatReading) -> str:
    if not any(name.endswith("embed_tokens.weight") for name in raw.tensors):
        return "none: the target's"
    said = {
        True: "trained with the draft",
        False: "a frozen copy of the target's",
        None: "the file does not say whether trained",
    }
    return f"in the file; {said[reading.embedding_trained]}"
