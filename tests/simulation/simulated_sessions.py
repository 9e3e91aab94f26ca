"""A real broker with one queue that requires sessions, and an account of what each session must hold.

Of every message it is known whether it may be there and whether it may be gone; a store that fails leaves both open.
Exclusivity and order are checked at every delivery: the receiver must hold the session, and nothing that is surely
there may be passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tandembus.broker.locks import ABANDON, COMPLETE, RELEASE, CallbackSettleReply, MessageLock
from tandembus.broker.operations import CallbackConsumer, CallbackSendReply, SendOperation
from tandembus.broker.session import SessionAccept, SessionLock
from tandembus.broker.session_locks import (
    accept_session,
    await_session,
    gave_up_session,
    hold_session,
    leave_session,
    renew_session,
    stir_session,
)
from tandembus.broker.settings import FragmentSettings
from tandembus.errors import BusError, OperationTimeout
from tandembus.message import Message, parse_message
from tandembus.store.messaging_store import MAIN, MessagingStore
from tests.simulation.messages import build_message, key_of
from tests.simulation.simulated_broker import LOCK_DURATION_S, SimulatedBroker
from tests.simulation.still_loop import ENOUGH

DRAINED_WITHIN = 200


def session_settings(max_sessions: int, max_session_numbers: int) -> FragmentSettings:
    """Every edge within a few steps, also those of what is kept in memory."""
    return FragmentSettings(
        lock_duration_s=LOCK_DURATION_S,
        max_delivery_count=1_000_000,
        max_locks=12,
        commit_operations=5,
        window_messages=4,
        block_size=8,
        requires_session=True,
        max_sessions=max_sessions,
        max_session_numbers=max_session_numbers,
    )


@dataclass(eq=False)
class Sent:
    key: bytes
    session_id: str
    may_be_here: bool = True
    may_be_gone: bool = True
    """Until the send is answered, nobody knows."""

    @property
    def is_surely_here(self) -> bool:
        return self.may_be_here and not self.may_be_gone


@dataclass(eq=False)
class Holder:
    """A receiver that holds a session."""

    session_lock: SessionLock
    consumer: CallbackConsumer | None = None
    open: dict[bytes, MessageLock] = field(default_factory=dict)
    """What it was given and has not said what to do with."""
    settling: set[bytes] = field(default_factory=set)

    @property
    def session_id(self) -> str:
        return self.session_lock.session.name

    @property
    def link(self) -> CallbackConsumer:
        assert self.consumer is not None
        return self.consumer


class SimulatedSessions(SimulatedBroker):
    def __init__(self, open_store: Callable[[], MessagingStore], settings: FragmentSettings) -> None:
        self.sessions: dict[str, list[Sent]] = {}
        self.holders: dict[str, Holder] = {}
        self.waiting: list[SessionAccept] = []
        self._messages: dict[bytes, Sent] = {}
        super().__init__(open_store, settings)

    # Lives.

    def crash(self, is_written: bool) -> None:
        self.cut_life(is_written)
        self._forget_receivers()
        self.begin_life()

    def restart(self) -> None:
        self.end_life()
        self._forget_receivers()
        self.begin_life()

    def _forget_receivers(self) -> None:
        for holder in self.holders.values():
            self._in_doubt(holder)
        self.holders = {}
        self.waiting = []

    def _in_doubt(self, holder: Holder) -> None:
        """Its settlements under way may have been written, or not."""
        for key in holder.settling:
            self._messages[key].may_be_here = self._messages[key].may_be_gone = True

    # What clients do.

    def send(self, session_ids: list[str]) -> None:
        sent: list[Sent] = []
        parsed: list[Message] = []
        for session_id in session_ids:
            key = b"m%07d" % len(self._messages)
            sent.append(Sent(key, session_id))
            self._messages[key] = sent[-1]
            self.sessions.setdefault(session_id, []).append(sent[-1])
            parsed.append(parse_message(build_message(key, None, 0, session_id)))

        def answered(_operation: SendOperation, error: BusError | None) -> None:
            if error is None:
                for one in sent:
                    one.may_be_gone = False

        size = sum(len(message.sections) for message in parsed)
        try:
            self.fragment.send(SendOperation(parsed, size, CallbackSendReply(answered), 0))
        except BusError:
            for one in sent:
                one.may_be_here = False

    def accept_next(self) -> None:
        accept = SessionAccept(self._granted, lambda _: None)
        try:
            await_session(self.fragment, accept)
        except BusError:
            return
        self.waiting.append(accept)
        self.broker.want(self.fragment)

    def give_up_waiting(self, accept: SessionAccept) -> None:
        gave_up_session(self.fragment, accept)
        self.waiting.remove(accept)

    def accept_named(self, session_id: str) -> None:
        is_held = session_id in self.holders
        try:
            lock = accept_session(self.fragment, session_id)
        except BusError:
            assert is_held or self.fragment.failure is not None, "refused although nobody has it"
            return
        self._granted(lock)

    def _granted(self, lock: SessionLock) -> None:
        self.waiting = [one for one in self.waiting if not one.is_over]
        holder = Holder(lock)
        assert holder.session_id not in self.holders, "a session has two holders"
        self.holders[holder.session_id] = holder

        def deliver(message: Message, message_lock: MessageLock) -> None:
            self._delivered(holder, message, message_lock)

        def lost(_error: BusError) -> None:
            self._gone(holder)

        holder.consumer = CallbackConsumer(False, deliver, when_session_lost=lost)
        hold_session(self.fragment, lock, holder.consumer)

    def _gone(self, holder: Holder) -> None:
        if self.holders.get(holder.session_id) is holder:
            del self.holders[holder.session_id]
            self._in_doubt(holder)

    def flow(self, holder: Holder, credit: int) -> None:
        holder.link.credit = credit
        stir_session(self.fragment, holder.link)
        self.broker.want(self.fragment)

    def _delivered(self, holder: Holder, message: Message, lock: MessageLock) -> None:
        assert self.holders.get(holder.session_id) is holder, "given to somebody who holds nothing"
        sent = self._messages[key_of(message)]
        assert sent.session_id == holder.session_id, "given to another session"
        assert sent.may_be_here, "settled, and delivered again"
        assert sent.key not in holder.open, "delivered twice at the same time"
        sent.may_be_gone = False
        for earlier in self.sessions[sent.session_id]:
            if earlier is sent:
                break
            is_passed_over = earlier.is_surely_here and earlier.key not in holder.open
            assert not is_passed_over or earlier.key in holder.settling, f"{earlier.key!r} was passed over"
        holder.open[sent.key] = lock

    def settle(self, holder: Holder, key: bytes, settlement: int) -> None:
        lock = holder.open.pop(key)
        sent = self._messages[key]

        def answered(_lock: MessageLock, error: BusError | None) -> None:
            holder.settling.discard(key)
            if error is None and settlement == COMPLETE:
                sent.may_be_here, sent.may_be_gone = False, True

        try:
            self.fragment.settle(lock, settlement, CallbackSettleReply(answered))
        except OperationTimeout:
            holder.open[key] = lock  # the store hangs: the message stays, and stays locked
            return
        except BusError:
            return  # the session is lost, or the store is: the message stays
        if settlement == COMPLETE:
            holder.settling.add(key)
            sent.may_be_gone = True

    def renew(self, holder: Holder) -> None:
        try:
            renew_session(self.fragment, holder.session_lock)
        except BusError:
            pass

    def leave(self, holder: Holder) -> None:
        """Nothing is in doubt for that: what it has said is carried out."""
        del self.holders[holder.session_id]
        leave_session(self.fragment, holder.session_lock)
        self.broker.want(self.fragment)

    # The end.

    def drain_everything(self) -> None:
        """Everything that is surely there can be received, in order, and nothing that is gone."""
        self.reset_script()
        self.wait_until_open()
        self.broker.check_room()
        for accept in list(self.waiting):
            self.give_up_waiting(accept)
        for holder in list(self.holders.values()):
            self.leave(holder)
        for _ in range(DRAINED_WITHIN):
            self.accept_next()
            self.turn(ENOUGH)
            if not self.holders:
                break
            (holder,) = self.holders.values()
            self.flow(holder, 5)
            self.turn(ENOUGH)
            for key in list(holder.open):
                self.settle(holder, key, COMPLETE)
            self.turn(ENOUGH)
            if holder.session_id in self.holders:
                self.leave(holder)
            self.turn(ENOUGH)
        left = [one.key for one in self._messages.values() if one.is_surely_here]
        assert not left, f"{left} are there and not to be had"
        assert self.fragment.lane(MAIN).live_count == 0


SETTLEMENTS = (COMPLETE, COMPLETE, COMPLETE, ABANDON, RELEASE)
