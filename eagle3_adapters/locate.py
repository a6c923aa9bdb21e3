"""Owns finding a checkpoint by what users type: a directory, or a Hub name resolved as SGLang resolves it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from eagle3_adapters.checkpoint import unreadable
from eagle3_adapters.errors import CheckpointError

#: ``name`` or ``organisation/name``, as the Hub allows them.
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_YES = {"1", "ON", "YES", "TRUE"}


def locate(name: str, revision: str | None = None, *, config_only: bool = False) -> Path:
    """The local directory of a path or Hub name: a directory, else the Hugging Face cache or Hub.

    ``config_only`` fetches no weights. Raises CheckpointError (checkpoint-unreadable) with the Hub's own reason.
    """
    try:
        path = Path(name).expanduser()
    except RuntimeError:  # "~nobody": no such user
        path = Path(name)
    if name and path.is_dir():
        return path
    _refuse_paths(name, path)
    if os.environ.get("SGLANG_USE_MODELSCOPE", "").upper() in _YES:
        raise unreadable(
            name,
            "a directory, where SGLANG_USE_MODELSCOPE is set",
            "a name on ModelScope",
            f"download {name} first and give its directory",
        )
    return _from_hub(name, revision, ["*.json"] if config_only else ["*.json", "*.safetensors"])


def _refuse_paths(name: str, path: Path) -> None:
    """What is neither a directory nor a Hub name."""
    if not name:
        raise unreadable("(empty)", "a directory or a Hub name", "nothing", "check the variable that should hold it")
    if path.is_file():
        raise unreadable(name, "a checkpoint's directory", "a file", f"give its directory: {path.parent}")
    # The parent of a Hub name's look-alike does not exist here.
    if not _HUB_NAME.fullmatch(name) or (path.parent != Path() and path.parent.is_dir()):
        raise unreadable(name, "a directory", "no such directory", "check the path")


def _from_hub(name: str, revision: str | None, patterns: list[str]) -> Path:
    try:
        # Heavy and only for Hub names: huggingface_hub comes with sglang.
        from huggingface_hub import snapshot_download  # noqa: PLC0415
    except ImportError as error:
        expected = "a directory, or huggingface_hub to resolve a Hub name"
        raise unreadable(name, expected, "neither", "pip install huggingface_hub") from error
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in _YES
    try:
        found = snapshot_download(name, revision=revision, allow_patterns=patterns, local_files_only=offline)
    except Exception as error:  # huggingface_hub raises its own, its HTTP client's and OSError's subclasses
        raise _not_on_hub(name, error) from error
    return Path(found)


def _not_on_hub(name: str, error: Exception) -> CheckpointError:
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    return unreadable(
        name,
        "a directory, or a Hub name that is cached or can be reached",
        f"neither: {reason}",
        f"hf download {name}  (on a machine that reaches the Hub), or check the path",
    )
