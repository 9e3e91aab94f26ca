"""A front end per test that does not take its time to refuse, and a browser before it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tandembus.front_end.http.connection import HttpTimings
from tests.unit.front_end.http.api.browser import Browser
from tests.unit.front_end.http.harness import RunningFrontEnd, running_front_end


@pytest.fixture
async def front_end(tmp_path: Path) -> AsyncIterator[RunningFrontEnd]:
    async with running_front_end(tmp_path, timings=HttpTimings(refused_sign_in_s=0.0)) as running:
        yield running


@pytest.fixture
def browser(front_end: RunningFrontEnd) -> Browser:
    return Browser(front_end)
