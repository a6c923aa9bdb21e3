"""Small targets of more classes with random weights, made by transformers: names, shapes and config are its own.

A wrapper's target holds the weights of its text model under the wrapper's names; its vision tower has none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from safetensors.torch import load_file

from support.random_targets import HIDDEN, LAYERS, VOCABULARY, write

_SIZES: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "vocab_size": VOCABULARY,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": VOCABULARY - 1,
    "pad_token_id": None,
}
_EXPERTS = {"moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": True}


@attrs.frozen(kw_only=True)
class Made:
    """How transformers makes one class."""

    model_type: str
    sizes: Mapping[str, Any] = attrs.field(factory=dict)
    #: Standard deviation of the embedding by the hidden size, so that layer 0 reads about 1 or less of it.
    embedding: Callable[[int], float] = lambda hidden: 1.0
    #: What each of an expert's three matrices is scaled by. bf16 routes now and then to another expert than float32:
    #: where that is another output altogether, nothing can be compared.
    experts: float = 0.5
    #: What SGLang must be told to serve the class on a CPU, in arguments and in variables.
    engine: Mapping[str, Any] = attrs.field(factory=dict)
    environment: Mapping[str, str] = attrs.field(factory=dict)
    #: Folders of plugins of SGLang that it needs there.
    plugins: tuple[Path, ...] = ()


CLASSES = {
    "Qwen2ForCausalLM": Made(model_type="qwen2"),
    "Qwen3ForCausalLM": Made(model_type="qwen3"),
    "Qwen2MoeForCausalLM": Made(
        model_type="qwen2_moe",
        sizes={**_EXPERTS, "shared_expert_intermediate_size": 48, "decoder_sparse_step": 1},
    ),
    "Qwen3MoeForCausalLM": Made(model_type="qwen3_moe", sizes={**_EXPERTS, "decoder_sparse_step": 1}),
    "MixtralForCausalLM": Made(model_type="mixtral", sizes={"num_local_experts": 4, "num_experts_per_tok": 2}),
    "Glm4ForCausalLM": Made(model_type="glm4", sizes={"partial_rotary_factor": 0.5}),
    "Gemma3ForCausalLM": Made(
        model_type="gemma3_text",
        sizes={"tie_word_embeddings": True, "query_pre_attn_scalar": 16, "sliding_window": 256},
        # Small, since its head is the embedding: a larger one would say the token that it reads again and again.
        embedding=lambda hidden: 0.2 * hidden**-0.5,
    ),
    "MistralForCausalLM": Made(model_type="mistral", sizes={"sliding_window": None}),
    "NemotronHForCausalLM": Made(
        model_type="nemotron_h",
        sizes={
            # Mamba, attention and MLP layers. Experts run on a GPU alone: PyTorch has no product with an out_dtype, and
            # SGLang's experts no squared ReLU, on a CPU.
            "hybrid_override_pattern": "M-*-M*--",
            "mamba_num_heads": 4,
            "mamba_head_dim": 16,
            "ssm_state_size": 16,
            "n_groups": 2,
            "chunk_size": 16,
            # All heads begin with a step of a half. transformers lets none fall below the least, SGLang knows no least.
            "time_step_floor": 0.5,
            "time_step_min": 1e-6,
        },
        engine={
            "mamba_radix_cache_strategy": "no_buffer",
            "disable_overlap_schedule": True,
            "max_mamba_cache_size": 64,
        },
        # Otherwise the states of the convolution are kept in bf16.
        environment={"SGLANG_MAMBA_CONV_DTYPE": "float32"},
        plugins=(Path(__file__).parent / "mamba_on_cpu",),
    ),
    "GptOssForCausalLM": Made(
        model_type="gpt_oss",
        sizes={
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            # As the published files say; not every transformers does.
            "swiglu_limit": 7.0,
            "sliding_window": 24,
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 128,
            },
        },
        # By itself SGLang takes OpenAI's Triton kernels, which want the experts transposed and a GPU.
        engine={"moe_runner_backend": "triton"},
    ),
}


@attrs.frozen(kw_only=True)
class Wrapper:
    """A class around the text model of another."""

    text: str
    model_type: str
    #: What the wrapper's text model says of its rotary embedding beside the text model's own.
    rope: Mapping[str, Any] = attrs.field(factory=dict)
    #: How the text model's names begin in the wrapper's files: (its own, the wrapper's).
    names: tuple[tuple[str, str], ...]
    vision: Mapping[str, Any]
    config: Mapping[str, Any] = attrs.field(factory=dict)


WRAPPERS = {
    "Mistral3ForConditionalGeneration": Wrapper(
        text="MistralForCausalLM",
        model_type="mistral3",
        names=(("", "language_model."),),
        vision={
            "model_type": "pixtral",
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "head_dim": 32,
            "image_size": 56,
            "patch_size": 14,
        },
        config={"image_token_index": VOCABULARY - 2},
    ),
    "Qwen3VLForConditionalGeneration": Wrapper(
        text="Qwen3ForCausalLM",
        model_type="qwen3_vl",
        rope={"mrope_section": [4, 2, 2], "mrope_interleaved": True},
        names=(("model.", "model.language_model."), ("", "")),
        vision={
            "depth": 1,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_heads": 2,
            "out_hidden_size": HIDDEN,
            "deepstack_visual_indexes": [0],
        },
        config={"image_token_id": VOCABULARY - 2, "video_token_id": VOCABULARY - 2},
    ),
}


def write_transformers_target(
    directory: Path, architecture: str, *, seed: int = 0, torch_dtype: str = "float32", **sizes: Any
) -> Path:
    """A target of one of :data:`CLASSES`."""
    import transformers  # noqa: PLC0415 - seconds, for those who make such targets

    made = CLASSES[architecture]
    config = transformers.AutoConfig.for_model(made.model_type, **{**_SIZES, **made.sizes, **sizes})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                # Norms near one or, where the class adds one, near nought; biases.
                drawn = parameter + 0.2 * drawn
                if name.endswith("sinks"):
                    # SGLang keeps them in bf16 whatever the model's type.
                    drawn = drawn.bfloat16().float()
            elif "embed" in name:
                drawn *= made.embedding(config.hidden_size)
            else:
                drawn *= (3.0 if "lm_head" in name else 1.5) * max(1, parameter.shape[-1]) ** -0.5
                if "experts" in name:
                    drawn *= made.experts
            parameter.copy_(drawn)
    model.to(getattr(torch, torch_dtype)).save_pretrained(directory)
    file = directory / "config.json"
    written = json.loads(file.read_text(encoding="utf-8"))
    # transformers spells the dtype otherwise than most files.
    written |= {"torch_dtype": torch_dtype}
    if (kinds := written.pop("layers_block_type", None)) is not None:
        # As the published files spell it; SGLang knows transformers' own words for the kinds of layers not.
        # It reads the number of groups from two fields, one of which transformers leaves out.
        written |= {
            "num_hidden_layers": len(kinds),
            "hybrid_override_pattern": config.hybrid_override_pattern,
            "mamba_n_groups": config.n_groups,
        }
    file.write_text(json.dumps(written), encoding="utf-8")
    return directory


def write_wrapped_target(directory: Path, architecture: str) -> tuple[Path, Path]:
    """A target of one of :data:`WRAPPERS`, and beside it the text model, which transformers computes."""
    import transformers  # noqa: PLC0415 - as above

    wrapper = WRAPPERS[architecture]
    text = write_transformers_target(directory / "text", wrapper.text)
    inner = json.loads((text / "config.json").read_text(encoding="utf-8"))
    inner["rope_parameters"] |= wrapper.rope
    config = transformers.AutoConfig.for_model(
        wrapper.model_type,
        text_config={key: value for key, value in inner.items() if key != "architectures"},
        vision_config=dict(wrapper.vision),
        tie_word_embeddings=False,
        **wrapper.config,
    )
    written = config.to_dict() | {"architectures": [architecture], "torch_dtype": "float32"}
    written["text_config"]["torch_dtype"] = "float32"
    tensors = {}
    for name, tensor in load_file(text / "model.safetensors").items():
        own, theirs = next(pair for pair in wrapper.names if name.startswith(pair[0]))
        tensors[theirs + name.removeprefix(own)] = tensor
    return write(directory / "target", written, tensors), text
