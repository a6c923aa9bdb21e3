"""Owns the names of what SGLang's draft classes are built of, and building them with other parts.

Sources: the wheels of 0.5.17 to 0.5.23, in which these names and the signatures of their constructors and forwards are
the same. Importing this module imports no part of SGLang.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

_LLAMA, _LLAMA_DRAFT, _LATENT_DRAFT = (
    f"sglang.srt.models.{name}" for name in ("llama", "llama_eagle3", "kimi_k25_eagle3")
)


@attrs.frozen(kw_only=True)
class Part:
    """A class, and the module in which whoever builds it looks it up."""

    module: str
    name: str
    #: Methods that a part of ours overrides.
    methods: tuple[str, ...]

    @property
    def path(self) -> str:
        """Dotted path of the class."""
        return f"{self.module}.{self.name}"

    @property
    def paths(self) -> tuple[str, ...]:
        """Dotted paths of the overridden methods."""
        return tuple(f"{self.path}.{method}" for method in self.methods)

    def load(self) -> Any:
        """The class."""
        return getattr(importlib.import_module(self.module), self.name)


@attrs.frozen(kw_only=True)
class Parts:
    """What one draft class of SGLang is built of."""

    draft: Part
    body: Part
    layer: Part
    #: None where no part of ours differs in it.
    attention: Part | None


#: Draft class of SGLang -> its parts.
PARTS: Mapping[str, Parts] = {
    "LlamaForCausalLMEagle3": Parts(
        draft=Part(module=_LLAMA_DRAFT, name="LlamaForCausalLMEagle3", methods=("__init__",)),
        body=Part(module=_LLAMA_DRAFT, name="LlamaModel", methods=("__init__", "forward")),
        layer=Part(module=_LLAMA_DRAFT, name="LlamaDecoderLayer", methods=("__init__", "forward")),
        attention=Part(module=_LLAMA, name="LlamaAttention", methods=("__init__", "forward_prepare_native")),
    ),
    "Eagle3DeepseekV2ForCausalLM": Parts(
        draft=Part(
            module=_LATENT_DRAFT,
            name="Eagle3DeepseekV2ForCausalLM",
            methods=("__init__", "set_embed", "set_embed_and_head"),
        ),
        body=Part(module=_LATENT_DRAFT, name="Eagle3MLAModel", methods=("__init__", "forward")),
        layer=Part(module=_LATENT_DRAFT, name="Eagle3MLADecoderLayer", methods=("__init__", "forward")),
        attention=None,
    ),
}
#: Modules of SGLang's layers, and the classes of them that parts of ours are built of.
LAYERS = {
    "sglang.srt.layers.activation": ("SiluAndMul",),
    "sglang.srt.layers.layernorm": ("RMSNorm",),
    "sglang.srt.layers.linear": ("MergedColumnParallelLinear", "QKVParallelLinear", "RowParallelLinear"),
}


def layer_type(name: str) -> Any:
    """A class of SGLang's layers."""
    module = next(module for module, names in LAYERS.items() if name in names)
    return getattr(importlib.import_module(module), name)


def announce_attention_input(layer: Any, states: Any, forward_batch: Any) -> None:
    """Hand a latent draft layer's attention its input, as SGLang's own forward of that layer does."""
    module = importlib.import_module(_LATENT_DRAFT)
    attention_input = module.AttentionInputs(states, forward_batch, layer.self_attn.prepare_qkv_latent)
    module.get_attn_tp_context().set_attn_inputs(attention_input)


@contextlib.contextmanager
def built_with(parts: Mapping[Part, Any]) -> Iterator[None]:
    """Within, SGLang's constructors build these classes where they would build their own parts."""
    modules = [(importlib.import_module(part.module), part.name, cls) for part, cls in parts.items()]
    own = [(module, name, getattr(module, name)) for module, name, _ in modules]
    try:
        for module, name, cls in modules:
            setattr(module, name, cls)
        yield
    finally:
        for module, name, cls in own:
            setattr(module, name, cls)


def put_in_place(architecture: str, cls: Any) -> None:
    """Have SGLang load ``cls`` where a config names its own draft class ``architecture``."""
    importlib.import_module("sglang.srt.models.registry").ModelRegistry.models[architecture] = cls


def is_draft_step(forward_batch: Any) -> bool:
    """Whether a forward of the draft reads its own last output; else, states of the target."""
    return bool(forward_batch.forward_mode.is_decode_or_idle())
