"""Every draft that a format can hold survives the way through every other, and what it cannot hold is refused."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.checkpoints import write_target
from support.drafts import HIDDEN, HOLDS, LAYERS, VOCAB, Draft, drafts
from support.plugin_rules import ATTRIBUTES, architecture, registry
from support.universal import FORMAT as UNIVERSAL

from eagle3_adapters import canonical
from eagle3_adapters.boundaries import DEEPSEEK_RULE, GPT_OSS_RULE, OUTPUT_OF_LAYER
from eagle3_adapters.checkpoint import read_draft, read_target, read_tensors
from eagle3_adapters.conversion.content import Beside
from eagle3_adapters.conversion.convert import plan_conversion
from eagle3_adapters.errors import FindingsError, Severity
from eagle3_adapters.formats import Format
from eagle3_adapters.pair import Request, plan_pair
from eagle3_adapters.values import TensorInfo
from eagle3_adapters.wiring import WiringPlan

REGISTRY = registry()
FORMATS: Mapping[str, Format] = {one.name: REGISTRY.format(one.name) for one in REGISTRY.formats}
#: In memory where that can be: a conversion waits for the disk several times.
SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - names come from tempfile
RULES = (OUTPUT_OF_LAYER.name, DEEPSEEK_RULE.name, GPT_OSS_RULE.name)


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Beside]:
    """For each rule of SGLang's classes, a target whose class reads ids by it."""
    found = {}
    for rule in ATTRIBUTES:
        config = {
            "architectures": [architecture(rule)],
            "num_hidden_layers": LAYERS,
            "hidden_size": HIDDEN,
            "vocab_size": VOCAB,
            "rope_theta": 10000.0,
            "max_position_embeddings": 64,
        }
        target = read_target(write_target(tmp_path_factory.mktemp("targets") / rule, config))
        capture = REGISTRY.adapter(rule).capture_layers(target)
        found[rule] = Beside(target=target, target_name=str(target.path), capture=capture)
    return found


def convert(draft: Path, from_: Format, to: Format, beside: Beside, output: Path) -> Path:
    conversion = plan_conversion(from_.read(read_draft(draft)), to, beside, FORMATS.values())
    conversion.write(output, force=False, progress=lambda _: None)
    return output


def can_hold(name: str, draft: Draft, rule: str) -> bool:
    """The table, and what hangs on two things at once."""
    # speculators' layers with normed queries and keys have no biases in the MLP.
    if not HOLDS[name].holds(draft) or (name == "speculators" and draft.qk_norm and draft.mlp_bias):
        return False
    offsets = [target - i for i, target in enumerate(draft.vocabulary or ())]
    if name == "modelopt" and len(offsets) > 1 and len(set(offsets)) == len(offsets) and not min(offsets) < 0:
        # Without a mask such a map could as well hold target ids. Real ones share offsets among neighbours.
        return False
    if name == "sglang" and draft.latent:
        # SGLang's class with latent attention has one layer and no norm over all states.
        return draft.depth == 1 and not draft.math.norm_before_fc
    # Under the DeepSeek rule a list that names boundary 1 alone is shifted.
    return name not in ("sglang", "specforge") or rule != DEEPSEEK_RULE.name or draft.boundaries != (1,)


def tensor_bytes(directory: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (one.dtype, one.shape, _bytes(one)) for name, one in read_tensors(directory).items()}


def _bytes(tensor: TensorInfo) -> bytes:
    with tensor.file.open("rb") as stream:
        stream.seek(tensor.start)
        return stream.read(tensor.stop - tensor.start)


def shards(directory: Path) -> dict[str, str]:
    """Which file holds each tensor, but for the mask, which some formats leave out and others make anew."""
    return {name: one.file.name for name, one in read_tensors(directory).items() if name != "t2d"}


@pytest.mark.parametrize("name", sorted(FORMATS))
@settings(max_examples=50)
@given(draft=drafts(), rule=st.sampled_from(RULES))
def test_a_format_holds_exactly_what_its_trainer_makes(
    targets: dict[str, Beside], name: str, draft: Draft, rule: str
) -> None:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as directory:
        source = draft.write(Path(directory) / "source")
        output = Path(directory) / name
        if can_hold(name, draft, rule):
            convert(source, UNIVERSAL, FORMATS[name], targets[rule], output)
            return
        with pytest.raises(FindingsError) as caught:
            convert(source, UNIVERSAL, FORMATS[name], targets[rule], output)
        stopping = {finding.code for finding in caught.value.findings if finding.severity is Severity.ERROR}
        assert stopping == {"not-representable"}
        assert not output.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), sorted(itertools.product(FORMATS, FORMATS)))
@settings(max_examples=10)
@given(data=st.data(), rule=st.sampled_from(RULES))
def test_there_and_back_is_the_same_draft_bit_for_bit(
    targets: dict[str, Beside], first: str, second: str, data: st.DataObject, rule: str
) -> None:
    a, b, beside = FORMATS[first], FORMATS[second], targets[rule]
    draft = data.draw(drafts(HOLDS[first] & HOLDS[second]))
    assume(can_hold(first, draft, rule) and can_hold(second, draft, rule))
    with tempfile.TemporaryDirectory(dir=SCRATCH) as name:
        directory = Path(name)
        here = convert(draft.write(directory / "source"), UNIVERSAL, a, beside, directory / "a")
        there = convert(here, a, b, beside, directory / "b")
        back = convert(there, b, a, beside, directory / "back")
        assert tensor_bytes(back) == tensor_bytes(here)
        assert shards(back) == shards(here)
        assert canonical_config(back, a, known=about(here)) == canonical_config(here, a)
        assert served(here, a, beside) == served(there, b, beside)


def about(directory: Path) -> set[str]:
    """Fields of a file that say who wrote it."""
    return set(canonical.ABOUT) & set(read_draft(directory).config)


def canonical_config(directory: Path, format_: Format, known: set[str] | None = None) -> dict[str, Any]:
    """What a config says. Of the fields that say who wrote it those that were there before: others may have come."""
    reading = format_.read(read_draft(directory))
    new = set() if known is None else set(canonical.ABOUT) - known
    written = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    return {
        "fields": {key: value for key, value in reading.draft.config.items() if key not in new},
        "math": attrs.asdict(reading.math),
        "ids": [(one.ids, one.convention) for one in reading.id_readings],
        "classes": (written.get("architectures"), written.get("model_type")),
    }


def served(directory: Path, format_: Format, beside: Beside) -> object:
    """What SGLang would be given: the plan without names of files, and every tensor's bytes as they arrive."""
    request = Request(target=str(beside.target_name), draft=str(directory), format=format_.name)
    planning = plan_pair(request, REGISTRY, "0.5.23")
    plan = planning.plan
    if plan is None:
        return sorted({finding.code for finding in planning.errors} - {"format-mismatch"})
    tensors = read_tensors(directory)
    arriving = {
        route.target: _arriving(plan, route.transform, tensors[route.source]) for route in plan.routes if route.target
    }
    if plan.vocab_encoding is not None and not any(arriving["d2t"]):
        del arriving["d2t"]  # zeros where others have no map: SGLang proposes the same tokens
    config = plan.config
    return (plan.draft_class, plan.boundaries, plan.math, plan.draft_vocab_size, config, arriving)


def _arriving(plan: WiringPlan, transform: str, tensor: TensorInfo) -> bytes:
    raw = _bytes(tensor)
    if transform != "columns":
        return raw
    row = len(raw) // (tensor.shape[0] if len(tensor.shape) > 1 else 1)
    block = row // len(plan.column_order)
    return b"".join(
        raw[start + source * block : start + (source + 1) * block]
        for start in range(0, len(raw), row)
        for source in plan.column_order
    )
