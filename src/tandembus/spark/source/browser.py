"""Browses messages without taking them: page by page, the next pages under way while one is made use of."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Final, NamedTuple

from tandembus.errors import FragmentUnavailable, NotSupported, Unauthorized
from tandembus.loop_thread import LoopThread
from tandembus.spark.source.link import Link
from tandembus.spark.source.marks import sequence_number_of
from tandembus.spark.source.options import NATIVE, SourceOptions
from tandembus.spark.source.ranges import NUMBER_BITS, NUMBER_MASK, Listed, Range, Slice, full_number, joined

log = logging.getLogger("tandembus.spark")

PAGE_MESSAGES: Final = 2_000
LIMITED: Final = "Limited"
Page = tuple[list[bytes], int | None]
"""Encoded messages, and the number to continue with; None at the end."""
Fetch = Callable[[int], Awaitable[Page]]


class Browser:
    """Reads the messages of slices in a task. A tandembus namespace answers fragment by fragment; any other is asked by
    the peek that every Service Bus has, where sequence numbers of all fragments form one line."""

    def __init__(self, link: Link, loop: LoopThread) -> None:
        self._link: Final = link
        self._loop: Final = loop
        self._is_native: Final = link.options.backend == NATIVE

    def messages(self, part: Slice) -> Iterator[list[bytes]]:
        """Pages of a slice's messages, in order. Messages that somebody else settled meanwhile are missing."""
        if part.fragment is None:
            yield from self._whole(part)
            return
        listed, exact = Listed(part.ranges), frozenset(part.ranges)
        fetch = self.browsed if self._is_native else self.peeked
        for first, last in joined(part.ranges):
            is_exact = (first, last) in exact
            for page in self.pages(fetch(part.entity, part.fragment, last), first):
                yield page if is_exact else [one for one in page if sequence_number_of(one) & NUMBER_MASK in listed]

    def _whole(self, part: Slice) -> Iterator[list[bytes]]:
        """Skips what lies between the range's end in one fragment and its begin in the next."""
        wanted = frozenset(part.fragments)
        (first, last) = part.ranges[0]
        step = self.peeked(part.entity, None, last)

        async def fetch(position: int) -> Page:
            page, following = await step(position)
            return page, None if following is None else _place_in(following, first, last, wanted)

        start = _place_in(full_number(0, first), first, last, wanted)
        if start is not None:
            for page in self.pages(fetch, start):
                yield [one for one in page if _is_wanted(sequence_number_of(one), wanted, part.ranges)]

    def browsed(self, entity: str, fragment: int, last: int) -> Fetch:
        """Positions are numbers within the fragment."""

        async def fetch(first: int) -> Page:
            reservations = await self._link.reservations(entity)
            answer = await reservations.browse(fragment, first, last, PAGE_MESSAGES, self._link.options.page_bytes)
            return answer.messages, answer.next

        return fetch

    def peeked(self, entity: str, fragment: int | None, last: int) -> Fetch:
        """Positions are numbers within the fragment; of a whole entity, full sequence numbers."""

        async def fetch(first: int) -> Page:
            start = first if fragment is None else full_number(fragment, first)
            limit = full_number(start >> NUMBER_BITS, last)
            node = await self._link.management(entity)
            found = await node.peek(start, min(PAGE_MESSAGES, max(limit - start + 1, 1)))
            payloads = [message.payload for message in found]
            if not payloads:
                return [], None
            following = max(start, *map(sequence_number_of, payloads)) + 1
            if fragment is None:
                return payloads, following
            if following > limit:
                return [each for each in payloads if sequence_number_of(each) <= limit], None
            return payloads, following & NUMBER_MASK

        return fetch

    def pages(self, fetch: Fetch, first: int) -> Iterator[list[bytes]]:
        ahead = _PagesAhead(self._link, fetch)
        fetching = self._loop.begin(ahead.run(first))
        try:
            while (found := ahead.ready.get()) is not None:
                self._loop.soon(partial(ahead.take, found))
                yield found.messages
            fetching.result()  # raises what ended it early
        finally:
            fetching.cancel()


def _place_in(position: int, first: int, last: int, fragments: frozenset[int]) -> int | None:
    """The same place, or the next one that lies in a wanted fragment's range."""
    fragment, number = position >> NUMBER_BITS, position & NUMBER_MASK
    if number > last:
        fragment, number = fragment + 1, first
    if fragments and fragment not in fragments:
        later = [each for each in fragments if each > fragment]
        if not later:
            return None
        fragment, number = min(later), first
    return full_number(fragment, max(number, first)) if first <= last else None


def _is_wanted(number: int, fragments: frozenset[int], ranges: Sequence[Range]) -> bool:
    if fragments and number >> NUMBER_BITS not in fragments:
        return False
    return any(first <= number & NUMBER_MASK <= last for first, last in ranges)


class _Fetched(NamedTuple):
    messages: list[bytes]
    size: int


class _PagesAhead:
    """Fetches in the event loop while another thread takes from `ready`. None there is the end, early or not."""

    def __init__(self, link: Link, fetch: Fetch) -> None:
        self.ready: Final[SimpleQueue[_Fetched | None]] = SimpleQueue()
        self._link: Final = link
        self._fetch: Final = fetch
        self._waiting_bytes = 0
        self._has_room: Final = asyncio.Event()

    async def run(self, first: int) -> None:
        at: int | None = first
        try:
            while at is not None:
                messages, at = await self._link.patiently(partial(self._fetch, at))
                size = sum(map(len, messages))
                self._waiting_bytes += size
                self.ready.put(_Fetched(messages, size))
                while self._waiting_bytes >= self._link.options.page_bytes and at is not None:
                    self._has_room.clear()
                    await self._has_room.wait()
        finally:
            self.ready.put(None)

    def take(self, page: _Fetched) -> None:
        """Called in the event loop when a page is taken: it does not wait any more."""
        self._waiting_bytes -= page.size
        self._has_room.set()


async def ends_of(link: Link, entity: str) -> dict[int, int] | None:
    """The last number given out in each of the chosen fragments; None if the service does not report it. Raises
    EntityNotFound."""
    if link.options.backend == NATIVE:
        try:
            return await (await link.reservations(entity)).ends(link.options.fragments)
        except NotSupported:
            pass
    node = await link.management(entity)
    await node.peek(1, 1)  # so that a wrong name is reported before tasks are started
    return None


async def check_is_whole(options: SourceOptions, entity: str) -> None:
    """Ask administration, since a peek silently passes over fragments that are out of reach. Raises
    `FragmentUnavailable` if a part of the entity is out of reach; logs if administration does not answer."""
    from tandembus.client.addresses import subscription_of
    from tandembus.client.administration import Administration

    path = entity.partition("/$")[0]
    subscription = subscription_of(path)
    try:
        async with Administration(options.connection_string(), ca_path=options.ca_path) as namespace:
            asked = namespace.get_entity(path) if subscription is None else namespace.get_subscription(*subscription)
            found = await asked
    except (Unauthorized, OSError) as error:
        log.warning(
            "%s: it is unknown whether all messages are read: a peek passes over parts that are out of reach, and only "
            "administration, with the right Manage, shows whether there are any: %s",
            entity,
            error,
        )
        return
    if found.availability_status == LIMITED:
        raise FragmentUnavailable(f"{entity}: some of its messages are out of reach: read it again when they are back")
