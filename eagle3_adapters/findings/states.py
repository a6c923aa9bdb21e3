"""Explains the findings about the states that the target delivers and the draft's fc reads."""

from __future__ import annotations

from eagle3_adapters.findings.explanation import Explanation

ENTRIES = (
    Explanation(
        code="boundary-unreachable",
        title="SGLang's class of the target cannot deliver a state",
        severity="fixed / E",
        meaning="Most classes never hand out the last layer's output before the final norm, and some cannot hand out "
        "the embedding; SGLang sets such an id without complaint. A capture is injected where one exists, else it is "
        "refused.",
        writers=(
            "nvidia/gpt-oss-120b-Eagle3-v3 ([24, 30, 36] of 36 layers)",
            "drafts that read the last layer",
        ),
        cost="Reported by sglang issue 32226 and PR 32334 (gpt-oss-120b-Eagle3-v3): about 1.1 before, 2.68 to 2.72 "
        "after the last state arrived.",
        fix="Where it was injected nothing is needed. Where it is refused, train on states that the finding lists as "
        "deliverable; if the ids were only read one too high, name the right ones:\n    --eagle3-boundaries 2,16,29",
        example='{"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 31]}}\n'
        "on LlamaForCausalLM with 32 layers: boundary 32",
    ),
    Explanation(
        code="aux-count",
        title="fc has columns for another number of states",
        severity="E",
        meaning="The columns of fc.weight are no multiple of the target's width, or ids name more or fewer states than "
        "there are column blocks.",
        writers=("speculators heads with four states, served by engines that assume three", "drafts of another target"),
        fix="Name one boundary for each block of columns:\n    --eagle3-boundaries 2,10,20,29",
        example='fc.weight [4096, 16384]\n{"eagle_aux_hidden_state_layer_ids": [2, 16, 29]}   (4 blocks, 3 ids)',
    ),
    Explanation(
        code="aux-disabled",
        title="use_aux_hidden_state is false: one final state",
        severity="served / W / E",
        meaning="Such a head reads the target's last state after the final norm, not states of inner layers. A version "
        "whose draft classes cannot do that says so as an error.",
        writers=("NVIDIA ModelOpt (gpt-oss-120b short-context, throughput and v2 heads)",),
        cost="The flag set on a head trained with inner states: measured here on the canary pair 1.09 instead of "
        "2.81, on an ordinary draft 1.29 instead of 2.84.",
        fix="If training did use inner states, correct the flag and name them; else serve this head with SGLang "
        "alone:\n"
        '    "eagle_config": {"use_aux_hidden_state": true, "eagle_aux_hidden_state_layer_ids": [1, 15, 28]}',
        example='{"eagle_config": {"use_aux_hidden_state": false}}',
    ),
    Explanation(
        code="fc-bypass",
        title="SGLang would skip fc, since widths coincide",
        severity="served",
        meaning="The class decides by width alone whether fc is applied: joined states as wide as the embedding go "
        "past it. A head with one state always meets that.",
        writers=("heads trained on a single state", "heads whose joined states equal their hidden size"),
        cost="Measured here, one state and a square fc: 1.33 served against 2.63 offline. fc bypassed on the canary "
        "pair: 1.00 instead of 2.13.",
        fix="Nothing to do: a draft class of this package applies fc to the target's states whatever their width.",
        example="fc.weight [4096, 4096]   with target hidden size 4096",
    ),
    Explanation(
        code="capture-mismatch",
        title="At the first prompt a captured state is not as planned",
        severity="E",
        meaning="In the running server count, width or values of what the target handed out differ from a snapshot "
        "of our own, or the loaded class has not the places that the adapter names. The server ends.",
        writers=("targets whose class changed in SGLang", "adapters that describe another class"),
        cost="A wrong tensor captured: reported by sglang PR 39286 (Gemma3-27B) 1.058, and 1.891 once right.",
        fix="See whether SGLang and adapter fit, and report the finding with the output of:\n"
        "    eagle3-adapters doctor",
        example="captured chunk 1: boundary 16, relative error 0.41 (limit 0.02)",
    ),
    Explanation(
        code="capture-identity",
        title="A rehearsal shows another state than planned",
        severity="E",
        meaning="A captured chunk was compared with every boundary of a reference forward, and the nearest one is not "
        "the one in the plan.",
        cost="One of three states replaced, measured here on the canary pair: 1.00 to 1.03 instead of 2.13.",
        fix="The adapter's rule for this class is wrong; meanwhile SGLang of a supported version may still be right:\n"
        "    eagle3-adapters doctor",
        example="chunk 0: planned boundary 2, nearest boundary 3",
    ),
)
