"""The reservations of one backlog queue, as the syphon on Spark uses them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from tandembus.client import ReceivedMessage, Receiver
from tandembus.client.reservations import Ranges, Reservation, Reservations
from tandembus.errors import MalformedData
from tandembus.pairing.client_ports import SharedConnection
from tandembus.pairing.payloads import browsed
from tandembus.pairing.syphon_rules import SPARK_OWNER, destination_of
from tandembus.spark.source.decoding import NUMBER_MASK
from tandembus.spark.source.link import is_transient
from tandembus.spark.source.ranges import Listed, joined, ranges_of, without

T = TypeVar("T")
OWNER: Final = SPARK_OWNER
PAGE_MESSAGES: Final = 2_000
PAGE_BYTES: Final = 4 * 1024 * 1024
MAX_BATCH_BYTES: Final = 256 * 1024 * 1024
BURY_WAIT_S: Final = 2.0
BURY_AT_ONCE: Final = 500
MAX_HELD: Final = 20_000
"""Messages of others in hand while those to bury are looked for."""
FIRST_PAUSE_S: Final = 0.1
PATIENCE_S: Final = 25.0
"""In which a namespace may be started again."""


class LeftThere(NamedTuple):
    """What is in a backlog queue in the end, beside what the syphon has reserved."""

    deferred: int = 0
    """By a syphon that is no job: only such a one finds them."""
    in_hands: int = 0
    """Others have them in hand, or had."""


class QueueLedger:
    """One backlog queue. Opens itself when it is used, and anew when its connection was lost."""

    def __init__(self, secondary: SharedConnection, queue: str, epoch: int | None = None) -> None:
        self.queue: Final = queue
        self._secondary: Final = secondary
        self._reservations: Reservations | None = None
        self._epoch = epoch
        self._request = 0
        self.patience_s = PATIENCE_S
        """How long it asks again when there is no answer."""

    @property
    def epoch(self) -> int:
        assert self._epoch is not None
        return self._epoch

    @property
    def is_open(self) -> bool:
        return self._epoch is not None

    async def open(self) -> None:
        """As the only one of this owner from now on: whoever was it before is refused."""
        if self._epoch is None:
            self._epoch = await self._ask(lambda node: node.open_owner(OWNER))

    async def reserved(self) -> Ranges:
        return await self._ask(lambda node: node.reserved(OWNER, self.epoch))

    async def reserve(self, max_messages: int, up_to: Mapping[int, int] | None) -> Reservation:
        """The request keeps its number until it gets something: so a try that is still under way somewhere, and
        reserves messages later, is answered with the next one."""
        reservation = await self._ask(
            lambda node: node.reserve(OWNER, self.epoch, self._request, max_messages, MAX_BATCH_BYTES, up_to)
        )
        if reservation.ranges:
            self._request += 1
        return reservation

    async def ends(self) -> dict[int, int]:
        return await self._ask(lambda node: node.ends())

    async def destinations(self, ranges: Ranges) -> list[tuple[int, int, str]]:
        found: list[tuple[int, int, str]] = []
        for fragment, some in ranges.items():
            listed = Listed(some)
            for first, last in joined(some):
                async for payloads in self.pages(fragment, first, last):
                    found += [(fragment, number, path) for number, path in map(_place_of, payloads) if number in listed]
        return found

    async def left_there(self, up_to: Mapping[int, int]) -> LeftThere:
        """Up to these numbers, by fragment, beside what is reserved."""
        spans: Ranges = {fragment: [(1, last)] for fragment, last in up_to.items() if last}
        deferred = in_hands = 0
        for fragment, some in without(spans, await self.reserved()).items():
            for first, last in some:
                async for payloads in self.pages(fragment, first, last):
                    deferred_here = sum(map(_is_deferred, payloads))
                    deferred += deferred_here
                    in_hands += len(payloads) - deferred_here
        return LeftThere(deferred, in_hands)

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
            ranges = ranges_of(numbers)
            await self._ask(lambda node: node.complete_ranges(OWNER, self.epoch, ranges))

    async def bury(self, numbers: Sequence[int], reason: str, description: str) -> int:
        """Make them dead letters; returns how many are.

        Reserved messages have no lock, and only a locked one can be made a dead letter: so they are given back and
        received. Whoever else receives one meanwhile is a syphon and does the same; whoever dies before leaves a
        message that the next batch finds again.
        """
        await self._ask(lambda node: node.release(OWNER, self.epoch, ranges_of(numbers)))
        left = set(numbers)
        await self._patiently(lambda: self._bury(left, reason, description))
        return len(numbers) - len(left)

    async def release(self) -> int:
        """Give back whatever is still reserved, and how many that was; raises `StaleEpoch` where it is another's."""
        return await self._ask(lambda node: node.release(OWNER, self.epoch))

    async def _bury(self, numbers: set[int], reason: str, description: str) -> None:
        receiver = await (await self._secondary.get()).receiver(self.queue)
        try:
            await _bury(receiver, numbers, reason, description)
        finally:
            await receiver.close()

    async def _ask(self, work: Callable[[Reservations], Awaitable[T]]) -> T:
        """Everything that is asked of a ledger may be repeated."""

        async def ask() -> T:
            return await work(await self._node())

        return await self._patiently(ask)

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Again, with growing pauses, while that may help."""
        pause_s, waited_s = FIRST_PAUSE_S, 0.0
        while True:
            try:
                return await work()
            except Exception as error:
                if not is_transient(error) or waited_s + pause_s > self.patience_s:
                    raise
            await asyncio.sleep(pause_s)
            waited_s += pause_s
            pause_s *= 2

    async def _node(self) -> Reservations:
        if self._reservations is None or self._reservations.is_lost:
            self._reservations = None
            self._reservations = await (await self._secondary.get()).reservations(self.queue)
        return self._reservations


async def _bury(receiver: Receiver, numbers: set[int], reason: str, description: str) -> None:
    """Takes those that are found from `numbers`. Others that come are kept in hand meanwhile, since they would come
    again before those behind them: of a partitioned queue any fragment may answer."""
    others: list[ReceivedMessage] = []
    while numbers and len(others) < MAX_HELD:
        messages = await receiver.receive(max(len(numbers), BURY_AT_ONCE), BURY_WAIT_S)
        if not messages:
            break
        ours = [each for each in messages if each.sequence_number in numbers]
        others += [each for each in messages if each.sequence_number not in numbers]
        if ours:
            await receiver.dead_letter(*ours, reason=reason, description=description)
            numbers -= {each.sequence_number for each in ours}
    if others:
        await receiver.release(*others)


def _is_deferred(payload: bytes) -> bool:
    try:
        return browsed(payload).is_deferred
    except MalformedData:
        return False


def _place_of(payload: bytes) -> tuple[int, str]:
    """Number and destination; 0 for what cannot be read at all."""
    try:
        found = browsed(payload)
    except MalformedData:
        return 0, ""
    return found.sequence_number & NUMBER_MASK, "" if found.path is None else destination_of(found.path)
