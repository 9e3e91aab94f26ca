"""A consumer of this front end, as the broker at the other end of a channel knows it.

Its credit travels as a limit: the number of pushes that the broker may have made in all. So a push and a change of
credit can cross each other on the way, and nobody counts anything twice.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from tandembus.broker.locks import RELEASE, REMOVE, MessageLock, SettleReply
from tandembus.broker.operations import Consumer
from tandembus.errors import BusError
from tandembus.interconnect.traffic import SessionHold
from tandembus.large_messages import LARGE_BYTES
from tandembus.message import Message

if TYPE_CHECKING:
    from tandembus.interconnect.channel_core import ChannelCore


@final
class RemoteConsumer:
    __slots__ = (
        "_core",
        "_drain_is_due",
        "_ready",
        "consumer",
        "drain_number",
        "fragment_key",
        "granted",
        "hold",
        "is_draining",
        "is_gone",
        "is_unwritten",
        "lane",
        "number",
        "received",
    )

    def __init__(self, core: ChannelCore, number: i64, fragment_key: i64, consumer: Consumer, lane: i64) -> None:
        self.number: i64 = number
        self.fragment_key: i64 = fragment_key
        self.consumer: Final = consumer
        self.lane: i64 = lane
        self.hold: SessionHold | None = None
        """The session whose messages it gets."""
        self.received: i64 = 0
        self.granted: i64 = 0
        """The limit that the broker was told last."""
        self.is_draining: bool = False
        self.drain_number: i64 = 0
        self.is_gone: bool = False
        self.is_unwritten: bool = False
        """Something about it is to be told at the end of the turn."""
        self._drain_is_due: bool = False
        self._core: Final = core
        self._ready: deque[tuple[Message, MessageLock]] = deque()
        """What it cannot take at the moment: its connection is full."""

    # What comes.

    def pushed(self, message: Message, lock: MessageLock) -> None:
        self.received += 1
        consumer = self.consumer
        if consumer.keeps_ready:
            consumer.credit -= 1
            consumer.deliver(message, lock)
        elif not self._ready and consumer.can_take() and _has_room_for(consumer, lock):
            self._hand_over(message, lock)
        elif self.hold is None and consumer.credit <= i64(len(self._ready)):
            self._core.settle(self.fragment_key, lock, RELEASE, None)  # its credit was withdrawn meanwhile
        else:
            self._ready.append((message, lock))

    def _hand_over(self, message: Message, lock: MessageLock) -> None:
        consumer = self.consumer
        consumer.credit -= 1
        if consumer.is_destructive:
            self._remove(message, lock)
        else:
            consumer.deliver(message, lock)
            self._core.handed_over(lock)

    def _remove(self, message: Message, lock: MessageLock) -> None:
        """Removed for good first, transferred then. Until the removal is on its way the message is merely kept
        ready."""
        self.consumer.removing_count += 1
        self._core.settle(self.fragment_key, lock, REMOVE, Removal(self, message))

    def removed(self, message: Message, lock: MessageLock, error: BusError | None) -> None:
        consumer = self.consumer
        consumer.removing_count -= 1
        if error is None:
            consumer.deliver(message, lock)
            consumer.flush()
        else:
            consumer.credit += 1
            self.feed()
        self._finish_drain()

    # What the consumer wants.

    def feed(self) -> None:
        """Its credit has changed, or it has room again."""
        consumer = self.consumer
        if self._ready:
            while self._ready and consumer.can_take() and _has_room_for(consumer, self._ready[0][1]):
                message, lock = self._ready.popleft()
                self._hand_over(message, lock)
            consumer.flush()
        if self.limit() != self.granted:
            self._core.tell(self)
        self._finish_drain()

    def limit(self) -> i64:
        return self.received + max(self.consumer.credit - i64(len(self._ready)), i64(0))

    def drain(self) -> None:
        if not self.is_draining:
            self.is_draining = True
            self._drain_is_due = False
            self.drain_number += 1
            self._core.tell(self)

    def drain_away(self) -> None:
        """Its broker is away, and has nothing for it. But what is being removed for it may have been: it is told when
        that is decided, so nothing is transferred behind it."""
        self.is_draining = True
        self._drain_is_due = True
        self._finish_drain()

    def undrain(self) -> None:
        self.is_draining = False
        self._drain_is_due = False

    def drained(self, number: i64) -> None:
        """All that there was has been pushed, and what was pushed has come before this."""
        if self.is_draining and number == self.drain_number:
            self._drain_is_due = True
            self._finish_drain()
        else:
            self.granted = -1  # the broker has taken its credit away, and it still wants it
            self._core.tell(self)

    def _finish_drain(self) -> None:
        consumer = self.consumer
        if self._drain_is_due and consumer.removing_count == 0 and (not self._ready or consumer.credit <= 0):
            self._end_drain()

    def _end_drain(self) -> None:
        self.is_draining = False
        self._drain_is_due = False
        self.consumer.drained()
        self.granted = self.limit()

    # What ends.

    def left(self) -> None:
        """It is gone. What was to be removed for it goes back, where that can still be said."""
        self.is_gone = True
        self._ready.clear()

    def locks_lost(self) -> None:
        """All that it was given is void, although its broker is there."""
        self._ready.clear()
        self.consumer.locks_lost()
        self.feed()

    def went_down(self) -> None:
        """Its broker is away, or has forgotten it. A fragment that is down counts as drained."""
        self._ready.clear()
        self.received = 0
        self.granted = 0
        self.is_unwritten = False
        self.consumer.locks_lost()
        if self.is_draining:
            self.drain_away()


@final
class Removal(SettleReply):
    """A receive-and-delete on its way: committed first, transferred then."""

    def __init__(self, receiver: RemoteConsumer, message: Message) -> None:
        self._receiver: Final = receiver
        self._message: Final = message

    def is_wanted(self) -> bool:
        return not self._receiver.is_gone

    def settled(self, lock: MessageLock, error: BusError | None) -> None:
        self._receiver.removed(self._message, lock, error)


def _has_room_for(consumer: Consumer, lock: MessageLock) -> bool:
    return lock.size_bytes <= LARGE_BYTES or consumer.has_room_for(lock.size_bytes)


def pushed_lock(
    token: bytes, lane: i64, message: Message, locked_until: float, locked_until_ms: i64, push_number: i64
) -> MessageLock:
    """The lock under which the broker has pushed a message, as this end knows it."""
    lock = MessageLock(token, lane, message.number, locked_until, len(message.sections), message.expires_at)
    lock.locked_until_ms = locked_until_ms
    lock.delivery_count = message.delivery_count
    lock.application_properties = message.application_properties
    lock.push_number = push_number
    return lock
