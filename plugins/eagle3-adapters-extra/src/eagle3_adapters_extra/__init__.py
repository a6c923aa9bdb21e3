"""Adapters for more of SGLang's target classes, one row each. Sources: sglang/srt/models, 0.5.17 to 0.5.23."""

from __future__ import annotations

import attrs

from eagle3_adapters import (
    GPT_OSS_RULE,
    OUTPUT_OF_LAYER,
    CaptureLayers,
    CaptureSite,
    Convention,
    EmbedCapture,
    TargetModel,
    default_boundaries,
    hookimpl,
)

EMBEDDING = EmbedCapture(module="model.embed_tokens")


@attrs.frozen(kw_only=True)
class Row:
    """One target class, or several that differ in nothing that matters here."""

    site: CaptureSite
    embedding: EmbedCapture = EMBEDDING
    #: How the class's setter reads ids.
    rule: Convention = OUTPUT_OF_LAYER
    #: Whether the class captures at all, and rightly; whether boundary N too.
    captures: bool = True
    last: bool = False
    #: First SGLang version whose class captures.
    since: tuple[int, int, int] = (0, 5, 17)

    @hookimpl
    def capture_layers(self, target: TargetModel) -> CaptureLayers:
        """What the class captures; the package injects the rest: 0 before 0.5.22, N, or everything."""
        n = target.num_layers
        native = range(n + self.last) if self.captures else range(0)
        return CaptureLayers(
            site=self.site,
            id_rule=self.rule,
            default=default_boundaries(n),
            native=native,
            captures_since=self.since,
            injected=[k for k in range(n + 1) if k == 0 or k not in native],
        )

    @hookimpl
    def embed_capture(self, target: TargetModel) -> EmbedCapture:
        """As the row says."""
        return self.embedding


#: qwen2.py, qwen3.py.
QWEN = Row(site=CaptureSite(body="model"))
#: qwen2_moe.py, qwen3_moe.py: the loop asks each layer; the list is read by nobody.
QWEN_MOE = Row(site=CaptureSite(body="model", layer_flag="_is_layer_to_capture"))
#: qwen3_vl.py: the wrapper runs its text model and the processor itself. Deepstack features join the layers' outputs.
QWEN3_VL = Row(site=CaptureSite(body="model"), embedding=attrs.evolve(EMBEDDING, merged=True))
#: glm4.py: captures, and has no setter.
GLM4 = Row(site=CaptureSite(body="model"))
#: mistral.py: LlamaForCausalLM within, which the wrapper does not pass ids on to.
MISTRAL3 = Row(
    site=CaptureSite(
        body="language_model.model",
        capture_flags=("language_model",),
        logits_processor="language_model.logits_processor",
        head="language_model.lm_head",
    ),
    embedding=EmbedCapture(module="language_model.model.embed_tokens", merged=True),
)
#: gpt_oss.py: captures N too where it is in the list.
GPT_OSS = Row(site=CaptureSite(body="model"), rule=GPT_OSS_RULE, last=True)
#: nemotron_h.py: Mamba, attention, MLP and expert layers alternate, each of them one layer. Captures N too, but nothing
#: at all before 0.5.19, and has no setter.
NEMOTRON_H = Row(site=CaptureSite(body="model", final_norm="norm_f"), last=True, since=(0, 5, 19))
#: mixtral.py: captures nothing, and hands neither embedding nor head out.
MIXTRAL = Row(site=CaptureSite(body="model", capture_list="", capture_flags=()), captures=False)
#: gemma3_causal.py from 0.5.17 on captures a layer's output without the residual that belongs to it. The embedding
#: scales itself.
GEMMA3 = Row(site=CaptureSite(body="model"), captures=False)
