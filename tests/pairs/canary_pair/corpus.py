"""The text of the Python standard library, a byte-level BPE over it, and the split into training and held-out files."""

from __future__ import annotations

import json
import re
import sysconfig
from pathlib import Path

import attrs
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

VOCAB_SIZE = 1024
END_OF_TEXT = "<|endoftext|>"
END_ID = 0
_LARGEST_FILE = 200_000
_HELD_OUT_EVERY = 16
_SKIPPED = {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "__pycache__", "config"}
_LEAST_CHARACTERS = 1_000_000


@attrs.frozen(eq=False, kw_only=True)
class Corpus:
    """Token streams (int64, one dimension, files separated by END_ID) and the held-out files' text."""

    tokenizer: Tokenizer
    training: Tensor
    held_out: Tensor
    held_out_texts: tuple[str, ...]
    files: int
    characters: int


def load(limit: int | None) -> Corpus:
    """Read the standard library of the running interpreter and train the tokenizer on the training files."""
    texts = _texts(Path(sysconfig.get_paths()["stdlib"]))[:limit]
    characters = sum(map(len, texts))
    if limit is None and characters < _LEAST_CHARACTERS:
        msg = f"corpus: the standard library here holds {characters} characters, expected {_LEAST_CHARACTERS} or more"
        raise ValueError(msg)
    held_out = texts[_HELD_OUT_EVERY // 2 :: _HELD_OUT_EVERY]
    training = [text for index, text in enumerate(texts) if index % _HELD_OUT_EVERY != _HELD_OUT_EVERY // 2]
    tokenizer = _train(training)
    return Corpus(
        tokenizer=tokenizer,
        training=_stream(tokenizer, training),
        held_out=_stream(tokenizer, held_out),
        held_out_texts=tuple(held_out),
        files=len(texts),
        characters=characters,
    )


def windows(stream: Tensor, rows: int, length: int, generator: torch.Generator) -> Tensor:
    """``rows`` random windows [rows, length] of a stream, on the stream's device."""
    starts = torch.randint(0, len(stream) - length, (rows, 1), generator=generator).to(stream.device)
    return stream[starts + torch.arange(length, device=stream.device)]


def candidate_prompts(corpus: Corpus, count: int, lengths: tuple[int, ...], seed: int) -> list[list[int]]:
    """Openings of functions and classes in held-out files, ``lengths`` in turn; their text tokenizes back to them."""
    places = [
        text[match.end() : match.end() + 600]
        for text in corpus.held_out_texts
        for match in re.finditer(r"(?m)^ *(?=(?:def|class|async def) )", text)
    ]
    order = torch.randperm(len(places), generator=torch.Generator().manual_seed(seed)).tolist()
    found: list[list[int]] = []
    for place in order:
        length = lengths[len(found) % len(lengths)]
        ids = corpus.tokenizer.encode(places[place]).ids[:length]
        text = corpus.tokenizer.decode(ids)
        if len(ids) == length and text.isascii() and corpus.tokenizer.encode(text).ids == ids:
            found.append(ids)
        if len(found) == count:
            break
    return found


def save_tokenizer(tokenizer: Tokenizer, folder: Path, max_length: int) -> None:
    """Write tokenizer.json and the tokenizer_config.json that ``AutoTokenizer`` wants."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _texts(root: Path) -> list[str]:
    paths = [path for path in root.rglob("*.py") if not _skipped(path.relative_to(root))]
    paths.sort(key=lambda path: path.relative_to(root).as_posix())
    texts = (path.read_text(encoding="utf-8", errors="ignore")[:_LARGEST_FILE] for path in paths)
    return [text for text in texts if len(text) > 400]


def _skipped(path: Path) -> bool:
    generated = path.name.startswith(("_sysconfigdata", "sitecustomize"))
    return generated or any(part in _SKIPPED or part.startswith("config-") for part in path.parts)


def _train(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(  # type: ignore[no-untyped-call]  # tokenizers ships none
        vocab_size=VOCAB_SIZE,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _stream(tokenizer: Tokenizer, texts: list[str]) -> Tensor:
    ids: list[int] = []
    for encoding in tokenizer.encode_batch(texts):
        ids.extend(encoding.ids)
        ids.append(END_ID)
    return torch.tensor(ids, dtype=torch.int64)
