"""A namespace without sockets, and a client of transactions, for the tests of this folder that ask for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.front_end.amqp.transacting import POLICIES, SMALL, Server, TransactionClient
from tests.unit.namespace.namespace_lives import Machine


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with Machine(SMALL).life() as life:
        yield Server(life, tmp_path, *POLICIES)


@pytest.fixture
async def client(server: Server) -> TransactionClient:
    """With the queues `orders` and `bills`."""
    return await server.client("root", "orders", "bills")
