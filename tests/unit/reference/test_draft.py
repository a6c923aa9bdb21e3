"""The unrolled reference draft against decoding one row at a time, written out naively."""

from __future__ import annotations

import math

import attrs
import pytest
import torch
from torch import Tensor

from eagle3_adapters import canonical
from eagle3_adapters.reference import DraftMath, ReferenceDraft, chain_proposals

HIDDEN, TARGET_HIDDEN, STATES, HEADS, KV_HEADS, HEAD_DIM, VOCAB, DRAFT_VOCAB = 12, 10, 3, 4, 2, 6, 29, 17
EPS, THETA, ROWS, STEPS = 1e-5, 100.0, 7, 4
FLAGS = [attrs.evolve(DraftMath(), **{field.name: True}) for field in attrs.fields(DraftMath)]


def make(math_: DraftMath) -> ReferenceDraft:
    torch.manual_seed(1)
    draft = ReferenceDraft(
        hidden_size=HIDDEN,
        target_hidden_size=TARGET_HIDDEN,
        states=STATES,
        intermediate_size=20,
        num_heads=HEADS,
        num_kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        rms_norm_eps=EPS,
        rope_theta=THETA,
        vocab_size=VOCAB,
        draft_vocab_size=DRAFT_VOCAB,
        math=math_,
    )
    generator = torch.Generator().manual_seed(2)
    for _, parameter in sorted(draft.named_parameters()):
        parameter.data = torch.randn(parameter.shape, generator=generator) * (0.4 if parameter.ndim == 2 else 1.0)
    return draft


@pytest.fixture(scope="module")
def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, tokens, embedding, and a draft vocabulary in no particular order."""
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(2, ROWS, STATES * TARGET_HIDDEN, generator=generator)
    tokens = torch.randint(0, VOCAB, (2, ROWS + STEPS), generator=generator)
    embedding = torch.randn(VOCAB, HIDDEN, generator=generator)
    return features, tokens, embedding, torch.randperm(VOCAB, generator=generator)[:DRAFT_VOCAB]


def rms(vector: Tensor, weight: Tensor) -> Tensor:
    return vector / math.sqrt(float((vector**2).mean()) + EPS) * weight


def linear(layer: dict[str, Tensor], name: str, vector: Tensor) -> Tensor:
    product: Tensor = layer[f"{name}.weight"] @ vector + layer.get(f"{name}.bias", 0.0)
    return product


def rotate(head: Tensor, position: int) -> Tensor:
    turned = head.clone()
    half = HEAD_DIM // 2
    for pair in range(half):
        angle = position / THETA ** (2 * pair / HEAD_DIM)
        turned[pair] = head[pair] * math.cos(angle) - head[pair + half] * math.sin(angle)
        turned[pair + half] = head[pair + half] * math.cos(angle) + head[pair] * math.sin(angle)
    return turned


class CachedDecoder:
    """One sequence, one row at a time, keys and values kept; nothing shared with the reference but its parameters."""

    def __init__(self, draft: ReferenceDraft) -> None:
        self.weights = dict(draft.state_dict())
        self.flags = draft.math
        self.keys: list[list[Tensor]] = [[] for _ in range(HEADS)]
        self.values: list[list[Tensor]] = [[] for _ in range(HEADS)]

    def fork(self) -> CachedDecoder:
        twin = CachedDecoder.__new__(CachedDecoder)
        twin.weights, twin.flags = self.weights, self.flags
        twin.keys, twin.values = [list(head) for head in self.keys], [list(head) for head in self.values]
        return twin

    def first(self, features: Tensor) -> Tensor:
        if self.flags.norm_before_fc:
            features = rms(features, self.weights["input_norm.weight"])
        if self.flags.fc_norm:
            parts = features.chunk(STATES)
            features = torch.cat([rms(part, self.weights[f"fc_norm.{i}.weight"]) for i, part in enumerate(parts)])
        return linear(self.weights, "fc", features)

    def step(self, embedded: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the logits and the hidden state that the next step starts from."""
        layer = {name.removeprefix("layers.0."): value for name, value in self.weights.items()}
        inner = rms(hidden, layer["input_layernorm.weight"]) if self.flags.double_norm else hidden
        normed = rms(inner, layer["hidden_norm.weight"])
        both = torch.cat([rms(embedded, layer["input_layernorm.weight"]), normed])
        position = len(self.keys[0])
        query, key, value = (linear(layer, f"self_attn.{name}_proj", both) for name in "qkv")
        heads = []
        for head in range(HEADS):
            group = head * KV_HEADS // HEADS
            part, shared = slice(head * HEAD_DIM, None), slice(group * HEAD_DIM, None)
            one_key, one_query = key[shared][:HEAD_DIM], query[part][:HEAD_DIM]
            if self.flags.qk_norm:
                one_key = rms(one_key, layer["self_attn.k_norm.weight"])
                one_query = rms(one_query, layer["self_attn.q_norm.weight"])
            self.keys[head].append(rotate(one_key, position))
            self.values[head].append(value[shared][:HEAD_DIM])
            turned = rotate(one_query, position)
            scores = torch.stack([turned @ old for old in self.keys[head]]) / math.sqrt(HEAD_DIM)
            heads.append(scores.softmax(0) @ torch.stack(self.values[head]))
        middle = linear(layer, "self_attn.o_proj", torch.cat(heads))
        middle = middle + (normed if self.flags.norm_before_residual else hidden)
        fed = rms(middle, layer["post_attention_layernorm.weight"])
        gate, up = linear(layer, "mlp.gate_proj", fed), linear(layer, "mlp.up_proj", fed)
        output = middle + linear(layer, "mlp.down_proj", gate * gate.sigmoid() * up)
        final = rms(output, self.weights["norm.weight"])
        read = output if self.flags.bare_head else final
        return self.weights["lm_head.weight"] @ read, final if self.flags.norm_output else output


@torch.no_grad()
def decode(draft: ReferenceDraft, features: Tensor, tokens: Tensor, embedding: Tensor, ids: Tensor | None) -> Tensor:
    """Logits [STEPS, ROWS, draft vocab] of one sequence, as a server with a KV cache computes them."""
    true_rows = CachedDecoder(draft)
    result = torch.empty(STEPS, ROWS, DRAFT_VOCAB)
    for row in range(ROWS):
        result[0, row], hidden = true_rows.step(embedding[tokens[row + 1]], true_rows.first(features[row]))
        guess = true_rows.fork()
        for step in range(1, STEPS):
            token = tokens[row + 1 + step] if ids is None else ids[result[step - 1, row].argmax()]
            result[step, row], hidden = guess.step(embedding[token], hidden)
    return result


@pytest.mark.parametrize("math_", [DraftMath(), *FLAGS], ids=str)
@pytest.mark.parametrize("embeds", ["given tokens", "own tokens"])
def test_the_unroll_equals_cached_decoding(
    math_: DraftMath, embeds: str, inputs: tuple[Tensor, Tensor, Tensor, Tensor]
) -> None:
    features, tokens, embedding, ids = inputs
    draft, mapped = make(math_), ids if embeds == "own tokens" else None
    with torch.no_grad():
        logits = draft(features, tokens, embedding, steps=STEPS, draft_to_target=mapped)
    for row in range(2):
        expected = decode(draft, features[row], tokens[row], embedding, mapped)
        torch.testing.assert_close(logits[:, row], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("math_", FLAGS, ids=str)
def test_every_flag_changes_the_output(math_: DraftMath, inputs: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    features, tokens, embedding, _ = inputs
    plain, flagged = make(DraftMath()), make(math_)
    flagged.load_state_dict(plain.state_dict(), strict=False)
    with torch.no_grad():
        before = plain(features, tokens, embedding, steps=2)
        after = flagged(features, tokens, embedding, steps=2)
    first_affected = 1 if math_.norm_output else 0
    assert not torch.allclose(before[first_affected], after[first_affected], atol=1e-2)
    assert torch.equal(before[:first_affected], after[:first_affected])


def test_parameter_names_are_the_canonical_ones() -> None:
    layer = ["input_layernorm", "hidden_norm", "post_attention_layernorm"]
    layer += [f"self_attn.{name}_proj" for name in "qkvo"] + [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    core = {f"layers.0.{name}.weight" for name in layer} | {"fc.weight", "norm.weight", "lm_head.weight"}
    assert set(make(DraftMath()).state_dict()) == core
    assert set(make(DraftMath(norm_before_fc=True)).state_dict()) == core | {"input_norm.weight"}
    assert set(make(DraftMath(fc_norm=True)).state_dict()) == core | {
        f"fc_norm.{index}.weight" for index in range(STATES)
    }
    for flag, names in canonical.TENSOR_FLAGS.items():
        extra = {name if name.startswith("fc.") else f"layers.0.{name}" for name in names}
        assert set(make(DraftMath(**{flag: True})).state_dict()) == core | extra


def test_a_bypassed_fc_takes_the_state_as_it_is(inputs: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    features, tokens, embedding, _ = inputs
    draft = make(DraftMath())
    with torch.no_grad():
        through = draft(features, tokens, embedding, steps=2)
        bypassed = draft(draft.combine(features), tokens, embedding, steps=2, bypass_fc=True)
    assert torch.equal(through, bypassed)


def test_too_few_tokens_are_refused(inputs: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    features, tokens, embedding, _ = inputs
    with pytest.raises(ValueError, match=f"need {ROWS + 2} columns, found {ROWS + 1}"):
        make(DraftMath())(features, tokens[:, : ROWS + 1], embedding, steps=2)


def test_proposals_look_at_nothing_after_their_row(inputs: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    features, tokens, embedding, ids = inputs
    draft, cut = make(DraftMath()), 4
    shared = {"embedding": embedding, "draft_to_target": ids, "steps": STEPS}
    whole = chain_proposals(draft, features=features, tokens=tokens, **shared)  # type: ignore[arg-type]  # mixed values
    part = chain_proposals(draft, features=features[:, :cut], tokens=tokens[:, : cut + 1], **shared)  # type: ignore[arg-type]  # mixed values
    assert whole.shape == (2, ROWS, STEPS)
    assert torch.equal(whole[:, :cut], part)
    assert set(whole.flatten().tolist()) <= set(ids.tolist())
