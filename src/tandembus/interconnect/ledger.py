"""The reservations of one fragment, wherever it is: what a front end asks of its ledger.

Numbers are the fragment's own here, without its index. Everything may be asked again when an answer was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tandembus.broker.reservations import BrowsedBlock, Prospect, Range


class FragmentLedger(Protocol):
    async def open_owner(self, lane: int, owner: str, wanted: int | None, max_owners: int) -> int:
        """A new epoch; or the one wanted, unless the owner has a newer one: returns the one it has. Durable."""

    async def prospect(
        self, lane: int, owner: str, epoch: int, request: int, max_messages: int, up_to: int | None
    ) -> Prospect: ...

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
        """With `max_messages` 0 the request is only noted: it has got nothing here."""

    async def reserved(self, lane: int, owner: str, epoch: int | None) -> Sequence[Range]: ...

    async def browse(self, lane: int, first: int, last: int, max_messages: int, max_bytes: int) -> BrowsedBlock: ...

    async def complete(self, lane: int, owner: str, epoch: int, ranges: Sequence[Range]) -> int: ...

    async def release(self, lane: int, owner: str, epoch: int | None, ranges: Sequence[Range] | None) -> int: ...

    async def owners(self, lane: int) -> Sequence[tuple[str, int, int]]:
        """Name, epoch and count of reserved messages of each."""

    async def end(self, lane: int) -> int:
        """The last number that was given out; 0: none."""
