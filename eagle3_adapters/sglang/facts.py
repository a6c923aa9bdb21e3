"""Owns what this package reads of SGLang beside the seams: arguments of functions, attributes, marks on tensors.

Each with the versions in which it is so, and how to see that in the sources. A test holds every one against the sources
of every supported version, `eagle3-adapters doctor` against those that are installed.
"""

from __future__ import annotations

import ast

import attrs

from eagle3_adapters.engine_version import Version, spelled, version_numbers
from eagle3_adapters.sglang import compat, target_class
from eagle3_adapters.sglang.compat import DRAFT_LOADERS, EMBEDDING_SETTERS, FIRST, LAST
from eagle3_adapters.sglang.drafts import stock
from eagle3_adapters.sglang.sources import Sources


@attrs.frozen
class Fact:
    """Something that SGLang's sources say, and the versions in which they say it."""

    path: str
    first: Version = attrs.field(default=FIRST, kw_only=True)
    last: Version = attrs.field(default=LAST, kw_only=True)

    def holds(self, sources: Sources) -> bool:
        """Whether these sources say so."""
        raise NotImplementedError

    @property
    def told(self) -> str:
        """What they say, for messages."""
        raise NotImplementedError

    def expected(self, version: str) -> bool:
        """Whether a version's sources have to say so."""
        return self.first <= (version_numbers(version) or LAST) <= self.last


@attrs.frozen
class Takes(Fact):
    """A function that begins with these parameters, which are read by place."""

    places: tuple[str, ...] = ()
    #: Further parameters, read or given by name; and those that nobody can give by place.
    names: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    keywords: tuple[str, ...] = attrs.field(default=(), kw_only=True)

    def holds(self, sources: Sources) -> bool:
        """By the function's signature."""
        found = sources.find(self.path)
        if found is None or not isinstance(found.node, ast.FunctionDef):
            return False
        ordered = [one.arg for one in (*found.node.args.posonlyargs, *found.node.args.args)]
        keywords = {one.arg for one in found.node.args.kwonlyargs}
        return (
            tuple(ordered[: len(self.places)]) == self.places
            and set(self.names) <= {*ordered, *keywords}
            and set(self.keywords) <= keywords
        )

    @property
    def told(self) -> str:
        """The parameters."""
        return f"parameters {', '.join((*self.places, *self.names, *self.keywords))}"


@attrs.frozen
class Has(Fact):
    """A class that has these methods, fields or attributes; of a package, all of its classes together."""

    attributes: tuple[str, ...]

    def holds(self, sources: Sources) -> bool:
        """By the classes' bodies, their bases and what methods assign to self."""
        found = sources.find(self.path)
        classes = sources.classes(self.path) if found is None else [found]
        return set(self.attributes) <= {name for one in classes for name in sources.attributes(one)}

    @property
    def told(self) -> str:
        """The attributes."""
        return f"attributes {', '.join(self.attributes)}"


@attrs.frozen
class Says(Fact):
    """A module or package in whose text a word stands."""

    word: str

    def holds(self, sources: Sources) -> bool:
        """By the text alone."""
        return any(self.word in file.read_text(encoding="utf-8") for file in sources.files(self.path))

    @property
    def told(self) -> str:
        """The word."""
        return f"the word {self.word}"


def _of_seam(name: str) -> str:
    return compat.seam(name, spelled(LAST)).path


_HOOKS = "sglang.srt.plugins.hook_registry.HookRegistry"
_ARGUMENTS = "sglang.srt.server_args.ServerArgs"
_RUNNER = "sglang.srt.model_executor.model_runner.ModelRunner"
_BATCH = "sglang.srt.model_executor.forward_batch_info"
_VOCABULARY = "sglang.srt.layers.vocab_parallel_embedding"
#: Fields of ServerArgs that parent.py and server_options.py read or set, and compat.py.
_OPTIONS = (
    "attention_backend",
    "context_length",
    "decrypted_draft_config_file",
    "enable_dp_attention",
    "enable_two_batch_overlap",
    "json_model_override_args",
    "load_format",
    "model_path",
    "pp_size",
    "quantization",
    "revision",
    "speculative_adaptive",
    "speculative_algorithm",
    "speculative_draft_attention_backend",
    "speculative_draft_load_format",
    "speculative_draft_model_path",
    "speculative_draft_model_quantization",
    "speculative_draft_model_revision",
    "speculative_draft_window_size",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_num_steps",
    "speculative_token_map",
    "use_ray",
)

FACTS: tuple[Fact, ...] = (
    # Arguments that hooks take from a call of their seam.
    Takes(_of_seam("flags"), ("parser",)),
    Takes(_of_seam("request"), ("cls", "args")),
    Takes(_of_seam("draft-config"), ("self",)),
    Takes(_of_seam("capture"), keywords=("model", "eagle_use_aux_hidden_state")),
    Takes(_of_seam("model-load"), ("self",)),
    Takes(_of_seam("verify-counts"), ("self", "bs", "num_correct_drafts")),
    Takes(_of_seam("request-end"), ("req",)),
    Takes(_of_seam("end"), ("parent_pid", "include_parent"), names=("wait_timeout",)),
    *(Takes(path, ("self", "weights")) for path in DRAFT_LOADERS.values()),
    # How hooks come to be, and what was applied.
    Has(_HOOKS, ("_patched", "register", "apply_hooks")),
    Takes(f"{_HOOKS}.register", ("cls", "target", "hook", "hook_type")),
    Has("sglang.srt.plugins.hook_registry.HookType", ("BEFORE", "AFTER", "AROUND")),
    # Options, and that they were resolved; up to 0.5.18 a constructor does it, which no child process runs.
    Has(_ARGUMENTS, _OPTIONS, last=(0, 5, 19)),
    Has("sglang.srt.arg_groups.fields", _OPTIONS, first=(0, 5, 20)),
    Has(_ARGUMENTS, ("_resolution_finished",), first=(0, 5, 19)),
    # What is counted in service.
    Has("sglang.srt.managers.scheduler_components.metrics_reporter.SchedulerMetricsReporter", ("scheduler",)),
    Has("sglang.srt.managers.scheduler.Scheduler", ("draft_worker",)),
    Has("sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2", ("speculative_num_steps",)),
    Has(
        "sglang.srt.managers.schedule_batch.Req",
        ("finished", "output_ids", "spec_verify_ct", "spec_num_correct_drafts"),
    ),
    # The draft: how it shares the target's embedding, and its map of the vocabulary.
    *(Has(path.rpartition(".")[0], (*EMBEDDING_SETTERS, "hot_token_id")) for path in DRAFT_LOADERS.values()),
    # What draft classes of ours are built of, and how they come to be loaded.
    Has("sglang.srt.models.registry", ("models",)),
    *(Has(f"{module}.{name}", ("__init__",)) for module, names in stock.LAYERS.items() for name in names),
    *(Has(built.body.path, ("fc", "fc_norm", "norm_output")) for built in stock.PARTS.values()),
    Has(stock.PARTS["LlamaForCausalLMEagle3"].body.path, ("input_norm",)),
    Has(stock.PARTS["LlamaForCausalLMEagle3"].layer.path, ("is_input_layer",)),
    Has(stock.PARTS["Eagle3DeepseekV2ForCausalLM"].body.path, ("_fc_gatherer",)),
    Has(f"{_VOCABULARY}.VocabParallelEmbedding", ("shard_indices",)),
    Has(f"{_VOCABULARY}.VocabParallelEmbeddingShardIndices", ("org_vocab_start_index",)),
    # The runner and its batches.
    Has(_RUNNER, ("forward", "is_draft_worker", "model", "prefill_cuda_graph_runner", "server_args")),
    Takes(f"{_RUNNER}.forward", ("self", "forward_batch")),
    Has(f"{_BATCH}.ForwardBatch", ("forward_mode", "input_ids")),
    Has(f"{_BATCH}.ForwardMode", ("is_decode_or_idle", "is_extend_without_speculative", "is_idle")),
    # The target: how it is told what to capture, is asked for what the draft shares, and where its states go.
    Says(_of_seam("capture").rpartition(".")[0], target_class.SETTER),
    Says("sglang.srt.speculative", target_class.SHARED),
    Takes("sglang.srt.layers.logits_processor.LogitsProcessor.forward", names=("hidden_states", "aux_hidden_states")),
    # The residual stream: in the batch, or with a sum over ranks that a layer's output still owes.
    Takes(f"{target_class.STREAM}.snapshot", ("hidden_states", "forward_batch"), first=(0, 5, 21)),
    Says("sglang.srt.models", target_class.OWES, last=(0, 5, 20)),
    Takes("sglang.srt.distributed.communication_op.tensor_model_parallel_all_reduce", ("input_",)),
)
