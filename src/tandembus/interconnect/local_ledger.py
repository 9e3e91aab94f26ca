"""The ledger of a fragment in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from tandembus.broker import reservations
from tandembus.broker.fragment import Fragment
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.reservations import BrowsedBlock, Prospect, Range


@final
class LocalLedger:
    """Implements `FragmentLedger`."""

    def __init__(self, broker: MessageBroker, fragment: Fragment) -> None:
        self._broker = broker
        self._fragment = fragment

    async def open_owner(self, lane: int, owner: str, wanted: int | None, max_owners: int) -> int:
        return await reservations.open_owner(self._fragment, lane, owner, wanted, max_owners)

    async def prospect(
        self, lane: int, owner: str, epoch: int, request: int, max_messages: int, up_to: int | None
    ) -> Prospect:
        return reservations.prospect(self._fragment, lane, owner, epoch, request, max_messages, up_to)

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

    async def reserved(self, lane: int, owner: str, epoch: int | None) -> Sequence[Range]:
        return await reservations.reserved(self._fragment, lane, owner, epoch)

    async def browse(self, lane: int, first: int, last: int, max_messages: int, max_bytes: int) -> BrowsedBlock:
        return await reservations.browse(self._broker, self._fragment, lane, first, last, max_messages, max_bytes)

    async def complete(self, lane: int, owner: str, epoch: int, ranges: Sequence[Range]) -> int:
        return await reservations.complete(self._broker, self._fragment, lane, owner, epoch, ranges)

    async def release(self, lane: int, owner: str, epoch: int | None, ranges: Sequence[Range] | None) -> int:
        return await reservations.release(self._fragment, lane, owner, epoch, ranges)

    async def owners(self, lane: int) -> Sequence[tuple[str, int, int]]:
        return reservations.owners(self._fragment, lane)

    async def end(self, lane: int) -> int:
        return reservations.end(self._fragment, lane)
