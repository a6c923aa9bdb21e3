"""Tree building and greedy verification against a tree of Python objects that is grown and walked node by node."""

# ruff: noqa: S311 - seeded random numbers are the point
from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
import torch
from sgl_kernel import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

FULL, DRAFT_TOKENS_ONLY, BITS = 0, 1, 2


@dataclass
class Node:
    """A draft token in a tree that knows its children."""

    candidate: int
    parent: Node | None
    place: int = 0
    children: list[Node] = field(default_factory=list)

    def line(self) -> list[Node]:
        return [self] if self.parent is None else [*self.parent.line(), self]


@dataclass
class Draft:
    """What a draft proposed for one request: the kernel's inputs, and the tree that they stand for."""

    parent_list: list[int]
    selected: list[int]
    root: Node


def draft(rng: random.Random, topk: int, steps: int, n: int) -> Draft:
    """Grow a random tree as EAGLE does: each step expands every survivor topk-fold, and topk of those survive."""
    root = Node(-1, None)
    first = [Node(c, root) for c in range(topk)]
    candidates, survivors, parent_list = list(first), first, [-1, *range(topk)]
    for step in range(1, steps):
        offset = topk + (step - 1) * topk * topk
        grown = [Node(offset + i * topk + j, parent) for i, parent in enumerate(survivors) for j in range(topk)]
        survivors = rng.sample(grown, topk)
        candidates += grown
        parent_list += [node.candidate for node in survivors]
    chosen: list[Node] = []
    while len(chosen) < n - 1:
        chosen.append(
            rng.choice([c for c in candidates if c not in chosen and (c.parent is root or c.parent in chosen)])
        )
    chosen.sort(key=lambda node: node.candidate)
    for place, node in enumerate(chosen, start=1):
        node.place = place
        assert node.parent is not None
        node.parent.children.append(node)
    # SGLang drops the last step's entry: nothing grows from it. A single step leaves no entry at all.
    return Draft(parent_list[: 1 + topk * (steps - 1)] if steps > 1 else [], [c.candidate for c in chosen], root)


def nodes_of(root: Node) -> list[Node]:
    return sorted((node for child in [root] for node in _walk(child)), key=lambda node: node.place)


def _walk(node: Node) -> list[Node]:
    return [node, *(below for child in node.children for below in _walk(child))]


CASES = [
    pytest.param(topk, steps, n, id=f"topk{topk}-steps{steps}-n{n}")
    for topk in (1, 2, 3, 4)
    for steps in (1, 2, 3, 4)
    for n in {2, topk + 1, steps + 1, min(2 * topk + steps, topk + (steps - 1) * topk * topk + 1)}
    if n - 1 <= topk + (steps - 1) * topk * topk
]


class Built:
    """The kernel's outputs for a batch of drafts."""

    def __init__(self, drafts: list[Draft], lengths: list[int], topk: int, steps: int, n: int, mode: int) -> None:
        batch = len(drafts)
        cells = n * n * batch + (n * sum(lengths) if mode == FULL else 0)
        self.mask = torch.ones(cells, dtype=torch.bool)
        self.positions = torch.full((batch * n,), -7)
        self.index, self.child, self.sibling = torch.full((3, batch, n), -1)
        build_tree_kernel_efficient_cpu(
            torch.tensor([d.parent_list for d in drafts], dtype=torch.long).view(batch, -1),
            torch.tensor([d.selected for d in drafts]),
            torch.tensor(lengths),
            self.mask,
            self.positions,
            self.index,
            self.child,
            self.sibling,
            topk,
            steps,
            n,
            mode,
        )


@pytest.mark.parametrize("mode", [FULL, DRAFT_TOKENS_ONLY])
@pytest.mark.parametrize(("topk", "steps", "n"), CASES)
def test_tree_matches_one_built_node_by_node(topk: int, steps: int, n: int, mode: int) -> None:
    rng = random.Random(100 * topk + 10 * steps + n)
    drafts = [draft(rng, topk, steps, n) for _ in range(3)]
    lengths = [rng.randrange(1, 9) for _ in drafts]
    built = Built(drafts, lengths, topk, steps, n, mode)

    positions, children, siblings, mask = [], [], [], []
    for request, length in zip(drafts, lengths, strict=True):
        nodes = nodes_of(request.root)
        assert [node.place for node in nodes] == list(range(n))
        next_of = {a.place: b.place for node in nodes for a, b in zip(node.children, node.children[1:], strict=False)}
        positions += [length + len(node.line()) - 1 for node in nodes]
        children.append([node.children[0].place if node.children else -1 for node in nodes])
        siblings.append([next_of.get(node.place, -1) for node in nodes])
        for node in nodes:
            line = {ancestor.place for ancestor in node.line()}
            mask += [True] * (length if mode == FULL else 0) + [place in line for place in range(n)]

    assert built.positions.tolist() == positions
    assert built.index.tolist() == torch.arange(len(drafts) * n).view(-1, n).tolist()
    assert built.child.tolist() == children
    assert built.sibling.tolist() == siblings
    assert built.mask.tolist() == mask


def test_a_node_without_its_parent_is_reached_by_nobody() -> None:
    """Equal scores may choose a child and not its parent; linked elsewhere, it would be accepted out of context."""
    # topk 2: candidates 0, 1; branches 1 and 2 continue them, so candidates 2, 3 hang under 0 and 4, 5 under 1.
    built = Built([Draft([-1, 0, 1], [0, 4, 5], Node(-1, None))], [5], topk=2, steps=2, n=4, mode=DRAFT_TOKENS_ONLY)
    assert built.child.tolist() == [[1, -1, -1, -1]]
    assert built.sibling.tolist() == [[-1, -1, -1, -1]]
    assert built.mask.view(4, 4).int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]]
    assert built.positions.tolist() == [5, 6, 6, 6]


def test_a_buffer_that_is_longer_than_needed_is_left_alone_behind_the_mask() -> None:
    mask = torch.ones(20, dtype=torch.bool)
    positions, (index, child, sibling) = torch.empty(2, dtype=torch.long), torch.full((3, 1, 2), -1)
    parents = torch.empty(1, 0, dtype=torch.long)
    build_tree_kernel_efficient_cpu(
        parents,
        torch.tensor([[0]]),
        torch.tensor([4]),
        mask,
        positions,
        index,
        child,
        sibling,
        1,
        1,
        2,
        DRAFT_TOKENS_ONLY,
    )
    assert mask.tolist() == [True, False, True, True] + [True] * 16


def test_packed_masks_are_refused() -> None:
    empty = torch.zeros(1, 1, dtype=torch.long)
    with pytest.raises(NotImplementedError, match=r"tree_mask_mode=2"):
        build_tree_kernel_efficient_cpu(empty, empty, empty, empty, empty, empty, empty, empty, 1, 1, 2, BITS)


@pytest.mark.parametrize(("topk", "steps", "n"), CASES)
def test_verification_follows_the_target_through_the_tree(topk: int, steps: int, n: int) -> None:
    rng = random.Random(n + 10 * topk + 100 * steps)
    for _ in range(8):
        drafts = [draft(rng, topk, steps, n) for _ in range(4)]
        built = Built(drafts, [3] * len(drafts), topk, steps, n, DRAFT_TOKENS_ONLY)
        # Few tokens, so that paths are long; siblings differ, as a draft's do.
        tokens = [[rng.randrange(4) for _ in range(n)] for _ in drafts]
        for request, row in zip(drafts, tokens, strict=True):
            for node in nodes_of(request.root):
                for child, token in zip(node.children, rng.sample(range(4), len(node.children)), strict=True):
                    row[child.place] = token
        wanted = [[rng.randrange(4) for _ in range(n)] for _ in drafts]

        predicts = torch.full((len(drafts) * n,), -5, dtype=torch.int32)
        accepted = torch.full((len(drafts), steps + 1), -1, dtype=torch.int32)
        counts = torch.full((len(drafts),), -5, dtype=torch.int32)
        verify_tree_greedy_cpu(
            predicts=predicts,
            accept_index=accepted,
            accept_token_num=counts,
            candidates=torch.tensor(tokens),
            retrive_index=built.index,
            retrive_next_token=built.child,
            retrive_next_sibling=built.sibling,
            target_predict=torch.tensor(wanted),
        )

        for i, request in enumerate(drafts):
            path, node = [0], request.root
            while match := [c for c in node.children if tokens[i][c.place] == wanted[i][node.place]]:
                node = match[0]
                path.append(node.place)
            expected = [i * n + place for place in path]
            assert accepted[i].tolist() == expected + [-1] * (steps + 1 - len(path))
            assert counts[i] == len(path) - 1
            row = predicts[i * n : (i + 1) * n].tolist()
            assert row == [wanted[i][place] if place in path else -5 for place in range(n)]


def test_a_path_ends_where_its_row_ends() -> None:
    """Multi-step drafts may build trees deeper than the engine records; the walk must not write past `accept_index`."""
    links = torch.tensor([[1, 2, -1]])
    accepted, counts = torch.full((1, 2), -1, dtype=torch.int32), torch.empty(1, dtype=torch.int32)
    verify_tree_greedy_cpu(
        torch.zeros(3, dtype=torch.int32),
        accepted,
        counts,
        torch.tensor([[9, 4, 4]]),
        torch.tensor([[0, 1, 2]]),
        links,
        torch.full_like(links, -1),
        torch.full_like(links, 4),
    )
    assert (accepted.tolist(), counts.tolist()) == ([[0, 1]], [1])
