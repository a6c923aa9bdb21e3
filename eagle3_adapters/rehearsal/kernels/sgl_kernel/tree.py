"""Draft trees: their shape as SGLang's verify step wants it, and the greedy walk that accepts a path through them.

Numbering used here and in SGLang. A tree has n nodes for every request: node 0 is the bonus token (already certain),
nodes 1 … n-1 are the draft tokens that scored best. A *candidate* is any token that the draft proposed, numbered in the
order in which it did so: 0 … k-1 in the first step (k = topk), then k·k in each later step, k from every surviving
branch. Candidate c therefore hangs under branch c // k, and `parent_list` gives, for each branch, the candidate that
the branch continues.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import torch
from torch import Tensor


class MaskMode(IntEnum):
    """Values of SGLang's `TreeMaskMode` (kernels/ops/speculative/spec_tree.py), by which a mask's layout is named."""

    FULL = 0
    DRAFT_TOKENS_ONLY = 1
    BITS = 2


NO_NODE: Final = -1
"""What SGLang fills into links that lead nowhere and into slots of `accept_index` past the accepted path."""

_ORPHAN: Final = -2
"""Parent of a node whose parent lost a tie for the last place; SGLang's kernels never link such a node to the tree."""


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    verified_seq_len: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Write the mask, the positions and the links of every request's tree, in place.

    Called by `build_tree_kernel_efficient_func` in kernels/ops/speculative/spec_tree.py, which passes everything by
    position.

    Args:
        parent_list: int64 [batch, branches]; the candidate that each branch continues. Column 0 stands for node 0 and
            is never read. It may have no columns when the draft makes a single step.
        selected_index: int64 [batch, n-1]; the candidates that became nodes 1 … n-1.
        verified_seq_len: integer [batch]; tokens already in the cache, so the position of node 0.
        tree_mask: bool, flat, written. `DRAFT_TOKENS_ONLY`: [batch · n · n]. `FULL`: for each request n rows of
            seq_len + n columns, of which only the last n are written (the caller fills the others).
        positions: int64 [batch · n], written: the position of each node in its sequence.
        retrive_index: int64 [batch, n], written: the row of each node in the flattened batch.
        retrive_next_token: int64 [batch, n], written: the first child, or -1.
        retrive_next_sibling: int64 [batch, n], written: the next node with the same parent, or -1.
        topk: branches that survive each draft step.
        depth: draft steps; a node further from the root than this does not exist.
        draft_token_num: n.
        tree_mask_mode: a `MaskMode`.

    Raises:
        NotImplementedError: for `MaskMode.BITS`, which SGLang never asks for on the CPU.
    """
    if tree_mask_mode not in (MaskMode.FULL, MaskMode.DRAFT_TOKENS_ONLY):
        message = f"build_tree_kernel_efficient_cpu: tree_mask_mode={tree_mask_mode!r}"
        raise NotImplementedError(message)
    batch, n = selected_index.shape[0], draft_token_num
    parents = _parents(parent_list, selected_index, topk)
    visible = _ancestors(parents, depth)

    positions.copy_((verified_seq_len.unsqueeze(1) + visible.sum(-1) - 1).flatten())
    retrive_index.copy_(torch.arange(batch * n).view(batch, n))
    retrive_next_token.copy_(_first(parents.unsqueeze(1) == torch.arange(n).view(1, n, 1)))
    # A tree's siblings are linked in ascending order, so only nodes above the diagonal can be "next".
    sibling = (parents.unsqueeze(2) == parents.unsqueeze(1)) & (parents >= 0).unsqueeze(2)
    retrive_next_sibling.copy_(_first(sibling.triu(diagonal=1)))

    if tree_mask_mode == MaskMode.DRAFT_TOKENS_ONLY:
        tree_mask[: batch * n * n] = visible.flatten()
        return
    end = 0
    for cells, prefix in zip(visible, verified_seq_len.tolist(), strict=True):
        start, end = end, end + n * (prefix + n)
        tree_mask[start:end].view(n, prefix + n)[:, prefix:] = cells


def _parents(parent_list: Tensor, selected_index: Tensor, topk: int) -> Tensor:
    """Find the parent of each node, int64 [batch, n]; -1 for node 0, `_ORPHAN` where it is not in the tree."""
    branch = selected_index // topk
    if parent_list.shape[1] == 0:
        candidate = torch.full_like(branch, NO_NODE)
    else:
        candidate = parent_list.gather(1, branch.clamp(max=parent_list.shape[1] - 1))
    is_parent = candidate.unsqueeze(2) == selected_index.unsqueeze(1)
    found = torch.where(is_parent.any(-1), is_parent.long().argmax(-1) + 1, _ORPHAN)
    nodes = torch.where(branch == 0, 0, found)
    return torch.cat((torch.full_like(nodes[:, :1], NO_NODE), nodes), dim=1)


def _ancestors(parents: Tensor, depth: int) -> Tensor:
    """Which nodes each node attends to: itself, the nodes on its way up, and always node 0. bool [batch, n, n]."""
    n = parents.shape[1]
    step_up = (parents.unsqueeze(2) == torch.arange(n)).float()
    visible = torch.eye(n).expand(parents.shape[0], n, n)
    for _ in range(depth):
        visible = ((visible + step_up @ visible) > 0).float()
    visible = visible.bool()
    visible[:, :, 0] = True
    return visible


def _first(matches: Tensor) -> Tensor:
    """Index of the first true cell of each row of bool [..., n], or -1. int64 [...]."""
    return torch.where(matches.any(-1), matches.long().argmax(-1), NO_NODE)


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Follow the target's own choice from node 0 for as long as a child carries it, in place.

    Called by `verify_tree_greedy_func` in kernels/ops/speculative/spec_tree.py, by keyword ("retrive" is SGLang's
    spelling).

    Args:
        predicts: int32 [batch · n], written at the rows of accepted nodes only: the target's choice after that node.
        accept_index: int32 [batch, longest path], filled with -1 by the caller, written: the rows of the accepted
            nodes.
        accept_token_num: int32 [batch], written: accepted draft tokens, so without the bonus token.
        candidates: int64 [batch, n]; the token of every node.
        retrive_index: int64 [batch, n]; the row of every node in the flattened batch.
        retrive_next_token: int64 [batch, n]; first child or -1.
        retrive_next_sibling: int64 [batch, n]; next node with the same parent or -1.
        target_predict: int64 [batch, n]; the target's greedy token after every node.
    """
    # Plain lists: a walk over a few dozen integers costs less than the dispatch of one tensor operation per node.
    tokens, rows, choices = candidates.tolist(), retrive_index.tolist(), target_predict.flatten().tolist()
    children, siblings = retrive_next_token.tolist(), retrive_next_sibling.tolist()
    longest = accept_index.shape[1]
    for request in range(len(tokens)):
        node, path = 0, [rows[request][0]]
        while len(path) < longest:
            wanted = choices[path[-1]]
            child = children[request][node]
            while child != NO_NODE and tokens[request][child] != wanted:
                child = siblings[request][child]
            if child == NO_NODE:
                break
            node = child
            path.append(rows[request][child])
        accept_index[request, : len(path)] = torch.tensor(path, dtype=accept_index.dtype)
        accept_token_num[request] = len(path) - 1
        predicts[path] = torch.tensor([choices[row] for row in path], dtype=predicts.dtype)
