"""Owns the checks of a draft's config beside its target's: sizes, rotary embedding, context, quantisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eagle3_adapters.report import Report
from eagle3_adapters.values import Config, DraftModel, TargetModel

_REQUIRED = ("hidden_size", "num_attention_heads", "intermediate_size", "vocab_size", "rms_norm_eps")


def config_complete(draft: DraftModel, fields: tuple[str, ...], report: Report) -> bool:
    """Every number that the draft class is built from is there (``fields``: its own ones): no default is invented."""
    complete = True
    for key in (*_REQUIRED, *fields):
        value = draft.config.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            report.error(
                "config-unreadable",
                f"{draft.config_file}: {key}",
                "a positive number",
                repr(value),
                why="the draft class is built from it",
                remedy=f'write "{key}" as the training run had it',
            )
            complete = False
    return complete


def sizes(target: TargetModel, draft: DraftModel, report: Report) -> Config:
    """Hidden size and vocabulary fit the target. Returns the config to go on with: by the tensors where it lies."""
    config, file = draft.config, draft.config_file
    reads = config.get("target_hidden_size") or config["hidden_size"]
    fc = draft.tensors.get("fc.weight")
    by_tensors = fc.shape[0] if fc is not None and fc.shape else None
    if reads != target.hidden_size:
        key = "target_hidden_size" if config.get("target_hidden_size") else "hidden_size"
        lies = key == "hidden_size" and by_tensors == target.hidden_size
        report.error(
            "hidden-size",
            f"{file}: {key}",
            f"{target.hidden_size}, the hidden size of {target.path}" + (" and the rows of fc.weight" if lies else ""),
            str(reads),
            why="SGLang would build a draft of another width" if lies else "fc would read states of another width",
            remedy=f'set "hidden_size": {target.hidden_size}'
            if lies
            else "check that this draft was trained for this target",
        )
        if lies:
            config = {**config, "hidden_size": target.hidden_size}
    if config["vocab_size"] != target.vocab_size:
        report.error(
            "vocab-size",
            f"{file}: vocab_size",
            f"{target.vocab_size}, the vocabulary of {target.path}",
            str(config["vocab_size"]),
            why="draft ids would be mapped into another vocabulary",
            remedy="check that this draft was trained for this target",
        )
    return config


def rope(target: TargetModel, config: Mapping[str, Any], where: object, report: Report) -> None:
    """A rotary base that is missing or unlike the target's is legal and suspect."""
    own, theirs = _theta(config), _theta(target.text)
    if own is None:
        report.warning(
            "rope-base",
            f"{where}: rope_theta",
            f"the base that the draft was trained with (the target has {theirs})",
            "none; SGLang uses 10000",
            remedy='write "rope_theta" as the training run had it',
        )
    elif theirs is not None and own != theirs:
        report.warning(
            "rope-base",
            f"{where}: rope_theta",
            f"{theirs}, as the target's",
            str(own),
            why="right only where the trainer used this base; some train at 10000 whatever the config says",
        )
    own_scaling, their_scaling = _scaling(config), _scaling(target.text)
    if own_scaling != their_scaling:
        report.warning(
            "rope-scaling",
            f"{where}: rope_scaling",
            f"{_words(their_scaling)}, as the target's",
            _words(own_scaling),
            why="right only where the trainer had it so; converters have dropped scaling",
            remedy='write "rope_scaling" as the training run had it',
        )


def _scaling(config: Config) -> dict[str, Any]:
    """Kind and parameters of the scaling, without the base; empty for plain positions."""
    if rope_kind(config) == "default":
        return {}
    others = {
        key: value for key, value in rope_settings(config).items() if key not in ("type", "rope_type", "rope_theta")
    }
    return {"kind": rope_kind(config), **others}


def _words(scaling: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in scaling.items()) or "no scaling"


def _theta(config: Mapping[str, Any]) -> object:
    parameters = config.get("rope_parameters")
    nested = parameters.get("rope_theta") if isinstance(parameters, dict) else None
    return nested if nested is not None else config.get("rope_theta")


def rope_settings(config: Config) -> dict[str, Any]:
    """The nested rotary settings, under either of their two keys (transformers 4 and 5)."""
    for key in ("rope_parameters", "rope_scaling"):
        nested = config.get(key)
        if isinstance(nested, dict):
            return nested
    return {}


def rope_kind(config: Config) -> str:
    """``default``, ``llama3``, ``yarn`` …, under either spelling."""
    nested = rope_settings(config)
    return str(nested.get("rope_type") or nested.get("type") or "default")


def respelled_rope(draft: DraftModel, report: Report) -> Config:
    """The rotary settings under both spellings, old and new: SGLang's releases read one or the other."""
    config, nested = dict(draft.config), dict(rope_settings(draft.config))
    changes: list[str] = []
    if "type" in nested and "rope_type" not in nested:
        nested["rope_type"] = nested["type"]
        changes.append('"rope_type" beside "type"')
    if config.get("rope_theta") is None and nested.get("rope_theta") is not None:
        config["rope_theta"] = nested["rope_theta"]
        changes.append('"rope_theta" at the top level too')
    if config.get("partial_rotary_factor") is None and nested.get("partial_rotary_factor") is not None:
        config["partial_rotary_factor"] = nested["partial_rotary_factor"]
        changes.append('"partial_rotary_factor" at the top level too, where alone SGLang\'s class reads it')
    if changes:
        report.info(
            "rope-spelling",
            f"{draft.config_file}: rope",
            "both spellings of the rotary settings",
            f"one; written {' and '.join(changes)}",
        )
        key = "rope_parameters" if isinstance(config.get("rope_parameters"), dict) else "rope_scaling"
        config[key] = nested
    return config


def context(target: TargetModel, draft: DraftModel, served: int | None, default: int, report: Report) -> None:
    """The draft's positions reach as far as the context that is served (``served``, else the target's).

    ``default``: what transformers says where the draft's config says nothing.
    """
    limit = served or target.text.get("max_position_embeddings")
    own = draft.config.get("max_position_embeddings", default)
    if isinstance(limit, int) and isinstance(own, int) and own < limit:
        report.warning(
            "context-short",
            f"{draft.config_file}: max_position_embeddings",
            f"{limit}, the served context",
            str(own),
            why=f"beyond {own} tokens SGLang refuses the draft, or its acceptance falls",
            remedy=f"--context-length {own}, or raise it if the draft was trained on longer text",
        )


def window(draft: DraftModel, report: Report) -> None:
    """A sliding window that the draft was trained with: SGLang's draft class reads none from the config."""
    size, kinds = draft.config.get("sliding_window"), draft.config.get("layer_types") or ()
    if isinstance(size, int) and ("sliding_attention" in kinds or draft.config.get("use_sliding_window") is True):
        report.warning(
            "sliding-window",
            f"{draft.config_file}: sliding_window",
            "full attention, which SGLang's draft class runs whatever the config says",
            f"{size} tokens",
            why=f"beyond {size} tokens the draft would attend to more than in training",
            remedy=f"--speculative-draft-window-size {size}",
        )


def quantization(draft: DraftModel, report: Report) -> tuple[Config, str | None]:
    """The config without an empty quantisation, and the draft's own method (None: plain weights)."""
    config = dict(draft.config)
    own = config.get("quantization_config")
    method = own.get("quant_method") or own.get("quant_algo") if isinstance(own, dict) else None
    beside = draft.quantization_file
    if beside is not None:
        section = beside.get("quantization", beside)
        method = method or (section.get("quant_algo") if isinstance(section, dict) else None)
    if method is None and (own is not None or beside is not None):
        config.pop("quantization_config", None)
        report.info(
            "quantization-null",
            str(draft.config_file if beside is None else draft.path / "hf_quant_config.json"),
            "a method, or no quantisation at all",
            "an entry without a method; the draft is served in its own dtype",
        )
    return config, None if method is None else str(method)
