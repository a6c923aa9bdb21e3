"""Plugins as they are installed: real distributions on the path, with metadata, entry points and a module."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from support.checkpoints import DRAFT_VOCAB, TARGET_IDS, draft_tensors, layer_config, write_draft, write_target

from eagle3_adapters.checkpoint import read_draft, read_target
from eagle3_adapters.errors import Finding, PluginLoadError, RegistryError
from eagle3_adapters.registry import ADAPTERS, ARCHITECTURES, FORMATS, KNOWN_WHEELS, Registration, Registry
from eagle3_adapters.values import DraftModel

CAPTURE_LAYERS = """
@hookimpl
def capture_layers(target):
    n = target.num_layers
    return CaptureLayers(
        site=CaptureSite(body="model"), id_rule=OUTPUT_OF_LAYER, default=default_boundaries(n), native=range(n)
    )
"""
EMBED_CAPTURE = """
@hookimpl
def embed_capture(target):
    return EmbedCapture(module="model.embed_tokens")
"""
SOUND = f"from eagle3_adapters import *\n{CAPTURE_LAYERS}{EMBED_CAPTURE}"

Install = Callable[..., str]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """``install(name, version, adapters, ..., source)`` puts a distribution on the path; returns its module's name."""
    before = set(sys.modules)

    def write(
        name: str,
        *,
        version: str = "1.0",
        adapters: tuple[str, ...] = (),
        architectures: Mapping[str, str] | None = None,
        formats: tuple[str, ...] = (),
        source: str = SOUND,
        folder: str = "site",
    ) -> str:
        site, module = tmp_path / folder, name.replace("-", "_")
        metadata = site / f"{module}-{version}.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        groups = {
            ADAPTERS: dict.fromkeys(adapters, module),
            ARCHITECTURES: architectures or {},
            FORMATS: dict.fromkeys(formats, f"{module}:FORMAT"),
        }
        lines = (
            [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
            for group, points in groups.items()
            if points
        )
        (metadata / "entry_points.txt").write_text("\n".join(line for section in lines for line in section))
        (site / f"{module}.py").write_text(source)
        if str(site) not in sys.path:
            monkeypatch.syspath_prepend(site)
        return module

    yield write
    for module in set(sys.modules) - before:
        if getattr(sys.modules[module], "__file__", None) and str(tmp_path) in str(sys.modules[module].__file__):
            del sys.modules[module]


def refusal(ask: Callable[[], object], kind: type[RegistryError] = RegistryError) -> Finding:
    with pytest.raises(kind) as caught:
        ask()
    [finding] = caught.value.findings
    return finding


# --- Names and owners -------------------------------------------------------------------------------------------------


def test_two_distributions_with_one_adapter_name_are_refused_naming_both(install: Install) -> None:
    install("first-adapters", version="1.2", adapters=("yeti",))
    install("second-adapters", version="3.4", adapters=("yeti",))
    finding = refusal(Registry.installed)
    assert finding.code == "registry-conflict"
    assert "yeti" in finding.where
    for origin in ("first-adapters 1.2", "second-adapters 3.4"):
        assert origin in finding.found
    assert "first-adapters" in finding.remedy


def test_two_distributions_with_one_architecture_are_refused_naming_both(install: Install) -> None:
    install("first-adapters", version="1.2", adapters=("one",), architectures={"YetiForCausalLM": "one"})
    install("second-adapters", version="3.4", adapters=("two",), architectures={"YetiForCausalLM": "two"})
    finding = refusal(Registry.installed)
    assert finding.code == "registry-conflict"
    assert "YetiForCausalLM" in finding.where
    for origin in ("first-adapters 1.2", "second-adapters 3.4"):
        assert origin in finding.found


def test_a_fork_that_claims_the_same_adapter_for_the_same_architecture_is_refused(install: Install) -> None:
    install("my-llama", version="9", architectures={"LlamaForCausalLM": "llama"})
    found = refusal(Registry.installed).found
    assert "my-llama 9" in found
    assert "eagle3-adapters-llama" in found


def test_two_distributions_with_one_format_are_refused(install: Install) -> None:
    install("first-formats", formats=("yeti",))
    install("second-formats", formats=("yeti",))
    assert refusal(Registry.installed).code == "registry-conflict"


def test_one_name_may_stand_for_an_adapter_and_a_format(install: Install) -> None:
    install("yeti-everything", adapters=("yeti",), formats=("yeti",))
    registry = Registry.installed()
    assert "yeti" in {registration.name for registration in registry.adapters}
    assert "yeti" in {registration.name for registration in registry.formats}


def test_an_editable_install_beside_its_older_metadata_is_one_distribution(install: Install) -> None:
    for version in ("1.0", "1.1"):
        install(
            "yeti-adapters",
            version=version,
            adapters=("yeti",),
            architectures={"YetiForCausalLM": "yeti"},
            folder=f"site-{version}",
        )
    registry = Registry.installed()
    assert [registration.name for registration in registry.adapters].count("yeti") == 1
    assert registry.owner_of("YetiForCausalLM").distribution == "yeti-adapters"


def test_an_architecture_leads_to_its_adapter_and_back(install: Install) -> None:
    claims = {"YetiForCausalLM": "yeti", "BigfootForCausalLM": "yeti"}
    install("yeti-adapters", version="1.0", adapters=("yeti", "other"), architectures=claims)
    registry = Registry.installed()
    assert registry.owner_of("BigfootForCausalLM").name == "yeti"
    assert registry.owner_of("BigfootForCausalLM").origin == "yeti-adapters 1.0"
    assert registry.architectures_of("yeti") == ("BigfootForCausalLM", "YetiForCausalLM")
    assert registry.architectures_of("other") == ()
    assert registry.adapter("yeti").architectures == ("BigfootForCausalLM", "YetiForCausalLM")


@pytest.mark.parametrize("kind", ["adapter", "format"])
def test_an_unknown_name_lists_the_known_ones(install: Install, kind: str) -> None:
    install("yeti-everything", adapters=("yeti",), formats=("bigfoot",))
    registry = Registry.installed()
    finding = refusal(lambda: getattr(registry, kind)("lama"))
    assert finding.code == f"{kind}-unknown"
    assert "lama" in finding.where
    known = {"adapter": ("llama", "yeti"), "format": ("sglang", "speculators", "bigfoot")}[kind]
    for name in known:
        assert name in finding.expected
    assert {"adapter": "bigfoot", "format": "yeti"}[kind] not in finding.expected


@pytest.mark.parametrize("architecture", sorted(KNOWN_WHEELS))
def test_an_architecture_of_a_wheel_that_is_not_installed_names_the_wheel(architecture: str) -> None:
    finding = refusal(lambda: Registry([]).owner_of(architecture))
    assert finding.code == "target-unsupported"
    assert architecture in finding.where
    assert finding.remedy == f"pip install {KNOWN_WHEELS[architecture]}"


def test_an_architecture_that_nobody_serves_lists_the_known_ones_and_points_to_the_guide() -> None:
    finding = refusal(lambda: Registry.installed().owner_of("YetiForCausalLM"))
    assert finding.code == "target-unsupported"
    assert "LlamaForCausalLM" in finding.expected
    assert "CONTRIBUTING" in finding.remedy


def test_an_architecture_whose_adapter_is_not_installed_is_refused_by_the_adapters_name() -> None:
    claim = Registration(
        group=ARCHITECTURES, name="YetiForCausalLM", value="yeti", distribution="yeti-adapters", version="1.0"
    )
    finding = refusal(lambda: Registry([claim]).owner_of("YetiForCausalLM"))
    assert finding.code == "adapter-unknown"
    assert "yeti" in finding.where


# --- Loading ----------------------------------------------------------------------------------------------------------


def test_only_the_chosen_plugin_is_imported(install: Install) -> None:
    chosen = install("yeti-adapters", adapters=("yeti",), architectures={"YetiForCausalLM": "yeti"})
    other = install("bigfoot-adapters", adapters=("bigfoot",), architectures={"BigfootForCausalLM": "bigfoot"})
    registry = Registry.installed()
    owner = registry.owner_of("YetiForCausalLM")
    assert chosen not in sys.modules
    registry.adapter(owner.name)
    assert chosen in sys.modules
    assert other not in sys.modules


BROKEN = {
    "raises on import": ("raise OSError('no libyeti')", "libyeti"),
    "is not Python": ("def", "SyntaxError"),
    "misspells a hook": (f"{SOUND}\n@hookimpl\ndef capture_layer(target): ...\n", "capture_layer"),
    "misspells an argument": (SOUND.replace("def embed_capture(target)", "def embed_capture(model)"), "model"),
    "lacks embed_capture": (f"from eagle3_adapters import *\n{CAPTURE_LAYERS}", "embed_capture"),
    "lacks capture_layers": (f"from eagle3_adapters import *\n{EMBED_CAPTURE}", "capture_layers"),
    "forgets the marks": (SOUND.replace("@hookimpl", ""), "capture_layers"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_plugin_is_refused_by_origin_and_leaves_the_others_alone(install: Install, fault: str) -> None:
    source, fact = BROKEN[fault]
    module = install("broken-adapters", version="0.7", adapters=("broken",), source=source)
    install("yeti-adapters", adapters=("yeti",))
    registry = Registry.installed()
    finding = refusal(lambda: registry.adapter("broken"), PluginLoadError)
    assert finding.code == "plugin-broken"
    assert "broken-adapters 0.7" in finding.where
    assert module in finding.where
    assert fact in finding.found
    assert registry.adapter("yeti").registration.name == "yeti"


def test_the_cause_of_a_failed_import_is_kept(install: Install) -> None:
    install("broken-adapters", adapters=("broken",), source="raise OSError('no libyeti')")
    with pytest.raises(PluginLoadError) as caught:
        Registry.installed().adapter("broken")
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("source", ["FORMAT = object()", "FORMATS = ()", "import no_such_module_of_yetis"])
def test_a_broken_format_is_refused_by_origin(install: Install, source: str) -> None:
    install("broken-formats", version="0.7", formats=("broken",), source=source)
    registry = Registry.installed()
    finding = refusal(lambda: registry.format("broken"), PluginLoadError)
    assert finding.code == "plugin-broken"
    assert "broken-formats 0.7" in finding.where
    assert registry.format("sglang").name == "sglang"


# --- Who answers ------------------------------------------------------------------------------------------------------


@pytest.fixture
def draft(tmp_path: Path) -> DraftModel:
    """A draft under canonical names with the canonical config."""
    return read_draft(write_draft(tmp_path / "draft", layer_config(draft_vocab_size=DRAFT_VOCAB)))


def test_an_adapter_answers_for_its_own_target_alone(install: Install, tmp_path: Path) -> None:
    install("yeti-adapters", adapters=("yeti",))
    install("bigfoot-adapters", adapters=("bigfoot",), source=SOUND.replace("model.embed_tokens", "wrong"))
    target = read_target(write_target(tmp_path / "target"))
    registry = Registry.installed()
    registry.adapter("bigfoot")
    assert registry.adapter("yeti").embed_capture(target).module == "model.embed_tokens"


def test_an_adapters_own_key_map_wins_over_the_cores(install: Install, draft: DraftModel) -> None:
    own = '@hookimpl\ndef weight_key_map(draft):\n    return KeyMap("yeti", (Rename("fc.weight", "yeti.fc"),))\n'
    install("yeti-adapters", adapters=("yeti",), source=f"{SOUND}\n{own}")
    keys = Registry.installed().adapter("yeti").weight_key_map(draft)
    assert keys.owner == "yeti"
    assert keys.apply("fc.weight") == "yeti.fc"


@pytest.mark.parametrize(
    "own", ["", "@hookimpl\ndef weight_key_map(draft):\n    return None\n"], ids=["absent", "None"]
)
def test_without_an_answer_of_the_adapter_the_core_names_every_tensor(
    install: Install, draft: DraftModel, own: str
) -> None:
    install("yeti-adapters", adapters=("yeti",), source=f"{SOUND}\n{own}")
    keys = Registry.installed().adapter("yeti").weight_key_map(draft)
    assert keys.apply("fc.weight") == "model.fc.weight"
    for name in draft_tensors():
        keys.apply(name)


def test_the_core_reads_the_vocabulary_map(install: Install, draft: DraftModel) -> None:
    install("yeti-adapters", adapters=("yeti",))
    answer = Registry.installed().adapter("yeti").vocab_map(draft)
    assert answer is not None
    assert tuple(answer.target_ids) == TARGET_IDS


def test_a_draft_without_a_map_has_the_targets_vocabulary(install: Install, tmp_path: Path) -> None:
    install("yeti-adapters", adapters=("yeti",))
    tensors = {name: tensor for name, tensor in draft_tensors().items() if name not in ("d2t", "t2d")}
    whole = read_draft(write_draft(tmp_path / "whole", layer_config(), tensors))
    assert Registry.installed().adapter("yeti").vocab_map(whole) is None


@pytest.mark.parametrize(
    ("body", "clue"),
    [
        ("return None", "answered None"),
        ("return 'model'", "answered 'model'"),
        ("raise KeyError('text_config')", "KeyError"),
    ],
)
def test_an_answer_of_another_type_is_the_plugins_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, clue: str
) -> None:
    # Each case a module of its own: Python keeps what it has imported.
    module = f"odd_answers_{len(body)}"
    (tmp_path / f"{module}.py").write_text(
        "from eagle3_adapters import EmbedCapture, hookimpl\n\n"
        f"@hookimpl\ndef capture_layers(target):\n    {body}\n\n"
        "@hookimpl\ndef embed_capture(target):\n    return EmbedCapture(module='m')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registration = Registration(
        group="eagle3_adapters", name="odd", value=module, distribution="odd-wheel", version="3"
    )
    adapter = Registry([registration]).adapter("odd")
    with pytest.raises(PluginLoadError) as caught:
        adapter.capture_layers(read_target(write_target(tmp_path / "target")))
    (finding,) = caught.value.findings
    assert finding.code == "plugin-broken"
    assert "odd-wheel 3" in finding.where
    assert clue in finding.found
    assert "capture_layers" in finding.found
