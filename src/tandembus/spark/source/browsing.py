"""Reads the messages of slices without taking them: page by page, the next ones under way while one is made use of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, Protocol

from tandembus.loop_thread import LoopThread
from tandembus.spark.source.decoding import NUMBER_BITS, NUMBER_MASK
from tandembus.spark.source.link import Link
from tandembus.spark.source.marks import sequence_number_of
from tandembus.spark.source.pages import Fetch, Page, PagesAhead, share_of
from tandembus.spark.source.ranges import Listed, Range, Slice, full_number, joined

PAGE_MESSAGES: Final = 2_000


class Browser(Protocol):
    """How a backend looks at a range of one fragment, or at a whole entity."""

    def fetch(self, entity: str, fragment: int | None, last: int) -> Fetch: ...


class PlainBrowser:
    """With the peek that every Service Bus has. Sequence numbers of all fragments form one line there."""

    def __init__(self, link: Link) -> None:
        self._link: Final = link

    def fetch(self, entity: str, fragment: int | None, last: int) -> Fetch:
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


def messages_of(link: Link, loop: LoopThread, browser: Browser, part: Slice) -> Iterator[list[bytes]]:
    """Pages of a slice's messages, in order. What is not there any more is missing: somebody else settled it."""
    if part.fragment is None:
        yield from _whole(link, loop, browser, part)
        return
    listed, exact = Listed(part.ranges), frozenset(part.ranges)
    for first, last in joined(part.ranges):
        is_exact = (first, last) in exact
        for page in _pages(link, loop, browser.fetch(part.entity, part.fragment, last), first):
            yield page if is_exact else [one for one in page if sequence_number_of(one) & NUMBER_MASK in listed]


def _whole(link: Link, loop: LoopThread, browser: Browser, part: Slice) -> Iterator[list[bytes]]:
    """What lies between the range's end in one fragment and its begin in the next is passed over."""
    wanted = frozenset(part.fragments)
    (first, last) = part.ranges[0]
    step = browser.fetch(part.entity, None, last)

    async def fetch(position: int) -> Page:
        page, following = await step(position)
        return page, None if following is None else _place_in(following, first, last, wanted)

    start = _place_in(full_number(0, first), first, last, wanted)
    if start is not None:
        for page in _pages(link, loop, fetch, start):
            yield [one for one in page if _is_wanted(sequence_number_of(one), wanted, part.ranges)]


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


def _pages(link: Link, loop: LoopThread, fetch: Fetch, first: int) -> Iterator[list[bytes]]:
    ahead = PagesAhead(link, fetch, share_of(link.options))
    fetching = loop.begin(ahead.run(first))
    try:
        while (found := ahead.ready.get()) is not None:
            loop.soon(partial(ahead.take, found))
            yield found.messages
        fetching.result()  # raises what ended it early
    finally:
        fetching.cancel()
