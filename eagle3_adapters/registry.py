"""Owns finding plugins: adapters, the architectures that they own, and formats, all from entry points.

Names and owners are read from distribution metadata alone; only the chosen plugin is imported. Closed here are the
silent failures of raw entry points and of pluggy: two distributions that claim one name, a misspelt hook, a plugin that
fails to import and takes the others with it. A registry is an instance and holds no state outside itself.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

import attrs
import pluggy

from eagle3_adapters import defaults, hookspecs
from eagle3_adapters.errors import FindingsError, PluginLoadError, RegistryError, VocabMapError, fault
from eagle3_adapters.keymap import KeyMap
from eagle3_adapters.values import CaptureLayers, DraftModel, EmbedCapture, TargetModel
from eagle3_adapters.vocab import VocabMap

if TYPE_CHECKING:
    from eagle3_adapters.formats import Format

T = TypeVar("T")

ADAPTERS = "eagle3_adapters"
ARCHITECTURES = "eagle3_adapters.architectures"
FORMATS = "eagle3_adapters.formats"

#: Wheels of this project for architectures whose adapter is not installed.
KNOWN_WHEELS: Mapping[str, str] = {
    "IQuestCoderForCausalLM": "eagle3-adapters-llama",
    "InternLM3ForCausalLM": "eagle3-adapters-llama",
    "LlamaForCausalLM": "eagle3-adapters-llama",
    "MistralForCausalLM": "eagle3-adapters-llama",
    "Phi3ForCausalLM": "eagle3-adapters-llama",
    "DeepseekV2ForCausalLM": "eagle3-adapters-deepseek",
    "DeepseekV32ForCausalLM": "eagle3-adapters-deepseek",
    "DeepseekV3ForCausalLM": "eagle3-adapters-deepseek",
    "GlmMoeDsaForCausalLM": "eagle3-adapters-deepseek",
    "MistralLarge3ForCausalLM": "eagle3-adapters-deepseek",
    "KimiK25ForConditionalGeneration": "eagle3-adapters-kimi",
    "Gemma3ForCausalLM": "eagle3-adapters-extra",
    "Glm4ForCausalLM": "eagle3-adapters-extra",
    "GptOssForCausalLM": "eagle3-adapters-extra",
    "Mistral3ForConditionalGeneration": "eagle3-adapters-extra",
    "MixtralForCausalLM": "eagle3-adapters-extra",
    "NemotronHForCausalLM": "eagle3-adapters-extra",
    "Qwen2ForCausalLM": "eagle3-adapters-extra",
    "Qwen2MoeForCausalLM": "eagle3-adapters-extra",
    "Qwen3ForCausalLM": "eagle3-adapters-extra",
    "Qwen3MoeForCausalLM": "eagle3-adapters-extra",
    "Qwen3VLForConditionalGeneration": "eagle3-adapters-extra",
}


@attrs.frozen(kw_only=True)
class Registration:
    """One entry point: ``name`` is what users type, ``value`` what it points to, and who installed it."""

    group: str
    name: str
    value: str
    distribution: str
    version: str

    @property
    def origin(self) -> str:
        """``eagle3-adapters-llama 0.1.0``, as every message names it."""
        return f"{self.distribution} {self.version}"


@attrs.frozen(kw_only=True)
class Adapter:
    """A loaded adapter. Only it and the core's own defaults answer; an answer of another type is plugin-broken."""

    registration: Registration
    architectures: tuple[str, ...]
    _hooks: pluggy.HookRelay = attrs.field(repr=False)

    def capture_layers(self, target: TargetModel) -> CaptureLayers:
        """See :func:`eagle3_adapters.hookspecs.capture_layers`."""
        answer = self._answer("capture_layers", CaptureLayers, target=target)
        ends = {0, target.num_layers}
        possible = ends if answer.native else set(range(target.num_layers + 1))
        astray = sorted(set(answer.injected) - possible)
        if astray:
            among = "0 and N alone beside native ones" if answer.native else f"0..{target.num_layers} can be"
            raise broken(self.registration, f"capture_layers injects {astray}; {among}")
        return answer

    def embed_capture(self, target: TargetModel) -> EmbedCapture:
        """See :func:`eagle3_adapters.hookspecs.embed_capture`."""
        return self._answer("embed_capture", EmbedCapture, target=target)

    def weight_key_map(self, draft: DraftModel) -> KeyMap:
        """See :func:`eagle3_adapters.hookspecs.weight_key_map`."""
        return self._answer("weight_key_map", KeyMap, draft=draft)

    def vocab_map(self, draft: DraftModel) -> VocabMap | None:
        """See :func:`eagle3_adapters.hookspecs.vocab_map`. Raises VocabMapError."""
        answer = self._ask("vocab_map", draft=draft)
        return None if answer is None else self._checked("vocab_map", VocabMap, answer)

    def _answer(self, hook: str, kind: type[T], **question: object) -> T:
        return self._checked(hook, kind, self._ask(hook, **question))

    def _ask(self, hook: str, **question: object) -> object:
        try:
            answer: object = getattr(self._hooks, hook)(**question)
        except (FindingsError, VocabMapError):
            raise
        except Exception as error:  # a plugin can raise anything
            raise broken(self.registration, f"{hook} raised {type(error).__name__}: {error}") from error
        return answer

    def _checked(self, hook: str, kind: type[T], answer: object) -> T:
        if not isinstance(answer, kind):
            raise broken(self.registration, f"{hook} answered {answer!r} instead of a {kind.__name__}")
        return answer


def broken(registration: Registration, problem: str) -> PluginLoadError:
    """plugin-broken, naming who installed it."""
    return PluginLoadError(
        [
            fault(
                "plugin-broken",
                f"{registration.origin}: {registration.value}",
                "a module that imports and whose hooks fit eagle3_adapters.hookspecs",
                problem,
                remedy=f"pip install -U {registration.distribution} eagle3-adapters, or tell its author",
            )
        ]
    )


def _entry_points() -> Iterable[Registration]:
    for distribution in importlib.metadata.distributions():
        for point in distribution.entry_points:
            if point.group in (ADAPTERS, ARCHITECTURES, FORMATS):
                yield Registration(
                    group=point.group,
                    name=point.name,
                    value=point.value,
                    distribution=distribution.metadata["Name"],
                    version=distribution.version,
                )


_WRITE_PLUGIN = (
    "write a plugin that says where the body, its layers, embedding and final norm are, by which rule the class reads "
    "ids and what it captures itself: CONTRIBUTING.md, 'Add an architecture'"
)


def _described(architecture: str) -> str:
    # Parsing SGLang's sources is for one message alone.
    from eagle3_adapters.sglang.classes import described  # noqa: PLC0415

    return described(architecture)


class Registry:
    """What is installed. Build one with :meth:`installed`; tests build one from registrations of their own."""

    def __init__(self, registrations: Iterable[Registration]) -> None:
        self._by_group: dict[str, dict[str, Registration]] = {ADAPTERS: {}, ARCHITECTURES: {}, FORMATS: {}}
        for registration in registrations:
            self._add(registration)

    @classmethod
    def installed(cls) -> Registry:
        """The registry of this environment. Imports no plugin. Raises RegistryError where two claim one name."""
        return cls(_entry_points())

    def _add(self, new: Registration) -> None:
        group = self._by_group[new.group]
        old = group.setdefault(new.name, new)
        # One distribution can be seen twice: an editable install beside its metadata, a path listed twice.
        if old != new and (old.distribution, old.value) != (new.distribution, new.value):
            raise RegistryError(
                [
                    fault(
                        "registry-conflict",
                        f"{new.group}: {new.name}",
                        "one distribution that claims it",
                        f"{old.origin} ({old.value}) and {new.origin} ({new.value})",
                        remedy=f"pip uninstall {old.distribution}  (or {new.distribution})",
                    )
                ]
            )

    @property
    def adapters(self) -> tuple[Registration, ...]:
        """Installed adapters by name."""
        return tuple(self._by_group[ADAPTERS][name] for name in sorted(self._by_group[ADAPTERS]))

    @property
    def formats(self) -> tuple[Registration, ...]:
        """Installed formats by name."""
        return tuple(self._by_group[FORMATS][name] for name in sorted(self._by_group[FORMATS]))

    def architectures_of(self, adapter: str) -> tuple[str, ...]:
        """HF architecture strings that an adapter owns."""
        owned = self._by_group[ARCHITECTURES]
        return tuple(sorted(name for name, registration in owned.items() if registration.value == adapter))

    def owner_of(self, architecture: str) -> Registration:
        """The adapter that owns an architecture. Raises RegistryError (target-unsupported) with the wheel's name."""
        claim = self._by_group[ARCHITECTURES].get(architecture)
        if claim is None:
            known = sorted(self._by_group[ARCHITECTURES])
            wheel = KNOWN_WHEELS.get(architecture)
            seen = "" if wheel else _described(architecture)
            raise RegistryError(
                [
                    fault(
                        "target-unsupported",
                        f"architecture {architecture}",
                        f"one of {', '.join(known)}" if known else "an installed adapter",
                        "; ".join(filter(None, ("no installed adapter owns it", seen))),
                        why="where and by which rule a class captures states is never assumed",
                        remedy=f"pip install {wheel}" if wheel else _WRITE_PLUGIN,
                    )
                ]
            )
        return self._named(ADAPTERS, claim.value)

    def _named(self, group: str, name: str) -> Registration:
        registration = self._by_group[group].get(name)
        if registration is None:
            kind = "adapter" if group == ADAPTERS else "format"
            known = ", ".join(sorted(self._by_group[group])) or "none"
            raise RegistryError(
                [
                    fault(
                        f"{kind}-unknown",
                        f"{kind} {name!r}",
                        f"an installed {kind}: {known}",
                        "no such name",
                        remedy="eagle3-adapters adapters  (lists what is installed)",
                    )
                ]
            )
        return registration

    def _load(self, registration: Registration) -> object:
        point = importlib.metadata.EntryPoint(registration.name, registration.value, registration.group)
        try:
            return point.load()
        except Exception as error:  # a plugin's import can raise anything
            raise broken(registration, f"{type(error).__name__}: {error}") from error

    def adapter(self, name: str) -> Adapter:
        """Import and check one adapter. Raises RegistryError (adapter-unknown) or PluginLoadError (plugin-broken)."""
        registration = self._named(ADAPTERS, name)
        manager = pluggy.PluginManager(hookspecs.PROJECT)
        manager.add_hookspecs(hookspecs)
        manager.register(defaults, "eagle3_adapters defaults")
        plugin = self._load(registration)
        try:
            # A manager of its own for each adapter: the chosen one and the core alone are asked.
            manager.register(plugin, name)
            manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as error:
            raise broken(registration, str(error)) from error
        for hook in ("capture_layers", "embed_capture"):
            if not getattr(manager.hook, hook).get_hookimpls():
                raise broken(registration, f"{hook} is not implemented")
        return Adapter(registration=registration, architectures=self.architectures_of(name), hooks=manager.hook)

    def format(self, name: str) -> Format:
        """Import one format. Raises RegistryError (format-unknown) or PluginLoadError (plugin-broken)."""
        registration = self._named(FORMATS, name)
        loaded = self._load(registration)
        missing = [
            attribute
            for attribute in ("name", "title", "looks_for", "claim", "read", "write")
            if not hasattr(loaded, attribute)
        ]
        if missing:
            raise broken(registration, f"a format without {', '.join(missing)}")
        format_: Format = loaded  # type: ignore[assignment]  # checked above; a Protocol with data cannot be isinstance'd
        return format_
