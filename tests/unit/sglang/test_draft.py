"""The draft's weights land as planned or loading stops, and its config names the class that serves it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.plans import tiny_plan
from torch import nn
from transformers import LlamaConfig

from eagle3_adapters.embedding import differing_rows
from eagle3_adapters.errors import WiringRefusedError
from eagle3_adapters.sglang import overlay
from eagle3_adapters.sglang.draft import DraftLoader, around_config_draft_model, as_offsets, permute_blocks
from eagle3_adapters.sglang.refuse import check_same_plan
from eagle3_adapters.vocab import VocabEncoding, VocabMap
from eagle3_adapters.wiring import TensorRoute, Unfilled, WiringPlan

WIDTH, HEAD = 4, 5
#: Target ids of the five draft tokens.
TOKENS = (1, 3, 4, 7, 12)
Weights = Iterable[tuple[str, torch.Tensor]]


class LlamaForCausalLMEagle3(nn.Module):
    """A stand-in: SGLang's names, its way with d2t, and its silence about unknown and missing names."""

    def __init__(self) -> None:
        super().__init__()
        self.hot_token_id: torch.Tensor | None = None
        self.received: list[str] = []
        self.model = nn.Module()
        self.model.fc = nn.Linear(3 * WIDTH, WIDTH, bias=False)
        self.model.norm = nn.LayerNorm(WIDTH, bias=False)
        self.model.embed_tokens = nn.Embedding(16, WIDTH)
        self.lm_head = nn.Linear(WIDTH, HEAD, bias=False)

    def load_weights(self, weights: Weights) -> set[str]:
        parameters = dict(self.named_parameters())
        loaded = set()
        for name, tensor in weights:
            self.received.append(name)
            if name == "d2t":
                self.hot_token_id = tensor + torch.arange(len(tensor))
            elif name in parameters:
                parameters[name].data[: len(tensor)].copy_(tensor)
                loaded.add(name)
        return loaded


class SomeOtherDraft(LlamaForCausalLMEagle3):
    """A class that the plan does not name."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> WiringPlan:
    return tiny_plan(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def plan(base: WiringPlan) -> WiringPlan:
    """A small plan whose fc was trained on the boundaries 2, 5, 0 in that order."""
    return attrs.evolve(
        base,
        column_order=(2, 0, 1),
        draft_vocab_size=HEAD,
        target_vocab_size=16,
        vocab_encoding=VocabEncoding.OFFSET,
        routes=(
            TensorRoute(source="fc.weight", canonical="fc.weight", target="model.fc.weight", transform="columns"),
            TensorRoute(source="norm.weight", canonical="norm.weight", target="model.norm.weight"),
            TensorRoute(source="lm_head.weight", canonical="lm_head.weight", target="lm_head.weight"),
            TensorRoute(source="d2t", canonical="d2t", target="d2t", transform="offsets"),
            TensorRoute(source="t2d", canonical="t2d", target=None, reason="d2t says the same"),
        ),
        unfilled=(Unfilled(parameter="model.embed_tokens.weight", reason="shared"),),
    )


def file() -> dict[str, torch.Tensor]:
    """The tensors of the file that the plan was made for."""
    blocks = [torch.full((WIDTH, WIDTH), float(boundary)) for boundary in (2, 5, 0)]
    return {
        "fc.weight": torch.cat(blocks, dim=-1),
        "norm.weight": torch.full((WIDTH,), 3.0),
        "lm_head.weight": torch.randn(HEAD, WIDTH),
        "d2t": torch.tensor([token - i for i, token in enumerate(TOKENS)]),
        "t2d": torch.tensor([i in TOKENS for i in range(16)]),
    }


def load(
    loader: DraftLoader, model: LlamaForCausalLMEagle3, tensors: dict[str, torch.Tensor]
) -> LlamaForCausalLMEagle3:
    loader.around_load_weights(type(model).load_weights, model, iter(tensors.items()))
    return model


def refused(
    plan: WiringPlan, tensors: dict[str, torch.Tensor], model: LlamaForCausalLMEagle3 | None = None
) -> tuple[str, str]:
    """Code and text of the refusal."""
    with pytest.raises(WiringRefusedError) as caught:
        load(DraftLoader(plan), model or LlamaForCausalLMEagle3(), tensors)
    (finding,) = caught.value.findings
    return finding.code, str(finding)


def test_every_tensor_lands_where_its_route_leads(plan: WiringPlan) -> None:
    tensors = file()
    model = load(DraftLoader(plan), LlamaForCausalLMEagle3(), tensors)
    # SGLang concatenates ascending: each block must stand where its boundary does.
    fc = model.model.fc
    assert isinstance(fc, nn.Linear)
    assert fc.weight[0].tolist() == [0.0] * WIDTH + [2.0] * WIDTH + [5.0] * WIDTH
    assert torch.equal(model.lm_head.weight, tensors["lm_head.weight"])
    assert model.hot_token_id is not None
    assert tuple(model.hot_token_id.tolist()) == TOKENS


def test_a_dropped_tensor_is_not_delivered(plan: WiringPlan) -> None:
    model = load(DraftLoader(plan), LlamaForCausalLMEagle3(), file())
    assert model.received == ["model.fc.weight", "model.norm.weight", "lm_head.weight", "d2t"]


def test_what_the_class_returns_is_handed_on(plan: WiringPlan) -> None:
    model = LlamaForCausalLMEagle3()
    result = DraftLoader(plan).around_load_weights(type(model).load_weights, model, file().items())
    assert result == {"model.fc.weight", "model.norm.weight", "lm_head.weight"}


def test_a_tensor_that_the_plan_does_not_know_is_refused(plan: WiringPlan) -> None:
    code, text = refused(plan, file() | {"midlayer.odd.weight": torch.zeros(2, 3)})
    assert code == "weight-unmapped"
    assert "midlayer.odd.weight" in text
    assert "[2, 3]" in text


@pytest.mark.parametrize("name", ["fc.weight", "d2t"])
def test_a_tensor_that_never_arrives_is_refused(plan: WiringPlan, name: str) -> None:
    tensors = file()
    del tensors[name]
    code, text = refused(plan, tensors)
    assert code == "weight-missing"
    assert name in text


def test_a_dropped_tensor_need_not_arrive(plan: WiringPlan) -> None:
    tensors = file()
    del tensors["t2d"]
    assert load(DraftLoader(plan), LlamaForCausalLMEagle3(), tensors).hot_token_id is not None


def test_a_parameter_that_is_filled_in_part_is_refused(plan: WiringPlan) -> None:
    """Finite garbage in the rest would serve in silence: that is why parameters are poisoned first."""
    model = LlamaForCausalLMEagle3()
    model.lm_head.weight.data.fill_(0.25)
    code, text = refused(plan, file() | {"lm_head.weight": torch.ones(HEAD - 1, WIDTH)}, model)
    assert code == "weight-missing"
    assert "lm_head.weight" in text


def test_a_parameter_that_nothing_fills_is_refused_unless_it_is_excused(plan: WiringPlan) -> None:
    code, text = refused(attrs.evolve(plan, unfilled=()), file())
    assert code == "weight-missing"
    assert "model.embed_tokens.weight" in text


def test_a_checkpoint_that_holds_nan_is_refused(plan: WiringPlan) -> None:
    tensors = file()
    tensors["norm.weight"][2] = float("nan")
    code, text = refused(plan, tensors)
    assert code == "weight-missing"
    assert "model.norm.weight" in text


def test_a_later_update_may_bring_a_part_and_leaves_the_rest_alone(plan: WiringPlan) -> None:
    loader, tensors = DraftLoader(plan), file()
    model = load(loader, LlamaForCausalLMEagle3(), tensors)
    load(loader, model, {"fc.weight": tensors["fc.weight"] + 1})
    fc = model.model.fc
    assert isinstance(fc, nn.Linear)
    assert fc.weight[0, ::WIDTH].tolist() == [1.0, 3.0, 6.0]
    assert torch.equal(model.lm_head.weight, tensors["lm_head.weight"])


def test_a_later_update_with_an_unknown_tensor_is_refused_too(plan: WiringPlan) -> None:
    loader = DraftLoader(plan)
    model = load(loader, LlamaForCausalLMEagle3(), file())
    with pytest.raises(WiringRefusedError, match="weight-unmapped"):
        load(loader, model, {"odd": torch.zeros(1)})


def test_a_load_that_failed_does_not_count_as_the_first(plan: WiringPlan) -> None:
    loader, model = DraftLoader(plan), LlamaForCausalLMEagle3()
    with pytest.raises(WiringRefusedError):
        load(loader, model, {"fc.weight": file()["fc.weight"]})
    with pytest.raises(WiringRefusedError):
        load(loader, model, {"fc.weight": file()["fc.weight"]})


def test_each_model_has_a_first_load_of_its_own(plan: WiringPlan) -> None:
    loader = DraftLoader(plan)
    load(loader, LlamaForCausalLMEagle3(), file())
    with pytest.raises(WiringRefusedError, match="weight-missing"):
        load(loader, LlamaForCausalLMEagle3(), {"fc.weight": file()["fc.weight"]})


def test_a_class_that_the_plan_does_not_name_is_left_alone(plan: WiringPlan) -> None:
    """A subclass inherits the hooked loader without being the planned draft."""
    model = SomeOtherDraft()
    before = model.model.embed_tokens
    load(DraftLoader(plan), model, {"anything": torch.zeros(1), "lm_head.weight": torch.ones(HEAD, WIDTH)})
    assert model.received == ["anything", "lm_head.weight"]
    assert isinstance(before, nn.Embedding)
    assert not before.weight.isnan().any()


@pytest.mark.parametrize("length", [HEAD - 1, HEAD + 1])
def test_a_map_of_another_length_than_planned_is_refused(plan: WiringPlan, length: int) -> None:
    code, text = refused(plan, file() | {"d2t": torch.zeros(length, dtype=torch.int64)})
    assert code == "vocab-map-missing"
    assert str(length) in text


def test_a_map_where_none_was_planned_is_refused(plan: WiringPlan) -> None:
    assert refused(attrs.evolve(plan, vocab_encoding=None), file())[0] == "vocab-map-missing"


def test_no_map_is_right_where_none_was_planned(plan: WiringPlan) -> None:
    routes = tuple(route for route in plan.routes if route.source not in ("d2t", "t2d"))
    tensors = {name: tensor for name, tensor in file().items() if name not in ("d2t", "t2d")}
    whole = attrs.evolve(plan, vocab_encoding=None, routes=routes)
    assert load(DraftLoader(whole), LlamaForCausalLMEagle3(), tensors).hot_token_id is None


# Transforms.


@given(st.permutations(range(4)), st.sampled_from([(), (3,)]))
def test_blocks_are_put_where_the_order_says(order: list[int], rows: tuple[int, ...]) -> None:
    """``fc.weight`` has rows, ``input_norm.weight`` has none."""
    tensor = torch.arange(4.0).repeat_interleave(2).expand(*rows, 8)
    assert torch.equal(
        permute_blocks(tensor, tuple(order)), torch.tensor(order).float().repeat_interleave(2).expand(*rows, 8)
    )


ENCODINGS = [*VocabEncoding]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@given(ids=st.lists(st.integers(0, 39), min_size=1, unique=True))
def test_every_encoding_becomes_the_offsets_of_the_map(
    encoding: VocabEncoding, dtype: torch.dtype, ids: list[int]
) -> None:
    # A mask holds ascending maps only.
    mapped = VocabMap(sorted(ids) if encoding is VocabEncoding.MASK else ids, 40)
    stored = torch.tensor(list(mapped.encode(encoding)))
    stored = stored.bool() if encoding is VocabEncoding.MASK else stored.to(dtype)
    found = as_offsets(stored, encoding)
    assert found.dtype == torch.int64
    assert found.tolist() == list(mapped.encode(VocabEncoding.OFFSET))


# The config.


def model_config(plan: WiringPlan, **changes: Any) -> SimpleNamespace:
    """SGLang's ModelConfig of a draft, its config.json being the stored one."""
    hf_config = SimpleNamespace(**json.loads(overlay.translated_config(plan)))
    return SimpleNamespace(**{"hf_config": hf_config, "is_draft_model": True, "model_override_args": {}} | changes)


def architectures(config: SimpleNamespace) -> Any:
    """What the original function sees, and what is left behind it."""
    seen = around_config_draft_model(lambda one: list(one.hf_config.architectures), config)
    assert seen == config.hf_config.architectures
    return seen


def test_the_class_that_serves_the_draft_is_named_before_sglang_looks(base: WiringPlan) -> None:
    assert architectures(model_config(base)) == ["LlamaForCausalLMEagle3"]


@pytest.mark.parametrize(
    "override",
    [
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 7.0}},
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        {"rope_theta": 7.0, "num_hidden_layers": 2, "only_target": 1},
    ],
    ids=["new rope", "old rope", "plain"],
)
@pytest.mark.parametrize(
    "theta", [{"rope_theta": 5e5}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}]
)
def test_overrides_meant_for_the_target_are_taken_back(
    base: WiringPlan, override: dict[str, Any], theta: dict[str, Any]
) -> None:
    """transformers derives rotary settings from each other: a field set back alone would leave another base behind."""
    config = {key: value for key, value in base.config.items() if not key.startswith("rope")} | theta
    plan = attrs.evolve(base, config=config)
    planned = LlamaConfig.from_dict(json.loads(overlay.translated_config(plan)))
    served = LlamaConfig.from_dict(json.loads(overlay.translated_config(plan)))
    text_part = served
    served.update(override)
    architectures(model_config(plan, hf_config=served, model_override_args=override))
    assert served is text_part, "rebuilt in place: SGLang holds it under another name too"
    assert served.rope_parameters == planned.rope_parameters
    assert served.num_hidden_layers == 1
    assert not hasattr(served, "only_target")


def test_no_overrides_at_all_are_no_fault(base: WiringPlan) -> None:
    assert architectures(model_config(base, model_override_args=None)) == ["LlamaForCausalLMEagle3"]


def test_a_target_s_config_is_left_alone(base: WiringPlan) -> None:
    config = model_config(base, is_draft_model=False, model_override_args={"rope_theta": 7.0})
    config.hf_config.rope_theta = 7.0
    assert architectures(config) == [overlay.PRIVATE_ARCHITECTURE]
    assert config.hf_config.rope_theta == 7.0


def test_another_draft_s_config_is_left_alone() -> None:
    hf_config = SimpleNamespace(architectures=["LlamaForCausalLMEagle3"], rope_theta=7.0)
    config = SimpleNamespace(hf_config=hf_config, is_draft_model=True, model_override_args={"rope_theta": 7.0})
    assert architectures(config) == ["LlamaForCausalLMEagle3"]
    assert hf_config.rope_theta == 7.0


def test_the_stand_in_is_named_like_sglang_s_class(base: WiringPlan) -> None:
    """Otherwise the loader would pass everything through and every test above would mean nothing."""
    assert base.draft_class == LlamaForCausalLMEagle3.__name__


# The draft's own embedding, which SGLang replaces by the target's.


class Sharing(nn.Module):
    """A draft class as far as sharing goes: what its two setters were given."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(32, WIDTH)
        self.shared: tuple[torch.Tensor, ...] = ()

    def set_embed(self, embedding: torch.Tensor) -> None:
        self.shared = (embedding,)

    def set_embed_and_head(self, embedding: torch.Tensor, head: torch.Tensor) -> None:
        self.shared = (embedding, head)


@pytest.mark.parametrize("with_head", [False, True])
@pytest.mark.parametrize(("change", "refused"), [(0.0, False), (2.0**-9, False), (0.5, True)])
def test_an_embedding_that_differs_from_the_targets_is_refused_when_it_is_shared(
    plan: WiringPlan,
    change: float,
    refused: bool,  # noqa: FBT001 - a parameter of the table above
    with_head: bool,  # noqa: FBT001 - as above
) -> None:
    own = torch.randn(32, WIDTH)
    target = own.clone()
    target[5] *= 1 + change
    model = Sharing()
    DraftLoader(plan)._compare_when_shared(model, own)
    given = (target, torch.randn(32, WIDTH)) if with_head else (target,)
    share = model.set_embed_and_head if with_head else model.set_embed
    if refused:
        with pytest.raises(WiringRefusedError) as caught:
            share(*given)
        assert "1 of 32 rows" in str(caught.value)
    else:
        share(*given)
        assert model.shared == given
    assert not {"set_embed", "set_embed_and_head"} & set(vars(model)), "the class's own methods are back"


def test_an_embedding_that_the_draft_keeps_is_not_compared(plan: WiringPlan) -> None:
    """A draft of another width than its target keeps its own: SGLang calls the setter all the same."""
    kept = attrs.evolve(
        plan,
        routes=(
            *plan.routes,
            TensorRoute(
                source="embed_tokens.weight", canonical="embed_tokens.weight", target="model.embed_tokens.weight"
            ),
        ),
    )
    loader = DraftLoader(kept)
    list(loader.stream([("embed_tokens.weight", torch.zeros(16, WIDTH))], set()))
    assert loader._own_embedding is None


def test_weights_that_came_by_another_loader_are_refused(plan: WiringPlan) -> None:
    loader, model = DraftLoader(plan), LlamaForCausalLMEagle3()
    with pytest.raises(WiringRefusedError) as caught:
        loader.after_load_model(None, SimpleNamespace(is_draft_worker=True, model=model))
    assert caught.value.findings[0].code == "weight-missing"
    loader.after_load_model(None, SimpleNamespace(is_draft_worker=False, model=model))


def test_rows_are_compared_in_parts_and_counted_over_all_of_them() -> None:
    left = torch.ones(10_000, 2)
    right = left.clone()
    right[[3, 5_000, 9_999]] += 1
    assert differing_rows(left, right) == 3


def test_a_config_of_another_plan_is_refused(base: WiringPlan, plan: WiringPlan) -> None:
    check_same_plan(model_config(base), base)
    with pytest.raises(WiringRefusedError) as caught:
        check_same_plan(model_config(base), plan)
    assert caught.value.findings[0].code == "plan-mismatch"
    check_same_plan(model_config(base, is_draft_model=False), plan)
