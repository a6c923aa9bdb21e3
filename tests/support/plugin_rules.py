"""Adapters for the tests, one for each convention as the target class's rule: real entry points can name them.

Every rule serves the architecture ``<Rule>Target`` and delivers boundaries 0..N-1 (1..N-1 before SGLang 0.5.22), as the
classes do that capture at the input of a layer; ``<Rule>_InjectedTarget`` has the others injected.
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
    inject: bool = False
    since: tuple[int, int, int] = (0, 5, 17)

    @hookimpl
    def capture_layers(self, target: TargetModel) -> CaptureLayers:
        layers = target.num_layers
        return CaptureLayers(
            site=CaptureSite(body="model"),
            id_rule=self.rule,
            default=default_boundaries(layers),
            captures_since=self.since,
            native=range(layers),
            injected=(0, layers) if self.inject else (),
        )

    @hookimpl
    def embed_capture(self, target: TargetModel) -> EmbedCapture:
        return EmbedCapture(module="model.embed_tokens")


INPUT = RulePlugin(INPUT_OF_LAYER)
OUTPUT = RulePlugin(OUTPUT_OF_LAYER)
DEEPSEEK = RulePlugin(DEEPSEEK_RULE)
GPT_OSS = RulePlugin(GPT_OSS_RULE)
INPUT_INJECTED = RulePlugin(INPUT_OF_LAYER, inject=True)
OUTPUT_INJECTED = RulePlugin(OUTPUT_OF_LAYER, inject=True)
DEEPSEEK_INJECTED = RulePlugin(DEEPSEEK_RULE, inject=True)
GPT_OSS_INJECTED = RulePlugin(GPT_OSS_RULE, inject=True)
LATE_CLASS = RulePlugin(OUTPUT_OF_LAYER, since=(0, 5, 19))
#: Convention name -> attribute of this module that plays its adapter.
ATTRIBUTES = {
    INPUT_OF_LAYER.name: "INPUT",
    OUTPUT_OF_LAYER.name: "OUTPUT",
    DEEPSEEK_RULE.name: "DEEPSEEK",
    GPT_OSS_RULE.name: "GPT_OSS",
}
#: Appended to a convention's name: the same class, with every boundary in reach.
INJECTED = "+injected"
ATTRIBUTES |= {f"{name}{INJECTED}": f"{attribute}_INJECTED" for name, attribute in ATTRIBUTES.items()}
#: An adapter of a class that captures from 0.5.19 on.
LATE = "late"
_ALL = ATTRIBUTES | {LATE: "LATE_CLASS"}


def architecture(adapter: str) -> str:
    """The architecture that an adapter of this module owns."""
    return f"{_ALL[adapter].title()}Target"


def registrations() -> tuple[Registration, ...]:
    """Entry points of the nine adapters and of the package's own formats."""
    points = [
        *((ADAPTERS, rule, f"{__name__}:{attribute}") for rule, attribute in _ALL.items()),
        *((ARCHITECTURES, architecture(rule), rule) for rule in _ALL),
        *((FORMATS, one.name, one.value) for one in Registry.installed().formats),
    ]
    return tuple(
        Registration(group=group, name=name, value=value, distribution="rules", version="1.0")
        for group, name, value in points
    )


def registry() -> Registry:
    """A registry of exactly these."""
    return Registry(registrations())
