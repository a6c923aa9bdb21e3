"""The ``speculators`` format: vLLM's speculators library, 0.5 and later.

Sources: speculators 0.5 to 0.9, ``models/eagle3/config.py`` and ``core.py`` (fields and tensor names),
``models/utils.py`` (default ids), vLLM's ``interfaces.py`` (ids are boundaries, captured ascending whatever the list's
order). Up to 0.4 the data path captured one layer later than the ids that vLLM serves: such files have two readings.
"""

from __future__ import annotations

import re
from typing import Any

import attrs

from eagle3_adapters import canonical
from eagle3_adapters.boundaries import INPUT_OF_LAYER, OUTPUT_OF_LAYER, Ids, default_boundaries
from eagle3_adapters.errors import Finding, FindingsError, fault
from eagle3_adapters.formats.dialect import FORMAT_OWNED, LLAMA_CORE
from eagle3_adapters.formats.ids import IDS, layer_ids, write_ids
from eagle3_adapters.formats.names import Names, depth_of, spelling_of
from eagle3_adapters.values import (
    Config,
    DraftContent,
    DraftMath,
    DraftModel,
    FormatReading,
    FormatWriting,
    IdReading,
    MapTensors,
)

_LAYER_CONFIG = "transformer_layer_config"
#: Fields that stand beside transformer_layer_config and mean something to the draft.
_OUTER = (
    "draft_vocab_size",
    "target_hidden_size",
    "tie_word_embeddings",
    "quantization_config",
    "dtype",
    "torch_dtype",
)
_FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
_NAMES = Names(only="layers.0", each="layers.{layer}", deeper_norm="input_layernorm")
#: Not written by the library, but SGLang's name for the same norm cannot be taken for anything else.
_SPELLINGS = (_NAMES, Names(only="layers.0", each="layers.{layer}"))
_HOLDS = LLAMA_CORE | {
    canonical.EMBEDDING,
    canonical.FC_NORM,
    canonical.INPUT_NORM,
    *canonical.QK_NORM,
    *canonical.ATTENTION_BIAS,
    *canonical.MLP_BIAS,
}
#: Written into files that state no version of their own: the dialect of 0.5 to 0.9.
_VERSION = "0.9.0"


def _after_default(num_layers: int) -> Ids:
    return tuple(k + 1 for k in default_boundaries(num_layers))


def _release(version: object) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", version) if isinstance(version, str) else None
    return (int(match[1]), int(match[2])) if match else None


class SpeculatorsFormat:
    """speculators (vLLM)."""

    name = "speculators"
    title = "speculators (vLLM), 0.5 and later; older files where --eagle3-boundaries decides"
    looks_for = f'speculators_model_type "eagle3" with {_LAYER_CONFIG}'

    def claim(self, draft: DraftModel) -> tuple[str, ...]:
        """By the nested layer config, which no other trainer writes, and the speculator type."""
        kind, outer = draft.config.get("speculators_model_type"), draft.config.get("speculators_config")
        algorithm = outer.get("algorithm") if isinstance(outer, dict) else None
        if not isinstance(draft.config.get(_LAYER_CONFIG), dict):
            return ()
        # Either mark decides; where neither stands, the nesting alone does.
        if "eagle3" not in (kind, algorithm) and (kind, algorithm) != (None, None):
            return ()
        version = draft.config.get("speculators_version")
        stated = f"speculators_version {version}" if version else "no speculators_version"
        return (f"config nested in {_LAYER_CONFIG}", f"speculators_model_type {kind}", stated)

    def read(self, draft: DraftModel) -> FormatReading:
        """The canonical draft: config flattened, ids as boundaries."""
        config = draft.config
        layer_config = config.get(_LAYER_CONFIG)
        if not isinstance(layer_config, dict):
            raise FindingsError(
                [
                    fault(
                        "config-unreadable",
                        f"{draft.config_file}: {_LAYER_CONFIG}",
                        "an object",
                        repr(layer_config),
                        remedy="name the format that wrote it: --eagle3-format NAME",
                    )
                ]
            )
        ids = layer_ids(config, IDS, str(draft.config_file))
        release = _release(config.get("speculators_version"))
        return FormatReading(
            format=self.name,
            evidence=self.claim(draft) or ("named by the user",),
            trainer_version=config.get("speculators_version"),
            draft=attrs.evolve(draft, config=self._canonical(config, layer_config)),
            keys=spelling_of(_SPELLINGS, draft.tensors).key_map(f"format {self.name}", depth_of(draft.tensors)),
            id_readings=self._id_readings(ids, release),
            ids_where=f"{draft.config_file}: {IDS}",
            first_reading_decides=release is not None and release >= (0, 5),
            math=DraftMath(
                norm_before_residual=bool(config.get("norm_before_residual")),
                norm_before_fc=bool(config.get("norm_before_fc")),
                fc_norm=bool(config.get("fc_norm")),
                norm_output=bool(config.get("norm_output")),
            ),
            embedding_trained=config.get("embed_requires_grad"),
            findings=(*self._undecided(draft), *self._both_norms(draft)),
        )

    @staticmethod
    def _id_readings(ids: Ids | None, release: tuple[int, int] | None) -> tuple[IdReading, ...]:
        served = IdReading(
            meaning="speculators 0.5 and later, and vLLM: ids are boundaries",
            ids=ids,
            convention=INPUT_OF_LAYER,
            default=default_boundaries,
        )
        if release is not None and release >= (0, 5):
            return (served,)
        trained = IdReading(
            meaning="speculators 0.1 to 0.4: its data path captured one layer later",
            ids=ids,
            convention=OUTPUT_OF_LAYER,
            default=_after_default,
        )
        return (served, trained)

    @staticmethod
    def _both_norms(draft: DraftModel) -> tuple[Finding, ...]:
        if not (draft.config.get("norm_before_fc") and draft.config.get("fc_norm")):
            return ()
        return (
            fault(
                "config-unreadable",
                f"{draft.config_file}: norm_before_fc, fc_norm",
                "at most one of them, as its own loader demands",
                "both true",
                remedy="set the one to false that the training run did not have",
            ),
        )

    @staticmethod
    def _undecided(draft: DraftModel) -> tuple[Finding, ...]:
        if draft.config.get("norm_before_residual") is not None:
            return ()
        return (
            fault(
                "norm-before-residual",
                f"{draft.config_file}: norm_before_residual",
                "true or false",
                "nothing",
                why="speculators' schema defaults to false, its trainer and vLLM to true",
                remedy='write "norm_before_residual": true or false, as the training run had it',
            ),
        )

    @staticmethod
    def _canonical(config: Config, layer_config: Config) -> dict[str, Any]:
        flat: dict[str, Any] = {key: value for key, value in layer_config.items() if key not in FORMAT_OWNED}
        understood = (*FORMAT_OWNED, _LAYER_CONFIG, IDS, "embed_requires_grad", *_FLAGS)
        # Beside the layer's fields stand those of the whole, and some that other fields of the layer could hide.
        outer = {key: value for key, value in config.items() if key not in understood}
        flat |= {key: value for key, value in outer.items() if key in (*_OUTER, *canonical.ABOUT) or key not in flat}
        if flat.get("target_hidden_size", 0) is None:  # this dialect's way to say: the target's own
            del flat["target_hidden_size"]
        flat["use_aux_hidden_state"] = True
        return flat

    def write(self, content: DraftContent) -> FormatWriting:
        """The layer's fields nested, the draft's beside them."""
        flat = {key: value for key, value in content.config.items() if key != "use_aux_hidden_state"}
        if flat.get("target_hidden_size") != flat["hidden_size"]:
            flat.pop("target_hidden_size", None)  # its fc reads states as wide as the draft
        outer = {key: flat.pop(key) for key in (*_OUTER, *canonical.ABOUT) if key in flat}
        qwen = any(name.endswith("self_attn.q_norm.weight") for name in content.tensors)
        ids = write_ids(content, INPUT_OF_LAYER, self.name)
        config = {
            **outer,
            "architectures": ["Eagle3DraftModel"],
            "speculators_model_type": "eagle3",
            "speculators_version": self._version(outer.get("speculators_version")),
            "speculators_config": outer.get("speculators_config") or _speculators_config(content),
            _LAYER_CONFIG: flat | {"model_type": "qwen3" if qwen else "llama"},
            IDS: None if ids is None else list(ids),
            "embed_requires_grad": bool(content.embedding_trained),
            **{flag: getattr(content.math, flag) for flag in _FLAGS},
        }
        # Its qwen3 layers have no biases in the MLP, and its loader would drop them.
        holds = _HOLDS - set(canonical.MLP_BIAS) if qwen else _HOLDS
        keys = _NAMES.key_map(f"format {self.name}", content.depth, holds)
        # 0.9.0 means to take the verifier's, but tells a missing embedding by its NaN, which transformers has replaced.
        return FormatWriting(config=config, keys=keys, maps=MapTensors.REDUCED, needs_embedding=True)

    @staticmethod
    def _version(stated: object) -> str:
        """The file's own version, unless its ids would be read in two ways then."""
        release = _release(stated)
        return str(stated) if release is not None and release >= (0, 5) else _VERSION


def _speculators_config(content: DraftContent) -> dict[str, Any]:
    """What its loader requires and other dialects do not say: one greedy proposal, and the target as far as named."""
    architectures = [content.target.architecture] if content.target else []
    return {
        "algorithm": "eagle3",
        "default_proposal_method": "greedy",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
        "verifier": {"architectures": architectures, "name_or_path": content.target_name},
    }


FORMAT = SpeculatorsFormat()
