"""The four questions that an adapter answers. An adapter is a module with up to four functions marked ``@hookimpl``.

Only the adapter that was chosen for a target is asked; the core answers :func:`weight_key_map` and :func:`vocab_map`
for SGLang's stock draft classes, so most adapters implement the first two only. Hooks are pure: they get values, return
values, and touch neither files nor torch nor SGLang.
"""

from __future__ import annotations

import pluggy

from eagle3_adapters.keymap import KeyMap
from eagle3_adapters.values import CaptureLayers, DraftModel, EmbedCapture, TargetModel
from eagle3_adapters.vocab import VocabMap

PROJECT = "eagle3_adapters"

hookspec = pluggy.HookspecMarker(PROJECT)


@hookspec(firstresult=True)
def capture_layers(target: TargetModel) -> CaptureLayers:  # type: ignore[empty-body]  # a specification has no body
    """Where the decoder stack hangs in the SGLang class and which boundaries it delivers. Asked once a plan.

    ``native`` counts boundaries, 0..N: the Llama classes deliver ``range(0, N)``, because they capture at the input of
    a layer and nothing follows the last one. ``injected`` names what the package captures in their place: 0 and N
    beside native ones, all 0..N where the class captures nothing or the wrong tensor and ``native`` is empty. The
    package finds the residual stream at the layers' inputs by their signatures, and the last one at the final norm.
    None is not an answer.

    Example::

        @hookimpl
        def capture_layers(target):
            n = target.num_layers
            site = CaptureSite(body="model")
            return CaptureLayers(
                site=site, id_rule=OUTPUT_OF_LAYER, default=default_boundaries(n), native=range(n), injected=(n,)
            )
    """


@hookspec(firstresult=True)
def embed_capture(target: TargetModel) -> EmbedCapture:  # type: ignore[empty-body]  # a specification has no body
    """Where boundary 0 is found, and whether the architecture scales or merges it. Asked once a plan.

    None is not an answer. Example: ``return EmbedCapture(module="model.embed_tokens")``.
    """


@hookspec(firstresult=True)
def weight_key_map(draft: DraftModel) -> KeyMap | None:
    """Canonical tensor names -> the names that SGLang's draft class loads. Asked once a plan, with the canonical draft.

    None hands the question on to the core, which answers for SGLang's LlamaForCausalLMEagle3 and
    Eagle3DeepseekV2ForCausalLM.
    Example: ``return KeyMap("my draft class", (Rename("fc.weight", "model.fc.weight"), ...))``.
    """


@hookspec(firstresult=True)
def vocab_map(draft: DraftModel) -> VocabMap | None:
    """Draft token -> target token, or None for a draft that has the target's whole vocabulary. Asked once a plan.

    The core's answer reads ``d2t`` or ``t2d`` in the encoding that the format declared and validates it; an adapter
    overrides it only where its draft class wants something else.
    """
