"""What the package answers to every real config. ``python -m support.answers`` in ``tests/`` writes the snapshot."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from eagle3_adapters.checkpoint import read_draft, read_target
from eagle3_adapters.errors import Finding, FindingsError
from eagle3_adapters.pair import AUTO, Request, plan_pair, read_format
from eagle3_adapters.registry import Registry
from support.synthesise import flat, ids_of, vocabulary_of, write_draft

DATA = Path(__file__).parents[1] / "data" / "real_configs"
SNAPSHOT = DATA / "answers.json"
ENGINE = "0.5.23"
Line = Mapping[str, Any]
#: Layers, hidden size, vocabulary.
Facts = tuple[int, int, int]
#: Part of a source's file name, else of its target's name (lower case) -> line of targets.jsonl, or the facts of a
#: model that is not there; None: the recorded target is not the one the config is for. The first that fits counts.
_TARGETS: Mapping[str, str | Facts | None] = {
    "config.json@50cd0892": None,  # a Granite-shaped file in a repository whose usual target is Llama
    "cosyvoice3": (24, 896, 6761),
    "deepseek-r1": "deepseek-ai/DeepSeek-R1",
    "deepseek-v2-lite": (27, 2048, 102400),
    "deepseek-v3": "deepseek-ai/DeepSeek-V3",
    "gemma-4-31b": "nvidia/Gemma-4-31B-IT-NVFP4",
    "gemma3-1b": (26, 1152, 262144),
    "gemma3-27b": (62, 5376, 262208),
    "gemma4-26b": "google/gemma-4-26B-A4B",
    "glm4-flash": (47, 2048, 154880),
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "hunyuan-1.8b": (32, 2048, 120818),
    "hunyuan-4b": (36, 3072, 120818),
    "hunyuan_ocr": (24, 1024, 120818),
    "kimi-k2.5": "moonshotai/Kimi-K2.5",
    "kimi_k25": "moonshotai/Kimi-K2.5",
    "ling-flash": (32, 4096, 157184),
    "llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B",
    "llama3-70b": "meta-llama/Meta-Llama-3.1-70B",
    "llama3-8b": "meta-llama/Meta-Llama-3.1-8B",
    "llama33_70b": "meta-llama/Meta-Llama-3.1-70B",
    "llama3_8_b": "meta-llama/Meta-Llama-3.1-8B",
    "llama4-scout": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "llava": (32, 4096, 32064),
    "longcat-flash": (28, 6144, 131072),
    "minicpm-v4": (32, 2560, 73448),
    "minimax_m25": "MiniMaxAI/MiniMax-M2.5",
    "phi4-mini": (32, 3072, 200064),
    "qwen2-5-vl-3b": (36, 2048, 151936),
    "qwen2-5-vl": (28, 3584, 152064),
    "qwen2-audio-7b": (32, 4096, 156032),
    "qwen2.5-0.5b": (24, 896, 151936),
    "qwen2.5-1.5b": (28, 1536, 151936),
    "qwen2.5-3b": (36, 2048, 151936),
    "qwen2.5-7b": (28, 3584, 152064),
    "qwen2.5-vl-3b": (36, 2048, 151936),
    "qwen2.5-vl-7b": (28, 3584, 152064),
    "qwen3-0.6b": "Qwen/Qwen3-0.6B",
    "qwen3-1.7b": "Qwen/Qwen3-1.7B",
    "qwen3-14b": (40, 5120, 151936),
    "qwen3-235b": "Qwen/Qwen3-235B-A22B",
    "qwen3-30b": "Qwen/Qwen3-30B-A3B",
    "qwen3-32b": "Qwen/Qwen3-32B",
    "qwen3-4b": (36, 2560, 151936),
    "qwen3-8b": "Qwen/Qwen3-8B",
    "qwen3-coder-30b": (48, 2048, 151936),
    "qwen3-coder-next": (48, 2048, 151936),
    "qwen3-coder": "Qwen/Qwen3-Coder-480B-A35B-Instruct",
    "qwen3-next": (48, 2048, 151936),
    "qwen3-vl-235b": "Qwen/Qwen3-VL-235B-A22B-Instruct",
    "qwen3-vl-30b": "Qwen/Qwen3-VL-30B-A3B-Instruct",
    "qwen3-vl-4b": "Qwen/Qwen3-VL-4B-Instruct",
    "qwen3-vl-8b": "Qwen/Qwen3-VL-8B-Instruct",
    "qwen3.5-122b": "Qwen/Qwen3.5-122B-A10B",
    "qwen3.5-4b": (32, 2560, 248320),
    "qwen3_8b": "Qwen/Qwen3-8B",
    "qwq-32b": (64, 5120, 152064),
    "step-3.5-flash": "Tawheeb123/Step-3.5-Flash (copy of stepfun-ai/Step-3.5-Flash)",
}
#: What a Llama-class stand-in takes over from a target that is known whole.
_ROPE = ("rope_theta", "rope_scaling", "rope_parameters", "max_position_embeddings")


@cache
def lines(name: str) -> tuple[Line, ...]:
    """The lines of drafts.jsonl or targets.jsonl."""
    return tuple(json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines())


@cache
def _targets() -> Mapping[str, Mapping[str, Any]]:
    return {line["source"]: line["config"] for line in lines("targets.jsonl")}


def target_of(line: Line) -> str | Facts | None:
    """The target of a draft: a line of targets.jsonl, the facts of a model that is not there, or None."""
    if line["target"] in _targets():
        name: str = line["target"]
        return name
    for text in (line["source"].rsplit("/", 1)[-1].lower(), line["target"].lower()):
        for part, target in _TARGETS.items():
            if part in text:
                return target
    return None


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def _sizes(line: Line) -> dict[str, Any]:
    """Sizes of the draft: its config; where that is an excerpt, its target's; last of all, something plausible."""
    fields, target = flat(line["config"]), target_of(line)
    # A config that states its hidden size is whole, up to the vocabulary; an absent head_dim then means hidden/heads.
    wanted = ("vocab_size",) if "hidden_size" in fields else ("_size", "_heads", "head_dim")
    if isinstance(target, str):
        text = _text(_targets()[target])
        fields = {key: value for key, value in text.items() if key.endswith(wanted)} | fields
    elif target is not None:
        fields = {"hidden_size": target[1], "vocab_size": target[2]} | fields
    hidden = fields["hidden_size"]
    usual = {"num_attention_heads": hidden // 128, "num_key_value_heads": 8, "intermediate_size": 4 * hidden}
    return usual | fields


def _derived(line: Line) -> Facts:
    """A target from the draft alone: the trainers' last default id is N-4, some configs kept the target's depth."""
    fields, ids = flat(line["config"]), ids_of(line["config"])
    layers = ids[-1] + 4 if ids else fields.get("max_window_layers", 32)
    return layers, fields.get("target_hidden_size", fields["hidden_size"]), vocabulary_of(fields)


def stand_in(line: Line) -> dict[str, Any]:
    """A Llama-class target with the depth, hidden size and vocabulary of the draft's, so that planning goes on."""
    target = target_of(line)
    if isinstance(target, str):
        text = _text(_targets()[target])
        layers, hidden, vocabulary = (text[key] for key in ("num_hidden_layers", "hidden_size", "vocab_size"))
        rope = {key: text[key] for key in _ROPE if key in text}
    else:
        layers, hidden, vocabulary = target or _derived(line)
        # Nothing is known of the target's rotary embedding: the draft's own, which is nobody's fault.
        rope = {key: value for key, value in flat(line["config"]).items() if key in _ROPE}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "vocab_size": vocabulary,
    } | rope


def _told(findings: Iterable[Finding]) -> list[str]:
    counts = Counter(f"{finding.severity.value} {finding.code}" for finding in findings)
    return [text if count == 1 else f"{text} ({count})" for text, count in counts.items()]


def _pair(target: Mapping[str, Any], draft: Path, directory: Path, registry: Registry) -> dict[str, Any]:
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(target), encoding="utf-8")
    planning = plan_pair(Request(target=str(directory), draft=str(draft)), registry, ENGINE)
    return {
        "plan": planning.plan is not None,
        "boundaries": None if planning.plan is None else list(planning.plan.boundaries),
        "findings": _told(planning.findings),
    }


def draft_answer(line: Line, directory: Path, registry: Registry) -> dict[str, Any]:
    """The format of a draft, and what comes of it with its own target and with a Llama-class stand-in."""
    bom = "(BOM)" in line["source"]
    draft = write_draft(directory / "draft", line["config"], line["trainer"], _sizes(line), bom=bom)
    try:
        format_ = read_format(read_draft(draft), AUTO, registry).format
    except FindingsError as error:
        format_ = ", ".join(_told(error.findings))
    target, substitute = target_of(line), stand_in(line)
    own = None
    if isinstance(target, str):
        own = {"name": target} | _pair(_targets()[target], draft, directory / "target", registry)
    sizes = {key: substitute[key] for key in ("num_hidden_layers", "hidden_size", "vocab_size")}
    return {
        "format": format_,
        "target": own,
        "stand-in": sizes | _pair(substitute, draft, directory / "stand-in", registry),
    }


def target_answer(line: Line, directory: Path, registry: Registry) -> dict[str, Any]:
    """What a target's config is read as, and which adapter owns it."""
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(line["config"]), encoding="utf-8")
    try:
        target = read_target(directory)
    except FindingsError as error:
        return {"findings": _told(error.findings)}
    try:
        adapter = registry.owner_of(target.architecture).name
    except FindingsError as error:
        adapter = ", ".join(_told(error.findings))
    return {
        "architecture": target.architecture,
        "layers": target.num_layers,
        "hidden": target.hidden_size,
        "vocabulary": target.vocab_size,
        "adapter": adapter,
    }


def snapshot() -> dict[str, dict[str, Any]]:
    """The reviewed answers: ``drafts`` and ``targets``, source -> answer."""
    stored: dict[str, dict[str, Any]] = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    return stored


def write() -> None:
    """Write the snapshot anew. The next step is to read its difference and to mend REVIEW.md."""
    registry = Registry.installed()
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        answers = {
            "drafts": {
                line["source"]: draft_answer(line, root / f"draft-{number}", registry)
                for number, line in enumerate(lines("drafts.jsonl"))
            },
            "targets": {
                line["source"]: target_answer(line, root / f"target-{number}", registry)
                for number, line in enumerate(lines("targets.jsonl"))
            },
        }
    SNAPSHOT.write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
