"""Explains the findings of ``convert``: what a format cannot say, what was left out, why nothing was written."""

from __future__ import annotations

from eagle3_adapters.findings.explanation import Explanation

ENTRIES = (
    Explanation(
        code="not-representable",
        title="The other format cannot say what the draft is",
        severity="E",
        meaning="Before anything is written the result is read back as its format reads it. Whatever comes back "
        "different is told here: a flag, a state, a tensor without a name, a field of config.json. Nothing is dropped "
        "to make a draft fit.",
        writers=(
            "speculators drafts with norm_before_residual, for every other format",
            "drafts of more than one layer or other than three states, for trainers that build no others",
            "drafts with an embedding of their own, for ModelOpt",
        ),
        fix="Choose a format that can hold it:\n    eagle3-adapters adapters\nAn embedding goes where it equals the "
        "target's:\n    eagle3-adapters convert DRAFT OUT --to FORMAT --target TARGET",
        example='{"norm_before_residual": true}   with --to sglang',
    ),
    Explanation(
        code="target-needed",
        title="The ids mean nothing without the target",
        severity="E",
        meaning="SGLang's dialect counts ids by a rule of the target's class, and older defaults depend on its number "
        "of layers. Without --target there is nothing to count by.",
        fix="Name the target; its config.json is enough:\n"
        "    eagle3-adapters convert DRAFT OUT --to FORMAT --target TARGET",
        example="convert DRAFT OUT --to sglang   (ids [0, 2, 5], no --target)",
    ),
    Explanation(
        code="format-by-name",
        title="The result is recognised as another format, or as none",
        severity="I",
        meaning="Files of the format that was asked for do not say who wrote them. Whoever serves them without naming "
        "the format reads them as the one that the finding names.",
        writers=("SpecForge, and TorchSpec without latent attention: SGLang's own dialect",),
        fix="Name it where it matters:\n    --eagle3-format NAME",
        example="convert DRAFT OUT --to specforge",
    ),
    Explanation(
        code="embedding-copy",
        title="A copy of the target's embedding was left out",
        severity="fixed",
        meaning="The format has no place for an embedding, and the draft's equals the target's byte for byte, so that "
        "nothing is lost: every engine shares the target's.",
        fix="Nothing to do: engines share the target's.",
        example="convert DRAFT OUT --to modelopt --target TARGET",
    ),
    Explanation(
        code="embedding-not-stored",
        title="No embedding in the file, its trainer wants one",
        severity="I",
        meaning="The draft shares the target's embedding and its file holds none. Engines take the target's. "
        "speculators 0.9.0 means to as well, but tells a missing embedding by a value that transformers has replaced "
        "with memory as it was.",
        writers=("SpecForge, ModelOpt and others that leave a frozen embedding out",),
        fix="Serving needs none. To train on with speculators, load the target's embedding after the draft:\n"
        '    model.embed_tokens.load_state_dict({"weight": embedding})',
        example="convert DRAFT OUT --to speculators   (no embed_tokens.weight in DRAFT)",
    ),
    Explanation(
        code="vocab-map-identity",
        title="A map that maps every token to itself was left out",
        severity="fixed",
        meaning="The draft proposes the whole vocabulary, and the format keeps d2t and t2d only where it is reduced.",
        writers=("SpecForge and AngelSlim write both always",),
        fix="Nothing to do: no map means the whole vocabulary.",
        example="d2t: zeros, as many as the target has tokens",
    ),
    Explanation(
        code="weight-unread",
        title="A norm that no class applies was left out",
        severity="fixed",
        meaning="SGLang's class builds an input_layernorm in every layer and reads that of the first one only. Other "
        "formats give that name to a norm that is read.",
        fix="Nothing to do: nothing read it.",
        example="layers.1.input_layernorm.weight beside layers.1.hidden_norm.weight",
    ),
    Explanation(
        code="output-exists",
        title="Something already stands where the output should go",
        severity="E",
        meaning="OUT is a file, or a directory that is not empty. Nothing of it was touched.",
        fix="Name another directory, or replace what stands there:\n"
        "    eagle3-adapters convert DRAFT OUT --to FORMAT --force",
        example="mkdir OUT; touch OUT/x",
    ),
    Explanation(
        code="output-is-source",
        title="The output would be the source, in it or around it",
        severity="E",
        meaning="The source is never touched, so OUT may neither be it, nor lie in it, nor hold it, with --force or "
        "without.",
        fix="Name a directory apart from the source:\n    eagle3-adapters convert DRAFT ../OUT --to FORMAT",
        example="convert draft draft/converted --to sglang",
    ),
    Explanation(
        code="output-unwritable",
        title="The output cannot be written",
        severity="E",
        meaning="The parent is missing or read-only, the disk is full, or another conversion to the same OUT is "
        "running. OUT is what it was, unless the finding says that only the old one could not be removed.",
        fix="Free space, create the parent, or wait for the other conversion:\n    mkdir -p PARENT",
        example="convert draft /absent/out --to sglang",
    ),
    Explanation(
        code="output-differs",
        title="What was written reads back differently",
        severity="E",
        meaning="Every tensor is read again and compared with the bytes that it was made of. One differed, so nothing "
        "was kept.",
        fix="Convert again; to another disk if it happens twice (memory or disk may be at fault):\n"
        "    eagle3-adapters convert DRAFT OTHER/OUT --to FORMAT",
        example="one bit of OUT/model.safetensors flipped before it was compared",
    ),
    Explanation(
        code="source-changed",
        title="The source changed while it was read",
        severity="E",
        meaning="Size, time of change or identity of a source file differ from what they were at the start. Nothing "
        "was written.",
        fix="Wait for the download or the export to end, then convert again:\n"
        "    eagle3-adapters convert DRAFT OUT --to FORMAT",
        example="touch draft/model.safetensors   during a conversion",
    ),
)
