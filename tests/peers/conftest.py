"""The format of the small drafts, installed as a third party's is, and one target with weights for all of them."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from peers.small import write_target

# What the trainers' modules and torch's compiler warn about while they are imported is not this project's to mend.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for module in ("speculators", "specforge.modeling.auto", "specforge.training.model_loading"):
        importlib.import_module(module)


@pytest.fixture(scope="session", autouse=True)
def _universal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A distribution whose entry point names support/universal.py: the commands find it by themselves."""
    installed = tmp_path_factory.mktemp("installed")
    facts = installed / "universal-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: universal\nVersion: 1.0\n", encoding="utf-8")
    (facts / "entry_points.txt").write_text(
        "[eagle3_adapters.formats]\nuniversal = support.universal:FORMAT\n", encoding="utf-8"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(installed))
        yield


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of 8 layers, of whose weights only those exist that a draft's trainer reads."""
    return write_target(tmp_path_factory.mktemp("target"))
