"""The syphon's requests to its ledger."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import pytest

from tandembus.client import ServiceBus
from tandembus.client.reservations import Reservation, Reservations
from tandembus.pairing.client_ports import SharedConnection
from tandembus.spark.jobs.syphon_ledger import QueueLedger
from tests.covers import covers

T = TypeVar("T")


class Node:
    """Answers from the second time on, and has something from the third."""

    def __init__(self) -> None:
        self.requests: list[int] = []

    async def reserve(self, owner: str, epoch: int, request: int, *_: object) -> Reservation:
        self.requests.append(request)
        if len(self.requests) == 1:
            raise ConnectionError
        return Reservation({0: [(1, 5)]} if len(self.requests) > 2 else {})


class Impatient(QueueLedger):
    """Asks once."""

    node = Node()

    async def _ask(self, work: Callable[[Reservations], Awaitable[T]]) -> T:
        return await work(cast(Reservations, self.node))


async def nowhere() -> ServiceBus:
    raise ConnectionError


@covers("D2")
async def test_a_request_keeps_its_number_until_it_is_answered_with_messages() -> None:
    ledger = Impatient(SharedConnection(nowhere), "backlog", 7)
    with pytest.raises(ConnectionError):
        await ledger.reserve(10, None)
    assert (await ledger.reserve(10, None)).ranges == {}
    for _ in range(2):
        assert (await ledger.reserve(10, None)).ranges == {0: [(1, 5)]}
    assert ledger.node.requests == [0, 0, 0, 1]
