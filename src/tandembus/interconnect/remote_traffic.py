"""The traffic of one fragment behind a channel."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.locks import MessageLock, SettleReply
from tandembus.broker.operations import Consumer, SendOperation
from tandembus.broker.session import check_sessions
from tandembus.broker.transactions import TransactionOperation
from tandembus.errors import BusError
from tandembus.interconnect.channel_core import ChannelCore
from tandembus.interconnect.remote_consumer import RemoteConsumer
from tandembus.interconnect.traffic import SessionHold, SessionWatch, SessionWish, Traffic


@final
class RemoteTraffic(Traffic):
    def __init__(self, core: ChannelCore, fragment_key: i64, index: i64, requires_session: bool) -> None:
        super().__init__(index, False)
        self.fragment_key: i64 = fragment_key
        self._core: Final = core
        self._requires_session: bool = requires_session
        self._receivers: dict[Consumer, RemoteConsumer] = {}
        self._holders: dict[int, Consumer] = {}
        """By the number of the session that they hold."""

    def failure(self) -> BusError | None:
        return self._core.failure()

    def is_out(self) -> bool:
        return self._core.is_out()

    # Sending.

    def send(self, operation: SendOperation) -> None:
        if self._requires_session and not operation.is_via:
            check_sessions(operation.messages)
        self._core.send(self.fragment_key, self.index, operation)

    def transaction_index(self, operation: SendOperation) -> i64:
        if self._requires_session and not operation.is_via:
            check_sessions(operation.messages)
        return self.index

    def discharge(self, operation: TransactionOperation) -> None:
        for part in operation.others:
            other = part.traffic
            assert isinstance(other, RemoteTraffic)
            part.fragment_key = other.fragment_key
        self._core.discharge(self.fragment_key, self.index, operation)

    # Receiving.

    def attach(self, consumer: Consumer, lane: i64) -> None:
        receiver = self._core.add_consumer(self.fragment_key, consumer, lane)
        self._receivers[consumer] = receiver
        self._core.introduce(receiver)

    def feed(self, consumer: Consumer, lane: i64, is_draining: bool) -> None:
        receiver = self._receivers.get(consumer)
        if receiver is None:
            return
        if not is_draining:
            receiver.undrain()
        receiver.feed()
        if is_draining:
            if self._core.is_up:
                receiver.drain()
            else:
                receiver.drain_away()

    def is_draining(self, consumer: Consumer, lane: i64) -> bool:
        receiver = self._receivers.get(consumer)
        return receiver is not None and receiver.is_draining

    def detach(self, consumer: Consumer, lane: i64) -> None:
        receiver = self._receivers.pop(consumer, None)
        if receiver is not None:
            self._core.remove_consumer(receiver)

    def handed_over(self, lock: MessageLock) -> None:
        self._core.handed_over(lock)

    # Settling.

    def check_lock(self, lock: MessageLock) -> None:
        self._core.check_lock(lock)

    def settle(self, lock: MessageLock, settlement: i64, reply: SettleReply | None) -> None:
        self._core.settle(self.fragment_key, lock, settlement, reply)

    # Sessions.

    def wish_session(self, wish: SessionWish) -> None:
        self._core.sessions.wish(wish, self.fragment_key, self.index)

    def give_up_session(self, wish: SessionWish) -> None:
        self._core.sessions.give_up(wish)

    def hold_session(self, hold: SessionHold, consumer: Consumer) -> None:
        receiver = self._core.sessions.hold(hold, consumer)
        if receiver is not None:
            self._receivers[consumer] = receiver
            self._holders[int(hold.number)] = consumer

    def leave_session(self, hold: SessionHold) -> None:
        self._core.sessions.leave(hold)
        consumer = self._holders.pop(int(hold.number), None)
        if consumer is not None:
            self._receivers.pop(consumer, None)

    def watch_sessions(self, watch: SessionWatch) -> None:
        self._core.sessions.watch(watch, self.fragment_key, self.index)
