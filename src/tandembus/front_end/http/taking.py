"""Messages taken out by their numbers, for whoever moves or deletes them.

They are locked, a slice at a time: nobody else gets one meanwhile, and whoever is interrupted leaves them where they
are, since locks lapse.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tandembus.broker.locks import RELEASE, MessageLock
from tandembus.errors import BusError, MessageNotFound
from tandembus.message import Message
from tandembus.namespace.entity import Entity
from tandembus.store.messaging_store import NUMBER_BITS

Held: TypeAlias = tuple[MessageLock, Message]

SLICE_MESSAGES: Final = 100
SLICE_BYTES: Final = 4 * 1024 * 1024
MAX_REFUSALS: Final = 10


@dataclass(slots=True)
class Progress:
    moved: int = 0
    """Or deleted."""
    moved_bytes: int = 0
    refused: int = 0
    refusals: list[tuple[int, str]] = field(default_factory=list)
    """The first of them: sequence number and reason."""
    max_refusals: int = MAX_REFUSALS

    def refuse(self, number: int, error: BusError) -> None:
        self.refused += 1
        if len(self.refusals) < self.max_refusals:
            self.refusals.append((number, str(error)))


class Taking:
    def __init__(self, source: Entity, lane: int) -> None:
        self._source = source
        self._lane = lane

    async def one(self, number: int) -> Held:
        """Waiting or deferred. Raises MessageNotFound for one that is neither, or that somebody has."""
        requests = self._source.requests
        taken = await requests.take_waiting(self._lane, number, number + 1, 1, SLICE_BYTES)
        if taken.messages:
            return taken.messages[0]
        try:
            ((lock, message),) = await requests.receive_deferred(self._lane, [number], False)
        except MessageNotFound:
            raise MessageNotFound(f"There is no message {number} to be had: it is gone, or somebody has it.") from None
        return lock, message

    async def slices(
        self, numbers: AsyncIterator[int], progress: Progress, is_chosen: bool
    ) -> AsyncIterator[list[Held]]:
        """`is_chosen`: somebody named these numbers, and is told of those that cannot be had. Each slice is dealt with
        before the next one is taken, and none is taken while numbers are still searched for: locks lapse, and a search
        may be long."""
        found: list[int] = []
        async for number in numbers:
            found.append(number)
            if len(found) == SLICE_MESSAGES:
                async for held in self._held(found, progress, is_chosen):
                    yield held
                found = []
        async for held in self._held(found, progress, is_chosen):
            yield held

    async def _held(self, numbers: list[int], progress: Progress, is_chosen: bool) -> AsyncIterator[list[Held]]:
        held: list[Held] = []
        size_bytes = 0
        for number in numbers:
            try:
                lock, message = await self.one(number)
            except BusError as error:
                if is_chosen:
                    progress.refuse(number, error)
                continue
            held.append((lock, message))
            size_bytes += len(message.sections)
            if size_bytes >= SLICE_BYTES:
                yield held
                held, size_bytes = [], 0
        if held:
            yield held


def give_back(source: Entity, lock: MessageLock) -> None:
    try:
        source.traffic.settle(lock, RELEASE, None)
    except BusError:
        return  # the lock is over, one way or the other


def whole_number(lock: MessageLock) -> int:
    return int(lock.index) << NUMBER_BITS | int(lock.number)
