"""Receives messages from an entity and settles them.

Without prefetch, `receive` asks for what its caller wants, waits, and drains what is left of the credit
before it returns: no message is ever sent to a receiver that is not waiting for it. With prefetch, credit is
topped up as messages are taken, so that no more than that many are ever buffered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from tandembus.amqp.encoding.delivery_states import (
    ACCEPTED_STATE,
    RELEASED_STATE,
    AmqpError,
    Outcome,
    modified_state,
    rejected_state,
)
from tandembus.amqp.encoding.descriptors import ACCEPTED, MODIFIED, REJECTED, RELEASED
from tandembus.amqp.encoding.terminus import Terminus
from tandembus.amqp.engine import DeliveryReceived, IncomingLink, SettlementConfirmed
from tandembus.client.connection import Connection, LinkOwner
from tandembus.client.errors import ConnectionLost, SomeLocksLost, failure_of
from tandembus.client.messages import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, ReceivedMessage
from tandembus.errors import BusError, InvalidOperation, MessageLockLost, OperationTimeout

DEAD_LETTER: Final = "com.microsoft:dead-letter"


class ReceiveMode(Enum):
    PEEK_LOCK = "peek-lock"
    RECEIVE_AND_DELETE = "receive-and-delete"


class _Settlement:
    """Messages settled together, until the service has confirmed all of them."""

    __slots__ = ("code", "description", "done", "failure", "left", "lost")

    def __init__(self, code: int, count: int, done: asyncio.Future[None]) -> None:
        self.code = code
        self.left = count
        self.done = done
        self.failure: Exception | None = None
        self.lost: list[int] = []
        self.description = ""

    def confirm(self, delivery_id: int, outcome: Outcome | None) -> None:
        """One more is answered; the last answer finishes it."""
        self.left -= 1
        refusal = _refusal_in(outcome, self.code)
        if isinstance(refusal, MessageLockLost):
            self.lost.append(delivery_id)
            self.description = self.description or str(refusal)
        else:
            self.failure = self.failure or refusal
        if self.left == 0:
            _finish(self.done, self.failure or self._loss())

    def _loss(self) -> Exception | None:
        return SomeLocksLost(self.lost, self.description) if self.lost else None


class Receiver(LinkOwner):
    """A link to receive on. Made by `ServiceBus.receiver`."""

    def __init__(
        self,
        connection: Connection,
        address: str,
        mode: ReceiveMode,
        prefetch: int = 0,
        source: Terminus | None = None,
        properties: dict[str, object] | None = None,
    ) -> None:
        """`source` and `properties` say more about the link than its address."""
        super().__init__(connection)
        self.address: Final = address
        self.mode: Final = mode
        self._prefetch: Final = prefetch
        is_locking = mode is ReceiveMode.PEEK_LOCK
        self._link: Final[IncomingLink] = self.session.attach_receiver(
            self.name,
            source or address,
            snd_settle_mode=0 if is_locking else 1,
            rcv_settle_mode=1 if is_locking else 0,
            properties=properties,
        )
        self._link.context = self
        self.session.context = self
        self._buffer: Final[deque[ReceivedMessage]] = deque()
        self._settling: Final[dict[int, _Settlement]] = {}
        self._settled_at = 0.0
        self._arrival: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None

    async def receive(self, max_messages: int = 1, wait_s: float | None = None) -> list[ReceivedMessage]:
        """Up to `max_messages`, as soon as there is one; none after `wait_s`; without it the wait has no end.

        Fewer than asked for means that, without prefetch, there were no more at that moment. One at a time: two
        tasks that receive on one link take each other's messages.
        """
        self.raise_if_lost()
        if not self._buffer:
            await self._fetch(max_messages, wait_s)
        messages = [self._buffer.popleft() for _ in range(min(max_messages, len(self._buffer)))]
        self._top_up()
        return messages

    def wake(self) -> None:
        """Have a `receive` that waits return with what there is; if none does, the next one does not wait."""
        if self._arrival is None:
            self._arrival = self.connection.loop.create_future()
        _wake(self._arrival)

    def __aiter__(self) -> Receiver:
        return self

    async def __anext__(self) -> ReceivedMessage:
        return (await self.receive(1))[0]

    async def complete(self, *messages: ReceivedMessage) -> None:
        """They are done with and go. Until the service confirms it; if locks were lost, `SomeLocksLost` names them."""
        await self._settle(messages, ACCEPTED, ACCEPTED_STATE)

    async def abandon(self, *messages: ReceivedMessage, properties: Mapping[str, object] | None = None) -> None:
        """Give them back, as a delivery in vain; `properties` are set on the messages."""
        await self._settle(messages, MODIFIED, modified_state(True, False, _annotations(properties)))

    async def defer(self, *messages: ReceivedMessage, properties: Mapping[str, object] | None = None) -> None:
        """Put them aside, to be received by sequence number through the management node."""
        await self._settle(messages, MODIFIED, modified_state(True, True, _annotations(properties)))

    async def dead_letter(
        self, *messages: ReceivedMessage, reason: str | None = None, description: str | None = None
    ) -> None:
        """Move them to the dead-letter queue, and say why."""
        info: dict[object, object] = {DEAD_LETTER_REASON: reason, DEAD_LETTER_DESCRIPTION: description}
        error = AmqpError(DEAD_LETTER, description or "", info)
        await self._settle(messages, REJECTED, rejected_state(error))

    async def release(self, *messages: ReceivedMessage) -> None:
        """Give them back as if they had never been delivered."""
        await self._settle(messages, RELEASED, RELEASED_STATE)

    async def drain(self) -> None:
        """Have the service send what it has within the credit, and take back the rest of the credit."""
        self.raise_if_lost()
        if self._link.credit <= 0:
            return
        if self._drained is None:
            self._drained = self.connection.loop.create_future()
            self._link.drain()
            self.connection.flush()
        await self.connection.in_time(asyncio.shield(self._drained), "the receiver was not drained")

    async def close(self) -> None:
        """Give back what was not handed out, and detach."""
        if self.failure is None:
            if self.mode is ReceiveMode.PEEK_LOCK:
                for first, last in _ranges(self._buffer):
                    self.session.settle(first, last, RELEASED_STATE, True)
            self._buffer.clear()
            self._link.detach()
            self.session.end()
            self.connection.flush()
            self.on_lost(ConnectionLost("the receiver was closed"))

    async def _fetch(self, max_messages: int, wait_s: float | None) -> None:
        """Wait for the first message. On the way out no credit is left behind, even if the caller gave up."""
        if not self._prefetch:
            self._link.grant(max_messages)
            self.connection.flush_soon()
        try:
            await self._first_arrival(wait_s)
        except asyncio.CancelledError:
            if not self._prefetch and self.failure is None:
                self._link.grant(0)
                self.connection.flush_soon()
            raise
        if not self._prefetch:
            await self.drain()

    async def _first_arrival(self, wait_s: float | None) -> None:
        if self._arrival is None:
            self._arrival = self.connection.loop.create_future()
        arrival = self._arrival
        await asyncio.wait((arrival,), timeout=wait_s)
        if arrival.done() and self._arrival is arrival:
            self._arrival = None
        self.raise_if_lost()

    def on_attached(self) -> None:
        super().on_attached()
        self._top_up()

    def on_delivery(self, event: DeliveryReceived) -> None:
        self._buffer.append(ReceivedMessage(event.payload, event.tag, int(event.delivery_id)))
        if self._arrival is not None:
            _wake(self._arrival)
            self._arrival = None

    def on_flow(self) -> None:
        if self._drained is not None and self._link.credit <= 0:
            _wake(self._drained)
            self._drained = None

    def on_confirmed(self, event: SettlementConfirmed) -> None:
        """The service's answer to dispositions of ours. Its range is not believed further than what we wait for."""
        self._settled_at = self.connection.clock.monotonic()
        first, count = int(event.first), (int(event.last) - int(event.first) & 0xFFFFFFFF) + 1
        if count > len(self._settling):
            ids = [each for each in self._settling if each - first & 0xFFFFFFFF < count]
        else:
            ids = [first + step & 0xFFFFFFFF for step in range(count)]
        for delivery_id in ids:
            settlement = self._settling.pop(delivery_id, None)
            if settlement is not None:
                settlement.confirm(delivery_id, event.outcome)

    def on_tick(self, now: float) -> None:
        if self._settling and now - self._settled_at > self.connection.timeout_s:
            failure = OperationTimeout(f"a settlement was not confirmed within {self.connection.timeout_s:g} s")
            self._fail_settlements(failure)

    def on_lost(self, failure: Exception) -> None:
        super().on_lost(failure)
        self._fail_settlements(failure)
        for waiter in (self._arrival, self._drained):
            if waiter is not None:
                _wake(waiter)
        self._arrival = self._drained = None

    def _top_up(self) -> None:
        """Renew the credit once half of it is used: one flow for many messages."""
        if self._prefetch and self._link.credit + len(self._buffer) <= self._prefetch // 2:
            self._link.grant(self._prefetch - len(self._buffer))
            self.connection.flush_soon()

    async def _settle(self, messages: Sequence[ReceivedMessage], code: int, state: bytes) -> None:
        self._check_settleable(messages)
        if not messages:
            return
        if not self._settling:
            self._settled_at = self.connection.clock.monotonic()
        settlement = _Settlement(code, len(messages), self.connection.loop.create_future())
        for message in messages:
            self._settling[message.delivery_id] = settlement
        for first, last in _ranges(messages):
            self.session.settle(first, last, state, False)
        self.connection.flush_soon()
        await settlement.done

    def _check_settleable(self, messages: Sequence[ReceivedMessage]) -> None:
        if self.failure is not None:
            raise self._locks_lost(self.failure)
        if self.mode is ReceiveMode.RECEIVE_AND_DELETE:
            raise InvalidOperation("messages received with receive-and-delete are settled already")
        if any(message.delivery_id < 0 for message in messages):
            raise InvalidOperation("this message came from the management node: settle it there")

    def _locks_lost(self, failure: Exception) -> BusError:
        return MessageLockLost(f"the messages came on a link that is gone: {failure}")

    def _fail_settlements(self, failure: Exception) -> None:
        unconfirmed = set(self._settling.values())
        self._settling.clear()
        for settlement in unconfirmed:
            _finish(settlement.done, failure)


def _ranges(messages: Sequence[ReceivedMessage] | deque[ReceivedMessage]) -> list[tuple[int, int]]:
    """Delivery ids as first and last of each unbroken row: a thousand messages are often one disposition."""
    ranges: list[tuple[int, int]] = []
    for delivery_id in sorted([message.delivery_id for message in messages]):
        if ranges and ranges[-1][1] == delivery_id - 1:
            ranges[-1] = (ranges[-1][0], delivery_id)
        else:
            ranges.append((delivery_id, delivery_id))
    return ranges


def _annotations(properties: Mapping[str, object] | None) -> dict[object, object] | None:
    if properties is None:
        return None
    annotations: dict[object, object] = {}
    annotations.update(properties.items())
    return annotations


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _finish(waiter: asyncio.Future[None], failure: Exception | None) -> None:
    if waiter.done():
        return
    if failure is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(failure)


def _refusal_in(outcome: Outcome | None, expected: int) -> Exception | None:
    """None if the service confirmed what was asked: the same kind of outcome, and no error in it."""
    if outcome is not None and outcome.code == expected and outcome.error is None:
        return None
    if outcome is not None and outcome.error is not None:
        return failure_of(outcome.error.condition, outcome.error.description)
    return MessageLockLost("the service did not confirm the settlement")
