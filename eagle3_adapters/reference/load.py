"""Owns building the reference draft from a checkpoint in any format that the package reads."""

from __future__ import annotations

import attrs
import torch
from safetensors import safe_open
from torch import Tensor

from eagle3_adapters.canonical import EMBEDDING
from eagle3_adapters.checkpoint import weight_files
from eagle3_adapters.draft_classes import LATENT
from eagle3_adapters.planning.config_checks import rope_settings
from eagle3_adapters.reference.draft import ReferenceDraft
from eagle3_adapters.reference.layers import LatentSizes
from eagle3_adapters.values import Config, DraftMath
from eagle3_adapters.vocab import VocabEncoding, VocabMap
from eagle3_adapters.wiring import WiringPlan


@attrs.frozen(kw_only=True)
class LoadedDraft:
    """A draft ready to be run offline: float32, on the CPU."""

    draft: ReferenceDraft
    #: [draft vocabulary] int64: target id of each draft id.
    draft_to_target: Tensor
    #: Boundary of each column block of ``fc``, in the order in which it was trained.
    boundaries: tuple[int, ...]
    #: The draft's own embedding [vocabulary, hidden], where it serves with that and not with the target's.
    embedding: Tensor | None = None


def load_draft(plan: WiringPlan) -> LoadedDraft:
    """The draft of a plan, with its weights as trained: columns in the trainer's order, not in SGLang's.

    Raises NotImplementedError, by name, for a kind of rotary embedding that the reference does not know.
    """
    listed = [0] * len(plan.boundaries)
    for position, block in enumerate(plan.column_order):
        listed[block] = plan.boundaries[position]
    draft = build_draft(
        plan.config,
        plan.math,
        states=len(listed),
        state_width=plan.state_width,
        vocab_size=plan.target_vocab_size,
        draft_vocab_size=plan.draft_vocab_size,
    )
    tensors = _tensors(plan)
    ids = torch.arange(plan.target_vocab_size)
    if plan.vocab_encoding is not None:
        name = "t2d" if plan.vocab_encoding is VocabEncoding.MASK else "d2t"
        values = tensors.pop(name).tolist()
        ids = torch.tensor(VocabMap.decode(values, plan.vocab_encoding, plan.target_vocab_size).target_ids)
    own = tensors.pop(EMBEDDING, None)
    draft.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return LoadedDraft(
        draft=draft.eval(),
        draft_to_target=ids,
        boundaries=tuple(listed),
        embedding=None if own is None else own.float(),
    )


def build_draft(
    config: Config, math: DraftMath, *, states: int, state_width: int, vocab_size: int, draft_vocab_size: int
) -> ReferenceDraft:
    """A draft of a canonical config, its weights random."""
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    latent = "kv_lora_rank" in config
    rope = rope_settings(config)
    return ReferenceDraft(
        hidden_size=hidden,
        target_hidden_size=state_width,
        states=states,
        intermediate_size=config["intermediate_size"],
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or hidden // heads,
        rms_norm_eps=config["rms_norm_eps"],
        rope_theta=float(rope.get("rope_theta") or config["rope_theta"]),
        rope_scaling=rope or None,
        partial_rotary=config.get("partial_rotary_factor") or 1.0,
        latent=LatentSizes(**{name: config[name] for name in LATENT.fields}) if latent else None,
        vocab_size=vocab_size,
        draft_vocab_size=draft_vocab_size,
        math=math,
        num_layers=config["num_hidden_layers"],
    )


def _tensors(plan: WiringPlan) -> dict[str, Tensor]:
    """Canonical name -> tensor, the dropped ones left out."""
    wanted = {route.source: route.canonical for route in plan.routes if route.target is not None}
    found: dict[str, Tensor] = {}
    for file in weight_files(plan.draft_path):
        with safe_open(file, framework="pt") as checkpoint:
            found |= {wanted[name]: checkpoint.get_tensor(name) for name in checkpoint.keys() if name in wanted}  # noqa: SIM118 - no mapping
    return found
