"""The ledger of a fragment in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from tandembus.broker import reservations
from tandembus.broker.fragment import Fragment
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.reservations import BrowsedBlock, Prospect, Range
from tandembus.interconnect.faulty_requests import FaultyRequests, faulty
from tandembus.interconnect.fragment_traffic import FragmentTraffic


@final
class LocalLedger(FaultyRequests):
    """Implements `FragmentLedger`."""

    def __init__(self, broker: MessageBroker, fragment: Fragment, traffic: FragmentTraffic | None = None) -> None:
        super().__init__(traffic)
        self._broker = broker
        self._fragment = fragment

    @faulty(is_new=True)
    async def open_owner(self, lane: int, owner: str, wanted: int | None, max_owners: int) -> int:
        return await reservations.open_owner(self._fragment, lane, owner, wanted, max_owners)

    @faulty(is_new=True)
    async def prospect(
        self, lane: int, owner: str, epoch: int, request: int, max_messages: int, up_to: int | None
    ) -> Prospect:
        return reservations.prospect(self._fragment, lane, owner, epoch, request, max_messages, up_to)

    @faulty(is_new=True)
    async def reserve(
        self,
        lane: int,
        owner: str,
        epoch: int,
        request: int,
        max_messages: int,
        max_bytes: int,
        up_to: int | None,
    ) -> Sequence[Range]:
        return await reservations.reserve(
            self._broker, self._fragment, lane, owner, epoch, request, max_messages, max_bytes, up_to
        )

    @faulty(is_new=True)
    async def reserved(self, lane: int, owner: str, epoch: int | None) -> Sequence[Range]:
        return await reservations.reserved(self._fragment, lane, owner, epoch)

    @faulty(is_new=True)
    async def browse(self, lane: int, first: int, last: int, max_messages: int, max_bytes: int) -> BrowsedBlock:
        return await reservations.browse(self._broker, self._fragment, lane, first, last, max_messages, max_bytes)

    @faulty()
    async def complete(self, lane: int, owner: str, epoch: int, ranges: Sequence[Range]) -> int:
        return await reservations.complete(self._broker, self._fragment, lane, owner, epoch, ranges)

    @faulty()
    async def release(self, lane: int, owner: str, epoch: int | None, ranges: Sequence[Range] | None) -> int:
        return await reservations.release(self._fragment, lane, owner, epoch, ranges)

    @faulty(is_new=True)
    async def owners(self, lane: int) -> Sequence[tuple[str, int, int]]:
        return reservations.owners(self._fragment, lane)

    @faulty(is_new=True)
    async def end(self, lane: int) -> int:
        return reservations.end(self._fragment, lane)
