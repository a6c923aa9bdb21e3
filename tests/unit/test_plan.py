"""One row for each way in which a pair can be wrong, with its near miss; then what a right pair's plan says."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.checkpoints import (
    DRAFT_VOCAB,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INNER,
    TARGET_IDS,
    VOCAB,
    Array,
    draft_tensors,
    sglang_config,
    speculators_config,
    target_config,
    write_draft,
    write_safetensors,
    write_target,
)
from support.plugin_rules import INJECTED, LATE, architecture, registry

from eagle3_adapters import draft_classes, pair, vocab
from eagle3_adapters.boundaries import DEEPSEEK_RULE, GPT_OSS_RULE, OUTPUT_OF_LAYER
from eagle3_adapters.engine_version import INJECTED as EXECUTED
from eagle3_adapters.engine_version import spelled
from eagle3_adapters.errors import Severity
from eagle3_adapters.formats.ids import IDS
from eagle3_adapters.formats.modelopt import MARKS
from eagle3_adapters.pair import AUTO, Request, plan_pair
from eagle3_adapters.planning import config_checks, plan, routes, tensors, vocabulary
from eagle3_adapters.planning import ids as planned_ids
from eagle3_adapters.planning import math as planned_math
from eagle3_adapters.wiring import Planning, WiringPlan

E, W, I = Severity.ERROR, Severity.WARNING, Severity.INFO  # noqa: E741 - the letters of findings.md
SGLANG, SPECULATORS = "sglang", "speculators"
ENGINE = "0.5.23"
REGISTRY = registry()


@attrs.define
class Pair:
    """A correct pair, to be spoilt: boundaries 2, 4, 5 (sglang) or 0, 2, 5 (speculators) of 8 layers."""

    base: str
    target: dict[str, Any]
    config: dict[str, Any]
    tensors: dict[str, Array]
    #: A second file of the draft.
    second: dict[str, Array] = attrs.field(factory=dict)
    adapter: str = AUTO
    format: str = AUTO
    boundaries: tuple[int, ...] | None = None
    context_length: int | None = None
    draft_is_target: bool = False
    engine: str = ENGINE

    @classmethod
    def correct(cls, base: str) -> Pair:
        config = sglang_config() if base == SGLANG else speculators_config()
        target = target_config(architectures=[architecture(OUTPUT_OF_LAYER.name)])
        return cls(base, target, config, draft_tensors())

    def written(self) -> dict[str, Array]:
        """The tensors under the base's own names: SGLang's dialect calls the layer of a one-layer draft midlayer."""
        deep = any(name.startswith("layers.1.") for name in self.tensors)
        if self.base != SGLANG or deep:
            return self.tensors
        return {re.sub(r"^layers\.0\.", "midlayer.", name): one for name, one in self.tensors.items()}

    def plan(self, engine: str | None = None) -> Planning:
        with tempfile.TemporaryDirectory() as name:
            return self.plan_in(Path(name), engine)

    def plan_in(self, directory: Path, engine: str | None = None) -> Planning:
        target = write_target(directory / "target", self.target)
        draft = write_draft(directory / "draft", self.config, self.written())
        if self.second:
            write_safetensors(draft / "second.safetensors", self.second)
        request = Request(
            target=str(target),
            draft=str(target if self.draft_is_target else draft),
            adapter=self.adapter,
            format=self.format,
            boundaries=self.boundaries,
            context_length=self.context_length,
        )
        return plan_pair(request, REGISTRY, engine or self.engine)


Step = Callable[[Pair], None]


def layer(**changes: Any) -> Step:
    """Fields of the draft's decoder layer, wherever the base keeps them."""

    def step(p: Pair) -> None:
        (p.config if p.base == SGLANG else p.config["transformer_layer_config"]).update(changes)

    return step


def top(**changes: Any) -> Step:
    return lambda p: p.config.update(changes)


def nested(**changes: Any) -> Step:
    return lambda p: p.config["eagle_config"].update(changes)


def target(**changes: Any) -> Step:
    return lambda p: p.target.update(changes)


def no_key(*keys: str) -> Step:
    def step(p: Pair) -> None:
        for key in keys:
            del p.config[key]

    return step


def ids(*boundaries: int) -> Step:
    """Ids that mean these boundaries to the base, on a target whose ids name outputs."""

    def step(p: Pair) -> None:
        if p.base == SGLANG:
            p.config["eagle_config"][IDS] = [k - 1 for k in boundaries]
        else:
            p.config[IDS] = list(boundaries)

    return step


def no_ids(p: Pair) -> None:
    del (p.config["eagle_config"] if p.base == SGLANG else p.config)[IDS]


def tensor(name: str, *shape: int, dtype: str = "F32", values: Any = 0.5) -> Step:
    return lambda p: p.tensors.update({name: Array(dtype, shape, values)})


def d2t(values: list[int] | tuple[int, ...], dtype: str = "I64") -> Step:
    return tensor("d2t", len(values), dtype=dtype, values=values)


def t2d(chosen: tuple[int, ...], size: int = VOCAB) -> Step:
    return tensor("t2d", size, dtype="BOOL", values=[i in chosen for i in range(size)])


def without(*names: str) -> Step:
    def step(p: Pair) -> None:
        for name in names:
            del p.tensors[name]

    return step


def asked(**changes: Any) -> Step:
    """What the user asks for beside the two names."""

    def step(p: Pair) -> None:
        for name, value in changes.items():
            setattr(p, name, value)

    return step


def own_format(p: Pair) -> None:
    p.format = p.base


def second_file(*names: str, keep: bool) -> Step:
    def step(p: Pair) -> None:
        p.second.update({name: p.tensors[name] if keep else p.tensors.pop(name) for name in names})

    return step


def then(*steps: Step) -> Step:
    def step(p: Pair) -> None:
        for one in steps:
            one(p)

    return step


def nothing(p: Pair) -> None:
    """The correct pair itself is the near miss."""


def offsets(target_ids: tuple[int, ...]) -> list[int]:
    return [target_id - i for i, target_id in enumerate(target_ids)]


def states(count: int, width: int = HIDDEN) -> Step:
    return tensor("fc.weight", HIDDEN, count * width)


FULL_VOCABULARY = then(tensor("lm_head.weight", VOCAB, HIDDEN), top(draft_vocab_size=VOCAB))


def depth(layers: int) -> Step:
    """Deeper decoder layers read one width and, in SGLang's class, norm no embedding."""
    first = {name: tensor.shape for name, tensor in draft_tensors().items() if name.startswith("layers.0.")}
    return then(
        *(
            tensor(name.replace("layers.0", f"layers.{i}"), *(shape[:1] if len(shape) == 1 else deeper(name, shape)))
            for i in range(1, layers)
            for name, shape in first.items()
            if "input_layernorm" not in name
        ),
        layer(num_hidden_layers=layers),
    )


def deeper(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A matrix below the first layer: queries, keys and values read one width instead of two."""
    reads_two = any(part in name for part in ("q_proj", "k_proj", "v_proj"))
    return (shape[0], HIDDEN) if reads_two else shape


SECOND_LAYER = depth(2)
FC_NORMS = then(*(tensor(f"fc_norm.{state}.weight", HIDDEN) for state in range(3)))
INPUT_NORM = tensor("input_norm.weight", 3 * HIDDEN)
QK_NORM = then(*(tensor(f"layers.0.self_attn.{part}_norm.weight", HEAD_DIM) for part in "qk"))
QKV_BIAS = then(
    tensor("layers.0.self_attn.q_proj.bias", HEADS * HEAD_DIM),
    *(tensor(f"layers.0.self_attn.{part}_proj.bias", HEAD_DIM) for part in "kv"),
)
OUTPUT_BIAS = tensor("layers.0.self_attn.o_proj.bias", HIDDEN)
MLP_BIAS = then(
    *(tensor(f"layers.0.mlp.{part}_proj.bias", INNER) for part in ("gate", "up")),
    tensor("layers.0.mlp.down_proj.bias", HIDDEN),
)
LATENT = then(
    without(*(f"layers.0.self_attn.{part}_proj.weight" for part in "qkv")),
    tensor("layers.0.self_attn.q_a_proj.weight", 4, 2 * HIDDEN),
    tensor("layers.0.self_attn.q_a_layernorm.weight", 4),
    tensor("layers.0.self_attn.q_b_proj.weight", HEADS * HEAD_DIM, 4),
    tensor("layers.0.self_attn.kv_a_proj_with_mqa.weight", 6, 2 * HIDDEN),
    tensor("layers.0.self_attn.kv_a_layernorm.weight", 4),
    tensor("layers.0.self_attn.kv_b_proj.weight", HEADS * (2 + HEAD_DIM), 4),
    layer(q_lora_rank=4, kv_lora_rank=4, qk_nope_head_dim=2, qk_rope_head_dim=2, v_head_dim=HEAD_DIM),
)
OTHER_CLASS = "the tensors of another class: faults of ordinary heads cannot be planted beside it"
AS_MANY_KV_HEADS = then(
    layer(num_key_value_heads=HEADS),
    *(tensor(f"layers.0.self_attn.{part}_proj.weight", HEADS * HEAD_DIM, 2 * HIDDEN) for part in "kv"),
)


def other_width(width: int, count: int) -> Step:
    """A target of another hidden size: the draft keeps an embedding of its own."""
    return then(
        target(hidden_size=width),
        top(target_hidden_size=width),
        states(count, width),
        tensor("embed_tokens.weight", VOCAB, HIDDEN),
    )


@attrs.frozen(kw_only=True)
class Row:
    """A fault, what must be found, and the nearest pair that must not be found so."""

    name: str
    code: str
    severity: Severity
    plant: Step
    near: Step
    #: What the fault is made of: two faults of one substance cannot be planted beside each other.
    touches: frozenset[str]
    bases: tuple[str, ...] = (SGLANG, SPECULATORS)
    #: Why nothing else can be seen behind it, where that is so.
    hides: str = ""


def row(name: str, code: str, severity: Severity, plant: Step, near: Step, *touches: str, **more: Any) -> Row:
    return Row(name=name, code=code, severity=severity, plant=plant, near=near, touches=frozenset(touches), **more)


WITH_INJECTED = target(architectures=[architecture(OUTPUT_OF_LAYER.name + INJECTED)])
ONE = (SGLANG,)
OTHER = (SPECULATORS,)
ROWS = (
    # The pair.
    row(
        "the draft is the target",
        "draft-is-target",
        E,
        asked(draft_is_target=True),
        nothing,
        hides="there is no draft to look at",
    ),
    row(
        "as many layers as the target",
        "draft-is-target",
        E,
        depth(8),
        then(depth(8), target(num_hidden_layers=9)),
        "depth",
        "ids",
    ),
    row(
        "an adapter of another class",
        "adapter-mismatch",
        E,
        asked(adapter=GPT_OSS_RULE.name),
        asked(adapter=OUTPUT_OF_LAYER.name),
        "ids",
    ),
    # The config.
    row(
        "no epsilon",
        "config-unreadable",
        E,
        layer(rms_norm_eps=None),
        layer(rms_norm_eps=1),
        hides="no class can be built from a config with holes",
    ),
    row(
        "a draft of another width",
        "hidden-size",
        E,
        top(target_hidden_size=16),
        top(target_hidden_size=HIDDEN),
        "width",
        "fc",
        "embedding",
    ),
    row(
        "a null target width",
        "hidden-size",
        I,
        top(target_hidden_size=None),
        top(target_hidden_size=HIDDEN),
        "width",
        bases=ONE,
    ),
    row(
        "another vocabulary",
        "vocab-size",
        E,
        layer(vocab_size=VOCAB + 1),
        then(layer(vocab_size=64), target(vocab_size=64), t2d(TARGET_IDS, 64)),
        "map",
        "width",
    ),
    row(
        "a declared draft vocabulary that lm_head has not",
        "vocab-size",
        E,
        top(draft_vocab_size=DRAFT_VOCAB + 1),
        no_key("draft_vocab_size"),
        "head",
    ),
    row(
        "no rotary base",
        "rope-base",
        W,
        layer(rope_theta=None),
        layer(rope_theta=None, rope_parameters={"rope_theta": 10000.0}),
        "rope",
    ),
    row(
        "a rotary base unlike the target's",
        "rope-base",
        W,
        layer(rope_theta=5e5),
        then(layer(rope_theta=5e5), target(rope_theta=500000)),
        "rope",
    ),
    row(
        "scaled positions on the target alone",
        "rope-scaling",
        W,
        target(rope_scaling={"rope_type": "llama3", "factor": 8.0}),
        then(
            target(rope_scaling={"rope_type": "llama3", "factor": 8.0}),
            layer(rope_scaling={"rope_type": "llama3", "factor": 8.0}),
        ),
        "rope",
    ),
    row(
        "scaled positions on the draft alone",
        "rope-scaling",
        W,
        layer(rope_scaling={"rope_type": "llama3", "factor": 8.0}),
        layer(rope_scaling={"rope_type": "default"}),
        "rope",
    ),
    row(
        "another factor than the target's",
        "rope-scaling",
        W,
        then(
            target(rope_scaling={"rope_type": "llama3", "factor": 8.0}),
            layer(rope_scaling={"rope_type": "llama3", "factor": 4.0}),
        ),
        then(
            target(rope_parameters={"rope_type": "llama3", "factor": 8.0, "rope_theta": 10000.0}),
            layer(rope_scaling={"rope_type": "llama3", "factor": 8.0}),
        ),
        "rope",
    ),
    row(
        "a sliding window",
        "sliding-window",
        W,
        layer(sliding_window=16, layer_types=["sliding_attention"]),
        layer(sliding_window=16, use_sliding_window=False),
        "window",
    ),
    row(
        "the old spelling of scaling",
        "rope-spelling",
        I,
        layer(rope_scaling={"type": "linear", "factor": 2.0}),
        layer(rope_scaling={"rope_type": "linear", "factor": 2.0}),
        "rope",
    ),
    row(
        "the base in the new place alone",
        "rope-spelling",
        I,
        layer(rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
        layer(rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
        "rope",
    ),
    row(
        "positions short of the target's context",
        "context-short",
        W,
        target(max_position_embeddings=65),
        target(max_position_embeddings=64),
        "context",
    ),
    row(
        "positions short of the served context",
        "context-short",
        W,
        asked(context_length=65),
        then(target(max_position_embeddings=65), asked(context_length=64)),
        "context",
    ),
    row(
        "a quantisation without a method",
        "quantization-null",
        I,
        layer(quantization_config={"quant_algo": None}),
        nothing,
        "quantisation",
    ),
    row(
        "a quantised draft by its config",
        "draft-quantized",
        E,
        layer(quantization_config={"quant_method": "fp8"}),
        layer(quantization_config={}),
        "quantisation",
    ),
    row(
        "a quantised draft by its scales",
        "draft-quantized",
        E,
        tensor("layers.0.mlp.up_proj.weight_scale", 1),
        nothing,
        "quantisation",
    ),
    row(
        "boundaries asked for against clear ids",
        "layer-ids-overridden",
        W,
        asked(boundaries=(1, 3, 6)),
        then(ids(1, 3, 6), asked(boundaries=(6, 1, 3))),
        "ids",
        "fc",
    ),
    row(
        "the target is a draft",
        "pair-swapped",
        E,
        target(draft_vocab_size=8),
        target(vocab_size=VOCAB),
        hides="nothing can be said of a target that is none",
    ),
    row(
        "the format of another trainer, by name",
        "format-mismatch",
        E,
        asked(format=SGLANG),
        asked(format=SPECULATORS),
        "format",
        bases=OTHER,
        hides="read in another dialect the files say something else",
    ),
    row(
        "a second layer under another trainer's norm name",
        "layer-norm-name",
        I,
        then(
            SECOND_LAYER,
            without("layers.1.hidden_norm.weight"),
            tensor("layers.1.input_layernorm.weight", HIDDEN),
        ),
        then(SECOND_LAYER, tensor("layers.1.input_layernorm.weight", HIDDEN)),
        "depth",
        bases=ONE,
    ),
    row(
        "a first layer that ModelOpt trained with two norms",
        "double-norm",
        I,
        then(nested(**MARKS, next_layer_regular=True), top(eos_token_id=1)),
        then(nested(**MARKS), top(eos_token_id=1)),
        "format",
        "depth",
        "norm_output",
        bases=ONE,
    ),
    row(
        "a layer number left out",
        "weight-missing",
        E,
        tensor("layers.7.hidden_norm.weight", HIDDEN),
        nothing,
        "depth",
    ),
    row(
        "norm_output in SGLang's dialect",
        "norm-output-meaning",
        W,
        top(norm_output=True),
        nothing,
        "norm_output",
        bases=ONE,
    ),
    row(
        "norm_output false in SGLang's dialect",
        "norm-output-meaning",
        W,
        top(norm_output=False),
        nothing,
        "norm_output",
        bases=ONE,
    ),
    row(
        "target ids for offsets, provably",
        "vocab-map-absolute",
        I,
        then(without("t2d"), d2t(TARGET_IDS)),
        then(without("t2d"), d2t(offsets(TARGET_IDS))),
        "map",
    ),
    row(
        "numbers that are a map either way",
        "vocab-map-absolute",
        E,
        then(without("t2d"), d2t((0, 1, 2, 3, 4, 5, 6, 7))),
        then(d2t((0, 1, 2, 3, 4, 5, 6, 7)), t2d((0, 2, 4, 6, 8, 10, 12, 14))),
        "map",
    ),
    row("a depth without layers", "draft-depth", I, layer(num_hidden_layers=3), SECOND_LAYER, "depth"),
    # The math.
    row(
        "norm before residual",
        "norm-before-residual",
        I,
        top(norm_before_residual=True),
        top(norm_before_residual=False),
        "residual",
    ),
    row(
        "norm before residual unsaid",
        "norm-before-residual",
        E,
        no_key("norm_before_residual"),
        top(norm_before_residual=False),
        "residual",
        bases=OTHER,
    ),
    row(
        "states switched off",
        "aux-disabled",
        E,
        nested(use_aux_hidden_state=False),
        nested(use_aux_hidden_state=True),
        "switch",
        "fc",
        bases=ONE,
    ),
    row(
        "a head without its norm",
        "norm-output-meaning",
        I,
        then(asked(format="specforge"), top(norm_output=False)),
        then(asked(format="specforge"), top(norm_output=True)),
        "norm_output",
        "format",
        bases=ONE,
    ),
    row("norms of queries and keys", "qk-norm", I, QK_NORM, then(INPUT_NORM, top(norm_before_fc=True)), "qk norm"),
    row(
        "a norm of queries alone",
        "weight-missing",
        E,
        then(QK_NORM, without("layers.0.self_attn.k_norm.weight")),
        QK_NORM,
        "qk norm",
    ),
    row("biases of q, k and v", "projection-bias", I, QKV_BIAS, OUTPUT_BIAS, "bias"),
    row(
        "biases of q, k and v in the first of two layers",
        "weight-missing",
        E,
        then(SECOND_LAYER, QKV_BIAS),
        SECOND_LAYER,
        "bias",
        "depth",
    ),
    row("bias of fc", "projection-bias", I, tensor("fc.bias", HIDDEN), OUTPUT_BIAS, "bias"),
    row(
        "a bias that is declared only",
        "bias-flag-without-tensor",
        I,
        layer(attention_bias=True),
        layer(attention_bias=False),
        "bias",
    ),
    row("biases of the MLP", "mlp-bias", I, MLP_BIAS, nothing, "bias"),
    row(
        "norms of latent queries",
        "qk-norm",
        E,
        then(LATENT, QK_NORM),
        LATENT,
        hides=OTHER_CLASS,
    ),
    row(
        "a bias of the output projection of latent attention",
        "projection-bias",
        E,
        then(LATENT, OUTPUT_BIAS),
        then(LATENT, tensor("fc.bias", HIDDEN)),
        hides=OTHER_CLASS,
    ),
    row(
        "biases of the MLP beside latent attention",
        "mlp-bias",
        I,
        then(LATENT, MLP_BIAS),
        LATENT,
        hides=OTHER_CLASS,
    ),
    row(
        "state norms without their flag",
        "norm-tensor-without-flag",
        I,
        FC_NORMS,
        then(FC_NORMS, top(fc_norm=True)),
        "fc norms",
        "fc",
    ),
    row(
        "input norm without its flag",
        "norm-tensor-without-flag",
        I,
        INPUT_NORM,
        then(INPUT_NORM, top(norm_before_fc=True)),
        "input norm",
        "fc",
    ),
    row(
        "a flag without state norms",
        "norm-flag-without-tensor",
        E,
        top(fc_norm=True),
        then(FC_NORMS, top(fc_norm=True)),
        "fc norms",
    ),
    row(
        "a flag without input norm",
        "norm-flag-without-tensor",
        E,
        top(norm_before_fc=True),
        then(INPUT_NORM, top(norm_before_fc=True)),
        "input norm",
    ),
    row(
        "latent queries without latent keys",
        "weight-missing",
        E,
        then(LATENT, without("layers.0.self_attn.kv_a_proj_with_mqa.weight")),
        LATENT,
        hides=OTHER_CLASS,
    ),
    row(
        "latent keys without latent queries",
        "weight-missing",
        E,
        then(LATENT, without("layers.0.self_attn.q_a_proj.weight")),
        LATENT,
        hides=OTHER_CLASS,
    ),
    row(
        "latent attention of unknown sizes",
        "config-unreadable",
        E,
        then(LATENT, layer(q_lora_rank=None)),
        LATENT,
        hides=OTHER_CLASS,
    ),
    row(
        "two layers of latent attention",
        "draft-depth",
        E,
        then(LATENT, tensor("layers.1.hidden_norm.weight", HIDDEN)),
        SECOND_LAYER,
        hides=OTHER_CLASS,
    ),
    row(
        "a norm before fc that SGLang's class for latent attention lacks",
        "norm-before-fc",
        I,
        then(LATENT, INPUT_NORM, top(norm_before_fc=True)),
        then(LATENT, FC_NORMS, top(fc_norm=True)),
        hides=OTHER_CLASS,
    ),
    row(
        "ordinary heads beside latent queries",
        "weight-unmapped",
        E,
        then(LATENT, tensor("layers.0.self_attn.q_proj.weight", HEADS * HEAD_DIM, 2 * HIDDEN)),
        AS_MANY_KV_HEADS,
        hides=OTHER_CLASS,
    ),
    row(
        "a trained embedding",
        "trained-embedding",
        I,
        then(tensor("embed_tokens.weight", VOCAB, HIDDEN), top(embed_requires_grad=True)),
        tensor("embed_tokens.weight", VOCAB, HIDDEN),
        "embedding",
    ),
    row(
        "a trained embedding that a wider target could not replace",
        "trained-embedding",
        I,
        then(tensor("embed_tokens.weight", VOCAB, HIDDEN), top(embed_requires_grad=True)),
        then(other_width(4, 3), top(embed_requires_grad=True)),
        "embedding",
        bases=OTHER,
    ),
    row(
        "a trained embedding that is not there",
        "weight-missing",
        E,
        top(embed_requires_grad=True),
        then(tensor("embed_tokens.weight", VOCAB, HIDDEN), top(embed_requires_grad=True)),
        "embedding",
    ),
    # The states.
    row("columns of no whole state", "aux-count", E, states(1, 20), then(states(2), ids(2, 5)), "fc"),
    row("two ids for three states", "aux-count", E, ids(2, 5), then(states(2), ids(2, 5)), "ids", "fc"),
    row(
        "three ids too many asked for",
        "aux-count",
        E,
        asked(boundaries=(0, 1, 2, 3, 4, 5)),
        asked(boundaries=(1, 3, 4)),
        "ids",
        "fc",
    ),
    row(
        "one state as wide as the draft",
        "fc-bypass",
        I,
        then(states(1), ids(5)),
        then(states(2), ids(2, 5)),
        "ids",
        "fc",
    ),
    row(
        "one state, not as wide as the draft",
        "fc-bypass",
        I,
        then(states(1), ids(5)),
        then(other_width(16, 1), ids(5)),
        "ids",
        "fc",
    ),
    row(
        "two states together as wide as the draft",
        "fc-bypass",
        I,
        then(other_width(4, 2), ids(2, 5)),
        then(other_width(4, 3), ids(1, 2, 5)),
        "ids",
        "fc",
        "width",
        "embedding",
    ),
    # The ids.
    row("beyond the last boundary", "layer-ids-out-of-range", E, ids(2, 4, 9), ids(2, 4, 7), "ids"),
    row("before the embedding", "layer-ids-out-of-range", E, ids(-1, 2, 4), ids(0, 2, 4), "ids"),
    row("twice the same", "layer-ids-duplicate", E, ids(2, 2, 5), ids(2, 3, 5), "ids"),
    row(
        "twice the same on a shallow target",
        "layer-ids-duplicate",
        E,
        then(target(num_hidden_layers=5), ids(1, 1, 3)),
        then(target(num_hidden_layers=5), ids(1, 2, 3)),
        "ids",
    ),
    row(
        "the default on five layers",
        "layer-ids-degenerate",
        E,
        then(target(num_hidden_layers=5), no_ids),
        then(target(num_hidden_layers=5), ids(1, 2, 3)),
        "ids",
    ),
    row(
        "the default on six layers",
        "layer-ids-degenerate",
        E,
        then(target(num_hidden_layers=6), no_ids),
        then(target(num_hidden_layers=7), no_ids),
        "ids",
    ),
    row("the last boundary", "boundary-unreachable", E, ids(2, 4, 8), ids(2, 4, 7), "ids"),
    row(
        "the last boundary, which is injected",
        "boundary-unreachable",
        I,
        then(WITH_INJECTED, ids(2, 4, 8)),
        then(WITH_INJECTED, ids(2, 4, 7)),
        "ids",
    ),
    row(
        "the last boundary, injected in a version in which that was never run",
        "engine-version",
        E,
        then(WITH_INJECTED, ids(2, 4, 8), asked(engine="0.5.24")),
        then(WITH_INJECTED, ids(2, 4, 8)),
        "ids",
    ),
    row(
        "ids that older SGLang read otherwise",
        "layer-ids-reading",
        W,
        then(target(architectures=[architecture(DEEPSEEK_RULE.name)]), ids(3, 5, 6)),
        then(target(architectures=[architecture(DEEPSEEK_RULE.name)]), ids(2, 5, 6)),
        "ids",
        bases=ONE,
    ),
    row(
        "an embedding that the class's own rule takes for a state before it",
        "layer-ids-out-of-range",
        E,
        then(target(architectures=[architecture(DEEPSEEK_RULE.name)]), ids(0, 3, 5)),
        then(target(architectures=[architecture(DEEPSEEK_RULE.name)]), ids(1, 4, 6)),
        "ids",
        bases=ONE,
    ),
    row(
        "ids of speculators 0.4",
        "format-ambiguous",
        E,
        top(speculators_version="0.4.0"),
        then(top(speculators_version="0.4.0"), asked(boundaries=(0, 2, 5))),
        "ids",
        bases=OTHER,
    ),
    row("no ids", "layer-ids-missing", I, no_ids, nothing, "ids"),
    row(
        "boundaries in another order",
        "layer-ids-unordered",
        I,
        asked(boundaries=(5, 2, 0)),
        asked(boundaries=(0, 2, 5)),
        "ids",
        hides="told only where the columns were reordered, which another error prevents",
    ),
    # The tensors.
    row(
        "a tensor that no rule knows",
        "weight-unmapped",
        E,
        tensor("layers.0.self_attn.rotary_emb.inv_freq", 2),
        tensor("embed_tokens.weight", VOCAB, HIDDEN),
    ),
    row(
        "a tensor without a parameter",
        "weight-unmapped",
        E,
        tensor("layers.0.self_attn.kv_b_proj.weight", 4, 4),
        nothing,
    ),
    row("no final norm", "weight-missing", E, without("norm.weight"), SECOND_LAYER, "final norm"),
    row(
        "no fc in a named format",
        "weight-missing",
        E,
        then(own_format, without("fc.weight")),
        own_format,
        "fc",
        "format",
    ),
    row(
        "an MLP of another size",
        "weight-shape",
        E,
        tensor("layers.0.mlp.up_proj.weight", INNER + 1, HIDDEN),
        then(
            layer(intermediate_size=INNER + 1),
            tensor("layers.0.mlp.gate_proj.weight", INNER + 1, HIDDEN),
            tensor("layers.0.mlp.up_proj.weight", INNER + 1, HIDDEN),
            tensor("layers.0.mlp.down_proj.weight", HIDDEN, INNER + 1),
        ),
    ),
    row(
        "one tensor in two files",
        "weight-collision",
        E,
        second_file("norm.weight", keep=True),
        second_file("norm.weight", keep=False),
        hides="which of the two is the draft's cannot be known",
    ),
    # The vocabulary.
    row(
        "a reduced vocabulary without a map",
        "vocab-map-missing",
        E,
        without("d2t", "t2d"),
        then(without("d2t", "t2d"), FULL_VOCABULARY),
        "map",
        "head",
    ),
    row("a mask alone where offsets are declared", "vocab-map-missing", E, without("d2t"), without("t2d"), "map"),
    row(
        "a map shorter than the head",
        "vocab-map-length",
        E,
        then(without("t2d"), d2t(offsets(TARGET_IDS[:-1]))),
        then(without("t2d"), d2t(offsets(TARGET_IDS))),
        "map",
        "head",
    ),
    row(
        "a reduced map for the target's whole head",
        "vocab-map-length",
        E,
        then(without("lm_head.weight"), no_key("draft_vocab_size")),
        then(without("lm_head.weight"), no_key("draft_vocab_size"), d2t([0] * VOCAB), t2d(tuple(range(VOCAB)))),
        "map",
        "head",
    ),
    row(
        "a token beyond the vocabulary",
        "vocab-map-range",
        E,
        then(without("t2d"), d2t(offsets((*TARGET_IDS[:-1], VOCAB)))),
        then(without("t2d"), d2t(offsets((*TARGET_IDS[:-1], VOCAB - 1)))),
        "map",
    ),
    row(
        "a token twice",
        "vocab-map-duplicate",
        E,
        then(without("t2d"), d2t(offsets((*TARGET_IDS[:-1], TARGET_IDS[0])))),
        then(without("t2d"), d2t(offsets(TARGET_IDS[::-1]))),
        "map",
    ),
    row(
        "a map never filled",
        "vocab-map-unfilled",
        E,
        d2t([0] * DRAFT_VOCAB),
        then(FULL_VOCABULARY, d2t([0] * VOCAB), t2d(tuple(range(VOCAB)))),
        "map",
    ),
    row(
        "a mask of other tokens",
        "vocab-map-mask",
        E,
        t2d((*TARGET_IDS[:-1], 30)),
        d2t(offsets(TARGET_IDS[::-1])),
        "map",
    ),
    row(
        "a map of floats",
        "checkpoint-unreadable",
        E,
        d2t(offsets(TARGET_IDS), "F32"),
        d2t(offsets(TARGET_IDS), "I32"),
        "map",
    ),
    row(
        "a tied head that is not there",
        "tied-head",
        E,
        then(top(tie_word_embeddings=True), without("lm_head.weight")),
        top(tie_word_embeddings=True),
        "head",
    ),
    row(
        "a tied head beside one of its own",
        "tied-head",
        I,
        top(tie_word_embeddings=True),
        top(tie_word_embeddings=False),
        "head",
    ),
)
CASES = [pytest.param(row, base, id=f"{row.code}: {row.name} ({base})") for row in ROWS for base in row.bases]


def found(planning: Planning) -> list[tuple[str, Severity]]:
    return [(finding.code, finding.severity) for finding in planning.findings]


@pytest.mark.parametrize(("row", "base"), CASES)
def test_a_planted_fault_is_found(row: Row, base: str) -> None:
    spoilt = Pair.correct(base)
    row.plant(spoilt)
    planning = spoilt.plan()
    assert (row.code, row.severity) in found(planning)
    assert (planning.plan is None) == any(severity is E for _, severity in found(planning))


@pytest.mark.parametrize(("row", "base"), CASES)
def test_its_near_miss_is_a_plan_without_that_finding(row: Row, base: str) -> None:
    near = Pair.correct(base)
    row.near(near)
    planning = near.plan()
    assert (row.code, row.severity) not in found(planning)
    assert planning.errors == ()
    assert planning.plan is not None


@pytest.mark.parametrize("base", [SGLANG, SPECULATORS])
def test_a_correct_pair_is_planned_without_a_word(base: str) -> None:
    planning = Pair.correct(base).plan()
    assert planning.findings == ()
    assert planning.plan is not None


@pytest.mark.parametrize("base", [SGLANG, SPECULATORS])
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_two_planted_faults_are_both_found(base: str, data: st.DataObject) -> None:
    rows = [row for row in ROWS if base in row.bases and not row.hides]
    first, second = data.draw(st.tuples(st.sampled_from(rows), st.sampled_from(rows)))
    # One substance: planting the second would mend or replace the first.
    assume(first is not second and not first.touches & second.touches)
    spoilt = Pair.correct(base)
    first.plant(spoilt)
    second.plant(spoilt)
    codes = found(spoilt.plan())
    for one in (first, second):
        wanted = sum((one.code, one.severity) == (other.code, other.severity) for other in (first, second))
        assert codes.count((one.code, one.severity)) >= wanted, (first.name, second.name, codes)


# Every code has a row.

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_SEVERITY = {"error": E, "warning": W, "info": I}


def slugs(module: ModuleType) -> Iterator[str]:
    """Every constant of a module that is spelt like a code."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _SLUG.fullmatch(node.value):
            yield node.value


PLANNING = (plan, planned_ids, planned_math, config_checks, tensors, routes, vocabulary, pair)


def told(module: ModuleType) -> Iterator[tuple[str, Severity]]:
    """Code and severity of every call ``report.error("code", ...)``."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SEVERITY:
            code = node.args[0] if node.args else None
            if isinstance(code, ast.Constant) and isinstance(code.value, str):
                yield code.value, _SEVERITY[node.func.attr]


def test_every_code_that_planning_emits_has_a_row() -> None:
    emitted = {code for module in (*PLANNING, vocab) for code in slugs(module)}
    # Told where SGLang's class does not honour a flag; both classes honour these.
    classes = (draft_classes.LLAMA, draft_classes.LATENT)
    emitted -= {
        code
        for flag, (code, _) in planned_math._UNSERVED.items()
        if all(getattr(served.math, flag) for served in classes)
    }
    assert emitted - {row.code for row in ROWS} == set()
    assert "vocab-map-mask" in emitted  # the collection itself works
    assert "norm-before-residual" in emitted


SERVED = {
    "norm_before_residual": top(norm_before_residual=True),
    "qk_norm": QK_NORM,
    "qkv_bias": QKV_BIAS,
    "mlp_bias": MLP_BIAS,
    "fc_bias": tensor("fc.bias", HIDDEN),
    "fc bypass": then(states(1), ids(5)),
    "trained embedding": then(tensor("embed_tokens.weight", VOCAB, HIDDEN), top(embed_requires_grad=True)),
}


@pytest.mark.parametrize("base", [SGLANG, SPECULATORS])
@pytest.mark.parametrize("plant", SERVED.values(), ids=SERVED)
def test_our_class_serves_what_sglang_s_cannot(plant: Step, base: str) -> None:
    """SGLang's configuration still knows the draft by its own class's name."""
    one = Pair.correct(base)
    plant(one)
    made = planned(one)
    assert (made.draft_class, made.draft_architecture) == (
        "AdaptedLlamaForCausalLMEagle3",
        "LlamaForCausalLMEagle3",
    )
    assert made.keeps_embedding == ("embed_tokens.weight" in one.tensors)
    assert all(route.target is not None for route in made.routes if route.canonical != "t2d")


@pytest.mark.parametrize("base", [SGLANG, SPECULATORS])
@pytest.mark.parametrize(
    "plant",
    [nothing, OUTPUT_BIAS, then(FC_NORMS, top(fc_norm=True)), then(INPUT_NORM, top(norm_before_fc=True)), SECOND_LAYER],
)
def test_sglang_s_own_class_serves_what_it_can(plant: Step, base: str) -> None:
    one = Pair.correct(base)
    plant(one)
    made = planned(one)
    assert made.draft_class == made.draft_architecture == "LlamaForCausalLMEagle3"
    assert made.config["attention_bias"] is made.math.output_bias


def test_every_severity_of_a_code_has_a_row() -> None:
    emitted = {fact for module in PLANNING for fact in told(module)}
    assert emitted - {(row.code, row.severity) for row in ROWS} == set()
    assert ("hidden-size", I) in emitted


# What a plan says.


def planned(p: Pair) -> WiringPlan:
    planning = p.plan()
    assert planning.plan is not None, planning.errors
    return planning.plan


@pytest.mark.parametrize("base", [SGLANG, SPECULATORS])
def test_latent_attention_is_served_by_its_own_class_under_the_names_that_it_loads(base: str) -> None:
    """Its loader adds ``model.`` itself and fuses the two projections to latents, which must both arrive."""
    p = Pair.correct(base)
    then(LATENT, FC_NORMS, top(fc_norm=True), layer(head_dim=HEAD_DIM))(p)
    made = planned(p)
    assert made.draft_class == "Eagle3DeepseekV2ForCausalLM"
    own = dict(zip(p.written(), p.tensors, strict=True))
    assert {own[route.source]: route.target for route in made.routes} == {
        name: None if name == "t2d" else name for name in p.tensors
    }
    assert (made.config["architectures"], made.config["model_type"]) == ([made.draft_class], "deepseek_v3")
    assert made.config["q_lora_rank"] == 4
    assert "head_dim" not in made.config
    assert [unfilled.parameter for unfilled in made.unfilled] == ["model.embed_tokens.weight"]


@pytest.mark.parametrize("base", [SGLANG, SPECULATORS])
def test_boundaries_asked_for_are_taken_in_the_order_of_fc_s_blocks(base: str) -> None:
    p = Pair.correct(base)
    then(INPUT_NORM, FC_NORMS, asked(boundaries=(2, 7, 0)))(p)
    made = planned(p)
    assert (made.boundaries, made.column_order) == ((0, 2, 7), (2, 0, 1))
    routes = {route.source: route for route in made.routes}
    assert (routes["fc.weight"].transform, routes["fc.weight"].target) == ("columns", "model.fc.weight")
    assert routes["input_norm.weight"].transform == "columns"
    # Block 0 of the file belongs to boundary 2, which SGLang concatenates second.
    assert [routes[f"fc_norm.{state}.weight"].target for state in range(3)] == [
        "model.fc_norm.1.weight",
        "model.fc_norm.2.weight",
        "model.fc_norm.0.weight",
    ]
    assert {routes[f"fc_norm.{state}.weight"].transform for state in range(3)} == {"none"}
    assert next(one for name, one in routes.items() if name.endswith("mlp.up_proj.weight")).transform == "none"


def test_ascending_boundaries_leave_every_tensor_as_it_is() -> None:
    p = Pair.correct(SPECULATORS)
    then(INPUT_NORM, asked(boundaries=(1, 3, 6)))(p)
    made = planned(p)
    assert made.boundaries == (1, 3, 6)
    assert not made.permuted
    assert {route.source: route.transform for route in made.routes if route.transform != "none"} == {"d2t": "offsets"}


def test_every_tensor_is_routed_once_or_dropped_with_a_reason() -> None:
    p = Pair.correct(SPECULATORS)
    tensor("embed_tokens.weight", VOCAB, HIDDEN)(p)
    made = planned(p)
    assert sorted(route.source for route in made.routes) == sorted(p.tensors)
    dropped = {route.source: route.reason for route in made.routes if route.target is None}
    assert sorted(dropped) == ["embed_tokens.weight", "t2d"]
    assert all(dropped.values())
    assert [one.parameter for one in made.unfilled] == ["model.embed_tokens.weight"]


def test_the_config_names_what_sglang_must_build() -> None:
    p = Pair.correct(SPECULATORS)
    then(SECOND_LAYER, layer(num_hidden_layers=5), INPUT_NORM, top(target_hidden_size=None, norm_output=True))(p)
    config = planned(p).config
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    # Boundaries 0, 2, 5 by the class's rule k = id + 1: the embedding is -1.
    assert config["eagle_config"][IDS] == [-1, 1, 4]
    assert config["eagle_config"]["norm_before_fc"] is True
    assert config["eagle_config"]["use_aux_hidden_state"] is True
    assert config["num_aux_hidden_states"] == 3
    assert config["num_hidden_layers"] == 2
    assert config["norm_output"] is True
    assert config["draft_vocab_size"] == DRAFT_VOCAB
    assert config["rope_theta"] == 10000.0
    assert "target_hidden_size" not in config
    json.dumps(config)


def test_a_head_shared_with_the_target_has_no_draft_vocabulary() -> None:
    p = Pair.correct(SPECULATORS)
    then(without("lm_head.weight", "d2t", "t2d"), no_key("draft_vocab_size"))(p)
    made = planned(p)
    assert made.config["draft_vocab_size"] is None
    assert (made.vocab_encoding, made.draft_vocab_size) == (None, VOCAB)
    assert "lm_head.weight" in {one.parameter for one in made.unfilled}


def test_a_head_that_the_draft_has_is_its_own_though_the_config_ties_it() -> None:
    p = Pair.correct(SGLANG)
    top(tie_word_embeddings=True)(p)
    made = planned(p)
    assert made.config["tie_word_embeddings"] is False
    assert "lm_head.weight" in {route.target for route in made.routes}


def test_a_draft_of_another_width_keeps_its_embedding() -> None:
    p = Pair.correct(SPECULATORS)
    other_width(4, 3)(p)
    made = planned(p)
    assert made.state_width == 4
    assert "model.embed_tokens.weight" in {route.target for route in made.routes}
    assert made.unfilled == ()


def test_a_layer_beyond_the_first_may_lack_the_norm_that_it_never_reads() -> None:
    p = Pair.correct(SPECULATORS)
    SECOND_LAYER(p)
    assert "model.layers.1.input_layernorm.weight" in {one.parameter for one in planned(p).unfilled}


def test_a_plan_survives_its_json(tmp_path: Path) -> None:
    p = Pair.correct(SGLANG)
    then(INPUT_NORM, asked(boundaries=(5, 2, 0)))(p)
    made = p.plan_in(tmp_path).plan
    assert made is not None
    assert WiringPlan.from_json(made.to_json()) == made


def test_the_fingerprint_names_the_plan_and_nothing_else(tmp_path: Path) -> None:
    p = Pair.correct(SGLANG)
    first, again = p.plan_in(tmp_path).plan, p.plan_in(tmp_path).plan
    assert first is not None
    assert again is not None
    assert first.fingerprint() == again.fingerprint()
    assert WiringPlan.from_json(first.to_json()).fingerprint() == first.fingerprint()
    others = [
        attrs.evolve(first, boundaries=(1, 4, 5)),
        attrs.evolve(first, column_order=(1, 0, 2)),
        attrs.evolve(first, routes=first.routes[1:]),
        attrs.evolve(first, math=attrs.evolve(first.math, norm_output=True)),
        attrs.evolve(first, engine="0.5.22"),
        attrs.evolve(first, config=first.config | {"rope_theta": 5e5}),
    ]
    names = [one.fingerprint() for one in (first, *others)]
    assert all(left != right for left, right in itertools.combinations(names, 2))


def test_json_of_something_else_is_no_plan() -> None:
    with pytest.raises(Exception, match="WiringPlan"):
        WiringPlan.from_json('{"boundaries": [0, 3, 31]}')


@pytest.mark.parametrize(
    ("engine", "base", "possible"),
    [
        ("0.5.17", SPECULATORS, False),
        ("0.5.21", SPECULATORS, False),
        ("0.5.22", SPECULATORS, True),
        ("0.5.23.post1", SPECULATORS, True),
        ("none", SPECULATORS, True),
        ("0.5.17", SGLANG, True),
    ],
)
def test_the_embedding_is_refused_where_sglangs_class_fails_on_it(engine: str, base: str, possible: bool) -> None:  # noqa: FBT001 - a column of the table above
    """Up to 0.5.21 the class adds a residual that layer 0 has not got; drafts without it are served there."""
    planning = Pair.correct(base).plan(engine)
    assert (planning.plan is not None) is possible
    assert [finding.code for finding in planning.errors] == ([] if possible else ["boundary-unreachable"])


@pytest.mark.parametrize(
    ("engine", "listed", "injected"),
    [
        ("0.5.17", (0, 2, 8), (0, 8)),
        ("0.5.21", (0, 2, 5), (0,)),
        ("0.5.22", (0, 2, 5), ()),
        ("0.5.23", (8, 0, 2), (8,)),
        ("none", (0, 2, 8), (8,)),
    ],
)
def test_what_a_class_does_not_capture_is_injected_and_told(
    engine: str, listed: tuple[int, ...], injected: tuple[int, ...]
) -> None:
    p = Pair.correct(SPECULATORS)
    then(WITH_INJECTED, asked(boundaries=listed))(p)
    planning = p.plan(engine)
    assert planning.plan is not None, planning.errors
    made = planning.plan
    assert (made.boundaries, made.injected) == (tuple(sorted(listed)), injected)
    assert made.native == tuple(k for k in made.boundaries if k not in injected)
    told = [str(list(injected)) in finding.found for finding in planning.findings if "unreachable" in finding.code]
    assert told == ([True] if injected else [])
    assert (f"{list(injected)} injected" in made.summary()) is bool(injected)


@pytest.mark.parametrize(
    ("engine", "listed", "possible"),
    [
        ("0.5.22", (0, 2, 8), True),
        ("0.5.24", (0, 2, 5), True),
        ("0.5.24", (0, 2, 8), False),
        ("0.6.0", (2, 5, 8), False),
        ("none", (0, 2, 8), True),
    ],
)
def test_what_is_injected_is_refused_in_versions_in_which_that_was_never_run(
    engine: str,
    listed: tuple[int, ...],
    possible: bool,  # noqa: FBT001 - a column of the table above
) -> None:
    p = Pair.correct(SPECULATORS)
    then(WITH_INJECTED, asked(boundaries=listed))(p)
    planning = p.plan(engine)
    assert (planning.plan is not None) is possible
    assert [finding.code for finding in planning.errors] == ([] if possible else ["engine-version"])
    for finding in planning.errors:
        assert finding.found == engine
        assert all(spelled(version) in finding.expected for version in EXECUTED)


@pytest.mark.parametrize(("engine", "injected"), [("0.5.17", (1, 2, 5)), ("0.5.18.post1", (1, 2, 5)), ("0.5.19", ())])
def test_a_class_that_captures_from_a_version_on_has_everything_injected_before(
    engine: str, injected: tuple[int, ...]
) -> None:
    p = Pair.correct(SPECULATORS)
    then(target(architectures=[architecture(LATE)]), asked(boundaries=(1, 2, 5)))(p)
    plan = p.plan(engine).plan
    assert plan is not None
    assert plan.injected == injected
    assert bool(plan.capture.capture_list) == bool(plan.capture.capture_flags) == (not injected)


def test_ids_that_only_the_older_rule_can_name_are_refused_with_the_option_that_serves_them() -> None:
    """The Kimi case: -1 for the embedding. The class takes it as it is and captures two states of three."""
    p = Pair.correct(SGLANG)
    then(target(architectures=[architecture(DEEPSEEK_RULE.name)]), ids(0, 3, 5))(p)
    (finding,) = p.plan().errors
    assert finding.code == "layer-ids-out-of-range"
    assert "embedding, output of layer 2, output of layer 4" in finding.remedy
    assert finding.remedy.endswith("--eagle3-boundaries 0,3,5")
    p.boundaries = (0, 3, 5)
    assert planned(p).boundaries == (0, 3, 5)


# One cause is told once.


def errors_of(p: Pair) -> list[tuple[str, str]]:
    return [(finding.code, finding.found) for finding in p.plan().errors]


@pytest.mark.parametrize("prefix", ["midlayer.", "model.layers.0."])
def test_half_a_conversion_is_one_finding_and_no_missing_tensors(prefix: str) -> None:
    """Names of one dialect, the config of another: ten tensors, one cause."""
    p = Pair.correct(SPECULATORS)
    p.tensors = {name.replace("layers.0.", prefix): one for name, one in p.tensors.items()}
    ((code, found),) = errors_of(p)
    assert code == "weight-unmapped"
    assert found.startswith("10 tensors")


def test_a_renamed_tensor_is_told_with_its_name_and_not_as_missing_too() -> None:
    p = Pair.correct(SPECULATORS)
    p.tensors["layers.0.self_attn.q_projection.weight"] = p.tensors.pop("layers.0.self_attn.q_proj.weight")
    (finding,) = p.plan().errors
    assert finding.code == "weight-unmapped"
    assert "layers.0.self_attn.q_proj.weight" in finding.remedy


def test_a_hidden_size_against_all_tensors_is_the_configs_fault_alone() -> None:
    p = Pair.correct(SPECULATORS)
    layer(hidden_size=2 * HIDDEN)(p)
    (finding,) = p.plan().errors
    assert finding.code == "hidden-size"
    assert f'"hidden_size": {HIDDEN}' in finding.remedy
