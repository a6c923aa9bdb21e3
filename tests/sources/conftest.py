"""SGLang's sources of every supported version, read once for all tests."""

from __future__ import annotations

import functools

import pytest
from support.engine_wheels import VERSIONS, unpacked

from eagle3_adapters.sglang.sources import Sources


@functools.cache
def _sources(version: str) -> Sources:
    return Sources(unpacked(version))


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def sources(version: str) -> Sources:
    return _sources(version)
