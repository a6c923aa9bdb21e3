"""Key maps, vocabulary maps and column permutations over everything that fits their contracts."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checkpoints import HIDDEN, LAYERS, draft_tensors, sglang_config, write_draft, write_target

from eagle3_adapters.checkpoint import read_draft, read_target
from eagle3_adapters.errors import KeyMapError, UnmappedKeyError, VocabMapError
from eagle3_adapters.formats.sglang import FORMAT
from eagle3_adapters.keymap import Drop, KeyMap, Rename
from eagle3_adapters.planning.plan import plan_wiring
from eagle3_adapters.registry import Adapter, Registry
from eagle3_adapters.sglang.draft import permute_blocks
from eagle3_adapters.values import FormatReading, TargetModel
from eagle3_adapters.vocab import VocabEncoding, VocabMap

# --- Key maps ---------------------------------------------------------------------------------------------------------

Rule = Rename | Drop
HOLES = ("{x}", "{y}")
#: Every number that a literal can name, and one that none does.
NUMBERS = ("0", "1", "12")


def instances(pattern: str) -> set[str]:
    """Names that a pattern takes: two patterns of these alphabets overlap exactly where these sets do."""
    parts = [NUMBERS if part in HOLES else (part,) for part in pattern.split(".")]
    return {".".join(choice) for choice in itertools.product(*parts)}


def matches(pattern: str, name: str) -> bool:
    parts, words = pattern.split("."), name.split(".")
    return len(parts) == len(words) and all(
        word.isascii() and word.isdigit() and str(int(word)) == word if part in HOLES else part == word
        for part, word in zip(parts, words, strict=True)
    )


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    holes = draw(st.sampled_from([(), ("{x}",), ("{x}", "{y}")]))
    words = st.lists(st.sampled_from(["a", "0", "1"]), max_size=2)

    def side() -> str:
        parts = draw(st.permutations([*holes, *draw(words)]))
        return ".".join(parts) or "a"

    source = side()
    return Drop(source, "tested") if draw(st.integers(0, 3)) == 0 else Rename(source, side())


def contradict(left: Rule, right: Rule) -> bool:
    if instances(left.source) & instances(right.source):
        return True
    if isinstance(left, Drop) or isinstance(right, Drop):
        return False
    return bool(instances(left.target) & instances(right.target))


@st.composite
def valid_rules(draw: st.DrawFn) -> tuple[Rule, ...]:
    kept: list[Rule] = []
    for rule in draw(st.lists(rules(), min_size=1, max_size=8)):
        if not any(contradict(rule, other) for other in kept):
            kept.append(rule)
    return tuple(kept)


@st.composite
def likely_overlaps(draw: st.DrawFn) -> tuple[str, str]:
    """Two patterns for one name, each with holes of its own, of which the second may be one word off."""
    name = draw(st.lists(st.sampled_from(["a", "0", "1"]), min_size=1, max_size=4))

    def pattern(words: list[str]) -> str:
        holes = iter(HOLES)
        return ".".join(next(holes, word) if word != "a" and draw(st.booleans()) else word for word in words)

    other = list(name)
    if draw(st.booleans()):
        other[draw(st.integers(0, len(other) - 1))] = draw(st.sampled_from(["a", "0", "1", "12"]))
    return pattern(name), pattern(other)


@settings(max_examples=300)
@given(pair=likely_overlaps())
def test_rules_are_refused_exactly_where_some_name_fits_both(pair: tuple[str, str]) -> None:
    left, right = pair
    chosen = (Drop(left, "tested"), Drop(right, "tested"))
    if instances(left) & instances(right):
        with pytest.raises(KeyMapError):
            KeyMap("tested", chosen)
    else:
        KeyMap("tested", chosen)


@settings(max_examples=300)
@given(pair=likely_overlaps())
def test_rules_are_refused_exactly_where_two_names_get_one_result(pair: tuple[str, str]) -> None:
    left, right = pair
    chosen = (Rename(f"left.{left}", left), Rename(f"right.{right}", right))
    if instances(left) & instances(right):
        with pytest.raises(KeyMapError):
            KeyMap("tested", chosen)
    else:
        KeyMap("tested", chosen)


@given(chosen=valid_rules())
def test_every_renamed_name_comes_back_and_no_two_meet(chosen: tuple[Rule, ...]) -> None:
    keys = KeyMap("tested", chosen)
    back = keys.inverse()
    seen: dict[str, str] = {}
    for rule in chosen:
        for name in instances(rule.source):
            new = keys.apply(name)
            if isinstance(new, Drop):
                assert new is rule
                continue
            assert back.apply(new) == name
            assert seen.setdefault(new, name) == name


@given(
    chosen=valid_rules(),
    name=st.one_of(
        st.text(max_size=8),
        st.lists(st.sampled_from(["a", "b", "0", "1", "7", "01", "-1", "\u0663", "a0", ""]), max_size=4).map(".".join),
    ),
)
def test_a_name_outside_every_rule_is_refused_by_name(chosen: tuple[Rule, ...], name: str) -> None:
    keys = KeyMap("the owner", chosen)
    if any(matches(rule.source, name) for rule in chosen):
        keys.apply(name)
        return
    with pytest.raises(UnmappedKeyError) as caught:
        keys.apply(name)
    assert (caught.value.name, caught.value.owner) == (name, "the owner")
    assert name in str(caught.value)


# --- Vocabulary maps --------------------------------------------------------------------------------------------------


@st.composite
def vocab_maps(draw: st.DrawFn, *, shortest: int = 1, ascending: bool = False) -> VocabMap:
    size = draw(st.integers(shortest, 60))
    ids = draw(st.lists(st.integers(0, size - 1), min_size=shortest, max_size=size, unique=True))
    return VocabMap(sorted(ids) if ascending else ids, size)


both = pytest.mark.parametrize("encoding", [VocabEncoding.OFFSET, VocabEncoding.ABSOLUTE])


@both
@given(vocab=vocab_maps())
def test_offsets_and_ids_hold_every_map(encoding: VocabEncoding, vocab: VocabMap) -> None:
    values = vocab.encode(encoding)
    if encoding is VocabEncoding.OFFSET and not any(values) and len(values) < vocab.target_vocab_size:
        with pytest.raises(VocabMapError) as caught:  # the one map that looks like a tensor never filled
            VocabMap.decode(values, encoding, vocab.target_vocab_size)
        assert caught.value.code == "vocab-map-unfilled"
    else:
        assert VocabMap.decode(values, encoding, vocab.target_vocab_size) == vocab


@given(vocab=vocab_maps())
def test_a_mask_holds_ascending_maps_and_refuses_the_others(vocab: VocabMap) -> None:
    if list(vocab.target_ids) == sorted(vocab.target_ids):
        values = vocab.encode(VocabEncoding.MASK)
        assert VocabMap.decode(values, VocabEncoding.MASK, vocab.target_vocab_size) == vocab
    else:
        with pytest.raises(VocabMapError) as caught:
            vocab.encode(VocabEncoding.MASK)
        assert caught.value.code == "vocab-map-mask"


@given(vocab=vocab_maps(ascending=True))
def test_ascending_maps_survive_the_mask(vocab: VocabMap) -> None:
    values = vocab.encode(VocabEncoding.MASK)
    assert VocabMap.decode(values, VocabEncoding.MASK, vocab.target_vocab_size) == vocab


@both
@given(vocab=vocab_maps(shortest=2), data=st.data())
def test_one_entry_that_repeats_another_is_refused(
    encoding: VocabEncoding, vocab: VocabMap, data: st.DataObject
) -> None:
    values = vocab.encode(encoding)
    victim, other = data.draw(st.permutations(range(len(values))))[:2]
    values[victim] = vocab.target_ids[other] - (victim if encoding is VocabEncoding.OFFSET else 0)
    with pytest.raises(VocabMapError) as caught:
        VocabMap.decode(values, encoding, vocab.target_vocab_size)
    assert caught.value.code == "vocab-map-duplicate"
    assert str(vocab.target_ids[other]) in caught.value.found


@both
@given(vocab=vocab_maps(), data=st.data())
def test_one_entry_outside_the_vocabulary_is_refused(
    encoding: VocabEncoding, vocab: VocabMap, data: st.DataObject
) -> None:
    values = vocab.encode(encoding)
    victim = data.draw(st.integers(0, len(values) - 1))
    stray = data.draw(st.integers(-(2**40), -1) | st.integers(vocab.target_vocab_size, 2**40))
    values[victim] = stray - (victim if encoding is VocabEncoding.OFFSET else 0)
    with pytest.raises(VocabMapError) as caught:
        VocabMap.decode(values, encoding, vocab.target_vocab_size)
    assert caught.value.code == "vocab-map-range"
    assert f"draft token {victim}" in caught.value.found
    assert str(stray) in caught.value.found


@given(vocab=vocab_maps(), data=st.data())
def test_one_flipped_entry_of_the_mask_is_found(vocab: VocabMap, data: st.DataObject) -> None:
    mask = [int(token in set(vocab.target_ids)) for token in range(vocab.target_vocab_size)]
    vocab.check_mask(mask)
    flipped = data.draw(st.integers(0, len(mask) - 1))
    mask[flipped] = 1 - mask[flipped]
    with pytest.raises(VocabMapError) as caught:
        vocab.check_mask(mask)
    assert caught.value.code == "vocab-map-mask"
    assert str(flipped) in caught.value.found


# --- Column permutations ----------------------------------------------------------------------------------------------

Pair = tuple[TargetModel, FormatReading, Adapter]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Pair]:
    """For each number of states: a target and a draft that reads so many."""
    folder: Path = tmp_path_factory.mktemp("pairs")
    target = read_target(write_target(folder / "target"))
    adapter = Registry.installed().adapter("llama")
    drafts = {
        states: write_draft(folder / f"draft-{states}", sglang_config(), draft_tensors(states=states))
        for states in (2, 3, 4)
    }
    return {states: (target, FORMAT.read(read_draft(draft)), adapter) for states, draft in drafts.items()}


#: The boundary of each column block of the trained fc, in the order of the blocks.
listed_boundaries = st.lists(st.integers(0, LAYERS - 1), min_size=2, max_size=4, unique=True).map(tuple)


def planned_order(pair: Pair, listed: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Boundaries and column order of the plan for a draft that was trained with ``listed``."""
    target, reading, adapter = pair
    planning = plan_wiring(target=target, reading=reading, adapter=adapter, engine="0.5.23", boundaries=listed)
    assert planning.plan is not None, planning.findings
    assert planning.plan.boundaries == tuple(sorted(listed))
    routes = {route.source: route.transform for route in planning.plan.routes}
    assert routes["fc.weight"] == ("columns" if planning.plan.permuted else "none")
    return planning.plan.boundaries, planning.plan.column_order


@given(listed=listed_boundaries, data=st.data())
def test_permuted_columns_project_sglangs_order_as_the_trainer_did(
    pairs: dict[int, Pair], listed: tuple[int, ...], data: st.DataObject
) -> None:
    boundaries, order = planned_order(pairs[len(listed)], listed)
    width = 2
    vector = st.lists(st.integers(-9, 9), min_size=width, max_size=width)
    state = {boundary: data.draw(vector) for boundary in listed}
    blocks = [data.draw(vector) for _ in listed]  # one row of fc, block by block

    def project(row: list[list[int]], captured: tuple[int, ...]) -> int:
        weights = itertools.chain.from_iterable(row)
        return sum(w * s for w, s in zip(weights, (s for k in captured for s in state[k]), strict=True))

    served = [blocks[order[p]] for p in range(len(order))]
    assert project(served, boundaries) == project(blocks, listed)


@given(listed=listed_boundaries, seed=st.integers(0, 2**31))
def test_the_loader_permutes_fc_and_its_norm_alike(pairs: dict[int, Pair], listed: tuple[int, ...], seed: int) -> None:
    boundaries, order = planned_order(pairs[len(listed)], listed)
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randint(-9, 10, shape, generator=generator)

    state = {boundary: random(HIDDEN) for boundary in listed}
    fc, norm = random(3, len(listed) * HIDDEN), random(len(listed) * HIDDEN)
    trained = fc @ (norm * torch.cat([state[k] for k in listed]))
    served = permute_blocks(fc, order) @ (permute_blocks(norm, order) * torch.cat([state[k] for k in boundaries]))
    assert torch.equal(served, trained)
