"""Explains the findings about the engine around the wiring: versions, hooks, the cache, and what is seen in service."""

from __future__ import annotations

from eagle3_adapters.findings.explanation import Explanation

ENTRIES = (
    Explanation(
        code="engine-version",
        title="In this version of SGLang the wiring was never checked",
        severity="E",
        meaning="The version was never checked, or a function that is hooked is not where it was: a draft would be "
        "served as by SGLang alone. Or the draft reads states that this package has to capture itself, and that was "
        "never run in this version. The start is refused.",
        writers=("upgrades of SGLang ahead of this package",),
        cost="What a version can change: reported by SpecForge issue 310 (Qwen2.5-VL), 2.195 on SGLang 0.5.4 and "
        "about 1.0 on 0.5.5.post3.",
        fix="Install a supported version, or a newer eagle3-adapters:\n    pip install 'sglang==0.5.23'",
        example="sglang 0.5.16, eagle3-adapters for 0.5.17 to 0.5.23",
    ),
    Explanation(
        code="plugin-excluded",
        title="SGLANG_PLUGINS leaves this package out",
        severity="E",
        meaning="SGLang loads only the plugins that the variable lists. Flags and variables of this package would then "
        "have no effect, and nothing would say so.",
        writers=("environments of images with plugins of their own",),
        fix="Add the package to the list, or unset the variable:\n"
        "    export SGLANG_PLUGINS=$SGLANG_PLUGINS,eagle3_adapters",
        example="SGLANG_PLUGINS=my_plugin",
    ),
    Explanation(
        code="environment-variable",
        title="An EAGLE3_ variable that nothing reads",
        severity="W",
        meaning="Its name is none of those that this package knows, so what it asks for is ignored.",
        fix="Correct the name, or remove it:\n    unset EAGLE3_FORMT",
        example="EAGLE3_FORMT=speculators",
    ),
    Explanation(
        code="plan-mismatch",
        title="The draft's config belongs to another server's plan",
        severity="E",
        meaning="Each start has a plan, and the translated config names it. A child process was started with one plan "
        "and given the config of another.",
        writers=("two engines started at once in one process",),
        fix="Start one after the other, or each in a process of its own:\n    python -m sglang.launch_server ...",
        example="two sglang.Engine(...) calls in two threads",
    ),
    Explanation(
        code="hook-not-applied",
        title="SGLang did not apply one of the hooks",
        severity="E",
        meaning="SGLang logs a hook that failed and continues. With one of them absent a part of the wiring would be "
        "SGLang's own, so the start is refused.",
        writers=("another plugin that replaces the same function", "changed SGLang sources"),
        fix="Read SGLang's log for the reason, and see what is found where:\n    eagle3-adapters doctor",
        example="sglang.srt.server_args.ServerArgs.resolve_once: no hook applied",
    ),
    Explanation(
        code="cache-unwritable",
        title="The translated config cannot be written",
        severity="E",
        meaning="SGLang reads one small config.json that is made for each plan. Its directory, by default the user's "
        "cache, is read-only or full.",
        writers=("containers with a read-only home directory",),
        fix="Name a directory that can be written:\n    export EAGLE3_ADAPTERS_CACHE=DIRECTORY",
        example="HOME=/nonexistent, no EAGLE3_ADAPTERS_CACHE",
    ),
    Explanation(
        code="acceptance-floor",
        title="In service the accept length stays at its floor",
        severity="E",
        meaning="Over many verified tokens next to no draft token was accepted. It is logged once as an error and "
        "the server runs on: output is right, but slower than without speculation.",
        writers=("drafts of another fine-tune of the target", "drafts that are broken in ways that no header shows"),
        cost="Reported by sglang issue 27829 (Kimi-K2.6 with nvidia's draft): 1.00 on every log line. Measured here "
        "with a draft of random weights: 1.067. A weak but rightly wired draft reaches 1.3 to 2.5.",
        fix="Check the pair; if that is clean, the draft was trained for other weights, text or chat template:\n"
        "    eagle3-adapters check --target TARGET --draft DRAFT",
        example="accept length 1.01 over 2048 verified tokens",
    ),
    Explanation(
        code="output-loop",
        title="The output repeats: its acceptance means nothing",
        severity="W",
        meaning="A text that goes round in a circle is easy to guess, so even a bad draft is accepted. Such prompts "
        "are told apart and should not count.",
        writers=("benchmarks with base models or without a chat template",),
        fix="Use prompts in the target's chat format, or leave the repeating ones out of the average:\n"
        '    sampling_params={"temperature": 0, "max_new_tokens": 128}',
        example="output tokens 17, 4, 17, 4, 17, 4, ... with accept length 4.0",
    ),
)
