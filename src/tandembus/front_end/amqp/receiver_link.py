"""A link on which a client receives: credit becomes deliveries, dispositions become settlements.

In peek-lock a settlement is echoed with the same kind of outcome once it is durable; a client that has settled already
wants no answer. In receive-and-delete the fragment has removed the message before it comes here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.amqp.encoding.delivery_states import (
    ACCEPTED_STATE,
    MODIFIED_STATE,
    REJECTED_STATE,
    RELEASED_STATE,
    Outcome,
    rejected_state,
    transactional_state,
)
from tandembus.amqp.encoding.descriptors import TRANSACTIONAL_STATE
from tandembus.amqp.encoding.values import Typed
from tandembus.amqp.engine.link import OutgoingDelivery, OutgoingLink
from tandembus.broker.locks import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    MessageLock,
    SettleReply,
)
from tandembus.broker.operations import Consumer
from tandembus.broker.sessions import SESSION_LOST
from tandembus.broker.transactions import TransactionSettlement
from tandembus.errors import BusError, InvalidArgument, InvalidOperation, MessageLockLost, SessionLockLost
from tandembus.front_end.amqp.conditions import amqp_error
from tandembus.front_end.amqp.link_host import Flushable, LinkHost
from tandembus.front_end.amqp.transactions import TransactionParty
from tandembus.interconnect.number_ranges import NumberRanges
from tandembus.interconnect.traffic import SessionHold, Traffic
from tandembus.message import Message
from tandembus.message_encoding import encode_delivery
from tandembus.metering.slot import MeterSlot, operations_for
from tandembus.pair_view.watches import ReceiveWatch
from tandembus.store.messaging_store import NUMBER_BITS

RECEIVED: Final = 0x23
ACCEPTED: Final = 0x24
REJECTED: Final = 0x25
RELEASED: Final = 0x26
MODIFIED: Final = 0x27

MAX_REASON_CHARACTERS: Final = 4096
DEAD_LETTER_REASON: Final = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION: Final = "DeadLetterErrorDescription"


@final
class ReceiveMeter:
    __slots__ = ("abandon", "complete", "dead_letter", "defer", "empty", "receive")

    def __init__(
        self,
        receive: MeterSlot,
        empty: MeterSlot,
        complete: MeterSlot,
        abandon: MeterSlot,
        defer: MeterSlot,
        dead_letter: MeterSlot,
    ) -> None:
        self.receive: Final = receive
        self.empty: Final = empty
        self.complete: Final = complete
        self.abandon: Final = abandon
        self.defer: Final = defer
        self.dead_letter: Final = dead_letter

    def settled(self, settlement: i64) -> None:
        if settlement == COMPLETE:
            self.complete.add(1, 1, 0)
        elif settlement == ABANDON:
            self.abandon.add(1, 1, 0)
        elif settlement == DEFER:
            self.defer.add(1, 1, 0)
        elif settlement == DEAD_LETTER:
            self.dead_letter.add(1, 1, 0)


@final
class _Echoes(SettleReply):
    """Answers of one link's settlements, merged into ranges of the same outcome."""

    def __init__(self, link: ReceiverLink) -> None:
        self.link: Final = link

    def settled(self, lock: MessageLock, error: BusError | None) -> None:
        self.link.settled(lock, error)


@final
class _TransactionalEchoes(SettleReply):
    """A transaction's settlements were answered before, as what they may become: here they have become it. When they
    have not, the deliveries are what they were. The state is still the transaction's: Java's SDK closes its connection
    over any other."""

    def __init__(self, link: ReceiverLink, txn_id: bytes) -> None:
        self.link: Final = link
        self.txn_id: Final = txn_id

    def settled(self, lock: MessageLock, error: BusError | None) -> None:
        if error is None:
            self.link.settled_in(self.txn_id, lock)


@final
class _EchoWriter(Flushable):
    def __init__(self, link: ReceiverLink) -> None:
        self.link: Final = link

    def write_answers(self) -> None:
        self.link.write_answers()


_NO_ECHOES: Final = SettleReply()
_NO_WRITER: Final = Flushable()


@final
class ReceiverLink(Consumer):
    def __init__(
        self,
        link: OutgoingLink,
        host: LinkHost,
        traffic: Traffic,
        lane: i64,
        is_destructive: bool,
        meter: ReceiveMeter,
        has_partition: bool,
    ) -> None:
        super().__init__(is_destructive)
        self.link: Final = link
        self.traffic: Final = traffic
        self.lane: i64 = lane
        self.is_open: bool = True
        self.activity: i64 = 0
        self._host: Final = host
        self._meter: Final = meter
        self._has_partition: Final = has_partition
        self._echoes: SettleReply = _Echoes(self)
        self.party: TransactionParty | None = None
        """How it takes part in transactions, where it can."""
        self.watch: ReceiveWatch | None = None
        """Who wants to know what becomes of messages: those of a backlog queue are on their way home."""
        self.on_delivered: Callable[[Message, MessageLock], None] | None = None
        """Told of each message, where tracing is on."""
        self._writer: Flushable = _EchoWriter(self)
        self._is_gathering: bool = False
        self._settled: Final = NumberRanges()
        """Deliveries whose settlement is to be echoed."""
        self._state: bytes = b""
        """The outcome of all of them."""
        self._waits_in_vain: bool = False
        """It asked for messages and has got none since."""
        self.hold: SessionHold | None = None
        """What it holds, as a receiver of a session."""
        self._when_session_lost: Callable[[BusError], None] | None = None

    def end(self) -> None:
        """The link is over. It drops the objects that answer for it, since they refer back to it: settlements that are
        under way have their own hold on it, and are counted when they are durable."""
        self.is_open = False
        self._echoes = _NO_ECHOES
        self._writer = _NO_WRITER

    # Sessions.

    def hold_session(self, hold: SessionHold, when_lost: Callable[[BusError], None]) -> None:
        self.hold = hold
        self._when_session_lost = when_lost
        self.traffic.hold_session(hold, self)

    def session_lost(self, error: BusError) -> None:
        if self.hold is not None:
            self.hold.is_over = True
        self._end_drain_in_vain()
        if self._when_session_lost is not None:
            self._when_session_lost(error)

    def _has_lost_session(self) -> bool:
        return self.hold is not None and self.hold.is_over

    def _end_drain_in_vain(self) -> None:
        """Nothing comes any more. What is being removed for it still does, and is transferred before a drain ends."""
        if self.link.drain and self.removing_count == 0:
            self.drained()

    # Credit and deliveries.

    def flow(self) -> None:
        """The peer's credit changed. More of it is a new receive, whatever the last one brought; taking it back without
        a drain ends the receive unanswered, which costs nothing."""
        self.activity += 1
        credit = max(self.link.credit - self.removing_count, i64(0))
        if credit > self.credit:
            self._waits_in_vain = True
        elif credit == 0 and not self.link.drain:
            self._waits_in_vain = False
        self.credit = credit

    def feed(self) -> None:
        """Its credit has changed, or its connection has room again."""
        if self._has_lost_session():
            self._end_drain_in_vain()
        else:
            self.traffic.feed(self, self.lane, self.link.drain)

    def can_take(self) -> bool:
        return self.credit > 0 and self.is_open and self.link.window_is_open() and self._host.can_take()

    def has_room_for(self, size_bytes: i64) -> bool:
        return self._host.has_room_for(size_bytes)

    def deliver(self, message: Message, lock: MessageLock) -> None:
        if not self.is_open:
            return
        until: i64 = 0 if self.is_destructive else lock.locked_until_ms
        sequence_number = lock.index << NUMBER_BITS | message.number
        token = b"" if self.is_destructive else lock.token
        payload = encode_delivery(message, sequence_number, until, 0, token, lock.index if self._has_partition else -1)
        lock.delivery_id = self.link.send(lock.token, payload, self.is_destructive, lock)
        if self.on_delivered is not None:
            self.on_delivered(message, lock)
        self._waits_in_vain = False
        self.activity += 1
        size = len(payload)
        self._host.give(size)
        self._meter.receive.add(1, operations_for(size), size)
        watch = self.watch
        if watch is not None:
            watch.delivered(message, lock.token)
            if self.is_destructive:
                watch.settled(lock.token, COMPLETE)
        self._host.touch()

    def flush(self) -> None:
        self._host.touch()

    def drained(self) -> None:
        if not self.is_open:
            return
        if self._waits_in_vain:
            self._meter.empty.add(0, 1, 0)
        self._waits_in_vain = False
        self.link.drained()
        self.credit = 0
        self._host.touch()

    # Settling.

    def settle(self, delivery: OutgoingDelivery, outcome: Outcome | None, is_quiet: bool) -> None:
        lock = delivery.context
        if not isinstance(lock, MessageLock):
            return
        if not is_quiet and (outcome is None or outcome.code == RECEIVED):
            return  # said on the way, and no decision yet
        if outcome is None:
            if self._host.transactions.settled_by_client(lock.token):
                return
        elif outcome.code == TRANSACTIONAL_STATE:
            self._gather_in(outcome, lock, is_quiet)
            return
        lock.is_quiet = is_quiet
        try:
            settlement = self._settlement(lock, outcome)
            self.traffic.settle(lock, settlement, self._echoes)
        except BusError as error:
            if not is_quiet:
                self._refuse(delivery.delivery_id, error)

    def _gather_in(self, state: Outcome, lock: MessageLock, is_quiet: bool) -> None:
        """Keep it for the transaction's discharge. The answer comes at once and is not final: the delivery stays
        unsettled until then, so that after a rollback the client can still do with it what it likes."""
        inner = state.inner
        if not is_quiet and (inner is None or inner.code == RECEIVED):
            return
        transactions = self._host.transactions
        try:
            transaction = transactions.find_in(state)
            party = self.party
            if party is None:
                raise InvalidOperation("This link takes no part in transactions.")
            self.traffic.check_lock(lock)
            transaction.settle(party, self._provisional(transaction.txn_id, lock, inner, is_quiet))
        except BusError as error:
            transactions.doom(state, error)
            if not is_quiet:
                self._refuse(lock.delivery_id, error)
            return
        if not is_quiet:
            self._write_settled()
            answer = transactional_state(transaction.txn_id, _state_of(transaction.settlements[lock.token].settlement))
            self.link.session.settle(int(lock.delivery_id), int(lock.delivery_id), answer, False, False)
            self._gather()

    def _provisional(
        self, txn_id: bytes, lock: MessageLock, outcome: Outcome | None, is_quiet: bool
    ) -> TransactionSettlement:
        """The settlement that the outcome asks for. The lock is left as it was."""
        settlement = self._settlement(lock, outcome)
        provisional = TransactionSettlement(
            lock, settlement, _TransactionalEchoes(self, txn_id), is_quiet, lock.reason, lock.description, lock.changes
        )
        lock.reason = None
        lock.description = None
        lock.changes = None
        return provisional

    def _settlement(self, lock: MessageLock, outcome: Outcome | None) -> i64:
        if outcome is None:
            # Settled without saying how: the client is done with it, and nothing was said against it.
            return COMPLETE
        code = outcome.code
        if code == ACCEPTED:
            return COMPLETE
        if code == RELEASED or code == RECEIVED:
            return RELEASE
        if code == MODIFIED:
            lock.changes = _changes_of(outcome.message_annotations)
            return DEFER if outcome.undeliverable_here else ABANDON
        if code == REJECTED:
            _read_dead_letter(lock, outcome)
            return DEAD_LETTER
        raise InvalidArgument("This outcome cannot settle a message here.")

    def settled(self, lock: MessageLock, error: BusError | None) -> None:
        if error is None:
            self._count_settled(lock)
        if lock.is_quiet:
            return
        if error is not None:
            self._refuse(lock.delivery_id, error)
            return
        self._echo(lock.delivery_id, _state_of(lock.asked))

    def settled_in(self, txn_id: bytes, lock: MessageLock) -> None:
        self._count_settled(lock)
        if not lock.is_quiet:
            self._echo(lock.delivery_id, transactional_state(txn_id, _state_of(lock.asked)))

    def _count_settled(self, lock: MessageLock) -> None:
        self._meter.settled(lock.asked)
        watch = self.watch
        if watch is not None:
            watch.settled(lock.token, lock.asked)

    def _echo(self, delivery_id: i64, state: bytes) -> None:
        if state != self._state:
            self._write_settled()
            self._state = state
        self._settled.add(delivery_id)
        self._gather()

    def _refuse(self, delivery_id: i64, error: BusError) -> None:
        if isinstance(error, MessageLockLost) and self._has_lost_session():
            error = SessionLockLost(SESSION_LOST)  # its broker has forgotten the message's lock
        if self.is_open:
            self._write_settled()
            state = rejected_state(amqp_error(error, self._host.engine.peer_hostname))
            self.link.session.settle(int(delivery_id), int(delivery_id), state, True, False)
        self._gather()

    def _gather(self) -> None:
        if self.is_open and not self._is_gathering:
            self._is_gathering = True
            self._host.answer(self._writer)

    def _write_settled(self) -> None:
        for first, last in self._settled.take():
            if self.is_open:
                self.link.session.settle(first, last, self._state, True, False)

    def write_answers(self) -> None:
        self._is_gathering = False
        self._write_settled()


def _state_of(settlement: i64) -> bytes:
    if settlement == COMPLETE:
        return ACCEPTED_STATE
    if settlement == DEAD_LETTER:
        return REJECTED_STATE
    if settlement == RELEASE:
        return RELEASED_STATE
    return MODIFIED_STATE


def _changes_of(annotations: dict[object, object] | None) -> dict[str, object] | None:
    if not annotations:
        return None
    changes: dict[str, object] = {}
    for key, value in annotations.items():
        changes[str(key)] = value
    return changes


def _read_dead_letter(lock: MessageLock, outcome: Outcome) -> None:
    """Reason and description travel in the error's info; further entries there are properties to modify. So are these
    two where they are no strings: they keep their type."""
    error = outcome.error
    if error is None:
        return
    changes: dict[str, object] = {}
    if error.info:
        for key, value in error.info.items():
            name = str(key)
            plain = value.value if isinstance(value, Typed) else value
            if name not in (DEAD_LETTER_REASON, DEAD_LETTER_DESCRIPTION):
                changes[name] = value
            elif isinstance(plain, str):
                if name == DEAD_LETTER_REASON:
                    lock.reason = plain[:MAX_REASON_CHARACTERS]
                else:
                    lock.description = plain[:MAX_REASON_CHARACTERS]
            elif plain is not None:
                changes[name] = value
    if changes:
        lock.changes = changes
    if lock.description is None and error.description and DEAD_LETTER_DESCRIPTION not in changes:
        lock.description = error.description[:MAX_REASON_CHARACTERS]
