"""Owns what flat dialects have in common: fields at the top level of config.json, ids and flags in fixed places.

A format is a table: it fills in the attributes of :class:`FlatDialect` and says what identifies a file.
"""

from __future__ import annotations

from typing import Any, ClassVar

import attrs

from eagle3_adapters import canonical
from eagle3_adapters.boundaries import Convention, Ids, default_boundaries
from eagle3_adapters.draft_classes import TRAINED_EMBEDDING
from eagle3_adapters.errors import Finding, FindingsError, fault
from eagle3_adapters.formats.ids import IDS, layer_ids, write_ids
from eagle3_adapters.formats.names import Names, depth_of, spelling_of
from eagle3_adapters.keymap import KeyMap
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

#: Where SGLang looks for ids, and ModelOpt keeps more.
SECTION = "eagle_config"
#: What a config calls its model; each dialect has its own, by the attention.
FORMAT_OWNED = ("architectures", "model_type")
#: Flags of the math that a config can state, in SGLang's and vLLM's meaning.
STATED = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
#: What every dialect's files can hold of a layer and beside it.
LLAMA_CORE = frozenset((*canonical.LLAMA_LAYER, *canonical.CORE, *canonical.VOCABULARY))
LATENT_CORE = LLAMA_CORE | frozenset(canonical.MLA_LAYER)


class FlatDialect:
    """One trainer's flat dialect. Subclasses are tables; what differs in kind they override."""

    name: str
    title: str
    looks_for: str
    #: Class that config.json names, for q/k/v and for latent attention; None: this trainer has no such draft.
    llama_class: ClassVar[str | None] = None
    latent_class: ClassVar[str | None] = None
    latent_model_type: ClassVar[str] = "kimi_k2"
    #: How tensors are called; the first spelling is written.
    spellings: ClassVar[tuple[Names, ...]]
    #: Canonical names that files of this dialect can hold.
    holds: ClassVar[frozenset[str]] = LLAMA_CORE
    #: Key of the ids, and whether it stands in ``eagle_config``; None: the trainer exports no ids.
    ids_key: ClassVar[str | None] = IDS
    ids_nested: ClassVar[bool] = True
    #: What the ids mean; None: the rule of SGLang's class of the target.
    convention: ClassVar[Convention | None]
    listed_order: ClassVar[bool | None] = False
    #: Whether states may be of another width than the draft (``target_hidden_size``).
    other_width: ClassVar[bool] = True
    #: Number of states and of layers that the trainer builds; None: any.
    states: ClassVar[int | None] = None
    depth: ClassVar[int | None] = 1
    maps: ClassVar[MapTensors] = MapTensors.REDUCED
    #: Flags of the math that its trainer knows, at the top level of config.json.
    flags: ClassVar[tuple[str, ...]] = ()

    def claim(self, draft: DraftModel) -> tuple[str, ...]:
        """Facts that identify the format."""
        raise NotImplementedError

    # Reading.

    def read(self, draft: DraftModel) -> FormatReading:
        """The canonical draft."""
        section = section_of(draft)
        ids, findings = self._ids(draft, section)
        return FormatReading(
            format=self.name,
            evidence=self.claim(draft) or ("named by the user",),
            draft=attrs.evolve(draft, config=self._canonical(draft.config, section)),
            keys=spelling_of(self.spellings, draft.tensors).key_map(f"format {self.name}", depth_of(draft.tensors)),
            id_readings=self.id_readings(draft, ids),
            ids_where=self._ids_where(draft),
            listed_order=self.listed_order,
            math=self.math(draft, section),
            embedding_trained=True if draft.config.get(TRAINED_EMBEDDING) is True else None,
            findings=(*findings, *self.findings(draft, section)),
        )

    def id_readings(self, draft: DraftModel, ids: Ids | None) -> tuple[IdReading, ...]:
        """How the ids can be read, the declared reading first."""
        convention = self.convention
        meaning = "as SGLang reads them for this target class" if convention is None else convention.meaning
        default = None if convention is None else default_boundaries
        return (IdReading(meaning=f"{self.name}: {meaning}", ids=ids, convention=convention, default=default),)

    def math(self, draft: DraftModel, section: Config) -> DraftMath:
        """Flags of the draft's math: what the file states counts, whoever stated it."""
        stated = {flag: bool(section.get(flag, draft.config.get(flag))) for flag in STATED}
        return DraftMath(**stated | {"fc_norm": stated["fc_norm"] or bool(draft.config.get("use_aux_norm"))})

    def findings(self, draft: DraftModel, section: Config) -> tuple[Finding, ...]:
        """What the dialect itself corrects or cannot accept."""
        return ()

    def _ids(self, draft: DraftModel, section: Config) -> tuple[Ids | None, tuple[Finding, ...]]:
        if self.ids_key is None:
            return None, ()
        place = section if self.ids_nested else draft.config
        where = f"{draft.config_file}: {SECTION}" if self.ids_nested else str(draft.config_file)
        return layer_ids(place, self.ids_key, where), ()

    def _ids_where(self, draft: DraftModel) -> str:
        key = self.ids_key or "(no key for layer ids in this format)"
        return (
            f"{draft.config_file}: {SECTION}.{key}"
            if self.ids_nested and self.ids_key
            else f"{draft.config_file}: {key}"
        )

    def _canonical(self, config: Config, section: Config) -> dict[str, Any]:
        gone = {SECTION, self.ids_key, *FORMAT_OWNED, *STATED, "use_aux_norm"}
        flat = {key: value for key, value in config.items() if key not in gone}
        flat["use_aux_hidden_state"] = section.get("use_aux_hidden_state", True)
        return flat

    # Writing.

    def write(self, content: DraftContent) -> FormatWriting:
        """config.json and names of a draft. What this dialect has no words for is left out."""
        config = {key: value for key, value in content.config.items() if key != "use_aux_hidden_state"}
        if not self.other_width and config.get("target_hidden_size") != config["hidden_size"]:
            config.pop("target_hidden_size", None)
        section = self.section(content)
        class_ = self.latent_class if content.latent else self.llama_class
        config |= {
            "architectures": [class_ or str(self.llama_class)],
            "model_type": self.latent_model_type if content.latent else "llama",
            **{flag: True for flag in self.flags if getattr(content.math, flag)},
        }
        if self.ids_key is not None:
            ids = write_ids(content, self.convention, self.name, listed=self.listed_order is True)
            (section if self.ids_nested else config).update({} if ids is None else {self.ids_key: list(ids)})
        if section:
            config[SECTION] = section
        return FormatWriting(
            config=config,
            keys=self.keys(content),
            maps=self.maps,
            listed_order=self.listed_order is True,
            states=self.states,
            depth=self.depth,
            latent=self.latent_class is not None,
        )

    def keys(self, content: DraftContent) -> KeyMap:
        """File name -> canonical name of the tensors that this dialect can hold."""
        return self.spellings[0].key_map(f"format {self.name}", content.depth, self.holds)

    def section(self, content: DraftContent) -> dict[str, Any]:
        """``eagle_config``, the ids left out; empty where the dialect has none."""
        return {}


def section_of(draft: DraftModel) -> Config:
    """``eagle_config`` of a draft, empty where absent or null. Raises FindingsError where it is no object."""
    section = draft.config.get(SECTION)
    if section is None:
        return {}
    if not isinstance(section, dict):
        raise FindingsError(
            [
                fault(
                    "config-unreadable",
                    f"{draft.config_file}: {SECTION}",
                    "an object",
                    repr(section),
                    remedy=f'write "{SECTION}": {{"{IDS}": [id, id, id]}}',
                )
            ]
        )
    return section


def architecture_of(config: Config) -> str:
    """The first class that config.json names; empty where it names none."""
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    return first if isinstance(first, str) else ""


def is_latent(draft: DraftModel) -> bool:
    """Latent (MLA) attention, by the file's own tensor names."""
    return any(name.endswith(".self_attn.kv_a_proj_with_mqa.weight") for name in draft.tensors)


def has_layer(draft: DraftModel, prefix: str) -> bool:
    """Whether tensors hang below ``prefix``."""
    return any(name.startswith(f"{prefix}.") for name in draft.tensors)
