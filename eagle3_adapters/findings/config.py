"""Explains the findings about fields of the draft's config.json: class, depth, sizes, rotary base, quantisation."""

from __future__ import annotations

from eagle3_adapters.findings.explanation import Explanation

ENTRIES = (
    Explanation(
        code="draft-architecture",
        title="The architectures string is none that SGLang registers",
        severity="fixed / E",
        meaning="SGLang knows two draft classes, LlamaForCausalLMEagle3 and Eagle3DeepseekV2ForCausalLM, and picks "
        "by this string alone. The class is chosen by the tensors instead; a shape that no class here serves is "
        "refused.",
        writers=(
            "AngelSlim (Eagle3LlamaForCausalLM, Qwen3ForCausalLM)",
            "speculators (Eagle3Speculator, Eagle3DraftModel)",
            "NeMo Automodel (LlamaEagle3DraftModel)",
            "SafeAILab EAGLE (LlamaForCausalLM)",
        ),
        fix="Where it was corrected nothing is needed. Where it is refused, the draft's attention has no class in this "
        "version: use a Llama-shaped draft, or serve this one with SGLang alone:\n    (leave out --eagle3-adapter)",
        example='{"architectures": ["Eagle3LlamaForCausalLM"]}',
    ),
    Explanation(
        code="draft-depth",
        title="num_hidden_layers differs from the layers that are there",
        severity="fixed / E",
        meaning="SGLang builds as many layers as the config says and leaves those without tensors at random values. "
        "The plan takes the number from the tensors. SGLang's class for drafts with latent attention holds one layer; "
        "such a draft of several is refused.",
        writers=(
            "NeMo Automodel: config cloned from the target, depth kept",
            "yuhuili's Vicuna-13B head (40 layers declared, one present)",
        ),
        fix='Where it was corrected nothing is needed; to mend the file too:\n    "num_hidden_layers": 1',
        example='{"num_hidden_layers": 40}\nlayers.0.* only',
    ),
    Explanation(
        code="hidden-size",
        title="The draft reads states of another width than the target's",
        severity="fixed / E",
        meaning="target_hidden_size, or hidden_size where that is absent, is not the target's width: this draft "
        "belongs to another target. A null target_hidden_size makes SGLang's class fail and is taken out.",
        writers=("speculators: target_hidden_size null",),
        fix="Where null was taken out nothing is needed. Otherwise serve the target that the draft was trained for, "
        "or, where only the field is wrong:\n"
        '    "target_hidden_size": 4096',
        example='{"hidden_size": 4096, "target_hidden_size": 5120}   on a target with "hidden_size": 4096',
    ),
    Explanation(
        code="rope-base",
        title="The rotary base is absent or unlike the target's",
        severity="W",
        meaning="SGLang falls back to 10000 where no base is written. A base unlike the target's is right only if the "
        "trainer used it, and some train at 10000 whatever the config says.",
        writers=(
            "SafeAILab EAGLE (always trains at 10000)",
            "speculators 0.3 without rope_theta",
            "SpecForge before PR 270 (training ignored the field)",
        ),
        cost="Wrong base measured here on the canary pair: 1.00 instead of 2.13; on an ordinary draft 2.73 instead "
        "of 2.84. Reported by SpecForge issue 265: 3.556 against 3.612. Reported by sfllm issue 32 (AngelSlim "
        "Qwen3-4B): 2.50 at 1e4, 2.39 at the configured 1e6.",
        fix='Write the base that the training run used, not the one that looks right:\n    "rope_theta": 10000',
        example='{"rope_theta": 1000000.0}   on a target with "rope_theta": 500000.0',
    ),
    Explanation(
        code="rope-scaling",
        title="The target scales its rotary positions, the draft does not",
        severity="W",
        meaning="Without the entry the draft's positions drift from those of its training as the context grows. It is "
        "right where training had no scaling.",
        writers=("speculators' converter before PR 574 (left rope_scaling out)",),
        fix="If training used the target's scaling, copy its entry into the draft's config:\n"
        '    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, '
        '"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}',
        example='{"rope_theta": 500000.0}   on a target with "rope_scaling": {"rope_type": "llama3"}',
    ),
    Explanation(
        code="rope-spelling",
        title="Rotary fields are spelt in another generation's way",
        severity="fixed",
        meaning="transformers 5 keeps base and scaling in rope_parameters, older files in rope_theta and rope_scaling, "
        "whose kind stands under type or rope_type. The translated config has both.",
        writers=("trainers on transformers 5", "configs written before rope_type existed"),
        fix="Nothing to do; the values are kept and only their spelling changes.",
        example='{"rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}}',
    ),
    Explanation(
        code="context-short",
        title="The draft declares fewer positions than are served",
        severity="W",
        meaning="max_position_embeddings of the draft lies below the context length of the server. SGLang refuses the "
        "length or is told to overwrite it, and past the trained positions acceptance falls.",
        writers=("SpecForge before PR 271 (2048 in shipped configs)", "drafts trained on 2k or 4k texts"),
        fix="Serve a context that the draft knows, or raise the field if training went further:\n"
        "    --context-length 4096",
        example='{"max_position_embeddings": 2048}   with --context-length 32768',
    ),
    Explanation(
        code="sliding-window",
        title="The draft was trained with a sliding window",
        severity="W",
        meaning="The config names a window and its layers use it. SGLang's draft class runs full attention whatever "
        "the config says; only a server option gives it a window.",
        writers=("speculators drafts for targets with sliding windows",),
        fix="Give the server the window that the draft was trained with:\n    --speculative-draft-window-size 2048",
        example='{"sliding_window": 2048, "layer_types": ["sliding_attention"]}',
    ),
    Explanation(
        code="quantization-inherited",
        title="A plain draft would inherit the target's quantisation",
        severity="fixed",
        meaning="SGLang hands the target's method to a draft for which none is given, then looks for scales that a "
        "bf16 head does not have.",
        writers=("any bf16 draft beside an AWQ, GPTQ or FP8 target",),
        fix="Nothing to do; the flag that says the same to SGLang alone is:\n"
        "    --speculative-draft-model-quantization unquant",
        example="--quantization awq\n(draft: BF16 tensors, no quantization_config)",
    ),
    Explanation(
        code="draft-quantized",
        title="The draft's weights are quantised",
        severity="E",
        meaning="The config names a method, or scales or narrow weights are among the tensors. The routes of this "
        "package carry plain weights only, and SGLang fails on some methods after the start alone.",
        writers=("ModelOpt and llm-compressor exports of drafts",),
        fix="Serve the unquantised export of the draft; the target may stay quantised:\n"
        "    --speculative-draft-model-path DRAFT-BF16",
        example='{"quantization_config": {"quant_method": "fp8"}}',
    ),
    Explanation(
        code="quantization-null",
        title="hf_quant_config.json names no algorithm",
        severity="fixed",
        meaning="The file stands beside an unquantised draft with an empty algorithm, and SGLang reads its presence "
        "as a quantised checkpoint.",
        writers=("exports that write the file whether or not they quantised",),
        fix="Nothing to do; to mend the directory too:\n    rm DRAFT/hf_quant_config.json",
        example='{"quantization": {"quant_algo": null}}',
    ),
)
