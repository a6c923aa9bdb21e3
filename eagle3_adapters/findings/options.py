"""Explains the findings about options of the server that would undo the wiring, or that contradict each other."""

from __future__ import annotations

from eagle3_adapters.findings.explanation import Explanation

ENTRIES = (
    Explanation(
        code="algorithm",
        title="--speculative-algorithm is not EAGLE3",
        severity="E",
        meaning="Under EAGLE and the others the target captures no inner states, and where widths happen to fit, the "
        "draft runs on what it gets without an error.",
        writers=("start scripts kept from EAGLE-1 or EAGLE-2",),
        cost="Reported by sglang PR 21272: exactly 1.00. Measured here, an ordinary draft under EAGLE: 1.03 instead "
        "of 2.84.",
        fix="Ask for it by name:\n    --speculative-algorithm EAGLE3",
        example="--speculative-algorithm EAGLE --eagle3-adapter auto",
    ),
    Explanation(
        code="draft-tokens",
        title="Steps, topk and draft tokens contradict each other",
        severity="E",
        meaning="The number of draft tokens counts the root: with topk 1 it is steps + 1, with more it cannot exceed "
        "what the tree holds. The finding prints a triple that fits.",
        writers=("settings copied from another engine, which counts without the root",),
        fix="Pass the triple that the finding prints:\n"
        "    --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
        example="--speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 24",
    ),
    Explanation(
        code="attention-backend",
        title="The draft's attention needs a backend of its own",
        severity="fixed / W",
        meaning="A target with latent attention and a draft with ordinary attention cannot share a backend, but SGLang "
        "gives the draft the target's unless told otherwise.",
        writers=("Llama-shaped drafts on DeepSeek and Kimi targets (sglang issue 23490)",),
        fix="Where it was set nothing is needed. Otherwise choose one that serves the draft's attention:\n"
        "    --speculative-draft-attention-backend triton",
        example="--attention-backend cutlass_mla   with a Llama-shaped draft",
    ),
    Explanation(
        code="parallelism",
        title="Pipelines, overlapped batches or Ray: incomplete capture",
        severity="E",
        meaning="States of earlier pipeline stages never reach the draft, SGLang captures nothing in layers that it "
        "runs as two overlapping batches, and Ray's actors load no plugins, so the wiring would be absent there.",
        fix="Split by tensors instead, with batches in one piece and without Ray:\n    --tp-size 2",
        example="--pp-size 2 --eagle3-adapter auto",
    ),
    Explanation(
        code="override-both",
        title="--json-model-override-args reaches the draft as well",
        severity="fixed / W",
        meaning="SGLang applies these overrides to target and draft alike. Keys that the plan decides are put back "
        "for the draft; what could not be is told.",
        writers=("context extension by rope overrides", "tests that shorten a target by num_hidden_layers"),
        fix="Where the draft's values were put back nothing is needed. Otherwise edit the target's config.json "
        "instead:\n"
        '    "rope_scaling": {"rope_type": "yarn", "factor": 4.0}      (in a copy of the target)',
        example="--json-model-override-args '{\"num_hidden_layers\": 4}'",
    ),
    Explanation(
        code="load-format-dummy",
        title="--load-format dummy would serve random weights",
        severity="E",
        meaning="The models are filled with random numbers for profiling. No draft can be wired to such a target, "
        "and its acceptance says nothing.",
        writers=("profiling scripts",),
        fix="Drop the option, for the draft too:\n"
        "    (no --load-format dummy, no --speculative-draft-load-format dummy)",
        example="--load-format dummy --eagle3-adapter auto",
    ),
    Explanation(
        code="draft-config-given",
        title="--decrypted-draft-config-file is taken already",
        severity="E",
        meaning="SGLang reads one config for the draft, and through this option it gets the translated one. A file of "
        "your own cannot be there too.",
        writers=("start scripts for encrypted drafts", "hand-made translations of a config"),
        fix="Drop the option and let the draft's own config.json be translated:\n"
        "    (no --decrypted-draft-config-file)",
        example="--decrypted-draft-config-file my.json --eagle3-adapter auto",
    ),
    Explanation(
        code="token-map",
        title="--speculative-token-map is ignored for EAGLE3",
        severity="I / W",
        meaning="The option belongs to EAGLE-2 heads. For EAGLE3 SGLang takes the draft's own d2t and passes the "
        "file over.",
        writers=("start scripts kept from EAGLE-2 with a frequency-ranked vocabulary",),
        fix="Drop the option; the map of the checkpoint is the one in force:\n    eagle3-adapters inspect DRAFT",
        example="--speculative-algorithm EAGLE3 --speculative-token-map hot_tokens.pt",
    ),
    Explanation(
        code="draft-window",
        title="--speculative-draft-window-size cuts the attention short",
        severity="W",
        meaning="Past that many tokens the draft no longer sees the beginning, which is right only for a draft trained "
        "with the same window.",
        fix="Drop the option unless the draft was trained so:\n    (no --speculative-draft-window-size)",
        example="--speculative-draft-window-size 512",
    ),
)
