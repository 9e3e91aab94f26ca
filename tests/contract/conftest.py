"""Every test of this folder runs against every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tandembus.store.messaging_store import MessagingStore
from tests.contract.stores import FaultyUnderTest, LmdbUnderTest, MemoryUnderTest, StoreUnderTest


@pytest.fixture(params=["memory", "memory behind faults", "lmdb in the loop", "lmdb in a thread"])
def under_test(request: pytest.FixtureRequest, tmp_path: Path) -> StoreUnderTest:
    if request.param == "memory":
        return MemoryUnderTest()
    if request.param == "memory behind faults":
        return FaultyUnderTest()
    return LmdbUnderTest(tmp_path / "store", "loop" if request.param == "lmdb in the loop" else "thread")


@pytest.fixture
async def store(under_test: StoreUnderTest) -> AsyncIterator[MessagingStore]:
    store = under_test.open()
    yield store
    await store.close()
