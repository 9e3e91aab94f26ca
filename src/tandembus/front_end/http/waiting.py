"""One HTTP request's wait for one message.

It stands in line at the lane like a link with one credit, so nothing is asked again and again. Who ends the wait takes
it out of the line in the same step: a message that it no longer waits for stays with the queue.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tandembus.broker.locks import RELEASE, MessageLock
from tandembus.broker.operations import CallbackConsumer
from tandembus.clock import Clock
from tandembus.errors import BusError
from tandembus.large_messages import LARGE_BYTES, LargeMemory
from tandembus.message import Message
from tandembus.namespace.entity import Entity

Taken = tuple[Message, MessageLock]


class HeadReceiver:
    """Attached to the entity, so that the entity's end is the end of the wait."""

    is_sender = False

    def __init__(self, entity: Entity, lane: int, is_destructive: bool, clock: Clock, large: LargeMemory) -> None:
        self._entity: Final = entity
        self.lane: Final = lane
        self._clock: Final = clock
        self._outcome: Final[asyncio.Future[Taken | None]] = asyncio.get_running_loop().create_future()
        self._consumer: Final = CallbackConsumer(is_destructive, self._delivered, self._drained)
        self._consumer.credit = 1
        self._consumer.room = self._has_room_for
        self._large: Final = large
        self._given_bytes = 0
        entity.attach(self, clock.now())
        entity.traffic.attach(self._consumer, lane)
        entity.traffic.feed(self._consumer, lane, False)

    async def wait(self, timeout_s: float) -> bool:
        """Whether the wait is over, one way or the other."""
        await asyncio.wait((self._outcome,), timeout=timeout_s)
        return self._outcome.done()

    async def take_what_is_there(self, timeout_s: float) -> None:
        """The time is up: what is there already, and only has to be read, still counts."""
        traffic = self._entity.traffic
        if not traffic.is_out() and not self._outcome.done():
            traffic.feed(self._consumer, self.lane, True)
            await self.wait(timeout_s)
        self.give_up()

    def taken(self) -> Taken | None:
        """What it came to; raises what ended the entity."""
        return self._outcome.result()

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        if not self._outcome.done():
            self._outcome.set_result(None)
            self._leave()

    def cut(self, error: BusError) -> None:
        if not self._outcome.done():
            self._outcome.set_exception(error)
            self._leave()

    def entity_changed(self) -> None:
        return

    def _has_room_for(self, size_bytes: int) -> bool:
        if self._large.can_give(size_bytes):
            return True
        self._consumer.is_full = True
        self._large.wait(self, self._room_came)
        return False

    def _room_came(self) -> None:
        self._consumer.is_full = False
        if not self._outcome.done():
            self._entity.traffic.feed(self._consumer, self.lane, False)

    def written(self) -> None:
        """The client has read what was delivered, or never will."""
        if self._given_bytes > 0:
            self._large.end_giving(self._given_bytes)
            self._given_bytes = 0

    def _delivered(self, message: Message, lock: MessageLock) -> None:
        if lock.size_bytes > LARGE_BYTES and not self._outcome.done():
            self._given_bytes = int(lock.size_bytes)
            self._large.give(self._given_bytes)
        # One that was being removed when its receiver left is gone: receiving and deleting in one step means just that.
        self._end_in_line((message, lock))

    def _drained(self) -> None:
        self._end_in_line(None)

    def _end_in_line(self, outcome: Taken | None) -> None:
        """Called by the lane, whose line must not change under it."""
        if not self._outcome.done():
            self._outcome.set_result(outcome)
            self._consumer.credit = 0
            asyncio.get_running_loop().call_soon(self._leave)

    def _leave(self) -> None:
        self._consumer.credit = 0
        self._large.leave(self)
        self._entity.traffic.detach(self._consumer, self.lane)
        self._entity.detach(self, self._clock.now())

    def give_back(self) -> None:
        """The message was taken, and its receiver has gone before it was told."""
        self.written()
        try:
            taken = self._outcome.result()
            if taken is not None and not self._consumer.is_destructive:
                self._entity.traffic.settle(taken[1], RELEASE, None)
        except BusError:
            return  # the lock is over already, and the message is where it belongs
