from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.simulation.jumping_loop import JumpingLoop


@pytest.fixture
def loop() -> Iterator[JumpingLoop]:
    loop = JumpingLoop()
    yield loop
    loop.run_until_complete(asyncio.sleep(1.0))  # What goes on in the background ends.
    loop.close()
