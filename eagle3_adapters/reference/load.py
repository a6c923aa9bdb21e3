"""Owns building the reference draft from a checkpoint in any format that the package reads."""

from __future__ import annotations

import attrs
import torch
from safetensors import safe_open
from torch import Tensor

from eagle3_adapters.checkpoint import weight_files
from eagle3_adapters.draft_classes import LATENT
from eagle3_adapters.planning.config_checks import rope_kind, rope_settings
from eagle3_adapters.reference.draft import ReferenceDraft
from eagle3_adapters.reference.layers import LatentSizes
from eagle3_adapters.values import Config
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


def load_draft(plan: WiringPlan) -> LoadedDraft:
    """The draft of a plan, with its weights as trained: columns in the trainer's order, not in SGLang's."""
    listed = [0] * len(plan.boundaries)
    for position, block in enumerate(plan.column_order):
        listed[block] = plan.boundaries[position]
    config = plan.config
    latent = None
    if plan.draft_class == LATENT.name:
        latent = LatentSizes(**{name: config[name] for name in LATENT.fields})
    draft = ReferenceDraft(
        hidden_size=config["hidden_size"],
        target_hidden_size=plan.state_width,
        states=len(listed),
        intermediate_size=config["intermediate_size"],
        num_heads=config["num_attention_heads"],
        num_kv_heads=config.get("num_key_value_heads") or config["num_attention_heads"],
        head_dim=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        rms_norm_eps=config["rms_norm_eps"],
        rope_theta=_rope_theta(config),
        rope_scaling=_rope_scaling(config, latent=latent is not None),
        latent=latent,
        vocab_size=plan.target_vocab_size,
        draft_vocab_size=plan.draft_vocab_size,
        math=plan.math,
        num_layers=config["num_hidden_layers"],
    )
    tensors = _tensors(plan)
    ids = torch.arange(plan.target_vocab_size)
    if plan.vocab_encoding is not None:
        name = "t2d" if plan.vocab_encoding is VocabEncoding.MASK else "d2t"
        values = tensors.pop(name).tolist()
        ids = torch.tensor(VocabMap.decode(values, plan.vocab_encoding, plan.target_vocab_size).target_ids)
    draft.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return LoadedDraft(draft=draft.eval(), draft_to_target=ids, boundaries=tuple(listed))


def _tensors(plan: WiringPlan) -> dict[str, Tensor]:
    """Canonical name -> tensor, the dropped ones left out."""
    wanted = {route.source: route.canonical for route in plan.routes if route.target is not None}
    found: dict[str, Tensor] = {}
    for file in weight_files(plan.draft_path):
        with safe_open(file, framework="pt") as checkpoint:
            found |= {wanted[name]: checkpoint.get_tensor(name) for name in checkpoint.keys() if name in wanted}  # noqa: SIM118 - no mapping
    return found


def _rope_theta(config: Config) -> float:
    return float(rope_settings(config).get("rope_theta") or config["rope_theta"])


def _rope_scaling(config: Config, *, latent: bool) -> Config | None:
    """Parameters of the scaling, None for plain positions. NotImplementedError where the reference has no such one."""
    kind = rope_kind(config)
    if kind == "default":
        return None
    if not latent or kind != "yarn":
        msg = f"rope_type {kind!r}: the reference draft knows plain positions and, with latent attention, yarn"
        raise NotImplementedError(msg)
    return rope_settings(config)
