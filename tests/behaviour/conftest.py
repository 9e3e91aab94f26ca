"""Every test runs on the shapes it asks for, in a loop whose time stands still."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from tandembus.limits import Limits
from tests.behaviour.driver import SMALL, Bus, Queue
from tests.behaviour.shapes import EVERY, Shape
from tests.behaviour.still_loop import StillLoop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"still": StillLoop}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "shape" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("shapes")
        shapes = mark.args if mark is not None else EVERY
        metafunc.parametrize("shape", shapes, ids=[one.name for one in shapes])


@pytest.fixture
def limits() -> Limits:
    """Tests that need others override it by `@pytest.mark.parametrize("limits", ...)`."""
    return SMALL


@pytest.fixture
async def bus(shape: Shape, limits: Limits) -> AsyncIterator[Bus]:
    async with Bus(shape, limits) as bus:
        yield bus


@pytest.fixture
async def queue(bus: Bus) -> Queue:
    """With the settings that a queue has if nobody says otherwise."""
    return await bus.queue()
