"""The heart: one fragment of an entity. Sends, settlements and removals are staged here, numbered and turned into
changes when the commit comes, and answered and made visible only when it is durable.

Synchronous and free of I/O. The message broker around it reads bodies, commits changes and calls back; the clock and
the store's epoch are passed in. Nothing here awaits, so nothing here needs a mutex.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.budget import NO_ROOM, Budget
from tandembus.broker.consumers import LaneConsumers, Removal
from tandembus.broker.discharging import stage_transaction
from tandembus.broker.duplicates import DuplicateDetection, RecentIds
from tandembus.broker.expiring import expire, give_expiry_as_reason
from tandembus.broker.figures import FragmentFigures, Holding, holding_of
from tandembus.broker.fragment_lives import fail, new_lanes, start_over
from tandembus.broker.high_waters import HighWaters
from tandembus.broker.lane import Lane
from tandembus.broker.ledger_operations import LedgerOperation
from tandembus.broker.locks import (
    ABANDON,
    DEAD_LETTER,
    DEFER,
    EXPIRE,
    LOCK_LOST,
    REMOVE,
    LockTable,
    MessageLock,
    SettleReply,
    counts_delivery,
    gives_back,
)
from tandembus.broker.moves import StagedMoves
from tandembus.broker.operations import PromiseOperation, SendOperation
from tandembus.broker.session import SessionLock, check_sessions
from tandembus.broker.session_locks import session_index
from tandembus.broker.sessions import SESSION_LOST, SessionIndex
from tandembus.broker.settings import FragmentSettings
from tandembus.broker.staged import Staged
from tandembus.broker.subscriptions import FanOut
from tandembus.broker.transactions import (
    StagedTransactions,
    TransactionOperation,
)
from tandembus.clock import Clock
from tandembus.errors import (
    BusError,
    FragmentUnavailable,
    InvalidOperation,
    MessageLockLost,
    QuotaExceeded,
    SessionLockLost,
    StoreFull,
    anew,
)
from tandembus.large_messages import counted
from tandembus.message import Message
from tandembus.message_encoding import encode_changes
from tandembus.rules import RuleSet
from tandembus.store.messaging_store import DEAD_LETTER as DEAD_LETTER_LANE
from tandembus.store.messaging_store import (
    MAIN,
    NEVER,
    TRANSFER,
    BlockRecord,
)


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
        self.counted_uncommitted_bytes: i64 = 0
        """Of these, what counts in the budget."""
        self.is_short_of_room: bool = False
        self.shortage: str = NO_ROOM
        """What senders are told while it is short of room."""
        self.is_full: bool = False
        """Not even the reserve takes more: nothing is activated or dead-lettered until there is room."""
        self.failure: BusError | None = None
        """Why the fragment takes nothing at the moment; None while it does."""
        self.is_void: bool = False
        """All memory of it is worth nothing: the store failed, or the entity is gone."""
        self.index: i64 = index
        self.lanes: list[Lane] = new_lanes(key, index, settings, None)
        self.main: Lane = self.lanes[MAIN]
        self.dead_letter: Lane = self.lanes[DEAD_LETTER_LANE]
        self.transfer: Lane = self.lanes[TRANSFER]
        self.locks: LockTable = LockTable(int(index), epoch)
        self.lane_consumers: Final = [
            LaneConsumers(lane, self.locks, settings.max_locks, budget) for lane in self.lanes
        ]
        self.duplicates: DuplicateDetection | None = None
        self.high_waters: Final = HighWaters(key)
        self.topic: Fragment | None = None
        """Of a subscription: whose numbers and bodies its main lane uses."""
        self.rules: RuleSet = RuleSet([])
        """Of a subscription: which of its topic's messages it gets."""
        self.fan_out: FanOut | None = None
        """Of a topic: its subscriptions."""
        self.subscription_bytes: i64 = 0
        self.counted_bytes: i64 = 0
        self.orphans_from: i64 = 0
        self.orphans_end: i64 = 0
        """Of a topic: among which numbers there may be some that no subscription has."""
        self.keeps_orphans: bool = False
        """Of a topic: there may be a subscription that nobody knows of, whose messages must not go. What is there when
        it is opened stays, whoever else is done with it."""
        self.partners: list[Fragment] = []
        self.clock: Final = clock
        self.budget: Final = budget
        self._wake: Final = wake
        self.staged: Final = Staged()
        self.sessions: SessionIndex | None = None
        """The sessions of the main lane, where messages are received session by session."""
        self.transactions: Final = StagedTransactions()
        self.moves: Final = StagedMoves()
        self.is_closed: bool = False
        """It has left the memory: another object may stand for it by now."""
        self.figures: FragmentFigures = FragmentFigures(key)
        self.taken_in_count: i64 = 0
        """Messages that other fragments' commits bring here; until they are over, this one must stay in memory."""

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

    def note_oldest(self) -> None:
        """For whoever watches; when it came is known only if it is in memory."""
        figures, main = self.figures, self.main
        figures.body_fragment = main.body_fragment
        figures.note_oldest(main.oldest() if self.fan_out is None and not self.is_void else 0)
        if figures.oldest_enqueued_at == 0 and main.ready and main.ready[0].number == figures.oldest_number:
            figures.oldest_enqueued_at = main.ready[0].enqueued_at

    def holding(self) -> Holding:
        found = holding_of(self.lanes, self.fan_out is not None)
        found.locked = len(self.locks)
        return found

    def expiry_of(self, message: Message) -> i64:
        """When a topic's message expires in this subscription, which may have a shorter time to live of its own."""
        ttl_ms = self.settings.default_ttl_ms
        if ttl_ms > 0 and (message.expires_at == NEVER or message.enqueued_at + ttl_ms < message.expires_at):
            return message.enqueued_at + ttl_ms
        return message.expires_at

    def stir(self) -> None:
        if not self.is_dirty:
            self.is_dirty = True
            self._wake(self)

    # Sending.

    def send(self, operation: SendOperation) -> None:
        """Stage a send; it is answered after its commit. Raises when it is refused on the spot."""
        if not self.high_waters.has_all(operation):
            self.check_can_send(operation.size_bytes, operation.source is not None)
            self.check_ids(operation)
        elif self.failure is not None:
            raise anew(self.failure)
        self.check_messages(operation)
        self.count_uncommitted(operation.size_bytes, 1)
        self.staged.sends.append(operation)
        self.stir()

    def count_uncommitted(self, size_bytes: i64, sign: i64) -> None:
        """One more operation of this size waits for its commit (1), or one less (-1)."""
        self.uncommitted_bytes += sign * size_bytes
        self.counted_uncommitted_bytes += sign * counted(size_bytes)
        self.budget.uncommitted_bytes += sign * counted(size_bytes)

    def check_messages(self, operation: SendOperation) -> None:
        """Raises for what is wrong with the messages themselves, whenever they are sent."""
        if self.settings.requires_session and not operation.is_via:
            check_sessions(operation.messages)

    def check_ids(self, operation: SendOperation) -> None:
        if self.duplicates is not None and not operation.is_via:
            self.budget.check_ids(len(operation.messages))

    def check_can_send(self, size_bytes: i64, is_forwarded: bool) -> None:
        """Forwarding is not throttled: it waits for its own commits."""
        if self.failure is not None:
            raise anew(self.failure)
        if self.is_short_of_room:
            raise StoreFull(self.shortage)
        if not is_forwarded:
            self.budget.check(size_bytes)
        self.check_quota(size_bytes)

    def check_quota(self, size_bytes: i64) -> None:
        max_size_bytes = self.settings.max_size_bytes
        if self.live_bytes() + self.uncommitted_bytes + size_bytes > max_size_bytes:
            raise QuotaExceeded(
                f"The maximum entity size of {max_size_bytes // 1048576} MB has been reached. "
                "Receive messages from it or raise its maximum size."
            )

    def promise(self, operation: PromiseOperation) -> None:
        """Stage a promise of numbers; it is answered after its commit."""
        if self.failure is not None:
            raise anew(self.failure)
        if self.is_short_of_room:
            raise StoreFull(self.shortage)
        self.staged.promises.append(operation)
        self.stir()

    # Settling.

    def find_lock(self, token: bytes) -> MessageLock:
        """The live lock of this token; raises MessageLockLost."""
        lock = self.locks.find(token)
        if lock is None:
            raise MessageLockLost(LOCK_LOST)
        self.check_lock(lock)
        return lock

    def check_lock(self, lock: MessageLock) -> None:
        """Raises MessageLockLost or SessionLockLost unless it is live and nobody settles it."""
        now = self.clock.monotonic()
        session_lock = lock.session_lock
        if session_lock is not None and not session_lock.is_live(now):
            raise SessionLockLost(SESSION_LOST)
        if not lock.is_live(now):
            raise MessageLockLost(LOCK_LOST)

    def settle(self, lock: MessageLock, settlement: i64, reply: SettleReply | None) -> None:
        """Stage a settlement. From here on nobody else can settle it. Raises MessageLockLost."""
        self.check_can_settle(lock, settlement)
        lock.encoded_changes = encode_changes(lock.changes) if lock.changes else None
        self.end(lock, settlement, reply)

    def check_can_settle(self, lock: MessageLock, settlement: i64) -> None:
        self.check_lock(lock)
        if self.failure is not None:
            raise anew(self.failure)
        if settlement == DEAD_LETTER and lock.lane != MAIN:
            raise InvalidOperation("A message in the dead-letter queue cannot be dead-lettered again.")
        if self.is_full and self.is_move(lock, settlement):
            raise StoreFull("The messaging store has no room to move a message; completing goes on.")

    def end(self, lock: MessageLock, settlement: i64, reply: SettleReply | None) -> None:
        if self.decide(lock, settlement, reply):
            self.staged.needing_body.append(lock)
        else:
            self.staged.settled.append(lock)
        self.stir()

    def decide(self, lock: MessageLock, settlement: i64, reply: SettleReply | None) -> bool:
        """From here on the lock is taken. Returns whether its end needs the message itself."""
        lock.reply = reply
        lock.asked = settlement
        if counts_delivery(lock, settlement):
            settlement = self._end_of_counted_delivery(lock, settlement)
            self._give_reason(lock, settlement)
        lock.settlement = settlement
        if self.sessions is not None and gives_back(lock):
            self.sessions.returning(lock)
        is_changed = lock.encoded_changes is not None and (settlement == ABANDON or settlement == DEFER)
        return is_changed or self.writes_again(settlement)

    def writes_again(self, settlement: i64) -> bool:
        """Whether the message goes to the dead letters, and so is written once more."""
        return settlement == DEAD_LETTER or (settlement == EXPIRE and self.settings.dead_letter_expired)

    def is_move(self, lock: MessageLock, settlement: i64) -> bool:
        if counts_delivery(lock, settlement):
            settlement = self._end_of_counted_delivery(lock, settlement)
        return self.writes_again(settlement)

    def _end_of_counted_delivery(self, lock: MessageLock, settlement: i64) -> i64:
        """The message is tried again or set aside, unless it was the last time, or its own time is up; that of a
        deferred one is judged when somebody asks for it."""
        is_deferred = lock.is_deferred or settlement == DEFER
        if lock.expires_at != 0 and not is_deferred and lock.expires_at <= self.clock.now_ms():
            return EXPIRE
        if lock.delivery_count + 1 >= self.settings.max_delivery_count:
            return DEAD_LETTER
        return settlement

    def _give_reason(self, lock: MessageLock, settlement: i64) -> None:
        """Why a delivery that counts is the last one."""
        if settlement == EXPIRE:
            give_expiry_as_reason(lock)
        elif settlement == DEAD_LETTER:
            lock.reason = "MaxDeliveryCountExceeded"
            lock.description = f"Message could not be consumed after {lock.delivery_count + 1} delivery attempts."

    # Transactions.

    def discharge(self, operation: TransactionOperation) -> None:
        """Stage all of a transaction, to be carried out in one commit. Raises when any part of it is refused: then
        nothing has happened, and every lock is as it was."""
        stage_transaction(self, operation)

    def take_transactions(self) -> list[Fragment]:
        """Those for the coming commit; returns the other fragments that have a part in them. What the end of a
        subscription has taken along is not missed: nothing of it is left."""
        others: list[Fragment] = []
        for part in self.transactions.take(self.settings.commit_operations, self.settings.commit_bytes):
            other = part.fragment
            if other is not None and not other.is_void:
                other.transactions.taken.append(part.operation)
                others.append(other)
        return others

    def has_only_transactions(self) -> bool:
        return not self.transactions.is_empty() and self._is_plainly_idle()

    def lock_number(
        self, code: i64, number: i64, size_bytes: i64, expires_at: i64, session_lock: SessionLock | None = None
    ) -> MessageLock:
        """Lock a message by its number, for the management node and for the broker's own changes. Whoever asks has
        made sure, since it last waited, that the message is free."""
        if self.is_void and self.failure is not None:
            raise anew(self.failure)
        lane = self.lane(code)
        assert lane.is_free(number)
        if session_lock is not None:
            return self._lock_in_session(lane, number, size_bytes, expires_at, session_lock)
        lock = self.locks.lock(
            code, number, self.clock.monotonic(), self.settings.lock_duration_s, size_bytes, expires_at
        )
        lane.hold(number, lock)
        return lock

    def _lock_in_session(
        self, lane: Lane, number: i64, size_bytes: i64, expires_at: i64, session_lock: SessionLock
    ) -> MessageLock:
        if not session_lock.is_live(self.clock.monotonic()):
            raise SessionLockLost(SESSION_LOST)
        lock = self.locks.lock_in_session(lane.code, number, session_lock, size_bytes, expires_at)
        session_index(self).held(lock, session_lock.session, session_lock)
        lane.hold(number, lock)
        return lock

    def remove(self, lock: MessageLock, reply: SettleReply | None) -> None:
        """Take a message out on the broker's or the owner's behalf."""
        self.end(lock, REMOVE, reply)

    # Reservations.

    def ask_ledger(self, operation: LedgerOperation) -> None:
        """Stage what is asked of a lane's ledger; it is answered after its commit. Raises when nothing is taken."""
        if self.failure is not None:
            raise anew(self.failure)
        self.staged.ledger.append(operation)
        self.stir()

    def is_expired(self, message: Message) -> bool:
        return message.expires_at != NEVER and message.expires_at <= self.clock.now_ms()

    def renew(self, token: bytes) -> i64:
        """Returns the new `locked_until` as wall time in milliseconds."""
        lock = self.find_lock(token)
        if lock.session_lock is not None:
            raise InvalidOperation("A message received in a session is locked with its session: renew that lock.")
        self.locks.renew(lock, self.clock.monotonic(), self.settings.lock_duration_s)
        return i64(self.clock.now_ms()) + i64(int(self.settings.lock_duration_s * 1000))

    # Sessions.

    def needs_columns(self) -> bool:
        """Whether somebody receives this fragment's messages session by session: itself, or a subscription."""
        if self.fan_out is not None:
            for subscription in self.fan_out.subscriptions.values():
                if subscription.settings.requires_session:
                    return True
        return self.settings.requires_session and self.topic is None

    # The commit: collect, then exactly one of applied, sends_refused (and collect again), failed.

    def look_for_orphans(self) -> None:
        self.may_have_orphans()
        self.stir()

    def may_have_orphans(self) -> None:
        """Up to here: what is sent from now on has a subscription, or no number."""
        self.orphans_from = 1
        self.orphans_end = self.main.visible_end

    def has_orphans_to_look_for(self) -> bool:
        return self.fan_out is not None and self.orphans_from < self.orphans_end

    def trim_history(self) -> None:
        if self.duplicates is not None:
            self.duplicates.trim()
            self.stir()

    def is_duplicate(self, message: Message) -> bool:
        """To be asked, once, of each message that arrives: one that came before is accepted and dropped."""
        duplicates = self.duplicates
        return duplicates is not None and duplicates.is_duplicate(
            message, message.session_id == "" and self.needs_columns()
        )

    def take_removals(self) -> list[Removal]:
        removals: list[Removal] = []
        for consumers in self.lane_consumers:
            if consumers.removals:
                removals += consumers.take_removals()
        return removals

    def enter(self, message: Message) -> None:
        """A durable message becomes available. What goes on to another entity has no receivers here, who would need it
        in memory."""
        if self.sessions is not None:
            self.sessions.arrived(message)
        elif not self.settings.forward_to:
            self.main.enter(message, self.settings.window_messages, self.settings.window_bytes)

    def is_idle(self) -> bool:
        """Nothing is staged, and nothing is on its way to the store."""
        return self.transactions.is_empty() and self._is_plainly_idle()

    def _is_plainly_idle(self) -> bool:
        """So it is, transactions apart."""
        is_moving = len(self.moves.staged) > 0 or self.taken_in_count > 0
        return self.staged.is_empty() and not is_moving and not self._has_removals()

    def _has_removals(self) -> bool:
        for consumers in self.lane_consumers:
            if consumers.removals:
                return True
        return False

    def has_staged(self) -> bool:
        if not self.is_idle() or self.has_orphans_to_look_for():
            return True
        for lane in self.lanes:
            if lane.has_more_to_drop():
                return True
        return False

    def fail(self, error: BusError) -> None:
        """The store is gone, the outcome of the commit unknown: answer everything as failed. This object is done for;
        what is true is what the store says when it is opened again."""
        fail(self, error)

    def start_over(self, epoch: int, blocks: list[list[BlockRecord]], recent_ids: RecentIds | None) -> None:
        """Take the state from the store: the block records of every lane, and the message ids that are remembered.
        Links stay attached; every lock of before is lost."""
        start_over(self, epoch, blocks, recent_ids)

    def close(self) -> None:
        """It leaves the memory. Whoever still knows it must open it anew, and is told so."""
        self.is_closed = True
        self.failure = FragmentUnavailable("The fragment was let go of; it is opened when it is asked for again.")
        self.let_go()

    def let_go(self) -> None:
        """Of what it has of the memory that all fragments share: it is about to be closed, or void."""
        if self.duplicates is not None:
            self.duplicates.end()
        self.duplicates = None

    # Handing over.

    def pump(self) -> None:
        if self.is_void:
            return
        now = self.clock.monotonic()
        now_ms: i64 = self.clock.now_ms()
        for consumers in self.lane_consumers:
            self._pump_lane(consumers, now, now_ms)

    def _pump_lane(self, consumers: LaneConsumers, now: float, now_ms: i64) -> None:
        if consumers.sessions is not None:
            consumers.pump_sessions(now, now_ms, self.settings.lock_duration_s)
        elif not consumers.lane.ready or consumers.is_empty():
            return
        else:
            consumers.pump(now, now_ms, self.settings.lock_duration_s)
        if consumers.expired:
            expired = consumers.expired
            consumers.expired = []
            for message in expired:
                expire(self, message)
        if consumers.removals:
            self.stir()
