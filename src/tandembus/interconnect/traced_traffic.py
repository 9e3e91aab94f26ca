"""Traffic of one link, with somebody who hears when its sends and settlements begin and end.

It stands between a link and its entity only where tracing is on: without it there is nothing to pass through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.locks import MessageLock, SettleReply
from tandembus.broker.operations import Consumer, SendOperation, SendReply
from tandembus.broker.transactions import TransactionOperation
from tandembus.errors import BusError
from tandembus.interconnect.traffic import SessionHold, SessionWatch, SessionWish, Traffic
from tandembus.message import Message

Ended = Callable[[BusError | None], None]


@final
class TrafficListener:
    """What is to be called; what is returned is called at the end, None where nobody wants to know."""

    def __init__(
        self,
        send_began: Callable[[SendOperation], Ended | None],
        settle_began: Callable[[MessageLock, int], Ended | None],
        delivered: Callable[[Message, MessageLock], None],
    ) -> None:
        self.send_began: Final = send_began
        self.settle_began: Final = settle_began
        self.delivered: Final = delivered


@final
class _HeardSend(SendReply):
    def __init__(self, inner: SendReply, ended: Ended) -> None:
        self.inner: Final = inner
        self.ended: Final = ended

    def collected(self, operation: SendOperation) -> None:
        self.inner.collected(operation)

    def sent(self, operation: SendOperation, error: BusError | None) -> None:
        self.ended(error)
        self.inner.sent(operation, error)


@final
class _HeardSettle(SettleReply):
    def __init__(self, inner: SettleReply, ended: Ended) -> None:
        self.inner: Final = inner
        self.ended: Final = ended

    def is_wanted(self) -> bool:
        return self.inner.is_wanted()

    def collected(self, lock: MessageLock) -> None:
        self.inner.collected(lock)

    def settled(self, lock: MessageLock, error: BusError | None) -> None:
        self.ended(error)
        self.inner.settled(lock, error)


@final
class TracedTraffic(Traffic):
    def __init__(self, inner: Traffic, listener: TrafficListener) -> None:
        super().__init__(inner.index, inner.is_partitioned)
        self.inner: Final = inner
        self.listener: Final = listener

    def failure(self) -> BusError | None:
        return self.inner.failure()

    def is_out(self) -> bool:
        return self.inner.is_out()

    def is_limited(self) -> bool:
        return self.inner.is_limited()

    def send(self, operation: SendOperation) -> None:
        ended = self.listener.send_began(operation)
        if ended is None:
            self.inner.send(operation)
            return
        reply = _HeardSend(operation.reply, ended)
        heard = SendOperation(
            operation.messages, operation.size_bytes, reply, operation.delivery_id, operation.is_via, operation.source
        )
        try:
            self.inner.send(heard)
        except BusError as error:
            ended(error)
            raise

    def transaction_index(self, operation: SendOperation) -> i64:
        return self.inner.transaction_index(operation)

    def transaction_key(self, operation: SendOperation) -> str | None:
        return self.inner.transaction_key(operation)

    def attach(self, consumer: Consumer, lane: i64) -> None:
        self.inner.attach(consumer, lane)

    def feed(self, consumer: Consumer, lane: i64, is_draining: bool) -> None:
        self.inner.feed(consumer, lane, is_draining)

    def is_draining(self, consumer: Consumer, lane: i64) -> bool:
        return self.inner.is_draining(consumer, lane)

    def detach(self, consumer: Consumer, lane: i64) -> None:
        self.inner.detach(consumer, lane)

    def handed_over(self, lock: MessageLock) -> None:
        self.inner.handed_over(lock)

    def check_lock(self, lock: MessageLock) -> None:
        self.inner.check_lock(lock)

    def settle(self, lock: MessageLock, settlement: i64, reply: SettleReply | None) -> None:
        ended = None if reply is None else self.listener.settle_began(lock, int(settlement))
        if reply is None or ended is None:
            self.inner.settle(lock, settlement, reply)
            return
        try:
            self.inner.settle(lock, settlement, _HeardSettle(reply, ended))
        except BusError as error:
            ended(error)
            raise

    def discharge(self, operation: TransactionOperation) -> None:
        self.inner.discharge(operation)

    def wish_session(self, wish: SessionWish) -> None:
        self.inner.wish_session(wish)

    def give_up_session(self, wish: SessionWish) -> None:
        self.inner.give_up_session(wish)

    def hold_session(self, hold: SessionHold, consumer: Consumer) -> None:
        self.inner.hold_session(hold, consumer)

    def leave_session(self, hold: SessionHold) -> None:
        self.inner.leave_session(hold)

    def watch_sessions(self, watch: SessionWatch) -> None:
        self.inner.watch_sessions(watch)
