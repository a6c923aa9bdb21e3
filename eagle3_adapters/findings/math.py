"""Explains the findings about the draft's arithmetic: norms, biases and the embedding."""

from __future__ import annotations

from eagle3_adapters.findings.explanation import Explanation

_SERVED = (
    "A draft class of this package computes it; a version that refuses it is too old:\n"
    "    pip install -U eagle3-adapters"
)
#: Served with ordinary heads only.
_NOT_LATENT = (
    "With ordinary heads nothing: a draft class of this package computes it. With latent attention it is refused, and "
    "an edit would only hide it: retrain without this part, or update:\n    pip install -U eagle3-adapters"
)

ENTRIES = (
    Explanation(
        code="norm-tensor-without-flag",
        title="A norm's weights are there, its flag is not",
        severity="fixed",
        meaning="input_norm.weight or fc_norm.0.weight is in the file while config.json does not switch the norm on. "
        "The tensors decide, and the norm runs.",
        fix='Nothing to do; to mend the file too:\n    "norm_before_fc": true',
        example='input_norm.weight [12288]\n{"eagle_config": {}}',
    ),
    Explanation(
        code="norm-flag-without-tensor",
        title="A norm is switched on, its weights are not there",
        severity="E",
        meaning="SGLang would run the norm with ones in place of trained weights.",
        writers=("speculators' converter (keeps the flag, drops the weights with a warning)",),
        cost="A norm that training had not: measured here on the canary pair 1.92 (norm_before_fc) and 1.00 (fc_norm) "
        "instead of 2.13; on an ordinary draft 2.67 and 2.63 instead of 2.84.",
        fix='Export the tensor, or, if training had no such norm:\n    "fc_norm": false',
        example='{"fc_norm": true}   (no fc_norm.0.weight)',
    ),
    Explanation(
        code="norm-before-residual",
        title="The residual is taken after hidden_norm, or this is unsaid",
        severity="served / E",
        meaning="In such a draft the first layer adds its attention to the normed state; SGLang's class has no such "
        "path and ignores the flag. In a speculators file the flag must be said: schema and trainer have opposite "
        "defaults.",
        writers=("speculators (the trainer's default is true)", "RedHatAI speculators heads"),
        cost="Measured here on the canary pair, the flag the wrong way round: 1.00 instead of 2.13.",
        fix="True is served by a draft class of this package. Where the flag is absent, write what the training run "
        'had:\n    "norm_before_residual": true',
        example='{"speculators_model_type": "eagle3", "norm_before_residual": true}',
    ),
    Explanation(
        code="norm-before-fc",
        title="The joined states are normed, the draft class cannot do it",
        severity="served / E",
        meaning="norm_before_fc is on, and SGLang's class for latent attention has no input_norm.",
        writers=("speculators 0.5 and later", "nvidia/gpt-oss-120b-Eagle3-v3"),
        cost="The norm switched the wrong way, measured here on the canary pair: 1.92 instead of 2.13.",
        fix=_SERVED,
        example='{"norm_before_fc": true}\ninput_norm.weight [21504]   in a draft with latent attention',
    ),
    Explanation(
        code="fc-norm",
        title="Each state is normed on its own, the class cannot do it",
        severity="served / E",
        meaning="fc_norm (once use_aux_norm) is on, and the class that would serve this draft has no such norms.",
        writers=("SpecForge, speculators, TorchSpec and NeMo Automodel, where asked to",),
        cost="The norms switched the wrong way, measured here on the canary pair: 1.00 instead of 2.13.",
        fix=_SERVED,
        example='{"fc_norm": true}\nfc_norm.0.weight [7168], fc_norm.1.weight, fc_norm.2.weight',
    ),
    Explanation(
        code="norm-output",
        title="Later steps continue from the normed output, unserved",
        severity="served / E",
        meaning="norm_output is on, and the class that would serve this draft passes the un-normed state to its next "
        "step.",
        writers=("speculators and NeMo Automodel, where asked to",),
        cost="The flag the wrong way, measured here on the canary pair: 1.59 instead of 2.13.",
        fix=_SERVED,
        example='{"norm_output": true}',
    ),
    Explanation(
        code="norm-output-meaning",
        title="norm_output means something else to this trainer",
        severity="served / W / E",
        meaning="To SGLang, vLLM and speculators it says that the next draft step reads the normed output; to "
        "SpecForge that a norm stands before lm_head, with the un-normed state carried on, and false that none does. "
        "One name, two computations.",
        writers=("SpecForge (configs such as qwen3-30B-A3B-eagle3.1 with norm_output true)",),
        cost="Measured here on the canary pair 1.59 instead of 2.13, on an ordinary draft 2.52 instead of 2.84. The "
        "first draft token is right either way.",
        fix="Ask which trainer wrote it. A SpecForge draft is read as SpecForge trained it by its name, and false is "
        "then served by a draft class of this package:\n"
        "    --eagle3-format specforge",
        example='{"architectures": ["LlamaForCausalLMEagle3"], "fc_norm": true, "norm_output": true}',
    ),
    Explanation(
        code="double-norm",
        title="The state passes two norms before the first layer",
        severity="served / E",
        meaning="Training applied input_layernorm and then hidden_norm to the captured state. The exporter's keys and "
        "names tell which version wrote the file; folding both norms into one weight is only approximate.",
        writers=("NVIDIA ModelOpt 0.41 and later, Hugging Face path (up to 0.40 and from Megatron it is one norm)",),
        fix="Both norms are computed by a draft class of this package. A draft that was trained with one norm is read "
        "so by another format's name:\n"
        "    --eagle3-format sglang",
        example='"eagle_config": {"next_layer_regular": true}, "eos_token_id": 2   (ModelOpt 0.41)',
    ),
    Explanation(
        code="qk-norm",
        title="Queries and keys are normed",
        severity="served / E",
        meaning="The file has q_norm and k_norm, SGLang's Llama draft class has no parameters for them and drops them.",
        writers=("speculators with Qwen3-shaped draft layers",),
        fix=_NOT_LATENT,
        example="layers.0.self_attn.q_norm.weight [128]\nlayers.0.self_attn.k_norm.weight [128]",
    ),
    Explanation(
        code="bias-flag-without-tensor",
        title="A bias is declared and none is there",
        severity="fixed",
        meaning="bias or attention_bias is true, so SGLang's draft class would build biases, which nothing would fill. "
        "The tensors decide, as for norms.",
        writers=("configs copied from a target with attention biases",),
        fix='Nothing to do; to mend the file too:\n    "attention_bias": false',
        example='{"attention_bias": true}\nno tensor ends in .bias',
    ),
    Explanation(
        code="projection-bias",
        title="Attention projections have biases",
        severity="served / E",
        meaning="SGLang's draft class builds queries, keys and values without bias whatever attention_bias says, so "
        "these tensors would be lost.",
        writers=("NeMo Automodel (q, k, v, o)", "drafts for vLLM with attention_bias (q, k, v)"),
        fix=_NOT_LATENT,
        example='{"attention_bias": true}\nlayers.0.self_attn.q_proj.bias [4096]',
    ),
    Explanation(
        code="mlp-bias",
        title="The MLP has biases",
        severity="served / E",
        meaning="SGLang's draft class has no parameters for them and would drop the tensors.",
        writers=("NeMo Automodel with mlp_bias",),
        fix=_SERVED,
        example='{"mlp_bias": true}\nlayers.0.mlp.down_proj.bias [4096]',
    ),
    Explanation(
        code="layer-norm-name",
        title="Later layers keep their norm under another name",
        severity="fixed",
        meaning="From its second layer on SGLang's class norms the state with hidden_norm, while other trainers "
        "store that weight as input_layernorm. SGLang's loader would drop the trained norm and use ones; here it is "
        "loaded as hidden_norm, which computes the same.",
        writers=("speculators, NVIDIA ModelOpt (Hugging Face path) and vLLM-style heads of two layers or more",),
        fix="Nothing to do: it is loaded as hidden_norm.",
        example="layers.0.hidden_norm.weight [4096]\n"
        "layers.1.input_layernorm.weight [4096]   (no layers.1.hidden_norm)",
    ),
    Explanation(
        code="trained-embedding",
        title="The draft's embedding is its own, SGLang would replace it",
        severity="served / E",
        meaning="SGLang gives every draft of the target's width the target's embedding. A draft that trained its own "
        "then reads vectors that it never saw.",
        writers=("speculators with embed_requires_grad", "P-EAGLE drafts"),
        fix="Where config.json says that it was trained, a draft class of this package keeps it. Where nothing says so "
        "and the values differ from the target's (--deep compares them), the start is refused: say so if it was "
        "trained, remove the tensor if it was not:\n"
        '    "embed_requires_grad": true\n'
        "    eagle3-adapters check --target TARGET --draft DRAFT --deep",
        example='{"embed_requires_grad": true}\nembed_tokens.weight [128256, 4096]',
    ),
)
