"""The reservations of one backlog queue, as the syphon on Spark uses them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, TypeVar

from tandembus.client import Receiver
from tandembus.client.reservations import Ranges, Reservations
from tandembus.errors import MalformedData
from tandembus.pairing.client_ports import SharedConnection
from tandembus.pairing.payloads import browsed
from tandembus.pairing.syphon_rules import destination_of
from tandembus.spark.jobs.number_ranges import ranges_of

T = TypeVar("T")
OWNER: Final = "syphon"
PAGE_MESSAGES: Final = 2_000
PAGE_BYTES: Final = 4 * 1024 * 1024
MAX_BATCH_BYTES: Final = 256 * 1024 * 1024
NUMBER_BITS: Final = 48
NUMBER_MASK: Final = (1 << NUMBER_BITS) - 1
BURY_WAIT_S: Final = 2.0
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 20.0
"""Together some 25 s, in which a namespace may be started again."""
CLOSE: Final = 256
"""Ranges this close to each other are looked at together."""


class QueueLedger:
    """One backlog queue. Opens itself when it is used, and anew when its connection was lost."""

    def __init__(self, secondary: SharedConnection, queue: str, epoch: int | None = None) -> None:
        self.queue: Final = queue
        self._secondary: Final = secondary
        self._reservations: Reservations | None = None
        self._epoch = epoch
        self._request = 0

    @property
    def epoch(self) -> int:
        assert self._epoch is not None
        return self._epoch

    async def open(self) -> None:
        """As the only one of this owner from now on: whoever was it before is refused."""
        if self._epoch is None:
            self._epoch = await self._ask(lambda node: node.open_owner(OWNER))

    async def reserved(self) -> Ranges:
        return await self._ask(lambda node: node.reserved(OWNER, self.epoch))

    async def reserve(self, max_messages: int, up_to: dict[int, int] | None) -> Ranges:
        """The request keeps its number until it is answered: what was reserved for it is then answered, too."""
        reservation = await self._ask(
            lambda node: node.reserve(OWNER, self.epoch, self._request, max_messages, MAX_BATCH_BYTES, up_to)
        )
        self._request += 1
        return reservation.ranges

    async def ends(self) -> dict[int, int]:
        return await self._ask(lambda node: node.ends())

    async def destinations(self, ranges: Ranges) -> list[tuple[int, int, str]]:
        found: list[tuple[int, int, str]] = []
        for fragment, some in ranges.items():
            for first, last in close_together(some):
                async for payloads in self.pages(fragment, first, last):
                    found += [(fragment, number, path) for number, path in map(_place_of, payloads) if number]
        return _listed(found, ranges)

    async def pages(self, fragment: int, first: int, last: int) -> AsyncIterator[list[bytes]]:
        at: int | None = first
        while at is not None:
            messages, at = await self.page(fragment, at, last)
            yield messages

    async def page(self, fragment: int, first: int, last: int) -> tuple[list[bytes], int | None]:
        """Messages from `first` on, and where to go on; None at the end."""
        page = await self._ask(lambda node: node.browse(fragment, first, last, PAGE_MESSAGES, PAGE_BYTES))
        return page.messages, page.next

    async def complete(self, numbers: Sequence[int]) -> None:
        """They are home."""
        if numbers:
            ranges = by_fragment(numbers)
            await self._ask(lambda node: node.complete_ranges(OWNER, self.epoch, ranges))

    async def bury(self, numbers: Sequence[int], reason: str, description: str) -> int:
        """Make them dead letters; returns how many are.

        Reserved messages have no lock, and only a locked one can be made a dead letter: so they are given back and
        received. Whoever else receives one meanwhile is a syphon and does the same; whoever dies before leaves a
        message that the next batch finds again.
        """
        await self._ask(lambda node: node.release(OWNER, self.epoch, by_fragment(numbers)))
        receiver = await (await self._secondary.get()).receiver(self.queue)
        try:
            return await _bury(receiver, set(numbers), reason, description)
        finally:
            await receiver.close()

    async def release_all(self) -> int:
        """Give back whatever is still reserved."""
        return await self._ask(lambda node: node.release(OWNER))

    async def _ask(self, work: Callable[[Reservations], Awaitable[T]]) -> T:
        """Again, with growing pauses, while that may help: everything that is asked of a ledger may be repeated."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await work(await self._node())
            except Exception as error:
                is_transient = isinstance(error, OSError) or getattr(error, "retryable", False)
                if not is_transient or pause_s > LONGEST_PAUSE_S:
                    raise
            await asyncio.sleep(pause_s)
            pause_s *= 2

    async def _node(self) -> Reservations:
        if self._reservations is None or self._reservations.is_lost:
            self._reservations = None
            self._reservations = await (await self._secondary.get()).reservations(self.queue)
        return self._reservations


async def _bury(receiver: Receiver, numbers: set[int], reason: str, description: str) -> int:
    count = len(numbers)
    while numbers:
        messages = await receiver.receive(len(numbers), BURY_WAIT_S)
        ours = [each for each in messages if each.sequence_number in numbers]
        if others := [each for each in messages if each.sequence_number not in numbers]:
            await receiver.release(*others)
        if not ours:
            break
        await receiver.dead_letter(*ours, reason=reason, description=description)
        numbers -= {each.sequence_number for each in ours}
    return count - len(numbers)


def by_fragment(numbers: Sequence[int]) -> Ranges:
    """Full sequence numbers as ranges."""
    return ranges_of([(number >> NUMBER_BITS, number & NUMBER_MASK) for number in numbers])


def close_together(some: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Fewer and wider ranges that cover these."""
    wide: list[tuple[int, int]] = []
    for first, last in some:
        if wide and first - wide[-1][1] <= CLOSE:
            wide[-1] = (wide[-1][0], last)
        else:
            wide.append((first, last))
    return wide


def _place_of(payload: bytes) -> tuple[int, str]:
    """Number and destination; 0 for what cannot be read at all."""
    try:
        found = browsed(payload)
    except MalformedData:
        return 0, ""
    return found.sequence_number & NUMBER_MASK, "" if found.path is None else destination_of(found.path)


def _listed(found: list[tuple[int, int, str]], ranges: Ranges) -> list[tuple[int, int, str]]:
    """Without those that only lie between the ranges."""
    listed: list[tuple[int, int, str]] = []
    at: dict[int, int] = dict.fromkeys(ranges, 0)
    for fragment, number, path in found:
        some = ranges[fragment]
        while at[fragment] < len(some) and some[at[fragment]][1] < number:
            at[fragment] += 1
        if at[fragment] < len(some) and some[at[fragment]][0] <= number:
            listed.append((fragment, number, path))
    return listed
