"""Owns the one thing that is written for a server: a directory with the translated config.json and the plan.

SGLang reads the config through its own option ``decrypted_draft_config_file``; weights stay where they are. The config
names an architecture that no SGLang knows: a process without this package dies on it instead of miswiring a draft.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import platformdirs

from eagle3_adapters.errors import WiringRefusedError, fault
from eagle3_adapters.wiring import WiringPlan

PRIVATE_ARCHITECTURE = "Eagle3AdaptersDraftNeedsItsPlugin"
#: Key of the translated config under which the truth stands.
KEY = "eagle3_adapters"
CONFIG, PLAN = "config.json", "plan.json"
CACHE_VARIABLE = "EAGLE3_ADAPTERS_CACHE"
#: Tells the child processes where the plan is; set only while a server with an adapter starts.
PLAN_VARIABLE = "EAGLE3_ADAPTERS_PLAN"
VARIABLES = (CACHE_VARIABLE, PLAN_VARIABLE)


def cache_directory() -> Path:
    """``$EAGLE3_ADAPTERS_CACHE``, else the user's cache directory."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named) if named else Path(platformdirs.user_cache_dir("eagle3_adapters")) / "plans"


def is_ours(config: Path) -> bool:
    """Whether a config.json is one that :func:`store` wrote."""
    try:
        return KEY in json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def translated_config(plan: WiringPlan) -> str:
    """config.json as SGLang must read it."""
    marker = {"fingerprint": plan.fingerprint(), "config": plan.config}
    return json.dumps(plan.config | {"architectures": [PRIVATE_ARCHITECTURE], KEY: marker}, indent=1, sort_keys=True)


def store(plan: WiringPlan, cache: Path) -> Path:
    """The directory of a plan, complete or not there: written beside, then renamed. Raises WiringRefusedError."""
    directory = cache / plan.fingerprint()
    contents = {CONFIG: translated_config(plan), PLAN: plan.to_json()}
    try:
        if _holds(directory, contents):
            return directory
        cache.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=cache))
        try:
            for name, text in contents.items():
                with (temporary / name).open("w", encoding="utf-8") as stream:
                    stream.write(text)
                    stream.flush()
                    os.fsync(stream.fileno())
            _put(temporary, directory, contents)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise WiringRefusedError(
            [
                fault(
                    "cache-unwritable",
                    cache,
                    "a directory that can be written",
                    str(error),
                    remedy=f"{CACHE_VARIABLE}=DIR  names another one",
                )
            ]
        ) from error
    return directory


def _put(temporary: Path, directory: Path, contents: dict[str, str]) -> None:
    """Rename into place; a complete entry of another server is never touched: its children may be opening it."""
    try:
        temporary.rename(directory)
    except OSError:
        if _holds(directory, contents):
            return
        # Damaged. Out of the way by a rename, which one of several servers wins.
        with tempfile.TemporaryDirectory(prefix=".damaged.", dir=directory.parent) as aside:
            with contextlib.suppress(FileNotFoundError):
                directory.rename(Path(aside) / directory.name)
            try:
                temporary.rename(directory)
            except OSError:
                if not _holds(directory, contents):
                    raise


def _holds(directory: Path, contents: dict[str, str]) -> bool:
    return all(
        (directory / name).is_file() and (directory / name).read_bytes() == text.encode()
        for name, text in contents.items()
    )
