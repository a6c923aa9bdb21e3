"""Owns the vocabulary side of a plan: the map from draft to target tokens, and the draft's own head."""

from __future__ import annotations

from eagle3_adapters.errors import FindingsError, VocabMapError
from eagle3_adapters.registry import Adapter
from eagle3_adapters.report import Report
from eagle3_adapters.values import DraftModel, TargetModel
from eagle3_adapters.vocab import VocabEncoding, VocabMap


def read_map(draft: DraftModel, adapter: Adapter, report: Report) -> VocabMap | None:
    """The draft's map, validated; None where it has none or where a finding says what is wrong with it."""
    try:
        result: VocabMap | None = adapter.ask.vocab_map(draft=draft)
    except FindingsError as error:
        report.extend(error.findings)
        return None
    except VocabMapError as error:
        report.error(
            error.code,
            f"{draft.path}: d2t",
            error.expected,
            error.found,
            why="every proposed token would be another one",
            remedy="export the draft again with its vocabulary map",
        )
        return None
    return result


def head_rows_of(draft: DraftModel, vocabulary: VocabMap | None, target: TargetModel, report: Report) -> int | None:
    """Rows of the draft's own lm_head, None where the target's head is shared."""
    head, declared = draft.tensors.get("lm_head.weight"), draft.config.get("draft_vocab_size")
    carrier = "t2d" if draft.vocab_encoding is VocabEncoding.MASK else "d2t"
    has_map = carrier in draft.tensors
    rows = head.shape[0] if head is not None and head.shape else None
    if draft.config.get("tie_word_embeddings") and declared not in (None, target.vocab_size) and head is None:
        report.error(
            "tied-head",
            f"{draft.config_file}: tie_word_embeddings",
            "false, or an lm_head.weight of its own",
            "true with a reduced vocabulary and no lm_head",
            why="logits would be cut to the first rows of the target's head",
            remedy="export the draft with its lm_head",
        )
    elif draft.config.get("tie_word_embeddings") and head is not None:
        report.info(
            "tied-head",
            f"{draft.config_file}: tie_word_embeddings",
            "false, since lm_head.weight is there",
            "true; set to false",
        )
    if declared is not None and rows is not None and declared != rows:
        report.error(
            "vocab-size",
            f"{draft.config_file}: draft_vocab_size",
            f"{rows}, the rows of lm_head.weight",
            str(declared),
            remedy=f'set "draft_vocab_size": {rows}',
        )
    scored = next(size for size in (rows, declared, target.vocab_size) if size is not None)
    if vocabulary is not None and len(vocabulary.target_ids) != scored:
        report.error(
            "vocab-map-length",
            f"{draft.path}: d2t",
            f"{scored} entries, the rows of the head",
            str(len(vocabulary.target_ids)),
            remedy="export the draft again with its vocabulary map",
        )
    reduced = rows if rows is not None else declared
    if reduced is not None and reduced != target.vocab_size and not has_map:
        report.error(
            "vocab-map-missing",
            f"{draft.path}: d2t",
            f"a map from {reduced} draft tokens into {target.vocab_size}",
            f"no {carrier}",
            why="SGLang would take draft ids for target ids; accept length about 1.0",
            remedy="export the draft with its map; some trainers keep it in a file beside the checkpoint",
        )
    if rows is None and (reduced is None or reduced == target.vocab_size):
        return None
    return rows if rows is not None else reduced
