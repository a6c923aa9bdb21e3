#!/usr/bin/env python3
"""The wiring on a GPU with CUDA graphs: SGLang alone against this package, on one constructed pair.

``MODELS/llama`` and ``MODELS/llama-bigram`` are a target and a draft in SGLang's own dialect, so that SGLang alone
serves them rightly and says what must come out. Ways: ``stock``; ``adapter`` (the same files, EAGLE3_ADAPTER=auto);
``prefill-graphs`` (the same, prompts in CUDA graphs too); ``speculators`` (the draft in speculators' format, which
SGLang alone cannot read); ``refused`` (the trained pair of tests/pairs/llama under another algorithm, by launch_server
with the flag). Prints a table and writes JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROMPTS, NEW_TOKENS, VOCABULARY = 8, 96, 2048
ENGINE = {
    "skip_tokenizer_init": True,
    "attention_backend": "triton",
    "sampling_backend": "pytorch",
    "grammar_backend": "none",
    "dtype": "bfloat16",
    "mem_fraction_static": 0.1,
    "max_total_tokens": 32768,
    "max_running_requests": 16,
    "cuda_graph_max_bs_decode": 16,
    "random_seed": 1,
    "log_level": "info",
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
WAYS = ("stock", "adapter", "speculators", "prefill-graphs")
FACTS = (
    "boundaries [2, 4, 6]",
    "captured states verified",
    "captured states are not verified",
    "Capture prefill CUDA graph",
)


def as_speculators(draft: Path, output: Path) -> Path:
    """The same draft as speculators 0.5 would have saved it: nested config, boundaries for ids, ``layers.0`` names."""
    from safetensors.torch import load_file, save_file  # noqa: PLC0415 - torch is slow; most ways do not need it

    config = json.loads((draft / "config.json").read_text(encoding="utf-8"))
    ids = config.pop("eagle_config")["eagle_aux_hidden_state_layer_ids"]
    outer = {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.5.0",
        "draft_vocab_size": config.pop("draft_vocab_size"),
        "eagle_aux_hidden_state_layer_ids": [layer_id + 1 for layer_id in ids],
        "norm_before_residual": False,
        "transformer_layer_config": {key: value for key, value in config.items() if key != "architectures"},
    }
    output.mkdir(parents=True, exist_ok=True)
    (output / "config.json").write_text(json.dumps(outer), encoding="utf-8")
    tensors = load_file(draft / "model.safetensors")
    renamed = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
    save_file(renamed, output / "model.safetensors")
    return output


def serve(target: Path, draft: Path, port: int, *, prefill_graphs: bool) -> list[dict[str, Any]]:
    """Tokens and counts of every prompt, two rounds on one engine."""
    import sglang  # noqa: PLC0415 - only the processes that serve

    engine = sglang.Engine(
        model_path=str(target),
        speculative_draft_model_path=str(draft),
        port=port,
        disable_prefill_cuda_graph=not prefill_graphs,
        **ENGINE,
    )
    generator = random.Random(0)  # noqa: S311 - prompts, not secrets
    prompts = [[generator.randrange(1, VOCABULARY - 1) for _ in range(16 + 7 * i)] for i in range(PROMPTS)]
    sampling = {"temperature": 0, "max_new_tokens": NEW_TOKENS, "ignore_eos": True}
    answers = [engine.generate(input_ids=prompts, sampling_params=sampling) for _ in range(2)][-1]
    engine.shutdown()
    return [
        {
            "tokens": answer["output_ids"],
            "verifies": answer["meta_info"]["spec_verify_ct"],
            "accepted": answer["meta_info"]["spec_num_correct_drafts"],
        }
        for answer in answers
    ]


def refused(port: int) -> subprocess.CompletedProcess[str]:
    """launch_server with the flag and an algorithm that captures nothing."""
    pair = ROOT / "tests" / "pairs" / "llama"
    words = ["--model-path", str(pair / "target"), "--speculative-draft-model-path", str(pair / "draft")]
    words += ["--speculative-algorithm", "EAGLE", "--eagle3-adapter", "auto", "--port", str(port)]
    command = [sys.executable, "-m", "sglang.launch_server", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


def way(name: str, models: Path, folder: Path, port: int) -> subprocess.Popen[bytes]:
    """Start one way in a process of its own; its log stands beside its answer."""
    draft = models / "llama-bigram"
    environment = dict(os.environ)
    if name == "speculators":
        draft = as_speculators(draft, folder / "draft")
    if name != "stock":
        environment["EAGLE3_ADAPTER"] = "auto"
    words = ["--serve", name, str(models / "llama"), str(draft), str(port), str(folder / f"{name}.json")]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen([sys.executable, __file__, *words], env=environment, stdout=log, stderr=log)


def main() -> None:
    """Run all ways side by side, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--serve", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        name, target, draft, port, output = options.serve
        answers = serve(Path(target), Path(draft), int(port), prefill_graphs=name == "prefill-graphs")
        Path(output).write_text(json.dumps(answers), encoding="utf-8")
        return
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    running = [way(name, options.models, folder, 31000 + 1500 * i) for i, name in enumerate(WAYS)]
    for process in running:
        process.wait(timeout=400)
    served = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in WAYS}
    for name in WAYS:
        verifies, accepted = (sum(answer[key] for answer in served[name]) for key in ("verifies", "accepted"))
        same = sum(mine == theirs for mine, theirs in zip(served[name], served["stock"], strict=True))
        log = (folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        facts = [fact for fact in FACTS if fact in log]
        print(f"{name:15} accept length {1 + accepted / verifies:.3f}, {same}/{PROMPTS} as stock; log: {facts}")
    done = refused(40000)
    first = next((line for line in done.stderr.splitlines() if "ERROR" in line), done.stderr[-300:])
    print(f"refused      exit code {done.returncode}: {first}")


if __name__ == "__main__":
    main()
