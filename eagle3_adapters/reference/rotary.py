"""The rotary embeddings of the reference draft: by which angle each pair of a head turns, and how pairs stand.

Sources: SGLang's ``get_rope`` and transformers' ``ROPE_INIT_FUNCTIONS``, which agree on every kind that is known here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

Scaling = Mapping[str, Any]
#: Why each kind that training or serving knows is refused here.
_REFUSED = {
    "mrope": "its positions have three coordinates, and text alone does not say them",
    "dynamic": "SGLang stretches it from the first token on, transformers as the text grows",
    "longrope": "its factors change with the length of the text",
}
KINDS = ("default", "linear", "llama3", "yarn")


def kind_of(scaling: Scaling | None) -> str:
    """The kind of a scaling, under either spelling. Raises NotImplementedError, by name, for those not known here."""
    if scaling is None:
        return "default"
    kind = "mrope" if "mrope_section" in scaling else str(scaling.get("rope_type") or scaling.get("type") or "default")
    if kind not in KINDS:
        why = _REFUSED.get(kind, "nothing to compare it with")
        msg = f"rope_type {kind!r}: the reference draft knows {', '.join(KINDS)}; {why}"
        raise NotImplementedError(msg)
    if scaling.get("attention_factor") is not None:
        msg = "attention_factor: the reference draft does not know it; transformers applies it, SGLang does not"
        raise NotImplementedError(msg)
    return kind


def frequencies(width: int, theta: float, scaling: Scaling | None) -> Tensor:
    """[width / 2] float32: what pair i turns by from one position to the next."""
    plain = 1.0 / theta ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    kind = kind_of(scaling)
    if scaling is None or kind == "default":
        return plain
    slow: Tensor = plain / scaling["factor"]
    if kind == "linear":
        return slow
    kept = _kept_llama3(plain, scaling) if kind == "llama3" else _kept_yarn(width, theta, scaling)
    mixed: Tensor = slow * (1 - kept) + plain * kept
    return mixed


def _kept_llama3(plain: Tensor, scaling: Scaling) -> Tensor:
    """Share of the plain frequency: 1 above ``high_freq_factor`` turns in the original context, 0 below the low one."""
    turns = scaling["original_max_position_embeddings"] * plain / (2 * math.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    share: Tensor = ((turns - low) / (high - low)).clamp(0, 1)
    return share


def _kept_yarn(width: int, theta: float, scaling: Scaling) -> Tensor:
    """Share of the plain frequency: 1 from ``beta_fast`` turns in the original context on, 0 up to ``beta_slow``."""
    length = scaling["original_max_position_embeddings"]

    def pair_of(turns: float) -> float:
        return width * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = pair_of(scaling.get("beta_fast") or 32), pair_of(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    low, high = max(first, 0), min(last, width - 1)
    return 1 - ((torch.arange(width // 2) - low) / max(high - low, 0.001)).clamp(0, 1)


def gain(factor: float, weight: float) -> float:
    """What YaRN multiplies attention by for a context ``factor`` times as long; ``weight`` is a config's mscale."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1.0 else 1.0


class Rotary(nn.Module):
    """Rotary embedding in the half-split layout of HF Llama. It has no parameters.

    The first ``partial`` part of each head turns; ``scaling`` as in a config's ``rope_parameters`` or ``rope_scaling``.
    """

    def __init__(self, head_dim: int, theta: float, scaling: Scaling | None = None, *, partial: float = 1.0) -> None:
        super().__init__()
        self.width = int(head_dim * partial)
        self.theta = theta
        self.scaling = scaling
        kind_of(scaling)

    @property
    def amplitude(self) -> float:
        """Factor of every turned number."""
        scaling = self.scaling
        if scaling is None or kind_of(scaling) != "yarn":
            return 1.0
        weight, whole = scaling.get("mscale"), scaling.get("mscale_all_dim")
        factor = scaling["factor"]
        return gain(factor, weight) / gain(factor, whole) if weight and whole else gain(factor, 1.0)

    def forward(self, heads: Tensor, first_position: int) -> Tensor:
        """Rotate ``heads`` [batch, heads, rows, head_dim], row t by position ``first_position + t``."""
        cos, sin = self.angles(heads, first_position)
        turned, rest = heads[..., : self.width], heads[..., self.width :]
        low, high = turned.chunk(2, dim=-1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin, rest], dim=-1)

    def angles(self, heads: Tensor, first_position: int) -> tuple[Tensor, Tensor]:
        """Cosine and sine [rows, width / 2] for the rows of ``heads``, in its dtype."""
        rows = heads.shape[-2]
        positions = torch.arange(first_position, first_position + rows, device=heads.device, dtype=torch.float32)
        angles = positions[:, None] * frequencies(self.width, self.theta, self.scaling).to(heads.device)
        amplitude = self.amplitude
        return (angles.cos() * amplitude).to(heads.dtype), (angles.sin() * amplitude).to(heads.dtype)


class PairedRotary(Rotary):
    """Rotary embedding of neighbouring pairs: DeepSeek's, with its own reading of YaRN's gains."""

    @property
    def amplitude(self) -> float:
        """Without ``mscale_all_dim`` YaRN's gain, with it the ratio to what the scores are multiplied by."""
        if self.scaling is None or kind_of(self.scaling) != "yarn":
            return 1.0
        factor, whole = self.scaling["factor"], self.scaling.get("mscale_all_dim", 0.0)
        return gain(factor, self.scaling.get("mscale", 1.0)) / gain(factor, whole)

    @property
    def score_gain(self) -> float:
        """Factor of the attention's scale."""
        weight = (self.scaling or {}).get("mscale_all_dim")
        return gain(self.scaling["factor"], weight) ** 2 if self.scaling and weight else 1.0

    def forward(self, heads: Tensor, first_position: int) -> Tensor:
        """As :meth:`Rotary.forward`; the parts of a pair stand beside each other in ``heads``, and apart afterwards."""
        cos, sin = self.angles(heads, first_position)
        even, odd = heads[..., 0::2], heads[..., 1::2]
        return torch.cat([even * cos - odd * sin, odd * cos + even * sin], dim=-1)
