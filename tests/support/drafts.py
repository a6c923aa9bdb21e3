"""Small drafts of every kind, written in the universal format, for the conversion tests.

Hidden 8, two heads, vocabulary 24, target of 8 layers whose class adds 1 to ids. Bytes are random, so that a tensor
that lands in another's place is seen.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from hypothesis import strategies as st

from eagle3_adapters import canonical
from eagle3_adapters.values import DraftMath
from support.checkpoints import Array, write_safetensors

HIDDEN, HEADS, HEAD_DIM, INNER, VOCAB, LAYERS = 8, 2, 4, 16, 24, 8
_LATENT = {"q_lora_rank": 4, "kv_lora_rank": 4, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 4}
#: Of the math, what a file's config says; the rest its tensors do.
FLAGS = tuple(field.name for field in attrs.fields(DraftMath) if field.name not in canonical.TENSOR_FLAGS)


PLAIN = DraftMath()


@attrs.frozen(kw_only=True)
class Draft:
    """What a draft is. ``boundaries`` None: the default triple; ``vocabulary`` None: the whole one."""

    depth: int = 1
    boundaries: tuple[int, ...] | None = (2, 4, 5)
    latent: bool = False
    math: DraftMath = PLAIN
    attention_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    #: Target ids of the draft's tokens.
    vocabulary: tuple[int, ...] | None = (1, 3, 4, 7, 12)
    #: ``none``, ``copy`` (of the target's, as far as the file says) or ``trained``.
    embedding: str = "none"
    #: Width of a state.
    width: int = HIDDEN
    #: Further fields of the canonical config.
    fields: Mapping[str, Any] = attrs.field(factory=dict)
    #: Keys that no dialect knows.
    unknown: int = 0
    seed: int = 0

    @property
    def states(self) -> int:
        return 3 if self.boundaries is None else len(self.boundaries)

    def config(self) -> dict[str, Any]:
        fields = {
            "hidden_size": HIDDEN,
            "intermediate_size": INNER,
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS if self.latent else 1,
            "head_dim": HEAD_DIM,
            "num_hidden_layers": self.depth,
            "vocab_size": VOCAB,
            "draft_vocab_size": len(self.vocabulary or range(VOCAB)),
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "max_position_embeddings": 64,
            "hidden_act": "silu",
            "torch_dtype": "float32",
            "bos_token_id": 1,
            "eos_token_id": 2,
            "tie_word_embeddings": False,
            "use_aux_hidden_state": True,
        }
        if self.latent:
            fields |= _LATENT
        if self.width != HIDDEN:
            fields["target_hidden_size"] = self.width
        if self.attention_bias:
            fields["attention_bias"] = True
        if self.mlp_bias:
            fields["mlp_bias"] = True
        return fields | dict(self.fields) | {f"somebodys_key_{i}": {"kept": i} for i in range(self.unknown)}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        joined = self.states * self.width
        shapes: dict[str, tuple[int, ...]] = {"fc.weight": (HIDDEN, joined)}
        if self.math.norm_before_fc:
            shapes["input_norm.weight"] = (joined,)
        if self.math.fc_norm:
            shapes |= {f"fc_norm.{state}.weight": (self.width,) for state in range(self.states)}
        for layer in range(self.depth):
            shapes |= {f"layers.{layer}.{name}": shape for name, shape in self._layer(layer).items()}
        shapes |= {"norm.weight": (HIDDEN,), "lm_head.weight": (len(self.vocabulary or range(VOCAB)), HIDDEN)}
        if self.embedding != "none":
            shapes["embed_tokens.weight"] = (VOCAB, HIDDEN)
        return shapes

    def _layer(self, layer: int) -> dict[str, tuple[int, ...]]:
        reads = 2 * HIDDEN if layer == 0 else HIDDEN
        norms = ("hidden_norm", "post_attention_layernorm") + (("input_layernorm",) if layer == 0 else ())
        shapes: dict[str, tuple[int, ...]] = {f"{norm}.weight": (HIDDEN,) for norm in norms}
        if self.latent:
            nope, rope, out = _LATENT["qk_nope_head_dim"], _LATENT["qk_rope_head_dim"], _LATENT["v_head_dim"]
            rank, queries = _LATENT["kv_lora_rank"], _LATENT["q_lora_rank"]
            attention = {
                "q_a_proj.weight": (queries, reads),
                "q_a_layernorm.weight": (queries,),
                "q_b_proj.weight": (HEADS * (nope + rope), queries),
                "kv_a_proj_with_mqa.weight": (rank + rope, reads),
                "kv_a_layernorm.weight": (rank,),
                "kv_b_proj.weight": (HEADS * (nope + out), rank),
                "o_proj.weight": (HIDDEN, HEADS * out),
            }
        else:
            rows = {"q_proj": HEADS * HEAD_DIM, "k_proj": HEAD_DIM, "v_proj": HEAD_DIM}
            attention = {f"{name}.weight": (count, reads) for name, count in rows.items()}
            attention["o_proj.weight"] = (HIDDEN, HEADS * HEAD_DIM)
            if self.attention_bias:
                attention |= {f"{name}.bias": (count,) for name, count in {**rows, "o_proj": HIDDEN}.items()}
            if self.qk_norm:
                attention |= {"q_norm.weight": (HEAD_DIM,), "k_norm.weight": (HEAD_DIM,)}
        shapes |= {f"self_attn.{name}": shape for name, shape in attention.items()}
        mlp = {"gate_proj": (INNER, HIDDEN), "up_proj": (INNER, HIDDEN), "down_proj": (HIDDEN, INNER)}
        shapes |= {f"mlp.{name}.weight": shape for name, shape in mlp.items()}
        if self.mlp_bias:
            shapes |= {f"mlp.{name}.bias": shape[:1] for name, shape in mlp.items()}
        return shapes

    def write(self, directory: Path) -> Path:
        """Two files and an index, so that sharding is seen too."""
        generator = random.Random(self.seed)  # noqa: S311 - test data
        tensors = {
            name: Array("F32", shape, [generator.random() for _ in range(_count(shape))])
            for name, shape in self.shapes().items()
        }
        if self.vocabulary is not None:
            offsets = [target - i for i, target in enumerate(self.vocabulary)]
            tensors["d2t"] = Array("I64", (len(offsets),), offsets)
            tensors["t2d"] = Array("BOOL", (VOCAB,), [i in self.vocabulary for i in range(VOCAB)])
        directory.mkdir(parents=True)
        said = {
            "fields": self.config(),
            "boundaries": None if self.boundaries is None else list(self.boundaries),
            "math": attrs.asdict(self.math),
            "embedding_trained": self.embedding == "trained",
        }
        (directory / "config.json").write_text(json.dumps({"universal": said}), encoding="utf-8")
        (directory / "tokenizer.json").write_text("{}", encoding="utf-8")
        _write_shards(directory, tensors)
        return directory


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for dimension in shape:
        count *= dimension
    return count


def _write_shards(directory: Path, tensors: Mapping[str, Array]) -> None:
    names = list(tensors)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, held in shards.items():
        write_safetensors(directory / file, {name: tensors[name] for name in held}, {"format": "pt", "run": "7"})
    index = {
        "metadata": {"made": "by a test"},
        "weight_map": {name: file for file, held in shards.items() for name in held},
    }
    (directory / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


@attrs.frozen(kw_only=True)
class Holds:
    """What a trainer's files can hold, by trainer-conventions.md: the oracle of the conversion tests."""

    flags: frozenset[str] = frozenset()
    deep: bool = False
    any_states: bool = False
    latent: bool = False
    biases: bool = False
    qk_norm: bool = False
    embeddings: tuple[str, ...] = ("none", "copy")
    other_width: bool = True
    #: Whether files can name other states than the default triple, and the last one.
    named_states: bool = True
    last_state: bool = True

    def __and__(self, other: Holds) -> Holds:
        return Holds(
            flags=self.flags & other.flags,
            deep=self.deep and other.deep,
            any_states=self.any_states and other.any_states,
            latent=self.latent and other.latent,
            biases=self.biases and other.biases,
            qk_norm=self.qk_norm and other.qk_norm,
            embeddings=tuple(one for one in self.embeddings if one in other.embeddings),
            other_width=self.other_width and other.other_width,
            named_states=self.named_states and other.named_states,
            last_state=self.last_state and other.last_state,
        )

    def holds(self, draft: Draft) -> bool:
        """Whether a file can say all that the draft is."""
        named = draft.boundaries is not None and set(draft.boundaries) != DEFAULT
        return (
            {flag for flag in FLAGS if getattr(draft.math, flag)} <= self.flags
            and (draft.depth == 1 or self.deep)
            and (draft.states == 3 or self.any_states)
            and (not draft.latent or self.latent)
            and (not (draft.attention_bias or draft.mlp_bias) or self.biases)
            and (not draft.qk_norm or self.qk_norm)
            and draft.embedding in self.embeddings
            and (draft.width == HIDDEN or self.other_width)
            and (not named or self.named_states)
            and (LAYERS not in (draft.boundaries or ()) or self.last_state)
        )


DEFAULT = {2, LAYERS // 2, LAYERS - 3}
HOLDS: Mapping[str, Holds] = {
    "safeailab": Holds(named_states=False),
    "specforge": Holds(flags=frozenset({"fc_norm", "bare_head"})),
    "speculators": Holds(
        flags=frozenset({"norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"}),
        deep=True,
        any_states=True,
        biases=True,
        qk_norm=True,
        embeddings=("none", "copy", "trained"),
        other_width=False,
    ),
    "modelopt": Holds(
        flags=frozenset({"double_norm"}),
        deep=True,
        any_states=True,
        latent=True,
        embeddings=("none",),
        other_width=False,
    ),
    "angelslim": Holds(other_width=False, last_state=False),
    "torchspec": Holds(latent=True),
    "nemo": Holds(flags=frozenset({"fc_norm", "norm_output"}), latent=True, biases=True, named_states=False),
    "sglang": Holds(
        flags=frozenset({"norm_before_fc", "fc_norm", "norm_output"}), deep=True, any_states=True, latent=True
    ),
}
EVERYTHING = Holds(
    flags=frozenset(FLAGS),
    deep=True,
    any_states=True,
    latent=True,
    biases=True,
    qk_norm=True,
    embeddings=("none", "copy", "trained"),
)


@st.composite
def drafts(draw: st.DrawFn, within: Holds = EVERYTHING) -> Draft:
    """Drafts within some bounds: 1 to 3 layers, 1 to 5 states, both attentions, all flags, any vocabulary map."""

    def maybe(allowed: bool) -> bool:  # noqa: FBT001 - one fact
        return allowed and draw(st.booleans())

    size = st.integers(1, 5) if within.any_states else st.just(3)
    last = LAYERS if within.last_state else LAYERS - 1
    named = draw(size.flatmap(lambda n: st.sets(st.integers(0, last), min_size=n, max_size=n)))
    boundaries = tuple(sorted(named)) if maybe(within.named_states) else None
    ids = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=VOCAB - 1, unique=True)
    # Zero offsets look like a map that was never filled, and are refused as one.
    reduced = (ids | ids.map(sorted)).filter(lambda chosen: chosen != list(range(len(chosen)))).map(tuple)
    latent = maybe(within.latent)
    # Its own loader refuses both norms before fc.
    before_fc = draw(st.sampled_from(["", *({"norm_before_fc", "fc_norm"} & within.flags)]))
    others = [flag for flag in FLAGS if flag in within.flags - {"norm_before_fc", "fc_norm"} and draw(st.booleans())]
    return Draft(
        depth=draw(st.integers(1, 3)) if within.deep else 1,
        boundaries=boundaries,
        latent=latent,
        math=DraftMath(**{flag: True for flag in (before_fc, *others) if flag}),
        attention_bias=not latent and maybe(within.biases),
        mlp_bias=not latent and maybe(within.biases),
        qk_norm=not latent and maybe(within.qk_norm),
        vocabulary=draw(st.none() | reduced),
        embedding=draw(st.sampled_from(within.embeddings)),
        width=draw(st.sampled_from([HIDDEN, HIDDEN, HIDDEN + 2])) if within.other_width else HIDDEN,
        unknown=draw(st.integers(0, 2)),
        seed=draw(st.integers(0, 2**16)),
    )
