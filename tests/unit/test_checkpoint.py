"""Reading checkpoints: each fault with the smallest input that shows it, and a near miss that must be read."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import Array, target_config, write_draft, write_safetensors, write_target

from eagle3_adapters.checkpoint import (
    read_config,
    read_draft,
    read_header,
    read_integers,
    read_target,
    read_tensors,
    weight_files,
)
from eagle3_adapters.errors import CheckpointError, Finding
from eagle3_adapters.locate import locate

ONE = {"a": Array("F32", (2,))}


def refusal(read: Callable[[], object]) -> Finding:
    """The one finding with which a reader refuses."""
    with pytest.raises(CheckpointError) as caught:
        read()
    [finding] = caught.value.findings
    return finding


def write_raw(file: Path, header: object, data: bytes = b"", length: int | None = None) -> Path:
    """A safetensors file whose parts need not fit; ``header`` is bytes as they are or an object for JSON."""
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(encoded) if length is None else length) + encoded + data)
    return file


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def write_index(directory: Path, weight_map: object) -> None:
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


# --- config.json ------------------------------------------------------------------------------------------------------


def test_a_config_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(target_config()).encode())
    assert read_config(tmp_path) == target_config()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"a": 1', id="truncated"),
        pytest.param(b'{"a": "\xff"}', id="not UTF-8"),
        pytest.param(b"[1, 2]", id="a list"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[" * 200_000, id="nested without end"),
    ],
)
def test_a_config_that_is_no_json_object_is_refused_by_its_path(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    finding = refusal(lambda: read_config(tmp_path))
    assert finding.code == "config-unreadable"
    assert str(tmp_path / "config.json") in finding.where


@pytest.mark.parametrize("make", [lambda file: None, Path.mkdir], ids=["absent", "a directory"])
def test_a_config_that_is_no_file_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "config.json")
    assert refusal(lambda: read_config(tmp_path)).code == "config-unreadable"


# --- The target -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["text_config", "language_config", "llm_config", "thinker_config"])
def test_the_text_part_of_a_wrapper_describes_the_target(tmp_path: Path, key: str) -> None:
    text = {"num_hidden_layers": 61, "hidden_size": 7168, "vocab_size": 163840}
    config = {"architectures": ["KimiK25ForConditionalGeneration"], "hidden_size": 1, key: text}
    target = read_target(write_target(tmp_path, config))
    assert (target.num_layers, target.hidden_size, target.vocab_size) == (61, 7168, 163840)
    assert target.text == text
    assert target.config == config
    assert target.architecture == "KimiK25ForConditionalGeneration"


def test_a_nested_config_without_layers_is_not_the_text_part(tmp_path: Path) -> None:
    target = read_target(write_target(tmp_path, target_config(text_config={"hidden_size": 1})))
    assert target.hidden_size == target_config()["hidden_size"]


def test_a_wrapper_may_keep_the_vocabulary_size_outside(tmp_path: Path) -> None:
    config = target_config(vocab_size=99, text_config={"num_hidden_layers": 2, "hidden_size": 8})
    assert read_target(write_target(tmp_path, config)).vocab_size == 99


def test_a_hybrid_target_may_tell_the_kinds_of_its_layers_instead_of_their_number(tmp_path: Path) -> None:
    config = target_config(layers_block_type=["mamba", "moe", "attention", "moe", "mlp"])
    assert read_target(write_target(tmp_path / "both", config)).num_layers == target_config()["num_hidden_layers"]
    del config["num_hidden_layers"]
    assert read_target(write_target(tmp_path / "kinds", config)).num_layers == 5
    finding = refusal(lambda: read_target(write_target(tmp_path / "none", config | {"layers_block_type": []})))
    assert "num_hidden_layers" in finding.where


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "vocab_size"])
def test_a_missing_size_is_refused_by_name_and_never_invented(tmp_path: Path, key: str) -> None:
    config = {name: value for name, value in target_config().items() if name != key}
    finding = refusal(lambda: read_target(write_target(tmp_path, config)))
    assert finding.code == "config-unreadable"
    assert key in finding.where
    assert key in finding.remedy


@pytest.mark.parametrize("value", [None, 0, -1, True, 8.0, "8"])
def test_a_size_that_is_no_positive_integer_is_refused_with_its_value(tmp_path: Path, value: Any) -> None:
    finding = refusal(lambda: read_target(write_target(tmp_path, target_config(num_hidden_layers=value))))
    assert finding.code == "config-unreadable"
    assert json.dumps(value) in finding.found


@pytest.mark.parametrize("value", [None, [], "LlamaForCausalLM", [None]])
def test_a_target_without_a_class_name_is_refused(tmp_path: Path, value: Any) -> None:
    finding = refusal(lambda: read_target(write_target(tmp_path, target_config(architectures=value))))
    assert finding.code == "config-unreadable"
    assert "architectures" in finding.where


# --- Headers ----------------------------------------------------------------------------------------------------------


def test_a_header_gives_each_tensor_its_bytes_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    write_safetensors(file, {"a": Array("F32", (2,)), "d2t": Array("I64", (2,), [3, -4])}, {"format": "pt"})
    tensors = read_header(file)
    assert set(tensors) == {"a", "d2t"}
    assert (tensors["a"].dtype, tensors["a"].shape) == ("F32", (2,))
    assert tensors["d2t"].stop == file.stat().st_size
    assert list(read_integers(tensors["d2t"])) == [3, -4]


GOOD = json.dumps({"a": entry()}).encode()


@pytest.mark.parametrize(
    ("header", "length"),
    [
        pytest.param(b"", None, id="no header"),
        pytest.param(GOOD[:-1], None, id="truncated JSON"),
        pytest.param(GOOD, len(GOOD) + 9, id="header one byte longer than the file"),
        pytest.param(GOOD, 2**63, id="header of 2^63 bytes"),
        pytest.param(GOOD, 2**64 - 1, id="header of 2^64 - 1 bytes"),
        pytest.param(b"\xff\xff", None, id="not UTF-8"),
        pytest.param([], None, id="an empty list"),
        pytest.param([["a", entry()]], None, id="a list of pairs"),
        pytest.param({"a": 1}, None, id="an entry that is no object"),
        pytest.param({"a": {"dtype": "F32", "shape": [2]}}, None, id="no offsets"),
        pytest.param(b'{"a":' + json.dumps(entry()).encode() + b"," + GOOD[1:], None, id="the same name twice"),
        pytest.param({"a": entry(offsets=(0, 4))}, None, id="fewer bytes than the shape"),
        pytest.param({"a": entry(shape=(3,))}, None, id="more elements than bytes"),
        pytest.param({"a": entry(dtype="BF16")}, None, id="bytes of another dtype"),
        pytest.param({"a": entry(shape=(4,), offsets=(0, 16))}, None, id="offsets beyond the file"),
        pytest.param({"a": entry(offsets=(8, 0))}, None, id="offsets backwards"),
        pytest.param({"a": entry(shape=(-2,), offsets=(8, 0))}, None, id="negative shape"),
        pytest.param({"a": entry(shape=(-1, -2))}, None, id="negative shape with a positive product"),
        pytest.param({"a": entry(shape=(2.0,))}, None, id="fractional shape"),
        pytest.param({"a": entry(shape=(True, 2))}, None, id="boolean shape"),
        pytest.param({"a": entry(offsets=(0, 8, 8))}, None, id="three offsets"),
    ],
)
def test_a_damaged_header_is_refused_by_its_file(tmp_path: Path, header: object, length: int | None) -> None:
    file = write_raw(tmp_path / "model.safetensors", header, bytes(8), length)
    finding = refusal(lambda: read_header(file))
    assert finding.code == "checkpoint-unreadable"
    assert finding.where == str(file)
    assert file.name in finding.remedy


@pytest.mark.parametrize(
    ("header", "data"),
    [
        pytest.param({"a": entry()}, 8, id="a tensor that ends with the file"),
        pytest.param({"a": entry(shape=(0, 2), offsets=(0, 0))}, 0, id="an empty tensor"),
        pytest.param({"a": entry(shape=(), offsets=(0, 4))}, 4, id="a scalar"),
        pytest.param({"a": entry(dtype="F4", shape=(4,), offsets=(0, 2))}, 2, id="half a byte for each element"),
        pytest.param(GOOD + b"   ", 8, id="a padded header"),
    ],
)
def test_unusual_but_sound_headers_are_read(tmp_path: Path, header: object, data: int) -> None:
    assert set(read_header(write_raw(tmp_path / "model.safetensors", header, bytes(data)))) == {"a"}


@pytest.mark.parametrize("size", [0, 7, 8])
def test_a_file_shorter_than_any_header_is_refused(tmp_path: Path, size: int) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(bytes(size))
    assert refusal(lambda: read_header(file)).code == "checkpoint-unreadable"


def test_a_truncated_file_is_refused_naming_the_tensor_that_is_cut(tmp_path: Path) -> None:
    file = write_raw(tmp_path / "model.safetensors", {"first": entry(), "cut": entry(offsets=(8, 16))}, bytes(15))
    assert "cut" in refusal(lambda: read_header(file)).found


def bytes_read() -> int:
    """Bytes that this process has read so far, from any file."""
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["rchar"])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts bytes as Linux does")
def test_of_a_large_file_only_the_header_is_read(tmp_path: Path) -> None:
    size = 2 * 1024**3
    file = write_raw(tmp_path / "model.safetensors", {"a": entry(dtype="U8", shape=(size,), offsets=(0, size))})
    with file.open("r+b") as stream:
        stream.truncate(file.stat().st_size + size)  # sparse
    before = bytes_read()
    tensors = read_tensors(tmp_path)
    assert bytes_read() - before < 200_000
    assert tensors["a"].shape == (size,)


# --- Small tensors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["I64", "I32"])
def test_a_vocabulary_map_is_read_in_either_integer_width(tmp_path: Path, dtype: str) -> None:
    file = tmp_path / "model.safetensors"
    write_safetensors(file, {"a": Array("F32", (3,)), "d2t": Array(dtype, (3,), [0, -7, 100_000])})
    assert list(read_integers(read_header(file)["d2t"])) == [0, -7, 100_000]


def test_a_mask_of_bools_is_read(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    write_safetensors(file, {"t2d": Array("BOOL", (3,), [1, 0, 1])})
    assert list(read_integers(read_header(file)["t2d"])) == [1, 0, 1]


def test_a_vocabulary_map_of_floats_is_refused_by_name_and_dtype(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", {"d2t": Array("F32", (3,))})
    finding = refusal(lambda: read_integers(read_tensors(tmp_path)["d2t"]))
    assert finding.code == "checkpoint-unreadable"
    assert "d2t" in finding.where
    assert "F32" in finding.found


# --- Which files ------------------------------------------------------------------------------------------------------


def test_an_index_decides_which_files_are_read(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "new.safetensors", ONE)
    write_safetensors(tmp_path / "stale.safetensors", ONE)
    write_index(tmp_path, {"a": "new.safetensors"})
    assert read_tensors(tmp_path)["a"].file.name == "new.safetensors"


def test_without_an_index_two_files_with_one_tensor_are_refused_naming_both(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", ONE)
    write_safetensors(tmp_path / "model-00001.safetensors", ONE)
    finding = refusal(lambda: read_tensors(tmp_path))
    assert finding.code == "weight-collision"
    assert "model.safetensors" in finding.found
    assert "model-00001.safetensors" in finding.found


def test_without_an_index_the_tensors_of_all_files_are_read(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", ONE)
    write_safetensors(tmp_path / "extra.safetensors", {"b": Array("F32", (1,))})
    assert set(read_tensors(tmp_path)) == {"a", "b"}


def test_a_shard_that_only_the_index_knows_is_missing(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "one.safetensors", ONE)
    write_index(tmp_path, {"a": "one.safetensors", "b": "two.safetensors"})
    finding = refusal(lambda: weight_files(tmp_path))
    assert finding.code == "shard-missing"
    assert "two.safetensors" in finding.expected
    assert "index" in finding.where


@pytest.mark.parametrize("name", ["../other/model.safetensors", "sub/model.safetensors", "/etc/passwd", "..", ".", ""])
def test_an_index_that_names_a_path_is_refused(tmp_path: Path, name: str) -> None:
    for folder in ("other", "draft/sub"):
        (tmp_path / folder).mkdir(parents=True)
        write_safetensors(tmp_path / folder / "model.safetensors", ONE)
    write_index(tmp_path / "draft", {"a": name})
    assert refusal(lambda: weight_files(tmp_path / "draft")).code == "shard-escape"


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "{}", '{"weight_map": null}', '{"weight_map": {"a": []}}', '{"weight_map": {"a": 1, "b": ""}}'],
)
def test_a_damaged_index_is_refused_by_its_path(tmp_path: Path, content: str) -> None:
    write_safetensors(tmp_path / "model.safetensors", ONE)
    (tmp_path / "model.safetensors.index.json").write_text(content)
    finding = refusal(lambda: weight_files(tmp_path))
    assert finding.code == "checkpoint-unreadable"
    assert "model.safetensors.index.json" in finding.where


def test_a_link_out_of_the_checkpoint_is_refused_with_where_it_leads(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "elsewhere.safetensors", ONE)
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "model.safetensors").symlink_to(tmp_path / "elsewhere.safetensors")
    finding = refusal(lambda: weight_files(tmp_path / "draft"))
    assert finding.code == "shard-escape"
    assert str(tmp_path / "elsewhere.safetensors") in finding.found


def test_a_link_within_the_checkpoint_and_a_link_to_it_are_followed(tmp_path: Path) -> None:
    (tmp_path / "draft").mkdir()
    write_safetensors(tmp_path / "draft" / "weights.data", ONE)
    (tmp_path / "draft" / "model.safetensors").symlink_to("weights.data")
    (tmp_path / "latest").symlink_to("draft")
    assert set(read_tensors(tmp_path / "latest")) == {"a"}


def test_a_link_to_itself_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("model.safetensors")
    assert refusal(lambda: read_tensors(tmp_path)).code in {"shard-escape", "shard-missing", "checkpoint-unreadable"}


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth"])
def test_pickles_alone_are_refused_by_name_and_never_opened(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not even a pickle")
    finding = refusal(lambda: read_tensors(tmp_path))
    assert finding.code == "pickle-refused"
    assert name in finding.found


def test_pickles_beside_safetensors_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    write_safetensors(tmp_path / "model.safetensors", ONE)
    assert set(read_tensors(tmp_path)) == {"a"}


def test_a_directory_without_weights_is_refused(tmp_path: Path) -> None:
    finding = refusal(lambda: read_tensors(tmp_path))
    assert finding.code == "checkpoint-unreadable"
    assert finding.where == str(tmp_path)


# --- Hub names --------------------------------------------------------------------------------------------------------


def hub_repository(cache: Path, name: str, commit: str, *, ref: str = "main") -> Path:
    """A snapshot as huggingface_hub lays it out: links into the repository's own blobs. Returns it."""
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit
    written = write_draft(cache / f"written-{commit}")
    (repository / "blobs").mkdir(parents=True, exist_ok=True)
    (repository / "refs").mkdir(exist_ok=True)
    snapshot.mkdir(parents=True)
    (repository / "refs" / ref).write_text(commit)
    for file in written.iterdir():
        blob = f"{commit}-{file.name}".encode().hex()
        file.rename(repository / "blobs" / blob)
        (snapshot / file.name).symlink_to(Path("..", "..", "blobs", blob))
    written.rmdir()
    return snapshot


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hub cache, offline."""
    constants = pytest.importorskip("huggingface_hub.constants")
    cache = tmp_path / "hub"
    cache.mkdir()
    # huggingface_hub read its variables when it was imported; a caller's own setting counts at each call.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return cache


def test_a_hub_name_is_found_in_the_cache_and_read_through_its_links(hub_cache: Path) -> None:
    snapshot = hub_repository(hub_cache, "org/draft", "a" * 40)
    assert locate("org/draft") == snapshot
    draft = read_draft(locate("org/draft"))
    assert "fc.weight" in draft.tensors
    assert draft.path == snapshot


def test_a_revision_selects_its_snapshot(hub_cache: Path) -> None:
    hub_repository(hub_cache, "org/draft", "a" * 40)
    older = hub_repository(hub_cache, "org/draft", "b" * 40, ref="v1")
    assert locate("org/draft", "v1") == older
    assert locate("org/draft", "b" * 40) == older


def test_a_link_into_another_repositorys_blobs_is_refused(hub_cache: Path) -> None:
    snapshot = hub_repository(hub_cache, "org/draft", "a" * 40)
    other = hub_repository(hub_cache, "org/other", "b" * 40)
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to((other / "model.safetensors").resolve())
    assert refusal(lambda: read_draft(snapshot)).code == "shard-escape"


def test_a_blob_that_was_never_downloaded_is_a_finding(hub_cache: Path) -> None:
    snapshot = hub_repository(hub_cache, "org/draft", "a" * 40)
    (snapshot / "model.safetensors").resolve().unlink()
    finding = refusal(lambda: read_draft(snapshot))
    assert finding.code == "checkpoint-unreadable"
    assert "model.safetensors" in finding.where


@pytest.mark.parametrize("name", ["org/absent", "/no/such/directory", "not a name", "~nobody-here/draft"])
def test_a_name_that_is_nowhere_is_a_finding_of_one_line_that_names_it(hub_cache: Path, name: str) -> None:
    finding = refusal(lambda: locate(name))
    assert finding.code == "checkpoint-unreadable"
    assert finding.where == name
    assert "\n" not in finding.found


def test_a_directory_wins_over_a_hub_name(hub_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_repository(hub_cache, "org/draft", "a" * 40)
    monkeypatch.chdir(tmp_path)
    write_draft(tmp_path / "org" / "draft")
    assert locate("org/draft").resolve() == tmp_path / "org" / "draft"


def test_a_hub_name_without_huggingface_hub_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    finding = refusal(lambda: locate("org/draft"))
    assert finding.code == "checkpoint-unreadable"
    assert "huggingface_hub" in finding.remedy
