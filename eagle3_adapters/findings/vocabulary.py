"""Explains the findings about the vocabulary: sizes, the map from draft to target tokens, the draft's head."""

from __future__ import annotations

from eagle3_adapters.findings.explanation import Explanation

_EXPORT = "Export the draft again together with its map, and look at it:\n    eagle3-adapters inspect DRAFT"

ENTRIES = (
    Explanation(
        code="vocab-size",
        title="Vocabulary sizes of draft, head and target disagree",
        severity="E",
        meaning="vocab_size is not the target's, or draft_vocab_size is not the number of rows of lm_head.",
        writers=("drafts of another target or tokenizer", "configs whose draft_vocab_size was left at a default"),
        fix='Where the tensors are right, write their size:\n    "draft_vocab_size": 32000',
        example='{"vocab_size": 128256, "draft_vocab_size": 32000}\nlm_head.weight [64000, 4096]',
    ),
    Explanation(
        code="vocab-map-missing",
        title="A reduced vocabulary without its map",
        severity="E",
        meaning="The head scores fewer tokens than the target has, and no d2t says which. SGLang takes draft ids for "
        "target ids, so nearly every proposal is another token.",
        writers=(
            "NeMo Automodel before PR 2447 (map in a file beside the checkpoint)",
            "NVIDIA ModelOpt, Megatron export (d2t is never written)",
        ),
        cost="No map or one of zeros: measured here on the canary pair 1.00 instead of 2.13, on an ordinary draft 1.02 "
        "instead of 2.84.",
        fix="Add the trainer's own map to the checkpoint; it cannot be computed from the head. Then look:\n"
        "    eagle3-adapters inspect DRAFT",
        example='lm_head.weight [32000, 4096]   (no d2t)\n{"vocab_size": 128256, "draft_vocab_size": 32000}',
    ),
    Explanation(
        code="vocab-map-length",
        title="The map has another length than the head or vocabulary",
        severity="E",
        meaning="d2t needs one entry for each row of the head, t2d one for each token of the target; this file's map "
        "is of another size, or empty.",
        writers=("speculators before PR 1081 (a map cached by another run)",),
        fix=_EXPORT,
        example="d2t [16000]\nlm_head.weight [32000, 4096]",
    ),
    Explanation(
        code="vocab-map-range",
        title="The map leads outside the target's vocabulary",
        severity="E",
        meaning="Some draft token plus its offset is below 0 or not below vocab_size. The map is of another "
        "tokenizer, or holds ids where offsets belong.",
        writers=("maps of another target", "files that store target ids"),
        fix=_EXPORT,
        example='d2t[31999] = 100000   with "vocab_size": 128256: 131999',
    ),
    Explanation(
        code="vocab-map-duplicate",
        title="Two draft tokens stand for one target token",
        severity="E",
        meaning="A map must give each draft token a target token of its own. The finding names the first two that "
        "meet.",
        writers=("damaged maps", "files that store target ids in descending steps of one"),
        fix=_EXPORT,
        example="d2t = [0, 1, 0, ...]: draft tokens 1 and 2 both become 2",
    ),
    Explanation(
        code="vocab-map-unfilled",
        title="The map is all zeros though the vocabulary is reduced",
        severity="E",
        meaning="Zeros are offsets of the identity, right only when draft and target vocabulary are equal. Here the "
        "buffer was created and never written.",
        writers=("SpecForge (writes the buffers even if they were never filled)",),
        cost="Measured here on the canary pair 1.00 instead of 2.13, on an ordinary draft 1.02 instead of 2.84.",
        fix=_EXPORT,
        example='d2t = [0, 0, 0, ...] of 32000   with "vocab_size": 128256',
    ),
    Explanation(
        code="vocab-map-mask",
        title="d2t and t2d name different tokens",
        severity="E",
        meaning="Both describe which target tokens the draft knows, and they differ as sets, so one is of another run. "
        "Order does not matter: some trainers sort by frequency.",
        writers=("exports that mixed the maps of two runs",),
        fix="Keep the one that training used; SGLang reads d2t only. To drop a stale t2d, write the file without it:\n"
        '    python -c "from safetensors.torch import load_file as l, save_file as s; '
        "t = l('model.safetensors'); t.pop('t2d'); s(t, 'model.safetensors')\"",
        example="d2t -> {3, 7, 12}\nt2d set at {3, 7, 13}",
    ),
    Explanation(
        code="vocab-map-absolute",
        title="The map holds target ids where offsets belong",
        severity="fixed / E",
        meaning="SGLang adds d2t to the draft id. A file whose numbers are the target ids themselves is converted "
        "where that is the only possible reading, and refused where both are.",
        writers=("converters of their own making; every known trainer writes offsets",),
        cost="Measured here on the canary pair, target ids read as offsets: 1.00 instead of 2.13.",
        fix="Where it was converted nothing is needed. Otherwise decide yourself and rewrite it as offsets:\n"
        '    python -c "import torch; from safetensors.torch import load_file as l, save_file as s; '
        "t = l('model.safetensors'); t['d2t'] -= torch.arange(len(t['d2t'])); s(t, 'model.safetensors')\"",
        example='d2t = [5, 9, 127000, ...]   with "vocab_size": 128256',
    ),
    Explanation(
        code="tied-head",
        title="tie_word_embeddings with a reduced vocabulary",
        severity="fixed / E",
        meaning="SGLang would make the target's embedding the draft's head and cut its logits to the first rows. An "
        "lm_head in the file is used instead; without one there is no head to use.",
        writers=("AngelSlim (models up to 4B, Hunyuan)", "SpecForge before PR 140"),
        fix="Where an lm_head is present nothing is needed. Otherwise export the draft with its lm_head and set:\n"
        '    "tie_word_embeddings": false',
        example='{"tie_word_embeddings": true, "vocab_size": 151936, "draft_vocab_size": 32000}',
    ),
)
