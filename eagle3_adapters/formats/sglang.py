"""The ``sglang`` format: SGLang's own dialect, which SpecForge exports.

Sources: sglang/srt/models/llama_eagle3.py and model_executor/model_runner_components/spec_aux_hidden_state.py of 0.5.23
(what is read), SpecForge's ``to_sglang`` export (what is written). A file means what stock SGLang makes of it on the
target's class: ids count by that class's own rule, states are concatenated in layer order whatever the list's order.
"""

from __future__ import annotations

import re

import attrs

from eagle3_adapters import canonical
from eagle3_adapters.boundaries import OUTPUT_OF_LAYER
from eagle3_adapters.errors import Finding, FindingsError, Severity, fault
from eagle3_adapters.formats.ids import IDS, layer_ids
from eagle3_adapters.keymap import KeyMap, Rename, identity
from eagle3_adapters.values import Config, DraftMath, DraftModel, FormatReading, IdReading

_LAYER = re.compile(r"layers\.\d+\.")
ARCHITECTURES = ("LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM")
#: SpecForge's history has written other classes' names with the same ending, for the same tensors.
_SUFFIXES = ("ForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM")


def _architecture(config: Config) -> str:
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    return first if isinstance(first, str) else ""


def _architecture_findings(draft: DraftModel) -> list[Finding]:
    """The class that the file names, where SGLang has none of that name. Raises FindingsError for experts."""
    where = f"{draft.config_file}: architectures"
    experts = [name for name in draft.tensors if ".mlp.experts." in name]
    if experts:
        raise FindingsError(
            [
                fault(
                    "draft-architecture",
                    where,
                    "a dense MLP, which SGLang's draft classes compute",
                    f"a mixture of experts ({len(experts)} tensors, first {experts[0]})",
                    remedy="this draft cannot be served with its training-time math yet",
                )
            ]
        )
    if _architecture(draft.config) in ("", *ARCHITECTURES):
        return []
    return [
        Finding(
            code="draft-architecture",
            severity=Severity.INFO,
            where=where,
            expected=f"one of {', '.join(ARCHITECTURES)}",
            found=f"{_architecture(draft.config)}; the class is chosen by the tensors",
            why="SGLang registers no such class",
        )
    ]


_OLD_NORMS = {f"aux_norm_{part}.weight": f"fc_norm.{i}.weight" for i, part in enumerate(("low", "mid", "high"))}
_KNOWN = identity(
    "canonical names",
    (
        *(rule.target for rule in canonical.layer_patterns("layers.{layer}")),
        *canonical.OUTSIDE,
        canonical.FC_NORM,
        *canonical.VOCABULARY,
    ),
)


def _key_map(draft: DraftModel) -> KeyMap:
    """What SGLang's loader accepts, each name by itself: ``midlayer`` or ``layers.N``, ``model.`` or not, old norms."""
    middle = any(name.removeprefix("model.").startswith("midlayer.") for name in draft.tensors)
    rules: dict[str, Rename] = {}
    for name in draft.tensors:
        plain = name.removeprefix("model.")
        spelt = _OLD_NORMS.get(plain, re.sub(r"^midlayer\.", "layers.0.", plain))
        if not _KNOWN.takes(spelt):
            continue
        rule = Rename(name, spelt)
        if not middle:
            # One rule for the same tensor of every layer.
            rule = Rename(_LAYER.sub("layers.{layer}.", name), _LAYER.sub("layers.{layer}.", spelt))
        rules.setdefault(rule.target, rule)
    return KeyMap("format sglang", tuple(rules.values()))


class SglangFormat:
    """SGLang's own dialect."""

    name = "sglang"
    title = "SGLang's own dialect (SpecForge exports)"
    looks_for = f"architectures of {' or '.join(ARCHITECTURES)}, or any ...ForCausalLMEagle3"

    def claim(self, draft: DraftModel) -> tuple[str, ...]:
        """By the class that SGLang would load; no other trainer's marks."""
        architecture = _architecture(draft.config)
        if "transformer_layer_config" in draft.config or not architecture.endswith(_SUFFIXES):
            return ()
        nested = "eagle_config" in draft.config
        return (
            f"architectures is {architecture}",
            f"{IDS} in eagle_config" if nested else "a flat config",
        )

    def read(self, draft: DraftModel) -> FormatReading:
        """The canonical draft; ids by SGLang's class rule, with the older reading beside it."""
        config = draft.config
        nested = config.get("eagle_config")
        if nested is None:
            nested = {}
        if not isinstance(nested, dict):
            raise FindingsError(
                [
                    fault(
                        "config-unreadable",
                        f"{draft.config_file}: eagle_config",
                        "an object",
                        repr(nested),
                        remedy=f'write "eagle_config": {{"{IDS}": [id, id, id]}}',
                    )
                ]
            )
        where = f"{draft.config_file}: eagle_config.{IDS}"
        findings = _architecture_findings(draft)
        ids = layer_ids(nested, IDS, f"{draft.config_file}: eagle_config")
        if ids is None:
            ids = layer_ids(config, IDS, str(draft.config_file))
            if ids is not None:
                findings.append(
                    Finding(
                        code="layer-ids-misplaced",
                        severity=Severity.INFO,
                        where=where,
                        expected="the ids nested in eagle_config, the only place where SGLang reads them",
                        found=f"{list(ids)} at the top level; used as if nested",
                        why="stock SGLang ignores them and captures its default layers",
                    )
                )
        return FormatReading(
            format=self.name,
            evidence=self.claim(draft) or ("named by the user",),
            draft=attrs.evolve(draft, config=self._canonical(config, nested)),
            keys=_key_map(draft),
            id_readings=(
                IdReading(meaning="as SGLang reads them for this target class", ids=ids),
                IdReading(
                    meaning=f"{OUTPUT_OF_LAYER.meaning}: every SGLang class up to 0.5.12",
                    ids=ids,
                    convention=OUTPUT_OF_LAYER,
                ),
            ),
            ids_where=where,
            findings=tuple(findings),
            norm_output_doubtful=config.get("norm_output") is True,
            math=DraftMath(
                norm_before_residual=bool(config.get("norm_before_residual")),
                norm_before_fc=bool(nested.get("norm_before_fc", config.get("norm_before_fc"))),
                fc_norm=bool(config.get("fc_norm") or config.get("use_aux_norm")),
                norm_output=bool(config.get("norm_output")),
            ),
        )

    @staticmethod
    def _canonical(config: Config, nested: Config) -> Config:
        flat = {key: value for key, value in config.items() if key not in ("eagle_config", "architectures", IDS)}
        flat["use_aux_hidden_state"] = nested.get("use_aux_hidden_state", True)
        return flat


FORMAT = SglangFormat()
