"""A front end per test, on a port of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.front_end.http.harness import RunningFrontEnd, running_front_end


@pytest.fixture
async def front_end(tmp_path: Path) -> AsyncIterator[RunningFrontEnd]:
    async with running_front_end(tmp_path) as running:
        yield running
