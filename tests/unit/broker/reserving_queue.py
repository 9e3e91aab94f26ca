"""A queue with its ledger, as tests of reservations use it: numbers instead of ranges, and an owner's next request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tandembus.broker.reservations import Range
from tandembus.interconnect.local_ledger import LocalLedger
from tandembus.store.messaging_store import MAIN
from tests.unit.broker.one_queue import OneQueue

MANY = 1000
MOST_BYTES = 1 << 40
OWNERS = 4
"""More are refused."""


class OwnerAt:
    """One owner at a queue that may have been opened anew since."""

    def __init__(self, queue: OneQueue, name: str = "query", lane: int = MAIN) -> None:
        self.queue = queue
        self.name = name
        self.lane = lane
        self.epoch = -2
        self.request = 0

    @property
    def ledger(self) -> LocalLedger:
        return LocalLedger(self.queue.broker, self.queue.fragment)

    async def open(self) -> OwnerAt:
        self.epoch = await self.ledger.open_owner(self.lane, self.name, None, OWNERS)
        return self

    async def reserve(self, count: int = MANY, max_bytes: int = MOST_BYTES, up_to: int | None = None) -> list[int]:
        self.request += 1
        return await self.reserve_again(count, max_bytes, up_to)

    async def reserve_again(
        self, count: int = MANY, max_bytes: int = MOST_BYTES, up_to: int | None = None
    ) -> list[int]:
        """The same request once more."""
        return spread(
            await self.ledger.reserve(self.lane, self.name, self.epoch, self.request, count, max_bytes, up_to)
        )

    async def reserved(self) -> list[int]:
        return spread(await self.ledger.reserved(self.lane, self.name, self.epoch))

    async def complete(self, numbers: Iterable[int]) -> int:
        return await self.ledger.complete(self.lane, self.name, self.epoch, [(one, one) for one in numbers])

    async def release(self, numbers: Iterable[int]) -> int:
        return await self.ledger.release(self.lane, self.name, self.epoch, [(one, one) for one in numbers])


def spread(ranges: Sequence[Range]) -> list[int]:
    return [number for first, last in ranges for number in range(first, last + 1)]
