"""Planning with fragments that are out of reach: what they reserved in the moment they went is planned when they are
back."""

from __future__ import annotations

from typing import cast

import pytest

from tandembus.client.reservations import Browsed, Opened, Ranges, Reservation, Reservations
from tandembus.errors import FragmentUnavailable
from tandembus.spark.source.ledger import NativeLedger
from tandembus.spark.source.link import Link
from tandembus.spark.source.options import parse_options
from tests.covers import covers

OPTIONS = parse_options(
    {
        "connection": "Endpoint=sb://localhost/;SharedAccessKeyName=a;SharedAccessKey=b",
        "entities": "orders",
        "owner": "query",
    }
)


class TwoFragments:
    """Fragment 1 reserves its messages for the first request, and its answer is lost."""

    def __init__(self) -> None:
        self.requests: list[int] = []

    async def open_reachable(self, owner: str) -> Opened:
        return Opened(1)

    async def reserve(self, owner: str, epoch: int, request: int, *_: object) -> Reservation:
        self.requests.append(request)
        return Reservation({0: [(request, request)]}, (1,) if request < 3 else ())

    async def ends(self) -> dict[int, int]:
        return {0: 9, 1: 9}

    async def reserved(self, owner: str, epoch: int) -> Ranges:
        return {0: [(3, 3)], 1: [(1, 5)]}


class NothingYet(TwoFragments):
    """Has something from the third request on."""

    async def reserve(self, owner: str, epoch: int, request: int, *_: object) -> Reservation:
        self.requests.append(request)
        return Reservation({0: [(1, 5)]} if len(self.requests) > 2 else {})


class Growing(TwoFragments):
    """Nothing can be reserved, and somebody sends on: there is always a message more, as far as anybody looks."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_at: list[tuple[int, int]] = []

    async def reserve(self, owner: str, epoch: int, request: int, *_: object) -> Reservation:
        return Reservation({})

    async def browse(self, fragment: int, first: int, last: int, *_: object) -> Browsed:
        self.looked_at.append((fragment, first))
        return Browsed([], first + 1 if first < last else None)


class LinkTo(Link):
    def __init__(self, reservations: TwoFragments) -> None:
        super().__init__(OPTIONS)
        self._fragments = reservations

    async def reservations(self, entity: str) -> Reservations:
        return cast(Reservations, self._fragments)


@covers("D1")
async def test_what_a_fragment_reserved_without_saying_so_is_planned_when_it_is_back() -> None:
    fragments = TwoFragments()
    ledger = NativeLedger(LinkTo(fragments), OPTIONS)
    await ledger.open()
    planned = [await ledger.plan("orders", 10, 1000) for _ in range(4)]
    assert planned == [{0: [(1, 1)]}, {0: [(2, 2)]}, {0: [(3, 3)], 1: [(1, 5)]}, {0: [(4, 4)]}]
    assert fragments.requests == [1, 2, 3, 4]


@covers("D1")
async def test_a_query_that_is_to_end_does_not_end_while_a_fragment_is_out() -> None:
    fragments = TwoFragments()
    ledger = NativeLedger(LinkTo(fragments), OPTIONS)
    await ledger.open()
    await ledger.remember_ends()
    for _ in range(2):
        with pytest.raises(FragmentUnavailable, match="fragments 1 are out of reach"):
            await ledger.plan("orders", 10, 1000)
    assert fragments.requests == [1, 1]


@covers("D1")
async def test_a_request_keeps_its_number_until_it_gets_something() -> None:
    """A try that was given up may still reserve messages: the next one with its number is told of them."""
    fragments = NothingYet()
    ledger = NativeLedger(LinkTo(fragments), OPTIONS)
    await ledger.open()
    for _ in range(4):
        await ledger.plan("orders", 10, 1000)
    assert fragments.requests == [1, 1, 1, 2]


@covers("D1")
async def test_what_is_left_is_looked_for_among_what_was_there_at_the_start() -> None:
    """Senders may be faster than whoever looks through all that they send."""
    fragments = Growing()
    ledger = NativeLedger(LinkTo(fragments), OPTIONS)
    await ledger.open()
    await ledger.remember_ends()
    assert await ledger.plan("orders", 10, 1000) == {}
    assert fragments.looked_at == [(fragment, number) for fragment in (0, 1) for number in range(1, 10)]
