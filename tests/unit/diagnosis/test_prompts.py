"""Files of prompts, in every shape that is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle3_adapters.diagnosis.prompts import DiagnosisError, chosen, read_prompts, tokenised


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('["a", "b"]', ("a", "b")),
        ("[[1, 2], [3, 4]]", ((1, 2), (3, 4))),
        ('"a"\n"b"\n', ("a", "b")),
        ("[1, 2]\n[3, 4]\n", ((1, 2), (3, 4))),
        ('{"text": "a"}\n\n{"prompt": "b"}', ("a", "b")),
        ('[{"token_ids": [1, 2], "text": "a"}]', ((1, 2),)),
        ('[\n {\n  "token_ids": [1, 2]\n }\n]', ((1, 2),)),
    ],
)
def test_arrays_and_lines_of_text_and_ids(tmp_path: Path, text: str, expected: tuple[object, ...]) -> None:
    file = tmp_path / "prompts"
    file.write_text(text)
    assert read_prompts(file) == expected


@pytest.mark.parametrize("text", ["[1.5]", '[""]', "[[1]]", "[[1, -2]]", '{"words": "a"}', "not json", '["a"'])
def test_anything_else_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prompts"
    file.write_text(text)
    with pytest.raises(DiagnosisError, match="expected"):
        read_prompts(file)


def test_a_seed_draws_the_same_prompts() -> None:
    prompts = tuple(str(k) for k in range(50))
    assert chosen(prompts, 8, 1) == chosen(prompts, 8, 1) != chosen(prompts, 8, 2)
    assert sorted(chosen(prompts, 99, 0)) == sorted(prompts)


def test_a_tokenizer_is_loaded_for_text_alone() -> None:
    assert tokenised([(1, 2)], lambda: pytest.fail("no text, no tokenizer")) == [(1, 2)]
    assert tokenised([(1, 2), "ab"], lambda: lambda text: [ord(one) for one in text]) == [(1, 2), (97, 98)]
    with pytest.raises(DiagnosisError, match="two or more tokens"):
        tokenised(["a"], lambda: lambda text: [1])
