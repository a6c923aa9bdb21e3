"""The ``sglang`` format: SGLang's own dialect, which SpecForge exports.

Sources: sglang/srt/models/llama_eagle3.py and model_executor/model_runner_components/spec_aux_hidden_state.py of 0.5.23
(what is read), SpecForge's ``to_sglang`` export (what is written). A file means what stock SGLang makes of it on the
target's class: ids count by that class's own rule, states are concatenated in layer order whatever the list's order.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import attrs

from eagle3_adapters import canonical
from eagle3_adapters.boundaries import INPUT_OF_LAYER, OUTPUT_OF_LAYER, Ids
from eagle3_adapters.errors import Finding, FindingsError, Severity, fault
from eagle3_adapters.formats.dialect import LATENT_CORE, SECTION, FlatDialect, architecture_of, has_layer
from eagle3_adapters.formats.ids import IDS, layer_ids
from eagle3_adapters.formats.modelopt import FORMAT as MODELOPT
from eagle3_adapters.formats.names import OUTSIDE, Names, depth_of
from eagle3_adapters.formats.torchspec import FORMAT as TORCHSPEC
from eagle3_adapters.keymap import KeyMap, Rename, identity
from eagle3_adapters.values import (
    Config,
    DraftContent,
    DraftModel,
    FormatReading,
    FormatWriting,
    IdReading,
)

_LAYER = re.compile(r"layers\.\d+\.")
_DEEPER_INPUT_NORM = re.compile(r"(layers\.[1-9]\d*\.)input_layernorm\.weight")
ARCHITECTURES = ("LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM")
#: SpecForge's history has written other classes' names with the same ending, for the same tensors.
_SUFFIXES = ("ForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM")
_OLD_NORMS = {f"aux_norm_{part}.weight": f"fc_norm.{i}.weight" for i, part in enumerate(("low", "mid", "high"))}
_KNOWN = identity("canonical names", (*(rule.target for rule in canonical.layer_patterns("layers.{layer}")), *OUTSIDE))


def _refuse_experts(draft: DraftModel) -> None:
    experts = [name for name in draft.tensors if ".mlp.experts." in name]
    if experts:
        raise FindingsError(
            [
                fault(
                    "draft-architecture",
                    f"{draft.config_file}: architectures",
                    "a dense MLP, which SGLang's draft classes compute",
                    f"a mixture of experts ({len(experts)} tensors, first {experts[0]})",
                    remedy="this draft cannot be served with its training-time math yet",
                )
            ]
        )


def _told(code: str, where: str, expected: str, found: str, why: str) -> Finding:
    return Finding(code=code, severity=Severity.INFO, where=where, expected=expected, found=found, why=why)


def _spelt(draft: DraftModel) -> dict[str, str]:
    """Canonical name of each tensor: ``midlayer`` or ``layers.N``, ``model.`` or not, old norms."""
    present = {name.removeprefix("model.") for name in draft.tensors}
    spelt = {}
    for name in draft.tensors:
        plain = name.removeprefix("model.")
        canonical_name = _OLD_NORMS.get(plain, re.sub(r"^midlayer\.", "layers.0.", plain))
        deeper = _DEEPER_INPUT_NORM.fullmatch(canonical_name)
        other = f"{deeper[1]}hidden_norm.weight" if deeper else ""
        spelt[name] = other if deeper and other not in present else canonical_name
    return spelt


def _key_map(draft: DraftModel, owner: str) -> KeyMap:
    """What SGLang's loader accepts, each name by itself."""
    middle = any(name.removeprefix("model.").startswith("midlayer.") for name in draft.tensors)
    rules: dict[str, Rename] = {}
    for name, spelt in _spelt(draft).items():
        if not _KNOWN.takes(spelt):
            continue
        rule = Rename(name, spelt)
        if not middle and "_norm." not in spelt and "_layernorm." not in spelt:
            # One rule for the same tensor of every layer.
            rule = Rename(_LAYER.sub("layers.{layer}.", name), _LAYER.sub("layers.{layer}.", spelt))
        rules.setdefault(rule.target, rule)
    return KeyMap(owner, tuple(rules.values()))


class SglangFormat(FlatDialect):
    """SGLang's own dialect."""

    name = "sglang"
    title = "SGLang's own dialect (SpecForge exports)"
    looks_for = f"architectures of {' or '.join(ARCHITECTURES)}, or any ...ForCausalLMEagle3"
    llama_class = ARCHITECTURES[0]
    latent_class: ClassVar[str | None] = ARCHITECTURES[1]
    spellings = (Names(only="midlayer", each="layers.{layer}"),)
    holds = LATENT_CORE | {canonical.EMBEDDING, canonical.FC_NORM, canonical.INPUT_NORM}
    convention = None
    # norm_before_fc stands in the section.
    flags: ClassVar[tuple[str, ...]] = ("fc_norm", "norm_output")
    depth: ClassVar[int | None] = None

    def claim(self, draft: DraftModel) -> tuple[str, ...]:
        """By the class that SGLang would load; no other trainer's marks."""
        architecture = architecture_of(draft.config)
        if "transformer_layer_config" in draft.config or not architecture.endswith(_SUFFIXES):
            return ()
        if MODELOPT.claim(draft) or TORCHSPEC.claim(draft):
            return ()
        nested = SECTION in draft.config
        return (f"architectures is {architecture}", f"{IDS} in {SECTION}" if nested else "a flat config")

    def read(self, draft: DraftModel) -> FormatReading:
        """The canonical draft; ids by SGLang's class rule, with other readings beside it."""
        _refuse_experts(draft)
        reading = super().read(draft)
        return attrs.evolve(
            reading,
            keys=_key_map(draft, f"format {self.name}"),
            norm_output_doubtful=draft.config.get("norm_output") is not None,
        )

    def id_readings(self, draft: DraftModel, ids: Ids | None) -> tuple[IdReading, ...]:
        """The class's rule; the rule of older versions; boundaries, where the tensors were named for vLLM."""
        declared = IdReading(meaning="as SGLang reads them for this target class", ids=ids)
        older = IdReading(
            meaning=f"{OUTPUT_OF_LAYER.meaning}: every SGLang class up to 0.5.12", ids=ids, convention=OUTPUT_OF_LAYER
        )
        if ids is None or not has_layer(draft, "layers.0") or depth_of(draft.tensors) > 1:
            return (declared, older)
        vllm = IdReading(
            meaning=f"{INPUT_OF_LAYER.meaning}: exports for vLLM, which name the layer layers.0",
            ids=ids,
            convention=INPUT_OF_LAYER,
        )
        return (declared, older, vllm)

    def findings(self, draft: DraftModel, section: Config) -> tuple[Finding, ...]:
        """The class that the file names, where SGLang has none of that name; a norm under another name."""
        findings = []
        architecture = architecture_of(draft.config)
        if architecture not in ("", *ARCHITECTURES):
            findings.append(
                _told(
                    "draft-architecture",
                    f"{draft.config_file}: architectures",
                    f"one of {', '.join(ARCHITECTURES)}",
                    f"{architecture}; the class is chosen by the tensors",
                    "SGLang registers no such class",
                )
            )
        deeper = [
            name
            for name, spelt in _spelt(draft).items()
            if name.endswith("input_layernorm.weight") and spelt.endswith("hidden_norm.weight")
        ]
        if deeper:
            findings.append(
                _told(
                    "layer-norm-name",
                    f"{draft.path}: {deeper[0]}",
                    "hidden_norm, which SGLang's deeper layers apply to the hidden state",
                    "input_layernorm, which speculators, ModelOpt and vLLM call the same norm; loaded as hidden_norm",
                    "SGLang would run the layer with an untrained norm",
                )
            )
        return tuple(findings)

    def write(self, content: DraftContent) -> FormatWriting:
        """A file without lm_head means the target's; SGLang's class with latent attention has one layer."""
        return attrs.evolve(super().write(content), shares_head=True, depth=1 if content.latent else self.depth)

    def keys(self, content: DraftContent) -> KeyMap:
        """SGLang's class with latent attention has no norm over all states."""
        holds = self.holds - {canonical.INPUT_NORM} if content.latent else self.holds
        return self.spellings[0].key_map(f"format {self.name}", content.depth, holds)

    def section(self, content: DraftContent) -> dict[str, Any]:
        """What SGLang reads in ``eagle_config``."""
        used: dict[str, Any] = {"use_aux_hidden_state": content.config.get("use_aux_hidden_state", True)}
        return used | {"norm_before_fc": True} if content.math.norm_before_fc else used

    def _ids(self, draft: DraftModel, section: Config) -> tuple[Ids | None, tuple[Finding, ...]]:
        ids = layer_ids(section, IDS, f"{draft.config_file}: {SECTION}")
        if ids is not None:
            return ids, ()
        ids = layer_ids(draft.config, IDS, str(draft.config_file))
        if ids is None:
            return None, ()
        misplaced = _told(
            "layer-ids-misplaced",
            self._ids_where(draft),
            f"the ids nested in {SECTION}, the only place where SGLang reads them",
            f"{list(ids)} at the top level; used as if nested",
            "stock SGLang ignores them and captures its default layers",
        )
        return ids, (misplaced,)


FORMAT = SglangFormat()
