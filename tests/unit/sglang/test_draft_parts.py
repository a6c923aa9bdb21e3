"""Our parts of a draft class, mixed into stand-ins for SGLang's: what each does by itself, and that all is put back."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch
from support.plans import tiny_plan
from torch import nn

from eagle3_adapters import draft_classes
from eagle3_adapters.sglang import compat
from eagle3_adapters.sglang.drafts import adapted, parts, stock
from eagle3_adapters.values import DraftMath

WIDTH, ROWS = 4, 3
PART = stock.Part(module="stand_in_module", name="Layer", methods=("forward",))


@pytest.fixture
def module() -> Iterator[Any]:
    made = types.ModuleType(PART.module)
    made.Layer = object  # type: ignore[attr-defined]  # a module of our own
    sys.modules[PART.module] = made
    yield made
    del sys.modules[PART.module]


def test_sglang_s_own_part_is_back_whatever_happens(module: Any) -> None:
    with stock.built_with({PART: int}):
        assert module.Layer is int
        assert PART.load() is int
    assert module.Layer is object

    def fail() -> None:
        with stock.built_with({PART: int}):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert module.Layer is object


class StockBody(nn.Module):
    """As SGLang's body: fc where widths differ, then something that doubles; what it saw is kept."""

    def __init__(self, config: Any, quant_config: Any = None, prefix: str = "") -> None:
        super().__init__()
        self.norm_output = True
        self.input_norm: Any = None
        self.fc_norm: Any = None
        self.fc = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(
        self, input_ids: Any, positions: Any, forward_batch: Any, input_embeds: Any, pp_proxy_tensors: Any
    ) -> tuple[Any, list[Any]]:
        seen = forward_batch.spec_info.hidden_states
        return 2 * seen, [2 * seen if self.norm_output else seen]


class Body(parts.Body, StockBody):
    math = DraftMath()


def batch(states: torch.Tensor, *, own: bool) -> SimpleNamespace:
    mode = SimpleNamespace(is_decode_or_idle=lambda: own)
    return SimpleNamespace(forward_mode=mode, spec_info=SimpleNamespace(hidden_states=states))


@pytest.mark.parametrize("own", [False, True])
def test_fc_joins_the_target_s_states_and_never_the_draft_s_own(own: bool) -> None:  # noqa: FBT001 - a parameter
    """Both are as wide as the embedding here: the width cannot tell them apart."""
    body, states = Body(None), torch.randn(ROWS, WIDTH)
    given = batch(states, own=own)
    read, (following,) = body.forward(None, None, given)
    expected = states if own else body.fc(states)
    assert torch.equal(following, expected)
    assert torch.equal(read, 2 * expected)
    assert given.spec_info.hidden_states is states, "the batch is left as it was found"


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("output", [False, True])
def test_the_head_and_the_next_step_read_what_the_math_says(bare: bool, output: bool) -> None:  # noqa: FBT001 - parameters
    facts = {"math": DraftMath(bare_head=bare, norm_output=output)}
    body: Any = type("Body", (parts.Body, StockBody), facts)(None)
    states = torch.randn(ROWS, WIDTH)
    read, (following,) = body.forward(None, None, batch(states, own=True))
    assert torch.equal(read, states if bare else 2 * states)
    assert torch.equal(following, 2 * states if output else states)


class StockDraft:
    """As SGLang's draft: what its setters were given."""

    def __init__(self, config: Any, quant_config: Any = None, prefix: str = "") -> None:
        self.built_with = PART.load()
        self.lm_head = SimpleNamespace(weight="own head")
        self.given: tuple[Any, ...] = ()

    def set_embed(self, embed: Any) -> None:
        self.given = (embed,)

    def set_embed_and_head(self, embed: Any, head: Any) -> None:
        self.given = (embed, head)


def draft(*, keeps: bool) -> Any:
    facts = {"parts": {PART: int}, "keeps_embedding": keeps}
    return type("Draft", (parts.Draft, StockDraft), facts)(None)


def test_a_draft_is_built_of_our_parts(module: Any) -> None:
    assert draft(keeps=False).built_with is int
    assert module.Layer is object


SHARE: dict[str, Callable[[Any], None]] = {
    "embedding": lambda one: one.set_embed("embedding"),
    "embedding and head": lambda one: one.set_embed_and_head("embedding", "head"),
}


@pytest.mark.parametrize("share", SHARE)
def test_a_trained_embedding_stays_and_a_shared_head_comes(module: Any, share: str) -> None:
    kept, shared = draft(keeps=True), draft(keeps=False)
    SHARE[share](kept)
    SHARE[share](shared)
    assert kept.given == ()
    assert kept.lm_head.weight == ("head" if "head" in share else "own head")
    assert shared.given == (("embedding", "head") if "head" in share else ("embedding",))


def test_every_class_of_ours_has_its_parts_and_its_loader() -> None:
    assert set(draft_classes.ADAPTED) == set(stock.PARTS) == set(adapted._SHAPES) == set(compat.DRAFT_LOADERS)
    for architecture, ours in draft_classes.ADAPTED.items():
        theirs = (draft_classes.LLAMA, draft_classes.LATENT)
        (own,) = (one for one in theirs if one.architecture == architecture)
        honoured = {flag for flag, value in attrs.asdict(own.math).items() if value}
        assert honoured < {flag for flag, value in attrs.asdict(ours.math).items() if value}
        assert (ours.layer, ours.switches, ours.prefix) == (own.layer, own.switches, own.prefix)


def test_norms_of_heads_are_built_only_where_the_plan_has_them(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock.Part, "load", lambda part: type(part.name, (), {}))
    plan = attrs.evolve(tiny_plan(tmp_path), draft_class=draft_classes.ADAPTED_LLAMA.name)
    for flag in (False, True):
        made = adapted.adapted_class(attrs.evolve(plan, math=DraftMath(qk_norm=flag)))
        assert made.__name__ == plan.draft_class
        names = {part.name for part in made.parts}
        assert names == {"LlamaModel", "LlamaDecoderLayer"} | ({"LlamaAttention"} if flag else set())
