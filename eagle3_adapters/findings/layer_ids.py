"""Explains the findings about layer ids: where they stand, which states they name, in which order."""

from __future__ import annotations

from eagle3_adapters.findings.explanation import Explanation

ENTRIES = (
    Explanation(
        code="layer-ids-reading",
        title="The ids have a second reading; the first one is used",
        severity="W",
        meaning="The file is in SGLang's own dialect and is read by the rule of the target's class, as SGLang does. "
        "An older version or another trainer reads the same numbers as other states; each reading is printed.",
        writers=(
            "SpecForge: DeepSeek and Kimi drafts trained through SGLang up to 0.5.12, when every id was shifted by one",
            "TorchSpec (kimi_k25 MLA drafts)",
        ),
        cost="Reported by sglang PR 25454 (kimi-k2.5-eagle3-mla): about 0.10 of accept length lost. Measured here on a "
        "DeepSeek-shaped canary pair: 1.03 instead of 2.66 when the list's first id flips the rule.",
        fix="If the draft was trained with the other reading, pass the option printed beside it:\n"
        "    --eagle3-boundaries 3,31,59",
        example='{"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}}\non DeepseekV3ForCausalLM',
    ),
    Explanation(
        code="layer-ids-missing",
        title="The checkpoint names no layer ids",
        severity="I / E",
        meaning="The format defines which states it trains with when it writes none; those are used and told. A format "
        "without such a default is refused.",
        writers=(
            "SafeAILab EAGLE (states are fixed in code)",
            "NeMo Automodel (never exported)",
            "speculators (often null)",
        ),
        cost="Defaults that were not the trained states: reported by vLLM PR 50170 "
        "(nvidia/Llama-3.3-70B-Instruct-Eagle3) 1.036; measured here on the canary pair 1.00 instead of 2.13.",
        fix="If training used other states than those told, name them:\n    --eagle3-boundaries 2,40,77",
        example='{"architectures": ["LlamaForCausalLMEagle3"]}   (no eagle_config)',
    ),
    Explanation(
        code="layer-ids-misplaced",
        title="Ids stand where stock SGLang does not look",
        severity="fixed",
        meaning="SGLang captures by eagle_config.eagle_aux_hidden_state_layer_ids only; ids at the top level or under "
        "another key leave it at its default states without a word. Here they count wherever the format puts them.",
        writers=("AngelSlim (aux_hidden_states_layer_ids)", "speculators (top level)", "configs edited by hand"),
        cost="Default states in place of the file's, measured here on the canary pair: 1.00 instead of 2.13.",
        fix="Nothing to do; to mend the file too:\n"
        '    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}',
        example='{"architectures": ["LlamaForCausalLMEagle3"], "eagle_aux_hidden_state_layer_ids": [1, 15, 28]}',
    ),
    Explanation(
        code="layer-ids-overridden",
        title="--eagle3-boundaries contradicts the ids of the file",
        severity="W",
        meaning="The file's ids have one meaning, and the boundaries asked for are others. They are used as asked.",
        cost="Measured here on the canary pair, one layer off: 1.00 instead of 2.13.",
        fix="Drop the option, unless the file is known to be wrong:\n    eagle3-adapters inspect DRAFT --target TARGET",
        example='--eagle3-boundaries 1,3,6\n{"eagle_aux_hidden_state_layer_ids": [0, 2, 5]}   (speculators)',
    ),
    Explanation(
        code="layer-ids-out-of-range",
        title="An id names no state of this target",
        severity="E",
        meaning="After conversion a boundary lies below 0 or above the number of layers, or the list cannot be read as "
        "numbers. SGLang accepts it and captures fewer states.",
        writers=("drafts of a deeper target", "ids shifted twice by a converter"),
        fix="Check that draft and target belong together; then name the states:\n    --eagle3-boundaries 2,16,29",
        example='{"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 40]}}\non a target with 32 layers',
    ),
    Explanation(
        code="layer-ids-duplicate",
        title="One state is named twice",
        severity="E",
        meaning="SGLang captures a layer once however often it is listed, so fc would receive fewer states than it has "
        "columns for.",
        cost="One state three times, measured here on the canary pair: 1.00 instead of 2.13; on an ordinary draft 1.33 "
        "instead of 2.84.",
        fix="Name one distinct boundary for each column block of fc:\n    --eagle3-boundaries 2,16,29",
        example='{"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 15]}}',
    ),
    Explanation(
        code="layer-ids-degenerate",
        title="The default states coincide on so shallow a target",
        severity="E",
        meaning="The default triple is 2, N//2 and N-3; with six layers or fewer two of them are one state or lie "
        "outside.",
        writers=("toy targets in tests and tutorials",),
        fix="Name the states that training used:\n    --eagle3-boundaries 1,2,3",
        example='{"num_hidden_layers": 6}   (the target); no ids in the draft: [2, 3, 3]',
    ),
    Explanation(
        code="layer-ids-unordered",
        title="States were joined in list order, not in layer order",
        severity="fixed",
        meaning="SGLang always joins captured states from low to high. Where training joined them otherwise, the "
        "column blocks of fc and the norms of the states are reordered while they load.",
        writers=("AngelSlim", "TorchSpec (Hugging Face path)", "NeMo Automodel"),
        cost="Columns left as they are: measured here on the canary pair 1.00 instead of 2.13; on an ordinary draft "
        "2.46 to 2.70 instead of 2.84.",
        fix="Nothing to do; the reordering is part of the plan and the checkpoint stays as it is.",
        example='{"aux_hidden_states_layer_ids": [1, 29, 15]}   or   --eagle3-boundaries 2,30,16',
    ),
)
