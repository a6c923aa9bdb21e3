"""Owns what a draft computes beyond plain EAGLE-3, and whether SGLang's draft class or ours computes it too."""

from __future__ import annotations

import attrs

from eagle3_adapters import canonical
from eagle3_adapters.draft_classes import DraftClass
from eagle3_adapters.report import Report
from eagle3_adapters.values import DraftMath, DraftModel, FormatReading

#: Flag -> the finding's code, and what ignoring it would do.
_UNSERVED = {
    "norm_before_residual": ("norm-before-residual", "the first layer's residual would be the un-normed state"),
    "norm_before_fc": ("norm-before-fc", "the states would reach fc without input_norm"),
    "fc_norm": ("fc-norm", "the states would reach fc without fc_norm"),
    "norm_output": ("norm-output", "later draft steps would continue from another tensor than in training"),
    "bare_head": ("norm-output-meaning", "the head would read the normed state, every logit another one"),
    "double_norm": ("double-norm", "the first layer's hidden state would be normed once instead of twice"),
    "qk_norm": ("qk-norm", "queries and keys would stay un-normed, the tensors dropped in silence"),
    "qkv_bias": ("projection-bias", "the biases of queries, keys and values would be dropped in silence"),
    "output_bias": ("projection-bias", "the bias of the output projection would be dropped in silence"),
    "fc_bias": ("projection-bias", "the bias of fc would be dropped in silence"),
    "mlp_bias": ("mlp-bias", "the biases of the MLP would be dropped in silence"),
}
#: What the quantisers in use write beside or in place of a weight.
_SCALES = (
    ".weight_scale",
    ".weight_scale_2",
    ".weight_scale_inv",
    ".input_scale",
    ".k_scale",
    ".v_scale",
    ".qweight",
    ".qzeros",
    ".scales",
    ".g_idx",
    ".weight_packed",
)
_NOT_YET = "this draft cannot be served with its training-time math yet"


def flags_of_tensors(draft: DraftModel, math: DraftMath) -> DraftMath:
    """The math with the flags that tensors alone decide."""
    return attrs.evolve(math, **{flag: bool(_tensors_of(draft, flag)) for flag in canonical.TENSOR_FLAGS})


def _tensors_of(draft: DraftModel, flag: str) -> list[str]:
    """Tensors that stand for a flag, in any layer."""
    names = canonical.TENSOR_FLAGS.get(flag, ())
    return [name for name in draft.tensors if name.endswith(names)] if names else []


def math_served(draft: DraftModel, math: DraftMath, stock: DraftClass, served: DraftClass, report: Report) -> set[str]:
    """What SGLang's class (``stock``) does not compute is told: ours does, or the draft is refused.

    Returns the tensors of what is refused, so that they are not told twice.
    """
    told: set[str] = set()
    for flag, (code, why) in _UNSERVED.items():
        if not getattr(math, flag) or getattr(stock.math, flag):
            continue
        tensors = _tensors_of(draft, flag)
        where = f"{draft.path}: {tensors[0]}" if tensors else f"{draft.config_file}: {flag}"
        expected, found = f"math that SGLang's {stock.name} computes", f"{flag}"
        if getattr(served.math, flag):
            report.info(code, where, expected, f"{found}; served by {served.name}", why=f"else {why}")
        else:
            told.update(tensors)
            report.error(code, where, expected, found, why=why, remedy=_NOT_YET)
    return told


def subclass_told(
    draft: DraftModel, served: DraftClass, report: Report, *, bypassed: bool, trained_embedding: bool
) -> None:
    """What beside the math makes a class of ours serve the draft."""
    if bypassed:
        report.info(
            "fc-bypass",
            f"{draft.path}: fc.weight",
            f"more columns than the draft's hidden size of {draft.config['hidden_size']}",
            f"as many: SGLang's class skips fc there; served by {served.name}",
            why="measured: accept length 1.33 instead of 2.63",
        )
    if trained_embedding:
        report.info(
            "trained-embedding",
            f"{draft.config_file}: embed_requires_grad",
            "the target's embedding, which SGLang puts in place of a draft's",
            f"an embedding of the draft's own; kept by {served.name}",
            why="else the draft would read vectors that it never saw",
        )


def is_scale(name: str) -> bool:
    """Whether a tensor is a quantiser's, by its name."""
    return name.endswith(_SCALES)


def biases_declared(draft: DraftModel, report: Report) -> None:
    """``bias`` gives SGLang's class biases in fc and the output projection; ``attention_bias`` in the projection."""
    present = any(name.endswith(".bias") for name in draft.tensors)
    for flag in ("bias", "attention_bias"):
        if draft.config.get(flag) and not present:
            report.info(
                "bias-flag-without-tensor",
                f"{draft.config_file}: {flag}",
                "false, since no bias is among the tensors",
                "true; set to false",
                why="SGLang would build biases that nothing fills",
            )


def plain_weights(draft: DraftModel, method: str | None, report: Report) -> set[str]:
    """Weights in their own precision: quantised drafts are not served yet. Returns the names that were told."""
    scales = {name for name in draft.tensors if is_scale(name)}
    narrow = {name for name, tensor in draft.tensors.items() if tensor.dtype.startswith(("F8", "F4", "U8", "I8"))}
    told = scales | narrow
    if told or method is not None:
        first = min(told, default="")
        found = f"method {method}" if method else f"{first} ({draft.tensors[first].dtype})"
        report.error(
            "draft-quantized",
            str(draft.config_file if method else f"{draft.path}: {first}"),
            "weights in bf16, fp16 or fp32",
            found,
            why="SGLang's draft class would need its scales, and some methods fail only after the start",
            remedy="serve the unquantised export of the draft; the target may be quantised",
        )
    return told


def flags_match_tensors(reading: FormatReading, report: Report) -> DraftMath:
    """fc_norm and input_norm: the tensors decide. Returns the math that they stand for."""
    tensors, math = reading.draft.tensors, reading.math
    for flag, present in (
        ("norm_before_fc", "input_norm.weight" in tensors),
        ("fc_norm", "fc_norm.0.weight" in tensors),
    ):
        declared = getattr(math, flag)
        tensor = "input_norm.weight" if flag == "norm_before_fc" else "fc_norm.0.weight"
        where = f"{reading.draft.config_file}: {flag}"
        if present and not declared:
            report.info("norm-tensor-without-flag", where, f"true, since {tensor} is there", "false; set to true")
            math = attrs.evolve(math, **{flag: True})
        elif declared and not present:
            report.error(
                "norm-flag-without-tensor",
                where,
                f"{tensor} among the tensors",
                "no such tensor",
                why="the norm would run with weights that were never trained",
                remedy=f'set "{flag}": false if training had no such norm, else export the tensor',
            )
    return math


def states_used(draft: DraftModel, report: Report) -> None:
    """use_aux_hidden_state false: the draft reads the target's last normed state, not captured ones."""
    if draft.config.get("use_aux_hidden_state") is False:
        report.error(
            "aux-disabled",
            f"{draft.config_file}: use_aux_hidden_state",
            "true",
            "false: the draft reads the target's last normed state",
            why="SGLang skips fc where the widths coincide; measured: accept length 1.0 to 1.3",
            remedy=_NOT_YET,
        )


def norm_output_meaning(reading: FormatReading, report: Report) -> None:
    """``norm_output`` in SGLang's dialect: SGLang continues from the normed state, SpecForge never does."""
    if not reading.norm_output_doubtful:
        return
    if reading.math.norm_output:
        expected = "later draft steps that continue from the normed output, as SGLang reads the flag"
        found = "true, which SpecForge writes for a norm before lm_head alone"
        why = "from the second draft token on the draft would read another state than in training"
    else:
        expected = "later draft steps that continue from the un-normed output, as SGLang reads the flag"
        found = "false, which SpecForge writes where no norm stands before lm_head"
        why = "SGLang's class always norms before lm_head: every logit would come from another state than in training"
    report.warning(
        "norm-output-meaning",
        f"{reading.draft.config_file}: norm_output",
        expected,
        found,
        why=why,
        remedy="a SpecForge draft: --eagle3-format specforge",
    )
