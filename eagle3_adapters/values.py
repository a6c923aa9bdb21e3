"""Owns the values that travel along the data path: target, draft, what an adapter answers, what a format reads.

All are frozen and hold facts only: no tensors, no handles, no caches. An invalid value cannot be built.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs.validators import and_, ge, gt, instance_of, min_len

from eagle3_adapters.boundaries import Convention, Ids
from eagle3_adapters.errors import Finding
from eagle3_adapters.keymap import KeyMap
from eagle3_adapters.vocab import VocabEncoding

Config = Mapping[str, Any]


@attrs.frozen(kw_only=True)
class TensorInfo:
    """One tensor as a safetensors header describes it."""

    name: str
    #: safetensors dtype string: ``BF16``, ``F32``, ``I64``, ``BOOL``.
    dtype: str
    shape: tuple[int, ...]
    #: The file that holds it, and its bytes ``[start, stop)`` counted from the beginning of that file.
    file: Path
    start: int
    stop: int


@attrs.frozen(kw_only=True)
class TargetModel:
    """The model being served, as its config.json describes it. ``config`` is the whole file, ``text`` its text part."""

    path: Path
    architecture: str
    config: Config = attrs.field(repr=False)
    text: Config = attrs.field(repr=False)
    num_layers: int = attrs.field(validator=and_(instance_of(int), ge(1)))
    hidden_size: int = attrs.field(validator=and_(instance_of(int), ge(1)))
    vocab_size: int = attrs.field(validator=and_(instance_of(int), ge(1)))


@attrs.frozen(kw_only=True)
class DraftModel:
    """An EAGLE-3 head: its config and its tensors, by the names of the file or, once a format has read it, canonical.

    Canonical names (hooks see only these): ``fc.weight``, ``layers.{layer}.{input_layernorm,hidden_norm,
    post_attention_layernorm}.weight``, ``layers.{layer}.self_attn.{q,k,v,o}_proj.weight``,
    ``layers.{layer}.mlp.{gate,up,down}_proj.weight``, ``norm.weight``, ``lm_head.weight``, ``embed_tokens.weight``,
    ``d2t``, ``t2d``, and where trained ``fc_norm.{state}.weight``, ``input_norm.weight``. Latent attention has
    ``self_attn.{q_a_proj,q_a_layernorm,q_b_proj,kv_a_proj_with_mqa,kv_a_layernorm,kv_b_proj}.weight`` in place of q, k
    and v. A canonical config is flat and uses the field names of Hugging Face's LlamaConfig (DeepseekV3Config for
    latent attention) plus ``draft_vocab_size``.
    """

    path: Path
    config: Config = attrs.field(repr=False)
    tensors: Mapping[str, TensorInfo] = attrs.field(repr=False)
    #: Content of hf_quant_config.json, which ModelOpt writes beside config.json.
    quantization_file: Config | None = attrs.field(default=None, repr=False)
    #: Set by the format; a draft straight from disk has the default.
    vocab_encoding: VocabEncoding = VocabEncoding.OFFSET

    @property
    def config_file(self) -> Path:
        """Where the config came from, for messages."""
        return self.path / "config.json"


@attrs.frozen(kw_only=True)
class DraftMath:
    """What the draft computes beyond plain EAGLE-3. All False: plain EAGLE-3, as SafeAILab's first drafts computed it.

    What a file's config states:

    - ``norm_before_residual``: the first layer's residual is hidden_norm(h), not h.
    - ``norm_before_fc``: RMSNorm over the concatenated states before ``fc`` (``input_norm.weight``).
    - ``fc_norm``: one RMSNorm for each state before ``fc`` (``fc_norm.{state}.weight``).
    - ``norm_output``: later steps continue from the normed output (SGLang's, vLLM's and speculators' meaning).
    - ``bare_head``: ``lm_head`` reads the output without its norm (SpecForge's ``norm_output`` false).
    - ``double_norm``: the first layer's hidden state passes input_layernorm before hidden_norm (ModelOpt from 0.41).

    What its tensors alone say (``canonical.TENSOR_FLAGS``):

    - ``qk_norm``: RMSNorm over each head's query and key before the rotary embedding.
    - ``qkv_bias``, ``output_bias``, ``mlp_bias``, ``fc_bias``: biases of q, k and v, of o, of the MLP, of ``fc``.
    """

    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    bare_head: bool = False
    double_norm: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    fc_bias: bool = False


@attrs.frozen(kw_only=True)
class IdReading:
    """One way to read a file's layer ids: under which convention, or which default where there are none.

    ``convention`` None stands for the rule of SGLang's own target class, ``default`` None for that class's default:
    only the adapter knows them.
    """

    meaning: str
    #: None: the file has no ids.
    ids: Ids | None = None
    convention: Convention | None = None
    #: N -> boundaries, where the file has no ids.
    default: Callable[[int], Ids] | None = attrs.field(default=None, repr=False, eq=False)


@attrs.frozen(kw_only=True)
class FormatReading:
    """What a format makes of a draft: its canonical form and everything that the file leaves to the dialect."""

    format: str
    #: Facts of this file that identify the format, for ``inspect``.
    evidence: tuple[str, ...] = attrs.field(validator=min_len(1))
    #: As stated by the file, or None.
    trainer_version: str | None = None
    draft: DraftModel
    #: File name -> canonical name.
    keys: KeyMap
    #: Readings of the ids, the declared one first. More than one: others have read such a file differently.
    id_readings: tuple[IdReading, ...] = attrs.field(validator=min_len(1))
    #: Config key that holds the ids or should hold them, for messages.
    ids_where: str
    #: True where the format's definition decides between the readings; False where different plans are an error.
    first_reading_decides: bool = True
    #: What the dialect itself corrected or cannot accept.
    findings: tuple[Finding, ...] = ()
    #: True where the trainer concatenated states in the order of its list, not in ascending order; None where that
    #: hangs on a back end that the file does not name.
    listed_order: bool | None = False
    math: DraftMath = DraftMath()
    #: True where the file says norm_output, true or false, and may mean what SGLang does not do.
    norm_output_doubtful: bool = False
    #: True where the draft's own embedding was trained, False where it is a copy of the target's, None where unknown.
    embedding_trained: bool | None = None


class MapTensors(enum.Enum):
    """Which vocabulary tensors a dialect's files hold."""

    #: ``d2t`` and ``t2d``, also where nothing is reduced (zeros and ones).
    ALWAYS = "always"
    #: Both, where the vocabulary is reduced.
    REDUCED = "reduced"
    #: ``d2t`` alone, where it is reduced.
    OFFSETS_ONLY = "offsets only"


@attrs.frozen(kw_only=True)
class DraftContent:
    """What a format is asked to write: everything that a draft's files say, free of any dialect."""

    #: Canonical and flat: neither ids nor flags of the math, which stand below.
    config: Config = attrs.field(repr=False)
    math: DraftMath
    #: Boundary of each column block of fc, in their order; None: the default triple, left unsaid.
    boundaries: Ids | None
    #: The target, its name as typed, and the rule by which SGLang's class of it reads ids; None where none was named.
    target: TargetModel | None = None
    target_name: str | None = None
    id_rule: Convention | None = None
    #: Canonical names of the tensors at hand, vocabulary maps left out.
    tensors: frozenset[str] = attrs.field(repr=False)
    #: Number of states that fc reads, and of layers.
    states: int = attrs.field(validator=ge(1))
    depth: int = attrs.field(validator=ge(1))
    #: Latent (MLA) attention.
    latent: bool = False
    embedding_trained: bool | None = None


@attrs.frozen(kw_only=True)
class FormatWriting:
    """A draft in a format's words. What the dialect has no words for is left out: whoever asked reads it back."""

    config: dict[str, Any] = attrs.field(repr=False)
    #: File name -> canonical name, of every tensor that a file of this dialect can hold.
    keys: KeyMap
    maps: MapTensors = MapTensors.REDUCED
    vocab_encoding: VocabEncoding = VocabEncoding.OFFSET
    #: False where files of this dialect concatenate states in ascending order.
    listed_order: bool = False
    #: True where a file without lm_head means the target's head; False where the trainer always has one.
    shares_head: bool = False
    #: Number of states and of layers that every draft of this trainer has; None: any.
    states: int | None = None
    depth: int | None = None
    #: Whether there are drafts with latent attention.
    latent: bool = False
    #: Whether the trainer's own loader wants an embedding in the file, rather than take the target's.
    needs_embedding: bool = False


@attrs.frozen(kw_only=True)
class CaptureSite:
    """Where an SGLang target class keeps what the capture touches.

    Dotted paths start at the object that SGLang loads (the outermost class) and go through any wrapper; the empty path
    is that object itself.
    """

    #: Object that owns the list of boundaries and runs the layers, e.g. ``model`` or ``language_model.model``.
    body: str
    #: Its attribute that holds the decoder layers.
    layers: str = "layers"
    #: Its attribute that holds the list of captured boundaries; empty where the class captures nothing.
    capture_list: str = "layers_to_capture"
    #: Attribute of each layer that says whether its input is captured; empty where the list alone says so.
    layer_flag: str = ""
    #: Objects whose ``capture_aux_hidden_states`` must be True for forward() to hand the states out; none where the
    #: class knows no states and hands what its body returns to the logits processor as it is.
    capture_flags: tuple[str, ...] = ("",)
    #: Object whose forward receives the captured states (SGLang's LogitsProcessor).
    logits_processor: str = "logits_processor"
    #: The body's attribute that holds the final norm, where boundary N is injected.
    final_norm: str = "norm"
    #: The language model's head, for classes that do not hand it out themselves.
    head: str = "lm_head"


def _ids(boundaries: Iterable[int]) -> Ids:
    return tuple(boundaries)


@attrs.frozen(kw_only=True)
class CaptureLayers:
    """What an SGLang target class can deliver to a draft, and where."""

    site: CaptureSite = attrs.field(validator=instance_of(CaptureSite))
    #: Rule by which SGLang's own setter of this class reads ids.
    id_rule: Convention = attrs.field(validator=instance_of(Convention))
    #: Boundaries that SGLang's setter chooses without ids.
    default: Ids
    #: Boundaries that the class delivers by itself once they are in its list.
    native: range = attrs.field(validator=instance_of(range))
    #: First SGLang version in which the class captures at all; before, it has neither list nor flags, and this package
    #: captures everything.
    captures_since: tuple[int, int, int] = (0, 5, 17)
    #: First SGLang version in which boundary 0 is among them: before 0.5.22 most classes add a residual that layer 0
    #: has not got yet, and fail in the first request.
    embedding_since: tuple[int, int, int] = (0, 5, 22)
    #: Boundaries that this package captures itself where the class does not: at the layers' inputs, N at the final
    #: norm. Beside native ones 0 and N only, since states arrive in the order of the layers.
    injected: tuple[int, ...] = attrs.field(default=(), converter=_ids)

    def is_native(self, boundary: int, version: tuple[int, int, int] | None) -> bool:
        """Whether the class delivers ``boundary`` by itself in a version of SGLang (None: not known, so the newest)."""
        since = max(self.captures_since, self.embedding_since) if boundary == 0 else self.captures_since
        return boundary in self.native and (version is None or version >= since)

    def is_injected(self, boundary: int, version: tuple[int, int, int] | None) -> bool:
        """Whether this package captures ``boundary`` where the class of a version does not."""
        return boundary in self.injected or (version is not None and version < self.captures_since)

    def site_in(self, version: tuple[int, int, int] | None) -> CaptureSite:
        """Where the class of a version of SGLang keeps it (None: not known, so the newest)."""
        if version is None or version >= self.captures_since:
            return self.site
        return attrs.evolve(self.site, capture_list="", layer_flag="", capture_flags=())


@attrs.frozen(kw_only=True)
class EmbedCapture:
    """Where boundary 0 comes from and what the architecture does to it.

    ``module`` is the dotted path of the token embedding; ``scale`` a factor that the target applies to its output
    before layer 0 (Gemma: sqrt(hidden)); ``merged`` whether multimodal features replace rows of it.
    """

    module: str
    scale: float = attrs.field(default=1.0, validator=gt(0.0))
    merged: bool = False
