"""The heart: one fragment of an entity. Sends, settlements and removals are staged here, numbered and turned into
changes when the commit comes, and answered and made visible only when it is durable.

Synchronous and free of I/O. The message broker around it reads bodies, commits changes and calls back; the clock and
the store's epoch are passed in. Nothing here awaits, so nothing here needs a mutex.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.budget import Budget
from tandembus.broker.changes import (
    IS_SCHEDULED,
    expiry_of,
    write_activation,
    write_arrival,
    write_dead_letter,
    write_gone,
    write_leaving,
    write_settlement,
    write_via,
)
from tandembus.broker.consumers import LaneConsumers, Removal
from tandembus.broker.duplicates import DuplicateDetection, RecentIds
from tandembus.broker.lane import Lane
from tandembus.broker.locks import (
    ABANDON,
    DEAD_LETTER,
    DEFER,
    EXPIRE,
    LAPSE,
    OPEN,
    RELEASE,
    REMOVE,
    LockTable,
    MessageLock,
    SettleReply,
)
from tandembus.broker.moves import Move, StagedMoves
from tandembus.broker.operations import Consumer, SendOperation, StateOperation
from tandembus.broker.session import SessionAccept, SessionLock
from tandembus.broker.sessions import SESSION_LOST, SessionIndex, check_sessions
from tandembus.broker.settings import FragmentSettings
from tandembus.broker.subscriptions import MAX_EVALUATIONS, Distribution, FanOut, with_its_session
from tandembus.broker.transactions import StagedTransactions, TransactionOperation, TransactionSettlement
from tandembus.clock import Clock
from tandembus.errors import BusError, InvalidOperation, MessageLockLost, QuotaExceeded, SessionLockLost, StoreFull
from tandembus.message import Message, session_id_of
from tandembus.message_encoding import application_properties_with, encode_changes
from tandembus.rules import RuleSet
from tandembus.store.messaging_store import DEAD_LETTER as DEAD_LETTER_LANE
from tandembus.store.messaging_store import (
    LANES,
    MAIN,
    NEVER,
    TRANSFER,
    TRANSFER_DEAD_LETTER,
    BlockRecord,
    Changes,
    SessionState,
)

MAX_LAPSES: Final = 1000
"""Locks that lapse in one turn; the rest in the next, so that a mass lapse does not hold everyone up."""

LEAST_LOOK_S: Final = 1.0
"""A locked message that has expired is not looked at more often than this."""

_NO_ROOM: Final = "The messaging store has no room left; receiving and settling go on."
_LOCK_LOST: Final = (
    "The lock is lost: it lapsed, the message was settled already, or the broker was restarted. "
    "Receive the message again."
)


@final
class Activation:
    """A scheduled message on its way to the tail; the lock keeps others off it until then."""

    __slots__ = ("due_ms", "lock", "message")

    def __init__(self, message: Message, due_ms: i64, lock: MessageLock) -> None:
        self.message: Final = message
        self.due_ms: i64 = due_ms
        self.lock: Final = lock


@final
class Fragment:
    def __init__(
        self,
        key: i64,
        index: i64,
        settings: FragmentSettings,
        clock: Clock,
        epoch: int,
        budget: Budget,
        wake: Callable[[Fragment], None],
    ) -> None:
        self.key: i64 = key
        self.settings: FragmentSettings = settings
        self.is_dirty: bool = False
        self.uncommitted_bytes: i64 = 0
        self.is_short_of_room: bool = False
        self.is_full: bool = False
        """Not even the reserve takes more: nothing is activated or dead-lettered until there is room."""
        self.activating_bytes: i64 = 0
        self.failure: BusError | None = None
        """Why the fragment takes nothing at the moment; None while it does."""
        self.is_void: bool = False
        """All memory of it is worth nothing: the store failed, or the entity is gone."""
        self.index: i64 = index
        self.lanes: list[Lane] = _new_lanes(key, index, settings.block_size, None)
        self.main: Lane = self.lanes[MAIN]
        self.dead_letter: Lane = self.lanes[DEAD_LETTER_LANE]
        self.transfer: Lane = self.lanes[TRANSFER]
        self.locks: LockTable = LockTable(int(index), epoch)
        self.lane_consumers: Final = [LaneConsumers(lane, self.locks, settings.max_locks) for lane in self.lanes]
        self.duplicates: DuplicateDetection | None = None
        self.topic: Fragment | None = None
        """Of a subscription: whose numbers and bodies its main lane uses."""
        self.rules: RuleSet = RuleSet([])
        """Of a subscription: which of its topic's messages it gets."""
        self.fan_out: FanOut | None = None
        """Of a topic: its subscriptions."""
        self.subscription_bytes: i64 = 0
        self._counted_bytes: i64 = 0
        self._orphans_from: i64 = 0
        self.keeps_orphans: bool = False
        """Of a topic: there may be a subscription that nobody knows of, whose messages must not go. What is there when
        it is opened stays, whoever else is done with it."""
        self._partners: list[Fragment] = []
        self._clock: Final = clock
        self._budget: Final = budget
        self._wake: Final = wake
        self._sends: list[SendOperation] = []
        self._settled: list[MessageLock] = []
        self._needing_body: list[MessageLock] = []
        self._awaiting_body: list[MessageLock] = []
        self._with_body: list[tuple[MessageLock, Message]] = []
        self._activations: list[Activation] = []
        self._session_states: list[StateOperation] = []
        self.sessions: SessionIndex | None = None
        """The sessions of the main lane, where messages are received session by session."""
        self.transactions: Final = StagedTransactions()
        self.moves: Final = StagedMoves()
        self.is_closed: bool = False
        """It has left the memory: another object may stand for it by now."""
        self._taken_in_count: i64 = 0
        """Messages that other fragments' commits bring here; until they are over, this one must stay in memory."""
        # What the commit under way holds, to be answered when it is over.
        self._committing_sends: list[SendOperation] = []
        self._committing_locks: list[MessageLock] = []
        self._committing_removals: list[Removal] = []
        self._committing_arrivals: list[Message] = []
        self._committing_dead: list[Message] = []
        self._committing_states: list[StateOperation] = []

    def lane(self, code: i64) -> Lane:
        return self.lanes[code]

    def consumers(self, code: i64) -> LaneConsumers:
        return self.lane_consumers[code]

    def live_bytes(self) -> i64:
        """What it holds, and what its subscriptions hold besides that: their dead letters."""
        size = self.subscription_bytes
        for lane in self.lanes:
            size += lane.live_bytes
        return size

    def expiry_of(self, message: Message) -> i64:
        """When a topic's message expires in this subscription, which may have a shorter time to live of its own."""
        ttl_ms = self.settings.default_ttl_ms
        if ttl_ms > 0 and (message.expires_at == NEVER or message.enqueued_at + ttl_ms < message.expires_at):
            return message.enqueued_at + ttl_ms
        return message.expires_at

    def _stir(self) -> None:
        if not self.is_dirty:
            self.is_dirty = True
            self._wake(self)

    # Sending.

    def send(self, operation: SendOperation) -> None:
        """Stage a send; it is answered after its commit. Raises when it is refused on the spot."""
        self._check_can_send(operation.size_bytes)
        self._check_ids(operation)
        if self.settings.requires_session and not operation.is_via:
            check_sessions(operation.messages)
        self.uncommitted_bytes += operation.size_bytes
        self._budget.uncommitted_bytes += operation.size_bytes
        self._sends.append(operation)
        self._stir()

    def _check_ids(self, operation: SendOperation) -> None:
        if self.duplicates is not None and not operation.is_via:
            self._budget.check_ids(len(operation.messages))

    def _check_can_send(self, size_bytes: i64) -> None:
        if self.failure is not None:
            raise self.failure
        if self.is_short_of_room:
            raise StoreFull(_NO_ROOM)
        self._budget.check(size_bytes)
        self._check_quota(size_bytes)

    def _check_quota(self, size_bytes: i64) -> None:
        max_size_bytes = self.settings.max_size_bytes
        if self.live_bytes() + self.uncommitted_bytes + size_bytes > max_size_bytes:
            raise QuotaExceeded(
                f"The maximum entity size of {max_size_bytes // 1048576} MB has been reached. "
                "Receive messages from it or raise its maximum size."
            )

    # Settling.

    def find_lock(self, token: bytes) -> MessageLock:
        """The live lock of this token; raises MessageLockLost."""
        lock = self.locks.find(token)
        if lock is None:
            raise MessageLockLost(_LOCK_LOST)
        self.check_lock(lock)
        return lock

    def check_lock(self, lock: MessageLock) -> None:
        """Raises MessageLockLost or SessionLockLost unless it is live and nobody settles it."""
        now = self._clock.monotonic()
        session_lock = lock.session_lock
        if session_lock is not None and not session_lock.is_live(now):
            raise SessionLockLost(SESSION_LOST)
        if not lock.is_live(now):
            raise MessageLockLost(_LOCK_LOST)

    def settle(self, lock: MessageLock, settlement: i64, reply: SettleReply | None) -> None:
        """Stage a settlement. From here on nobody else can settle it. Raises MessageLockLost."""
        self._check_can_settle(lock, settlement)
        lock.encoded_changes = encode_changes(lock.changes) if lock.changes else None
        self._end(lock, settlement, reply)

    def _check_can_settle(self, lock: MessageLock, settlement: i64) -> None:
        self.check_lock(lock)
        if self.failure is not None:
            raise self.failure
        if settlement == DEAD_LETTER and lock.lane != MAIN:
            raise InvalidOperation("A message in the dead-letter queue cannot be dead-lettered again.")
        if self.is_full and self._is_move(lock, settlement):
            raise StoreFull("The messaging store has no room to move a message; completing goes on.")

    def _end(self, lock: MessageLock, settlement: i64, reply: SettleReply | None) -> None:
        if self._decide(lock, settlement, reply):
            self._needing_body.append(lock)
        else:
            self._settled.append(lock)
        self._stir()

    def _decide(self, lock: MessageLock, settlement: i64, reply: SettleReply | None) -> bool:
        """From here on the lock is taken. Returns whether its end needs the message itself."""
        lock.reply = reply
        lock.asked = settlement
        if settlement == ABANDON or settlement == LAPSE:
            settlement = self._end_of_failed_delivery(lock, settlement)
        lock.settlement = settlement
        if self.sessions is not None and _gives_back(lock):
            self.sessions.returning(lock)
        is_changed = lock.encoded_changes is not None and (settlement == ABANDON or settlement == DEFER)
        return is_changed or self._moves(settlement)

    def _moves(self, settlement: i64) -> bool:
        """Whether the message goes to the dead letters, and so is written once more."""
        return settlement == DEAD_LETTER or (settlement == EXPIRE and self.settings.dead_letter_expired)

    def _is_move(self, lock: MessageLock, settlement: i64) -> bool:
        if settlement == ABANDON or settlement == LAPSE:
            settlement = self._end_of_failed_delivery(lock, settlement)
        return self._moves(settlement)

    def _end_of_failed_delivery(self, lock: MessageLock, settlement: i64) -> i64:
        """An abandoned or lapsed message is tried again, unless it was the last time, or its own time is up."""
        if lock.lane != MAIN:
            return settlement
        if lock.expires_at != 0 and not lock.is_deferred and lock.expires_at <= self._clock.now_ms():
            _give_expiry_as_reason(lock)
            return EXPIRE
        if lock.delivery_count + 1 >= self.settings.max_delivery_count:
            lock.reason = "MaxDeliveryCountExceeded"
            lock.description = f"Message could not be consumed after {lock.delivery_count + 1} delivery attempts."
            return DEAD_LETTER
        return settlement

    # Transactions.

    def discharge(self, operation: TransactionOperation) -> None:
        """Stage all of a transaction, to be carried out in one commit. Raises when any part of it is refused: then
        nothing has happened, and every lock is as it was."""
        if self.failure is not None:
            raise self.failure
        tokens: set[bytes] = set()
        for settlement in operation.settlements:
            self._check_can_settle(settlement.lock, settlement.settlement)
            settlement.encoded_changes = encode_changes(settlement.changes) if settlement.changes else None
            tokens.add(settlement.lock.token)
        if len(tokens) != len(operation.settlements):
            raise InvalidOperation("A message is settled twice in the transaction.")
        if operation.sends:
            self._check_can_send(operation.size_bytes)
            for send in operation.sends:
                self._check_ids(send)
                if self.settings.requires_session and not send.is_via:
                    check_sessions(send.messages)
            self._check_can_publish(operation.sends)
        self.uncommitted_bytes += operation.size_bytes
        self._budget.uncommitted_bytes += operation.size_bytes
        for settlement in operation.settlements:
            if self._decide_in_transaction(settlement):
                operation.needing_body.append(settlement.lock)
            else:
                operation.settled.append(settlement.lock)
        self.transactions.staged.append(operation)
        self._stir()

    def _check_can_publish(self, sends: list[SendOperation]) -> None:
        fan_out = self.fan_out
        if fan_out is not None:
            for send in sends:
                for message in send.messages:
                    if not send.is_via and not message.is_ping:
                        fan_out.distribute(message, self._clock.now_ms(), True)

    def _decide_in_transaction(self, settlement: TransactionSettlement) -> bool:
        lock = settlement.lock
        lock.reason = settlement.reason
        lock.description = settlement.description
        lock.is_quiet = settlement.is_quiet
        lock.encoded_changes = settlement.encoded_changes
        return self._decide(lock, settlement.settlement, settlement.reply)

    def take_transactions(self) -> list[MessageLock]:
        """Those for the coming commit; returns the settlements among them that need the message itself."""
        return self.transactions.take(self.settings.commit_operations, self.settings.commit_bytes)

    def transaction_bodies_arrived(
        self, arrived: list[tuple[MessageLock, Message]], damaged: list[MessageLock]
    ) -> None:
        _join(arrived)
        for lock in damaged:
            lock.settlement = REMOVE
        self.transactions.bodies_arrived(arrived)

    def collect_transactions(self, changes: Changes) -> None:
        """Number and write down every part of every transaction that was taken."""
        now_ms = self.arrival_time()
        for operation in self.transactions.begin_commit():
            for lock in operation.settled:
                write_settlement(self.lane(lock.lane), lock, changes)
            self._committing_locks += operation.settled
            for lock, message in operation.bodies:
                self._write_with_body(lock, message, changes)
            for send in operation.sends:
                self._write_send(send, False, changes, now_ms)
            self._committing_sends += operation.sends
        if self.duplicates is not None:
            self.duplicates.write(changes)

    def has_only_transactions(self) -> bool:
        return not self.transactions.is_empty() and self._is_plainly_idle()

    def lock_number(
        self, code: i64, number: i64, size_bytes: i64, expires_at: i64, session_lock: SessionLock | None = None
    ) -> MessageLock:
        """Lock a message by its number, for the management node and for the broker's own changes. Whoever asks has
        made sure, since it last waited, that the message is free."""
        if self.is_void and self.failure is not None:
            raise self.failure
        lane = self.lane(code)
        assert lane.is_free(number)
        if session_lock is not None:
            return self._lock_in_session(lane, number, size_bytes, expires_at, session_lock)
        lock = self.locks.lock(
            code, number, self._clock.monotonic(), self.settings.lock_duration_s, size_bytes, expires_at
        )
        lane.hold(number, lock)
        return lock

    def _lock_in_session(
        self, lane: Lane, number: i64, size_bytes: i64, expires_at: i64, session_lock: SessionLock
    ) -> MessageLock:
        if not session_lock.is_live(self._clock.monotonic()):
            raise SessionLockLost(SESSION_LOST)
        lock = self.locks.lock_in_session(lane.code, number, session_lock, size_bytes, expires_at)
        self._session_index().held(lock, session_lock.session, session_lock)
        lane.hold(number, lock)
        return lock

    def remove(self, lock: MessageLock, reply: SettleReply | None) -> None:
        """Take a message out on the broker's or the owner's behalf."""
        self._end(lock, REMOVE, reply)

    def is_expired(self, message: Message) -> bool:
        return message.expires_at != NEVER and message.expires_at <= self._clock.now_ms()

    def expire(self, message: Message) -> None:
        """A message whose time is up leaves: dropped, or to the dead letters. Until there is room for it there, it is
        nobody's, and looked at again when its lock lapses; a deferred one when it is asked for again."""
        is_parked = self.main.is_parked(message.number)
        must_wait = self.is_full and self._moves(EXPIRE)
        if must_wait and is_parked:
            return
        lock = self.lock_number(MAIN, message.number, len(message.sections), message.expires_at)
        lock.is_deferred = is_parked
        if self.sessions is not None:
            self.sessions.held(lock, self.sessions.get(session_id_of(message) or ""), None)
        lock.delivery_count = message.delivery_count
        lock.application_properties = message.application_properties
        if not must_wait:
            _give_expiry_as_reason(lock)
            self._end(lock, EXPIRE, None)

    def renew(self, token: bytes) -> i64:
        """Returns the new `locked_until` as wall time in milliseconds."""
        lock = self.find_lock(token)
        if lock.session_lock is not None:
            raise InvalidOperation("A message received in a session is locked with its session: renew that lock.")
        self.locks.renew(lock, self._clock.monotonic(), self.settings.lock_duration_s)
        return i64(self._clock.now_ms()) + i64(int(self.settings.lock_duration_s * 1000))

    def sweep(self, messages: list[Message]) -> i64:
        """Look at messages of a block whose earliest expiry is due. Returns when the next of them expires."""
        now_ms: i64 = self._clock.now_ms()
        earliest: i64 = NEVER
        for message in messages:
            if message.expires_at == NEVER or not self.main.is_waiting(message.number):
                continue
            if message.expires_at <= now_ms:
                self.expire(message)
            elif earliest == NEVER or message.expires_at < earliest:
                earliest = message.expires_at
        return earliest

    def end_sweep(self, block: i64, earliest: i64) -> None:
        """The next expiry of a block counts what is locked, too: a crash ends locks without judging their messages.
        What is past already is looked at again when its lock may be over."""
        now, now_ms = self._clock.monotonic(), i64(self._clock.now_ms())
        for lock in self.main.held_in_block(block):
            if lock.settlement == OPEN and lock.expires_at != NEVER and not lock.is_deferred:
                left_s = max(lock.ends_at() - now, LEAST_LOOK_S)
                due = max(lock.expires_at, now_ms + i64(int(left_s * 1000)))
                if earliest == NEVER or due < earliest:
                    earliest = due
        self.main.end_sweep(block, earliest)
        self._stir()

    def activate(self, message: Message, due_ms: int) -> None:
        """A scheduled message's time has come: it takes a new number at the tail."""
        if self.is_void or not self.main.is_resting(message.number):
            return  # cancelled meanwhile
        size: i64 = len(message.sections)
        lock = self.lock_number(MAIN, message.number, size, NEVER)
        lock.settlement = REMOVE
        self.activating_bytes += size
        self._activations.append(Activation(message, due_ms, lock))
        self._stir()

    def release_consumer(self, consumer: Consumer, code: i64, is_orderly: bool) -> None:
        """The link is gone. After an orderly detach its messages come back at once; after a loss they stay locked until
        they lapse, since the client may still settle them by token."""
        self.consumers(code).remove(consumer)
        for lock in self.locks.of_owner(consumer):
            if is_orderly and lock.settlement == OPEN:
                self._end(lock, LAPSE, None)
            elif lock.settlement != REMOVE:
                lock.owner = None
        self._stir()

    def lapse(self) -> bool:
        """Returns whether a session is free that was held."""
        is_freed = self._lapse_sessions()
        now = self._clock.monotonic()
        for lock in self.locks.lapsed(now, MAX_LAPSES):
            if lock.settlement != OPEN:
                continue  # a renewal that came to nothing, since the lock has lapsed all the same
            if self.is_full and self._is_move(lock, LAPSE):
                self.locks.renew(lock, now, self.settings.lock_duration_s)
            else:
                self._end(lock, LAPSE, None)
        return is_freed

    # Sessions.

    def needs_columns(self) -> bool:
        """Whether somebody receives this fragment's messages session by session: itself, or a subscription."""
        if self.fan_out is not None:
            for subscription in self.fan_out.subscriptions.values():
                if subscription.settings.requires_session:
                    return True
        return self.settings.requires_session and self.topic is None

    def accept_session(self, session_id: str) -> SessionLock:
        """A session by its name, whether it has messages or not. Raises SessionCannotBeLocked."""
        self._lapse_sessions()
        sessions = self._session_index()
        session = sessions.get(session_id)
        now, now_ms = self._clock.monotonic(), i64(self._clock.now_ms())
        return sessions.lock(session, now, now_ms, self.settings.lock_duration_s)

    def await_session(self, accept: SessionAccept) -> None:
        """The next available session, as soon as there is one."""
        self._session_index().wait(accept)

    def gave_up_session(self, accept: SessionAccept) -> None:
        """Whoever waits for a session does so no longer."""
        if self.sessions is not None:
            self.sessions.gave_up(accept)

    def hold_session(self, lock: SessionLock, consumer: Consumer) -> None:
        """Messages of the session go to this consumer from now on."""
        if self.sessions is not None:
            self.sessions.hold(lock, consumer)

    def stir_session(self, consumer: Consumer) -> None:
        """The holder of a session may be able to take more."""
        session = consumer.session
        if self.sessions is not None and session is not None:
            self.sessions.stir(session)

    def has_session_work(self) -> bool:
        """Whether something has to be read for the holders of sessions."""
        return self.sessions is not None and len(self.sessions.starving) > 0

    def _session_index(self) -> SessionIndex:
        if self.failure is not None and self.is_void:
            raise self.failure
        if self.sessions is None:
            raise InvalidOperation("This entity does not require sessions, and has none.")
        return self.sessions

    def grant_sessions(self) -> None:
        """Sessions that wait for a receiver meet receivers that wait for a session, in the order of both."""
        sessions = self.sessions
        if sessions is None or self.is_void or sessions.next_accept() is None:
            return
        self._lapse_sessions()
        now, now_ms = self._clock.monotonic(), i64(self._clock.now_ms())
        while sessions.next_accept() is not None:
            session = sessions.next_session()
            if session is None:
                return
            lock = sessions.lock(session, now, now_ms, self.settings.lock_duration_s)
            sessions.take_accept().granted(lock)

    def held_session(self, session_id: str) -> SessionLock | None:
        """The live lock on this session, if anybody holds it."""
        session = self._session_index().find(session_id)
        lock = session.lock if session is not None else None
        return lock if lock is not None and lock.is_live(self._clock.monotonic()) else None

    def renew_session(self, lock: SessionLock) -> i64:
        """Returns the new `locked_until` as wall time in milliseconds."""
        now, now_ms = self._clock.monotonic(), i64(self._clock.now_ms())
        self._session_index().renew(lock, now, now_ms, self.settings.lock_duration_s)
        return lock.locked_until_ms

    def leave_session(self, lock: SessionLock) -> None:
        """The holder is gone, or its time is up. Its messages come back at once, and count as delivered in vain."""
        sessions = self.sessions
        if lock.is_over or sessions is None:
            return
        session = lock.session
        consumer = session.consumer
        if consumer is not None:
            self.lane_consumers[MAIN].remove(consumer)
        lock.is_over = True
        for held in list(session.held.values()):
            if held.settlement == OPEN and held.session_lock is lock:
                self._end(held, RELEASE if self.is_full and self._is_move(held, LAPSE) else LAPSE, None)
        sessions.unlock(lock)

    def _lapse_sessions(self) -> bool:
        sessions = self.sessions
        if sessions is None:
            return False
        lapsed = sessions.lapsed(self._clock.monotonic())
        for lock in lapsed:
            consumer = lock.session.consumer
            self.leave_session(lock)
            if consumer is not None:
                consumer.session_lost(SessionLockLost(SESSION_LOST))
        return len(lapsed) > 0

    def next_lapse(self) -> float:
        """When the earliest lock of any kind may lapse; 0 where there is none."""
        lapse = self.locks.next_lapse()
        sessions = self.sessions
        session_lapse = sessions.next_lapse() if sessions is not None else 0.0
        if lapse == 0.0 or (session_lapse != 0.0 and session_lapse < lapse):
            return session_lapse
        return lapse

    def set_session_state(self, operation: StateOperation) -> None:
        """Stage a session's new state; it is answered after its commit."""
        if self.failure is not None:
            raise self.failure
        if operation.state is not None and self.is_short_of_room:
            raise StoreFull("The messaging store has no room left; receiving and settling go on.")
        self._session_states.append(operation)
        self._stir()

    # Moving to other entities.

    def check_can_take_in(self, count: i64, size_bytes: i64) -> None:
        """Raises what a sender would be told, throttling apart: forwarding waits for its own commits."""
        if self.failure is not None:
            raise self.failure
        if self.is_short_of_room:
            raise StoreFull(_NO_ROOM)
        self._check_quota(size_bytes)
        if self.duplicates is not None:
            self._budget.check_ids(count)

    def move(self, code: i64, message: Message, arriving: Message, destination: Fragment, reply: SettleReply) -> bool:
        """Stage a message's way to another entity, where it arrives in the given form. Returns False where the message
        is not there to be moved any more."""
        return self._stage_move(code, message, arriving, destination, reply, None, None)

    def refuse_move(self, code: i64, message: Message, reason: str, description: str, reply: SettleReply) -> bool:
        """Nobody takes the message: it goes to the transfer dead letters."""
        return self._stage_move(code, message, message, None, reply, reason, description)

    def _stage_move(
        self,
        code: i64,
        message: Message,
        arriving: Message,
        destination: Fragment | None,
        reply: SettleReply,
        reason: str | None,
        description: str | None,
    ) -> bool:
        if self.is_void or not self.lane(code).is_waiting(message.number):
            return False
        lock = self.lock_number(code, message.number, len(message.sections), NEVER)
        if self.sessions is not None and code == MAIN:
            self.sessions.held(lock, self.sessions.get(session_id_of(message) or ""), None)
        lock.settlement = REMOVE
        lock.delivery_count = message.delivery_count
        lock.application_properties = message.application_properties
        lock.reason = reason
        lock.description = description
        lock.reply = reply
        self.moves.staged.append(Move(lock, arriving, destination))
        self._stir()
        return True

    def has_transfers(self) -> bool:
        """Whether something waits here that is to leave for another entity."""
        settings = self.settings
        if self.transfer.live_count > 0:
            return True
        if settings.forward_to and self.main.live_count > self.main.deferred_count + self.main.scheduled_count:
            return True
        return settings.forward_dead_letters_to != "" and self.dead_letter.live_count > self.dead_letter.deferred_count

    def _collect_moves(self, changes: Changes) -> None:
        for move in self.moves.begin_commit():
            lock, destination = move.lock, move.destination
            self._committing_locks.append(lock)
            if destination is None:
                write_gone(self.lane(lock.lane), lock, changes)
                refused = write_dead_letter(self.lanes[TRANSFER_DEAD_LETTER], lock, move.message, changes)
                self.moves.committing_refused.append(refused)
            elif destination.is_void or destination.is_closed:
                lock.settlement = RELEASE  # gone since it was found: it is looked for again
            else:
                write_gone(self.lane(lock.lane), lock, changes)
                destination.take_in(move.message, changes)
                self._partners.append(destination)
        for partner in self._partners:
            if partner.duplicates is not None:
                partner.duplicates.write(changes)

    def take_in(self, message: Message, changes: Changes) -> None:
        """A message arrives from another entity, in the commit that takes it from there."""
        now_ms, fan_out = self.arrival_time(), self.fan_out
        self._taken_in_count += 1
        if self.is_duplicate(message):
            return
        if fan_out is None:
            write_arrival(self.main, message, now_ms, self.settings.default_ttl_ms, changes)
            self._committing_arrivals.append(message)
        elif message.scheduled_at > now_ms:
            write_arrival(self.main, message, now_ms, self.settings.default_ttl_ms, changes)
            fan_out.note(self.main, message)
        else:
            distribution = fan_out.distribute(message, now_ms, False)
            fan_out.give(
                message, distribution, now_ms, expiry_of(message, now_ms, self.settings.default_ttl_ms), changes
            )

    # Bodies that settlements need.

    def take_needing_body(self) -> list[MessageLock]:
        """Settlements that cannot be carried out without the message itself, up to one commit's worth."""
        taken: list[MessageLock] = []
        size: i64 = 0
        for lock in self._needing_body:
            if taken and size + lock.size_bytes > self.settings.commit_bytes:
                break
            taken.append(lock)
            size += lock.size_bytes
        del self._needing_body[: len(taken)]
        self._awaiting_body = taken
        return taken

    def bodies_arrived(self, arrived: list[tuple[MessageLock, Message]], damaged: list[MessageLock]) -> None:
        """All that was asked for. What is damaged cannot be moved: the record is taken out, and the settlement counts
        as done."""
        self._awaiting_body = []
        _join(arrived)
        self._with_body += arrived
        for lock in damaged:
            lock.settlement = REMOVE
            self._settled.append(lock)

    # The commit: collect, then exactly one of applied, sends_refused (and collect again), failed.

    def collect(self, changes: Changes) -> None:
        """Number what is staged, but for sends, and write it down. What exceeds a commit's bounds waits for the
        next."""
        now_ms = self.arrival_time()
        self._collect_settled(changes)
        self._collect_with_body(changes)
        self._collect_removals(changes)
        self._collect_orphans(changes)
        self._collect_activations(changes, now_ms)
        self._collect_session_states(changes, True, now_ms)
        self._collect_moves(changes)
        if self.duplicates is not None:
            self.duplicates.write_trim(changes)

    def _collect_orphans(self, changes: Changes) -> None:
        """Messages of a topic that no subscription has any more, because one was deleted."""
        if self.fan_out is None or self._orphans_from >= self.main.visible_end:
            return
        lane = self.main
        for number in lane.orphans(self._orphans_from, self.settings.commit_operations):
            lane.settle(number, lane.typical_size(number), changes)
        self._orphans_from = lane.scanned_to

    def look_for_orphans(self) -> None:
        self._orphans_from = 1
        self._stir()

    def collect_sends(self, arrivals: Changes) -> None:
        """Behind everything else of all fragments, and written down apart: so they can be left out when the store is
        full, and the last numbers given are theirs to give back."""
        self._collect_sends(arrivals, self.arrival_time())
        self._collect_session_states(arrivals, False, self.main.newest_enqueued_at)
        if self.duplicates is not None:
            self.duplicates.write_sends(arrivals)

    def arrival_time(self) -> i64:
        """What arrives now has come at this time: never before what came earlier, whatever the clock says."""
        main = self.main
        main.newest_enqueued_at = max(main.newest_enqueued_at, i64(self._clock.now_ms()))
        if self.duplicates is not None:
            self.duplicates.begin(main.newest_enqueued_at, self.settings.duplicate_window_ms)
        return main.newest_enqueued_at

    def trim_history(self) -> None:
        if self.duplicates is not None:
            self.duplicates.trim()
            self._stir()

    def is_duplicate(self, message: Message) -> bool:
        """To be asked, once, of each message that arrives: one that came before is accepted and dropped."""
        return self.duplicates is not None and self.duplicates.is_duplicate(message)

    def take_partners(self) -> list[Fragment]:
        """Other fragments that what was collected has changed, too: they belong to the same commit."""
        partners = self._partners
        self._partners = []
        if self.topic is not None:
            partners.append(self.topic)
        if self.fan_out is not None:
            partners += self.fan_out.touched()
        return partners

    def emit(self, changes: Changes) -> None:
        """Write down what collecting, here and elsewhere, has changed in this fragment's lanes."""
        for lane in self.lanes:
            lane.emit(changes)

    def _collect_settled(self, changes: Changes) -> None:
        most = self.settings.commit_operations
        locks = self._settled[:most]
        del self._settled[:most]
        for lock in locks:
            write_settlement(self.lane(lock.lane), lock, changes)
        self._committing_locks = locks

    def _collect_with_body(self, changes: Changes) -> None:
        for lock, message in self._with_body:
            self._write_with_body(lock, message, changes)
        self._with_body = []

    def _write_with_body(self, lock: MessageLock, message: Message, changes: Changes) -> None:
        encoded_changes = lock.encoded_changes
        if encoded_changes is not None:
            self._change_properties(lock, message, encoded_changes)
        if lock.settlement == DEAD_LETTER or lock.settlement == EXPIRE:
            write_gone(self.main, lock, changes)
            self._committing_dead.append(write_dead_letter(self.dead_letter, lock, message, changes))
        else:
            write_settlement(self.lane(lock.lane), lock, changes)
        self._committing_locks.append(lock)

    def _change_properties(self, lock: MessageLock, message: Message, encoded_changes: dict[bytes, bytes]) -> None:
        """A message may not outgrow its limit change by change: then it is a dead letter, as it was before."""
        properties = application_properties_with(message, encoded_changes)
        if i64(len(properties)) <= self.settings.max_properties_bytes:
            lock.application_properties = properties
            message.application_properties = properties
        elif lock.lane == MAIN:
            lock.settlement = DEAD_LETTER
            lock.reason = "HeaderSizeExceeded"
            lock.description = f"The application properties would exceed {self.settings.max_properties_bytes} bytes."

    def _collect_removals(self, changes: Changes) -> None:
        removals = self._take_removals()
        for removal in removals:
            write_gone(self.lane(removal.lock.lane), removal.lock, changes)
        self._committing_removals = removals

    def _take_removals(self) -> list[Removal]:
        removals: list[Removal] = []
        for consumers in self.lane_consumers:
            if consumers.removals:
                removals += consumers.take_removals()
        return removals

    def _collect_activations(self, changes: Changes, now_ms: i64) -> None:
        for activation in self._activations:
            self._committing_locks.append(activation.lock)
            if self.fan_out is not None:
                self._publish_activated(self.fan_out, activation, now_ms, changes)
                continue
            arrived = write_activation(self.main, activation.message, activation.due_ms, now_ms, changes)
            self._committing_arrivals.append(arrived)
        self._activations = []
        self.activating_bytes = 0

    def _publish_activated(self, fan_out: FanOut, activation: Activation, now_ms: i64, changes: Changes) -> None:
        """The rules of now decide, not those of when it was scheduled."""
        message = with_its_session(write_leaving(self.main, activation.message, activation.due_ms, now_ms, changes))
        distribution = fan_out.distribute(message, now_ms, False)
        fan_out.give(message, distribution, now_ms, message.expires_at, changes)

    def _collect_sends(self, changes: Changes, now_ms: i64) -> None:
        fan_out = self.fan_out
        if fan_out is not None:
            fan_out.begin_sends()
        count = 0
        size: i64 = 0
        for operation in self._sends:
            if count > 0 and self._is_enough(count, size + operation.size_bytes):
                break
            count += 1
            size += operation.size_bytes
            self._write_send(operation, True, changes, now_ms)
        self._committing_sends = self._sends[:count]
        del self._sends[:count]

    def _collect_session_states(self, changes: Changes, is_clearing: bool, now_ms: i64) -> None:
        """The latest of each session. One that is cleared frees room, and so is never left out."""
        if not self._session_states:
            return
        latest: dict[str, StateOperation] = {}
        for operation in self._session_states:
            latest[operation.session_id] = operation
        for session_id in latest:
            state = latest[session_id].state
            if (state is None) == is_clearing:
                changes.session_states.append(SessionState(int(self.key), session_id, state, int(now_ms)))
        if not is_clearing:
            self._committing_states = self._session_states
            self._session_states = []

    def _write_send(self, operation: SendOperation, is_refusable: bool, changes: Changes, now_ms: i64) -> None:
        fan_out = self.fan_out
        if fan_out is not None and not operation.is_via:
            self._publish(fan_out, operation, is_refusable, now_ms, changes)
            return
        for message in operation.messages:
            if message.is_ping:
                continue
            if operation.is_via:
                write_via(self.transfer, message, now_ms, changes)
            elif self.is_duplicate(message):
                message.number = 0
            else:
                write_arrival(self.main, message, now_ms, self.settings.default_ttl_ms, changes)

    def _is_enough(self, count: int, size: i64) -> bool:
        settings, fan_out = self.settings, self.fan_out
        if count >= settings.commit_operations or size > settings.commit_bytes:
            return True
        return fan_out is not None and fan_out.evaluation_count >= MAX_EVALUATIONS

    def _publish(
        self, fan_out: FanOut, operation: SendOperation, is_refusable: bool, now_ms: i64, changes: Changes
    ) -> None:
        """A batch is refused or given as a whole, so all of it is evaluated before anything is written."""
        distributions: list[Distribution] = []
        try:
            for message in operation.messages:
                if not message.is_ping and message.scheduled_at <= now_ms:
                    distributions.append(fan_out.distribute(message, now_ms, is_refusable))
        except BusError as error:
            operation.error = error
            return
        position = 0
        for message in operation.messages:
            if message.is_ping:
                continue
            is_scheduled = message.scheduled_at > now_ms
            if self.is_duplicate(message):
                position += 0 if is_scheduled else 1
            elif is_scheduled:
                write_arrival(self.main, message, now_ms, self.settings.default_ttl_ms, changes)
                fan_out.note(self.main, message)
            else:
                expires_at = expiry_of(message, now_ms, self.settings.default_ttl_ms)
                fan_out.give(message, distributions[position], now_ms, expires_at, changes)
                position += 1

    def show(self) -> None:
        """The commit is durable: what it numbered may be seen, in all of its fragments before any of them answers."""
        for lane in self.lanes:
            lane.show()
        topic = self.topic
        if topic is not None:
            size = self.live_bytes() - self.main.live_bytes
            topic.subscription_bytes += size - self._counted_bytes
            self._counted_bytes = size

    def applied(self) -> None:
        """Answer, make available."""
        settings = self.settings
        for lock in self._committing_locks:
            self._finish(lock)
        for removal in self._committing_removals:
            lane = self.lane(removal.lock.lane)
            lane.held.pop(int(removal.lock.number), None)
            self.locks.forget(removal.lock)
            if self.sessions is not None:
                self.sessions.ended(removal.lock, False)
            removal.consumer.removing_count -= 1
            removal.consumer.deliver(removal.message, removal.lock)
        for arrived in self._committing_arrivals:
            self._enter_arrived(arrived)
        for refused in self.moves.committing_refused:
            self.lanes[TRANSFER_DEAD_LETTER].enter(refused, settings.window_messages, settings.window_bytes)
        for dead in self._committing_dead:
            self.dead_letter.enter(dead, settings.window_messages, settings.window_bytes)
        if self.fan_out is not None:
            self.fan_out.applied()
        for operation in self._committing_sends:
            self._committed(operation)
            self._enter_sent(operation)
            operation.reply.sent(operation, operation.error)
        for state in self._committing_states:
            state.reply(None)
        self._flush_removals()
        self._forget_commit()
        for transaction in self.transactions.end_commit():
            transaction.reply.discharged(transaction, None)

    def _enter_sent(self, operation: SendOperation) -> None:
        for message in operation.messages:
            if message.number == 0:
                continue  # never stored: a ping, or a duplicate
            if operation.is_via:
                self.transfer.enter(message, self.settings.window_messages, self.settings.window_bytes)
            elif self.fan_out is not None:
                continue  # its subscriptions have it
            else:
                self._enter_arrived(message)

    def _enter_arrived(self, message: Message) -> None:
        if message.flags & IS_SCHEDULED == 0:
            self.enter(message)
        elif self.main.window_end == message.number:
            self.main.window_end += 1

    def enter(self, message: Message) -> None:
        """A durable message becomes available."""
        if self.sessions is not None:
            self.sessions.arrived(message)
            return
        self.main.enter(message, self.settings.window_messages, self.settings.window_bytes)

    def _committed(self, operation: SendOperation) -> None:
        self.uncommitted_bytes -= operation.size_bytes
        self._budget.uncommitted_bytes -= operation.size_bytes

    def _flush_removals(self) -> None:
        last: Consumer | None = None
        for removal in self._committing_removals:
            if removal.consumer is not last:
                last = removal.consumer
                last.flush()

    def _finish(self, lock: MessageLock) -> None:
        lane = self.lane(lock.lane)
        lane.held.pop(int(lock.number), None)
        self.locks.forget(lock)
        is_back = _gives_back(lock)
        if self.sessions is not None and lock.lane == MAIN:
            self.sessions.ended(lock, is_back)
        elif is_back:
            lane.give_back(lock.number)
        reply = lock.reply
        if reply is not None:
            reply.settled(lock, None)

    def _forget_commit(self) -> None:
        self._committing_sends = []
        self._committing_locks = []
        self._committing_removals = []
        self._committing_arrivals = []
        self._committing_dead = []
        self.moves.committing_refused = []
        self._taken_in_count = 0
        if self.duplicates is not None:
            self.duplicates.committed()
        self._committing_states = []

    def refuse_sends(self, changes: Changes, error: BusError) -> None:
        """The store is full: the same commit again without what grows. Nobody has seen the sends' numbers."""
        self._take_back_sends(changes)
        if self.duplicates is not None:
            self.duplicates.refuse_sends()
        refused = self._committing_sends
        self._committing_sends = []
        for operation in refused:
            self._committed(operation)
            operation.reply.sent(operation, error)
        states = self._committing_states
        self._committing_states = []
        for state in states:
            if state.state is None:
                self._committing_states.append(state)
            else:
                state.reply(error)

    def _take_back_sends(self, changes: Changes) -> None:
        if self.fan_out is not None:
            self.fan_out.take_back_sends(changes)
        for operation in reversed(self._committing_sends):
            if self.fan_out is not None and not operation.is_via:
                continue
            lane = self.transfer if operation.is_via else self.main
            for message in reversed(operation.messages):
                if message.number != 0:
                    lane.take_back_number(message.number, len(message.sections))
        self.main.emit_again(changes)
        self.transfer.emit_again(changes)

    def is_idle(self) -> bool:
        """Nothing is staged, and nothing is on its way to the store."""
        return self.transactions.is_empty() and self._is_plainly_idle()

    def _is_plainly_idle(self) -> bool:
        """So it is, transactions apart."""
        return not (
            self._sends
            or self._settled
            or self._needing_body
            or self._awaiting_body
            or self._with_body
            or self._activations
            or self._session_states
            or self.moves.staged
            or self._taken_in_count > 0
            or self._has_removals()
            or self._committing_sends
            or self._committing_locks
            or self._committing_removals
            or self._committing_states
        )

    def _has_removals(self) -> bool:
        for consumers in self.lane_consumers:
            if consumers.removals:
                return True
        return False

    def has_staged(self) -> bool:
        if not self.is_idle() or (self.fan_out is not None and self._orphans_from < self.main.visible_end):
            return True
        for lane in self.lanes:
            if lane.has_more_to_drop():
                return True
        return False

    def fail(self, error: BusError) -> None:
        """The store is gone, the outcome of the commit unknown: answer everything as failed. This object is done for;
        what is true is what the store says when it is opened again."""
        self.failure = error
        self.is_void = True
        self.is_dirty = False
        for operation in self._committing_sends + self._sends:
            operation.reply.sent(operation, error)
        for removal in self._committing_removals + self._take_removals():
            # Gone or not, it is not delivered: that is what the mode means. The credit is still the client's.
            removal.consumer.removing_count -= 1
            removal.consumer.credit += 1
        locks = self._committing_locks + self._settled + self._needing_body + self._awaiting_body
        locks += self.moves.clear()
        for lock, _ in self._with_body:
            locks.append(lock)
        for lock in locks:
            reply = lock.reply
            if reply is not None:
                reply.settled(lock, error)
        for state in self._committing_states + self._session_states:
            state.reply(error)
        self._session_states = []
        self._lose_all_sessions(error)
        self.locks.void()
        self._sends = []
        self._settled = []
        self._needing_body = []
        self._awaiting_body = []
        self._with_body = []
        self._activations = []
        self.activating_bytes = 0
        self._budget.uncommitted_bytes -= self.uncommitted_bytes
        self.uncommitted_bytes = 0
        self._forget_commit()
        for transaction in self.transactions.clear():
            transaction.reply.discharged(transaction, error)
        self.let_go()

    def _lose_all_sessions(self, error: BusError) -> None:
        sessions = self.sessions
        if sessions is None:
            return
        for lock in sessions.locks():
            lock.is_over = True
            consumer = lock.session.consumer
            if consumer is not None:
                consumer.session_lost(SessionLockLost(SESSION_LOST))
        sessions.refuse_all(error)

    def let_go(self) -> None:
        """Of what it has of the memory that all fragments share: it is about to be closed, or void."""
        if self.duplicates is not None:
            self.duplicates.end()
        self.duplicates = None

    def start_over(self, epoch: int, blocks: list[list[BlockRecord]], recent_ids: RecentIds | None) -> None:
        """Take the state from the store: the block records of every lane, and the message ids that are remembered.
        Links stay attached; every lock of before is lost."""
        self.let_go()
        if recent_ids is not None:
            self.duplicates = DuplicateDetection(self.key, recent_ids, self._budget)
        topic, fan_out = self.topic, self.fan_out
        source = topic.main if topic is not None else None
        self.lanes = _new_lanes(self.key, self.index, self.settings.block_size, source)
        self.main = self.lanes[MAIN]
        self.dead_letter = self.lanes[DEAD_LETTER_LANE]
        self.transfer = self.lanes[TRANSFER]
        self.subscription_bytes = 0
        self._counted_bytes = 0
        self._orphans_from = 1
        if fan_out is not None:
            fan_out.forget()
        self.main.newest_enqueued_at = self._clock.now_ms()
        self.locks = LockTable(int(self.index), epoch)
        self._partners = []
        for code in range(len(self.lanes)):
            self.lanes[code].load(blocks[code])
            self.lane_consumers[code].start_over(self.lanes[code], self.locks)
        if self.keeps_orphans or topic is not None:
            self.main.refer_all()
        if topic is not None:
            self._counted_bytes = self.live_bytes() - self.main.live_bytes
            topic.subscription_bytes += self._counted_bytes
        if self.settings.requires_session:
            self.sessions = SessionIndex(self.main, self.settings)
            self.lane_consumers[MAIN].sessions = self.sessions
        self.failure = None
        self.is_void = False

    # Handing over.

    def pump(self) -> None:
        if self.is_void:
            return
        now = self._clock.monotonic()
        now_ms: i64 = self._clock.now_ms()
        for consumers in self.lane_consumers:
            self._pump_lane(consumers, now, now_ms)

    def _pump_lane(self, consumers: LaneConsumers, now: float, now_ms: i64) -> None:
        if consumers.sessions is not None:
            consumers.pump_sessions(now, now_ms)
        elif not consumers.lane.ready or consumers.is_empty():
            return
        else:
            consumers.pump(now, now_ms, self.settings.lock_duration_s)
        if consumers.expired:
            expired = consumers.expired
            consumers.expired = []
            for message in expired:
                self.expire(message)
        if consumers.removals:
            self._stir()


def _new_lanes(key: i64, index: i64, block_size: i64, source: Lane | None) -> list[Lane]:
    """In the order of their codes."""
    lanes: list[Lane] = []
    for code in LANES:
        lanes.append(Lane(key, code, block_size, index << 48, source if code == MAIN else None))
    return lanes


def _join(arrived: list[tuple[MessageLock, Message]]) -> None:
    """What the messages have gained since their bodies were written is known to their locks."""
    for lock, message in arrived:
        message.delivery_count = lock.delivery_count
        message.application_properties = lock.application_properties


def _gives_back(lock: MessageLock) -> bool:
    """Whether the message is available again when this settlement is durable."""
    settlement = lock.settlement
    return not lock.is_deferred and (settlement == ABANDON or settlement == LAPSE or settlement == RELEASE)


def _give_expiry_as_reason(lock: MessageLock) -> None:
    lock.reason = "TTLExpiredException"
    lock.description = "The message expired and was dead lettered."
