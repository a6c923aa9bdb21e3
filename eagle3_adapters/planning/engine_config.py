"""Owns the config.json that SGLang's draft class must see."""

from __future__ import annotations

from typing import Any

from eagle3_adapters import canonical
from eagle3_adapters.boundaries import Ids
from eagle3_adapters.draft_classes import DraftClass
from eagle3_adapters.errors import ConventionError
from eagle3_adapters.values import CaptureLayers, DraftMath, DraftModel, TargetModel

#: Config keys of SGLang's draft classes that the plan decides; the rest of the canonical config passes through.
_DECIDED = (
    "attention_bias",
    "bias",
    "use_aux_hidden_state",
    "norm_before_residual",
    "norm_before_fc",
    "fc_norm",
    "use_aux_norm",
    "norm_output",
    "mlp_bias",
)


def engine_config(
    draft: DraftModel,
    target: TargetModel,
    capture: CaptureLayers,
    boundaries: Ids,
    num_layers: int,
    head_rows: int | None,
    math: DraftMath,
    draft_class: DraftClass,
) -> dict[str, Any]:
    """config.json for SGLang's draft class. The ids in it only size buffers: the capture itself is assigned."""
    try:
        ids = capture.id_rule.to_ids(boundaries, target.num_layers)
    except ConventionError:
        ids = boundaries
    # Latent attention has no single width of a head, and transformers would read one as another number.
    gone = {*_DECIDED, *canonical.ABOUT, *(["head_dim"] if draft_class.fields else [])}
    config = {key: value for key, value in draft.config.items() if key not in gone}
    return config | {
        "architectures": [draft_class.architecture],
        "model_type": draft_class.model_type,
        "num_hidden_layers": num_layers,
        "num_aux_hidden_states": len(boundaries),
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": list(ids),
            "use_aux_hidden_state": True,
            "norm_before_fc": math.norm_before_fc,
        },
        **{key: getattr(math, flag) for flag, key in draft_class.switches.items()},
        "tie_word_embeddings": False,
        "draft_vocab_size": head_rows,
        "vocab_size": target.vocab_size,
    }
