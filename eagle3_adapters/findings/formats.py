"""Explains the findings about what a checkpoint is, who wrote it, and which plugin knows the target."""

from __future__ import annotations

from eagle3_adapters.findings.explanation import Explanation

ENTRIES = (
    Explanation(
        code="not-eagle3",
        title="The checkpoint is another kind of model",
        severity="E",
        meaning="By its tensors it is no EAGLE-3 head: that has an fc which joins n states of the target, and a first "
        "layer whose query projection reads twice the hidden size. Names in config.json do not count.",
        writers=("EAGLE-1 and EAGLE-2 heads", "MTP and NextN layers", "P-EAGLE, DFlash and DSpark drafts"),
        fix="Serve other heads without the adapter, or name the format where an EAGLE-3 head has tensor names of its "
        "own:\n"
        "    --speculative-algorithm EAGLE          (no --eagle3-adapter)\n"
        "    --eagle3-format NAME",
        example="fc.weight                        [4096, 8192]\nlayers.0.self_attn.q_proj.weight [4096, 4096]",
    ),
    Explanation(
        code="format-unknown",
        title="No format claims the draft, or the named one is absent",
        severity="E",
        meaning="The head is EAGLE-3 by its tensors, but nothing in it identifies a trainer's dialect, so what its ids "
        "and flags mean cannot be decided. A format name that is not installed gives the same code.",
        writers=(
            "trainers without a format here yet",
            "community heads that declare LlamaForCausalLM or Qwen3ForCausalLM",
        ),
        fix="Look the names up, then name the format that wrote the file:\n"
        "    eagle3-adapters adapters\n    --eagle3-format NAME",
        example='{"architectures": ["MyDraftModel"], "hidden_size": 4096}\nfc.weight [4096, 12288]',
    ),
    Explanation(
        code="format-ambiguous",
        title="The file can be read in ways that wire it differently",
        severity="E",
        meaning="Two formats claim it, or its layer ids have two readings that name different states and nothing in "
        "the file decides. The finding prints each reading in boundaries, with the option that selects it.",
        writers=(
            "speculators without a version or before 0.5",
            "NVIDIA ModelOpt: ids count differently after a Hugging Face and a vLLM dump",
        ),
        cost="All states one layer off: measured here on the canary pair 1.00 instead of 2.13, on an ordinary draft "
        "2.77 instead of 2.84. Reported by vLLM PR 43671 (MiniMax-M2.5): first-position acceptance about 10% instead "
        "of 45%.",
        fix="Ask who trained the draft how states were dumped, then pass what the finding prints beside that reading:\n"
        "    --eagle3-boundaries 2,16,29\nor, where two formats claim it:\n    --eagle3-format NAME",
        example='{"speculators_model_type": "eagle3", "speculators_version": "0.4.0",\n'
        ' "eagle_aux_hidden_state_layer_ids": null, "transformer_layer_config": {}}',
    ),
    Explanation(
        code="target-unsupported",
        title="No installed adapter owns the target's architecture",
        severity="E",
        meaning="Where a class captures states, and by which rule, comes from an adapter; without one nothing is "
        "assumed. The finding lists what is installed and names the wheel where this project has one.",
        fix="Install the wheel that the finding names, or write an adapter (CONTRIBUTING.md, 'Add an architecture'):\n"
        "    pip install eagle3-adapters-llama",
        example='{"architectures": ["MixtralForCausalLM"]}   (the target)',
    ),
    Explanation(
        code="adapter-mismatch",
        title="The named adapter does not own the target's architecture",
        severity="E",
        meaning="Its id rule and its capture places belong to another class of SGLang.",
        fix="Let the architecture decide:\n    --eagle3-adapter auto",
        example='--eagle3-adapter llama\n{"architectures": ["GptOssForCausalLM"]}   (the target)',
    ),
    Explanation(
        code="pair-swapped",
        title="The target's path leads to a draft",
        severity="E",
        meaning="The config named as the target's has fields that only a draft has. The two paths were given in each "
        "other's place.",
        fix="Swap them:\n    eagle3-adapters check --target TARGET --draft DRAFT",
        example='{"draft_vocab_size": 32000}   under --model-path',
    ),
    Explanation(
        code="format-mismatch",
        title="The named format does not know the file, another one does",
        severity="E",
        meaning="The files carry the marks of another trainer's dialect than the one asked for, and reading them in "
        "the one asked for went wrong.",
        fix="Leave the choice to the files, or name the format that claims them:\n    eagle3-adapters inspect DRAFT",
        example="--eagle3-format sglang   with a speculators checkpoint",
    ),
    Explanation(
        code="adapter-unknown",
        title="No adapter of this name is installed",
        severity="E",
        meaning="The name given with --eagle3-adapter or EAGLE3_ADAPTER, or the owner that an architecture's entry "
        "point names, is no installed adapter.",
        fix="See what is installed, and use one of those names or auto:\n    eagle3-adapters adapters",
        example="--eagle3-adapter lama",
    ),
    Explanation(
        code="registry-conflict",
        title="Two distributions claim one name or architecture",
        severity="E",
        meaning="Python would take whichever it finds first, so the wiring would hang on the order of installation.",
        writers=("an own plugin beside a wheel of this project", "a renamed distribution whose old version stayed"),
        fix="Keep one of the two that the finding names:\n    pip uninstall DISTRIBUTION",
        example='[project.entry-points."eagle3_adapters"]   # in two installed distributions\nllama = "my_module"',
    ),
    Explanation(
        code="plugin-broken",
        title="A plugin fails to import or its hooks do not fit",
        severity="E",
        meaning="Importing it raised, a hook is misspelt or has other parameters, a required hook is absent, or a "
        "format lacks an attribute. The finding names distribution, version and problem.",
        writers=("plugins written for another version of eagle3-adapters",),
        fix="Update both, or tell the plugin's author what the finding says:\n"
        "    pip install -U DISTRIBUTION eagle3-adapters",
        example="@hookimpl\ndef capture_layer(target): ...   # the hook is capture_layers",
    ),
)
