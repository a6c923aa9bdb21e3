"""Owns what SGLang alone, without this package, makes of a draft's files. Headers only.

Source: sglang/srt/models/llama_eagle3.py, kimi_k25_eagle3.py, registry and spec_aux_hidden_state.py of 0.5.23.
"""

from __future__ import annotations

from collections.abc import Iterator

from eagle3_adapters.formats.dialect import SECTION, architecture_of
from eagle3_adapters.formats.ids import IDS
from eagle3_adapters.formats.sglang import ARCHITECTURES
from eagle3_adapters.values import DraftModel, FormatReading

#: A flag of the math -> what SGLang's class does instead.
_DROPPED = {
    "norm_before_residual": "its residual is the un-normed state",
    "double_norm": "it norms the state once",
}


def stock_reading(raw: DraftModel, reading: FormatReading) -> tuple[str, ...]:
    """One line for each thing that differs from what the trainer meant; the first where it does not start at all.

    ``raw`` is the draft as its files say, ``reading`` what its format makes of it.
    """
    architecture = architecture_of(raw.config)
    if architecture not in ARCHITECTURES:
        return (f"refuses to start: it knows no {architecture or 'class, and config.json names none'}",)
    told = (*_sizes(raw), *_ids(raw, reading), *_tensors(raw), *_math(reading), *_vocabulary(reading))
    return told or ("serves it as its trainer meant it, if the layer ids are right for the target's class",)


def _sizes(raw: DraftModel) -> Iterator[str]:
    missing = [key for key in ("hidden_size", "draft_vocab_size") if key not in raw.config]
    if missing:
        yield f"fails while it starts: config.json has no {', '.join(missing)}"


def _ids(raw: DraftModel, reading: FormatReading) -> Iterator[str]:
    section = raw.config.get(SECTION)
    seen = section.get(IDS) if isinstance(section, dict) else None
    declared = reading.id_readings[0]
    if seen is None and declared.ids is not None:
        yield f"does not see the ids {list(declared.ids)} where they stand, and captures its default layers"
    elif seen is not None and declared.convention is not None:
        yield f"reads the ids {seen} by the rule of the target's class, not as {declared.meaning}"
    if reading.listed_order and declared.ids is not None and list(declared.ids) != sorted(declared.ids):
        yield "joins the states in the order of the layers, not of the list that fc was trained on"


def _tensors(raw: DraftModel) -> Iterator[str]:
    known = (
        "midlayer.",
        "layers.",
        "fc.",
        "fc_norm.",
        "input_norm.",
        "norm.",
        "lm_head.",
        "embed_tokens.",
        "d2t",
        "t2d",
    )
    strangers = [name for name in raw.tensors if not name.removeprefix("model.").startswith(known)]
    if strangers:
        yield f"drops {len(strangers)} tensors without a word, first {strangers[0]}"
    biases = [name for name in raw.tensors if name.endswith(".bias")]
    norms = [name for name in raw.tensors if name.endswith(("q_norm.weight", "k_norm.weight"))]
    for names, what in ((biases, "biases"), (norms, "norms of queries and keys")):
        if names:
            yield f"drops {len(names)} {what}"
    deeper = [
        name for name in raw.tensors if ".input_layernorm." in name and not name.startswith(("midlayer.", "layers.0."))
    ]
    if deeper and not any(name.replace("input_layernorm", "hidden_norm") in raw.tensors for name in deeper):
        yield "runs the deeper layers with a hidden_norm of ones: they are called input_layernorm here"


def _math(reading: FormatReading) -> Iterator[str]:
    for flag, instead in _DROPPED.items():
        if getattr(reading.math, flag):
            yield f"ignores {flag}: {instead}"
    if reading.embedding_trained:
        yield "puts the target's embedding in place of the trained one"


def _vocabulary(reading: FormatReading) -> Iterator[str]:
    names = set(reading.draft.tensors)
    size, reduced = reading.draft.config.get("vocab_size"), reading.draft.config.get("draft_vocab_size")
    if reduced not in (None, size) and "d2t" not in names:
        yield "takes draft ids for target ids: there is no d2t"
    if reading.draft.config.get("tie_word_embeddings") and "lm_head.weight" in names:
        yield "drops lm_head.weight, since tie_word_embeddings is true"
