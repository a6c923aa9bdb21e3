"""Adapters for the tests, one for each convention as the target class's rule: real entry points can name them.

Every rule serves the architecture ``<Rule>Target`` and delivers boundaries 0..N-1, as the classes do that capture at
the input of a layer.
"""

from __future__ import annotations

import attrs

from eagle3_adapters import (
    DEEPSEEK_RULE,
    GPT_OSS_RULE,
    INPUT_OF_LAYER,
    OUTPUT_OF_LAYER,
    CaptureLayers,
    CaptureSite,
    Convention,
    EmbedCapture,
    TargetModel,
    default_boundaries,
    hookimpl,
)
from eagle3_adapters.registry import ADAPTERS, ARCHITECTURES, FORMATS, Registration, Registry


@attrs.frozen
class RulePlugin:
    """An adapter whose class reads ids by ``rule``; everything else is Llama's."""

    rule: Convention

    @hookimpl
    def capture_layers(self, target: TargetModel) -> CaptureLayers:
        layers = target.num_layers
        return CaptureLayers(
            site=CaptureSite(body="model"),
            id_rule=self.rule,
            default=default_boundaries(layers),
            native=range(layers),
        )

    @hookimpl
    def embed_capture(self, target: TargetModel) -> EmbedCapture:
        return EmbedCapture(module="model.embed_tokens")


INPUT = RulePlugin(INPUT_OF_LAYER)
OUTPUT = RulePlugin(OUTPUT_OF_LAYER)
DEEPSEEK = RulePlugin(DEEPSEEK_RULE)
GPT_OSS = RulePlugin(GPT_OSS_RULE)
#: Convention name -> attribute of this module that plays its adapter.
ATTRIBUTES = {
    INPUT_OF_LAYER.name: "INPUT",
    OUTPUT_OF_LAYER.name: "OUTPUT",
    DEEPSEEK_RULE.name: "DEEPSEEK",
    GPT_OSS_RULE.name: "GPT_OSS",
}


def architecture(rule: str) -> str:
    """The architecture that the adapter of a rule owns."""
    return f"{ATTRIBUTES[rule].title()}Target"


def registrations() -> tuple[Registration, ...]:
    """Entry points of the four adapters and of the package's own formats."""
    points = [
        *((ADAPTERS, rule, f"{__name__}:{attribute}") for rule, attribute in ATTRIBUTES.items()),
        *((ARCHITECTURES, architecture(rule), rule) for rule in ATTRIBUTES),
        *((FORMATS, one.name, one.value) for one in Registry.installed().formats),
    ]
    return tuple(
        Registration(group=group, name=name, value=value, distribution="rules", version="1.0")
        for group, name, value in points
    )


def registry() -> Registry:
    """A registry of exactly these."""
    return Registry(registrations())
