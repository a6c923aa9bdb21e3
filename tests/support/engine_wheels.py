"""SGLang's published wheels of every supported version, unpacked below build/. Nothing of them is imported here."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from eagle3_adapters.engine_version import version_numbers
from eagle3_adapters.sglang.compat import FIRST, LAST

#: Beside the tests, so that a fresh clone starts without them.
CACHE = Path(__file__).parents[2] / "build" / "sglang"
#: transformers -> the tokenizers that SGLang pins beside it.
TOKENIZERS = {"5.12.1": "0.22.2", "5.19.0": "0.23.2"}
VERSIONS = tuple(f"0.5.{patch}" for patch in range(FIRST[2], LAST[2] + 1))


def unpacked(version: str) -> Path:
    """The folder of a version: what its wheel holds, downloaded when it is first asked for."""
    folder = CACHE / version
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix=f".{version}.") as temporary:
            wheel = _download(version, Path(temporary))
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(Path(temporary) / "all")
            try:
                # Complete or not there, whoever else unpacks it at the same time.
                (Path(temporary) / "all").rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
    return folder


def _download(version: str, folder: Path) -> Path:
    _pip("download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), f"sglang=={version}")
    return next(folder.glob("sglang-*.whl"))


def ahead(version: str) -> tuple[Path, ...]:
    """What stands before the installed packages where a version is to run: itself, and the transformers that it pins.

    Its other pins give way to what is installed, torch first of all: they are kernels of GPUs, or part of the server.
    """
    folder = unpacked(version)
    metadata = (folder / f"sglang-{version}.dist-info" / "METADATA").read_text(encoding="utf-8")
    pinned = re.search(r"^Requires-Dist: transformers==(\S+)$", metadata, re.MULTILINE)
    assert pinned is not None
    if pinned[1] == importlib.metadata.version("transformers"):
        return (folder,)
    return (folder, _transformers(pinned[1]))


def _transformers(version: str) -> Path:
    folder = CACHE / f"transformers-{version}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=CACHE, prefix=f".{version}.") as temporary:
            wanted = f"transformers=={version}", f"tokenizers=={TOKENIZERS[version]}"
            _pip("install", "--no-deps", "--target", f"{temporary}/all", *wanted)
            (Path(temporary) / "all").rename(folder)
    return folder


def published() -> tuple[str, ...]:
    """Every release of the supported range on the package index, later ones of one number included."""
    listed = re.search(r"Available versions: (.*)", _pip("index", "versions", "sglang"))
    assert listed is not None
    inside = [one for one in listed[1].split(", ") if FIRST <= (version_numbers(one) or (0, 0, 0)) <= LAST]
    return tuple(sorted(inside, key=lambda one: (version_numbers(one) or (), one)))


def _pip(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    if done.returncode:
        raise RuntimeError(f"pip {' '.join(arguments)} ended with {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout
