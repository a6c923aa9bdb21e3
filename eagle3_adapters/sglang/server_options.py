"""Owns SGLang's own options beside a plan: which of them would undo it, and which are corrected.

Attribute names are fields of SGLang's ServerArgs, 0.5.17 to 0.5.23.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eagle3_adapters.draft_classes import LATENT
from eagle3_adapters.report import Report
from eagle3_adapters.sglang import overlay

#: Attention backends that read a latent (MLA) cache only.
_LATENT_ONLY = ("cutlass_mla", "flashmla", "tokenspeed_mla", "trtllm_mla")


def check_before(server_args: Any, report: Report) -> None:
    """What is wrong whatever the pair is."""
    algorithm = (server_args.speculative_algorithm or "none").upper()
    if algorithm != "EAGLE3":
        report.error(
            "algorithm",
            "--speculative-algorithm",
            "EAGLE3",
            algorithm,
            why="an EAGLE-3 draft gets no captured states under any other",
            remedy="--speculative-algorithm EAGLE3, or start without --eagle3-adapter and EAGLE3_ADAPTER",
        )
    if (server_args.pp_size or 1) > 1:
        report.error(
            "parallelism",
            "--pp-size",
            "1",
            str(server_args.pp_size),
            why="states of earlier pipeline stages never reach the draft",
            remedy="use --tp-size instead",
        )
    if getattr(server_args, "use_ray", False):
        report.error(
            "parallelism", "--use-ray", "no Ray", "Ray", why="Ray's actors load no plugins", remedy="drop --use-ray"
        )
    if getattr(server_args, "enable_two_batch_overlap", False):
        report.error(
            "parallelism",
            "--enable-two-batch-overlap",
            "batches in one piece",
            "two overlapping halves",
            why="SGLang captures no state in the layers that it runs so (DeepSeek: from the first layer of experts on)",
            remedy="drop --enable-two-batch-overlap",
        )
    for option in ("load_format", "speculative_draft_load_format"):
        if str(getattr(server_args, option, None) or "").lower() == "dummy":
            report.error(
                "load-format-dummy",
                _flag(option),
                "weights from the checkpoints",
                "dummy",
                why="random weights accept nothing, and the wiring could not be verified",
                remedy=f"drop {_flag(option)} dummy",
            )
    given = server_args.decrypted_draft_config_file
    # A copy of the arguments of a running server already names ours.
    if given and not overlay.is_ours(Path(given)):
        report.error(
            "draft-config-given",
            "--decrypted-draft-config-file",
            "nothing: the translated config of the draft goes there",
            str(given),
            why="SGLang reads one config for the draft",
            remedy="drop --decrypted-draft-config-file, or start without --eagle3-adapter",
        )
    _tree(server_args, report)
    _told(server_args, report)


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")


def _tree(server_args: Any, report: Report) -> None:
    """Steps, topk and draft tokens: all or none, and a tree that holds as many tokens as are asked for."""
    steps, topk = server_args.speculative_num_steps, server_args.speculative_eagle_topk
    tokens = server_args.speculative_num_draft_tokens
    where = "--speculative-num-steps, --speculative-eagle-topk, --speculative-num-draft-tokens"
    given = f"steps {steps}, topk {topk}, draft tokens {tokens}"
    if getattr(server_args, "speculative_adaptive", False) or (steps, topk, tokens) == (None, None, None):
        return
    if steps is None or topk is None or steps < 1 or topk < 1 or (tokens is None and topk > 1):
        report.error(
            "draft-tokens",
            where,
            "all three, or none of them",
            given,
            why="SGLang ends with an assertion that names none of them",
            remedy=_triple(steps or 3, topk or 1, tokens),
        )
        return
    most = _most(steps, topk)
    wrong_chain = topk == 1 and tokens not in (None, steps + 1)
    if wrong_chain or (tokens is not None and not 2 <= tokens <= most):
        report.error(
            "draft-tokens",
            where,
            f"draft tokens {most if topk == 1 else f'from 2 to {most}'}: the root counts as one of them",
            given,
            why="SGLang would change one of the three or fail in the first request",
            remedy=_triple(steps, topk, tokens),
        )


def _most(steps: int, topk: int) -> int:
    """Tokens of the largest tree: the root, topk children, then topk of each of the topk best a step."""
    return 1 + topk + (steps - 1) * topk * topk


def _triple(steps: int, topk: int, tokens: int | None) -> str:
    fitting = steps + 1 if topk == 1 else min(max(tokens or 8, 2), _most(steps, topk))
    return f"--speculative-num-steps {steps} --speculative-eagle-topk {topk} --speculative-num-draft-tokens {fitting}"


def _told(server_args: Any, report: Report) -> None:
    """Options that do less, or more, than people expect."""
    if getattr(server_args, "speculative_token_map", None):
        report.warning(
            "token-map",
            "--speculative-token-map",
            "the draft's own vocabulary map",
            str(server_args.speculative_token_map),
            why="SGLang ignores this option for EAGLE-3: the map comes with the checkpoint",
            remedy="drop --speculative-token-map",
        )
    if getattr(server_args, "speculative_draft_window_size", None):
        report.warning(
            "draft-window",
            "--speculative-draft-window-size",
            "the draft's attention as trained",
            f"the last {server_args.speculative_draft_window_size} tokens",
            why="a draft trained on full attention accepts less behind a window",
            remedy="drop --speculative-draft-window-size, unless the finding sliding-window asks for it",
        )
    if (server_args.json_model_override_args or "{}").strip() != "{}":
        report.info(
            "override-both",
            "--json-model-override-args",
            "an override of the target alone",
            f"{server_args.json_model_override_args}; taken back for the draft",
            why="SGLang applies it to both models",
        )


def correct(server_args: Any, draft_architecture: str, report: Report) -> dict[str, Any]:
    """Fields to set for a planned draft, whose weights are plain: SGLang would give it the target's quantisation."""
    fields: dict[str, Any] = {}
    own = server_args.speculative_draft_model_quantization
    if server_args.quantization and own is None:
        fields["speculative_draft_model_quantization"] = "unquant"
        report.info(
            "quantization-inherited",
            "--speculative-draft-model-quantization",
            "unquant, since the draft's weights are plain",
            f"nothing; set to unquant, else it would inherit {server_args.quantization} from --quantization",
        )
    backend = server_args.attention_backend
    own_backend = getattr(server_args, "speculative_draft_attention_backend", None)
    if backend in _LATENT_ONLY and draft_architecture != LATENT.architecture and own_backend is None:
        report.warning(
            "attention-backend",
            "--speculative-draft-attention-backend",
            "a backend for the draft's ordinary attention",
            f"nothing beside --attention-backend {backend}, which reads latent caches only",
            why="the draft's attention is not latent; SGLang fails at the first draft step",
            remedy="--speculative-draft-attention-backend triton",
        )
    return fields
