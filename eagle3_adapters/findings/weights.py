"""Explains the findings about tensors: too many, too few, of another shape, empty."""

from __future__ import annotations

from eagle3_adapters.findings.explanation import Explanation

ENTRIES = (
    Explanation(
        code="weight-unmapped",
        title="A tensor has a name that no rule takes",
        severity="E",
        meaning="SGLang's loader passes over unknown names without a word, and the parameter that was meant keeps its "
        "initial values. Every tensor must be used or dropped for a stated reason.",
        writers=(
            "files whose format was named wrongly",
            "drafts with parts that the class lacks",
            "exports that keep buffers such as rotary_emb.inv_freq",
        ),
        cost="The whole decoder layer under unknown names: measured here on the canary pair 1.19 instead of 2.81, on "
        "an ordinary draft 1.15 instead of 2.84.",
        fix="Name the format that wrote the file, or take the tensor out if it is a left-over:\n"
        "    --eagle3-format NAME",
        example="decoder.self_attn.q_proj.weight [4096, 8192]",
    ),
    Explanation(
        code="weight-missing",
        title="A parameter that nothing fills",
        severity="E",
        meaning="SGLang does not check that all parameters arrived: projections without a tensor hold random numbers, "
        "norms hold ones. The check is made on the headers and again after loading.",
        writers=(
            "exports that leave out lm_head (nvidia/Kimi-K2.6-Eagle3 before its fix)",
            "speculators' converter up to 0.4 (layer names not renamed)",
        ),
        cost="Measured here on the canary pair, against 2.13: fc missing 1.00, lm_head 1.00, the decoder layer 1.03. "
        "On an ordinary draft, against 2.84: fc 1.24, lm_head 1.02. Reported by sglang issue 27908 (no lm_head): "
        "1.00.",
        fix="Export the draft again with the trainer's own export. A missing lm_head can be added only if training "
        "used the target's:\n"
        "    eagle3-adapters inspect DRAFT          (lists the tensors that are there)",
        example='fc.weight, norm.weight, layers.0.*, d2t   (no lm_head.weight) with "draft_vocab_size": 32000',
    ),
    Explanation(
        code="weight-shape",
        title="A tensor's shape is not what the config asks for",
        severity="E",
        meaning="Sizes, heads or head_dim in config.json and the tensor disagree. One of the two is of another run.",
        writers=(
            "AngelSlim Qwen3-4B of July 2025 (head_dim 80 declared, 128 in later weights)",
            "configs edited by hand",
        ),
        fix="Correct the field that the shape contradicts, for queries of [4096, 5120] with 32 heads:\n"
        '    "head_dim": 128',
        example='{"num_attention_heads": 32, "head_dim": 80}\nlayers.0.self_attn.q_proj.weight [4096, 5120]',
    ),
    Explanation(
        code="weight-collision",
        title="Two tensors claim one place",
        severity="E",
        meaning="A name stands in two files, or two names become one after renaming. Which of them was meant cannot be "
        "known, and SGLang keeps the one that it reads last.",
        writers=("an old model.safetensors left beside new shards", "files with midlayer.* and layers.0.* both"),
        fix="Remove the stale file or tensor:\n    rm DRAFT/model.safetensors      (where the shards are the new ones)",
        example="model.safetensors: fc.weight\nmodel-00001-of-00002.safetensors: fc.weight",
    ),
    Explanation(
        code="weight-nan",
        title="check --deep found NaN in a tensor",
        severity="E",
        meaning="A norm or the embedding was opened, and at least one of its values is not a number. Every logit is "
        "NaN then.",
        writers=("training runs that diverged", "casts to float16 that overflowed"),
        fix="Export an earlier training step, or in bfloat16 if a cast did it; then look again:\n"
        "    eagle3-adapters check --target TARGET --draft DRAFT --deep",
        example="norm.weight [4096] BF16, 3 of 4096 values NaN",
    ),
    Explanation(
        code="weight-zero",
        title="check --deep found a tensor of zeros only",
        severity="E",
        meaning="A norm or embedding that was trained is never zero throughout: the tensor was allocated and not "
        "written.",
        writers=("sharded saves in which one rank wrote nothing",),
        fix="Export the draft again and look at the values once more:\n"
        "    eagle3-adapters check --target TARGET --draft DRAFT --deep",
        example="layers.0.hidden_norm.weight [4096] BF16, all 0",
    ),
)
