"""Train the small target and its EAGLE-3 canary draft, and measure the draft under right and wrong wirings.

Run from anywhere, nothing installed: ``python3 tests/pairs/train.py --shape llama --output DIR --device cuda``.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import attrs  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from canary_pair import canary, corpus, export, prompts, recipe, sweep, target  # noqa: E402
from canary_pair.deepseek import DEEPSEEK  # noqa: E402
from canary_pair.llama import LLAMA  # noqa: E402
from canary_pair.progress import Clock  # noqa: E402
from canary_pair.recipe import NEW_TOKENS, SEED, STEPS, Recipe  # noqa: E402
from canary_pair.shape import PairShape  # noqa: E402

PAIRS = {"llama": (LLAMA, recipe.LLAMA), "deepseek": (DEEPSEEK, recipe.DEEPSEEK)}


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and make the pair."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=PAIRS, default="llama", help="architecture of the target")
    parser.add_argument("--output", type=Path, required=True, help="folder to write; made if missing")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--minutes", type=float, help="wall time of the whole run (a few seconds less)")
    parser.add_argument("--quick", action="store_true", help="a few steps only, to test this script")
    options = parser.parse_args(arguments)
    shape, amounts = PAIRS[options.shape]
    if not options.device.startswith("cuda"):
        amounts = recipe.on_cpu(amounts)
    if options.quick:
        amounts = recipe.quick(amounts)
    if options.minutes:
        amounts = attrs.evolve(amounts, minutes=options.minutes)
    make(options.output, torch.device(options.device), shape, amounts)


def make(output: Path, device: torch.device, shape: PairShape, amounts: Recipe) -> None:
    """Train, save and measure; the checkpoints are on disk before the measurement starts."""
    clock = Clock()
    output.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    clock.say(f"python {platform.python_version()}, torch {torch.__version__}, device {device} ({name})")
    manifest: dict[str, Any] = {
        "seed": SEED,
        "recipe": attrs.asdict(amounts),
        "target": shape.config,
        "draft": attrs.asdict(shape.draft),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "device": name,
        },
    }

    torch.set_float32_matmul_precision("high")
    text = corpus.load(amounts.corpus_files)
    manifest["corpus"] = {
        "files": text.files,
        "characters": text.characters,
        "training_tokens": len(text.training),
        "held_out_tokens": len(text.held_out),
    }
    clock.say(f"corpus {manifest['corpus']}")
    model = shape.build().to(device)
    clock.say(f"target {sum(parameter.numel() for parameter in model.parameters())} parameters")
    manifest["target_training"] = target.train(model, shape, text, amounts, clock)
    target.save(model, shape, text, output / "target")
    trained = manifest["target_training"]
    clock.say(f"target saved after {trained['steps']} steps, held-out loss {trained['held_out_loss']:.3f}")

    generated = target.training_text(model, text, amounts, clock)
    ids = canary.choose_vocabulary(generated, shape.draft.vocab_size)
    covered = torch.isin(generated.cpu(), ids).float().mean().item()
    manifest["draft_vocabulary_coverage"] = round(covered, 4)
    clock.say(f"generated {list(generated.shape)}, draft vocabulary covers {covered:.3f}")
    draft, manifest["draft_training"] = canary.train(model, shape.draft, text, generated, ids, amounts, clock)
    tensors = {key: value.detach().cpu() for key, value in draft.state_dict().items()}
    export.save(shape, tensors, model.model.embed_tokens.weight, ids, output / "draft")
    manifest["training_seconds"] = round(clock.elapsed(), 1)
    write(output / "manifest.json", manifest)
    clock.say(f"draft saved after {manifest['draft_training']['steps']} steps")

    torch.set_float32_matmul_precision("highest")
    model = model.cpu()
    chosen = prompts.choose(model, text, amounts)
    write(output / "prompts.json", [prompt.record() for prompt in chosen])
    faulty = sum(prompt.faults > 0 for prompt in chosen)
    clock.say(f"{len(chosen)} prompts chosen, {faulty} of them with an end, a loop or a near-tie")
    continuations = [prompt.continuation for prompt in chosen]
    results = sweep.measure(model, tensors, ids, continuations, sweep.wirings(shape.draft))
    manifest["acceptance"] = {
        "steps": STEPS,
        "topk": 1,
        "new_tokens": NEW_TOKENS,
        "prompts": len(chosen),
        "faulty_prompts": faulty,
        "dtype": "float32 arithmetic, bf16 weights, on the CPU",
        "wirings": results,
    }
    manifest["wall_seconds"] = round(clock.elapsed(), 1)
    write(output / "manifest.json", manifest)
    for wiring, result in results.items():
        clock.say(f"{result['accept_length']:7.3f} ± {result['standard_error']:.3f}  {wiring}")
    clock.say(f"done: right {results['right']['accept_length']}")


def write(path: Path, content: object) -> None:
    """Write JSON: indented, but innermost lists on one line."""
    indented = json.dumps(content, indent=1)
    compact = re.sub(r"\[[^][{}\"]*\]", lambda match: " ".join(match.group().split()), indented)
    path.write_text(compact + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
