"""A real broker with one queue on a store that fails, and an account of what the queue must hold.

Everything that a front end does is done here as a front end does it; every answer goes into the account
(`expectations.py`), and every delivery and every look at the queue is compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tandembus.broker import browsing
from tandembus.broker.lapsing import release_consumer
from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.broker.locks import LAPSE, OPEN, CallbackSettleReply, LockTable, MessageLock
from tandembus.broker.operations import CallbackConsumer, CallbackSendReply, SendOperation
from tandembus.broker.settings import FragmentSettings
from tandembus.errors import (
    BusError,
    InvalidOperation,
    MessageLockLost,
    MessageNotFound,
    OperationTimeout,
    StoreFull,
    StoreUnavailable,
)
from tandembus.message import IS_SCHEDULED, Message, parse_message
from tandembus.store.messaging_store import ACTIVE, DEAD_LETTER, DEFERRED, MAIN, SCHEDULED, MessagingStore
from tests.simulation.expectations import GONE, Expected, Fate, drifted, expired, gone, settled
from tests.simulation.messages import MARK, build_message, build_ping, key_of, mark_of
from tests.simulation.records import check_counts, check_records
from tests.simulation.simulated_broker import KEY, LOCK_DURATION_S, SimulatedBroker


@dataclass
class Receiver:
    """A consumer, and what it was given."""

    lane: int
    is_destructive: bool
    consumer: CallbackConsumer | None = None
    received: list[bytes] = field(default_factory=list)
    locks: list[MessageLock] = field(default_factory=list)

    @property
    def link(self) -> CallbackConsumer:
        assert self.consumer is not None
        return self.consumer


@dataclass
class Held:
    """A lock that somebody has, as far as we were told."""

    lock: MessageLock
    message: Expected
    has_lapsed: bool = False


class SimulatedQueue(SimulatedBroker):
    def __init__(self, open_store: Callable[[], MessagingStore], settings: FragmentSettings) -> None:
        self.messages: dict[bytes, Expected] = {}
        self.numbers: dict[bytes, int] = {}
        self.receivers: list[Receiver] = []
        self.held: dict[bytes, Held] = {}
        self.accepted_count = 0
        self.pings_answered = 0
        self._highest = {MAIN: 0, DEAD_LETTER: 0}
        self._batch = 0
        self._doubtful_batches: set[int] = set()
        self._is_purging = False
        self._may_have_removed = False
        self._table: LockTable | None = None
        super().__init__(open_store, settings)

    def begin_life(self) -> None:
        super().begin_life()
        self._table = self.fragment.locks

    def crash(self, is_written: bool) -> None:
        self.cut_life(is_written)
        self._all_is_in_doubt()
        self.begin_life()
        self.check()

    def restart(self) -> None:
        was_working = self.is_working()
        self.end_life()
        self.take_note()
        unanswered = [one.key for one in self.messages.values() if one.coming]
        assert was_working or not unanswered, f"stopped without an answer for {unanswered}"
        self._all_is_in_doubt()
        self.begin_life()
        self.check()

    def _all_is_in_doubt(self) -> None:
        self._may_have_removed = self._may_have_removed or any(one.is_destructive for one in self.receivers)
        for message in self.messages.values():
            message.is_in_doubt()
        self.held.clear()
        self.receivers.clear()

    def take_note(self) -> None:
        """Of what the broker ended by itself, too."""
        super().take_note()
        fragment = self.fragment
        for held in self.held.values():
            if held.lock.settlement != OPEN and held.lock.asked == LAPSE and not held.has_lapsed:
                held.has_lapsed = True
                held.message.begin(self._settled(held, LAPSE, 0))
        if fragment.locks is not self._table or fragment.is_void:
            self._locks_are_void()
        elif fragment.is_idle():
            for key, held in list(self.held.items()):
                if held.has_lapsed:
                    held.message.succeeded()
                    del self.held[key]

    def _locks_are_void(self) -> None:
        self._table = self.fragment.locks
        self._may_have_removed = self._may_have_removed or any(one.is_destructive for one in self.receivers)
        for held in self.held.values():
            held.message.is_in_doubt()
        self.held.clear()

    # Sending.

    def send(self, wishes: Sequence[tuple[int | None, int]]) -> None:
        """One transfer of these messages, each with a time to live and a delay until it is enqueued."""
        self._batch += 1
        sent: list[Expected] = []
        parsed: list[Message] = []
        for ttl_ms, delay_ms in wishes:
            key = b"m%07d" % (len(self.messages) + len(sent))
            scheduled_at_ms = self.clock.now_ms() + delay_ms if delay_ms else 0
            message = parse_message(build_message(key, ttl_ms, scheduled_at_ms))
            parsed.append(message)
            now_ms = self.clock.now_ms()
            sent.append(Expected(key, message.sections, ttl_ms, now_ms, scheduled_at_ms, {GONE}, self._batch))
        size = sum(len(message.sections) for message in parsed)
        reply = CallbackSendReply(lambda operation, error: self._sent(operation, sent, error))
        try:
            self.fragment.send(SendOperation(parsed, size, reply, 0))
        except BusError as error:
            self._must_be_unavailable(error)
            return
        for one in sent:
            one.coming = {Fate(MAIN, SCHEDULED), Fate(MAIN, ACTIVE)} if one.scheduled_at_ms else {Fate(MAIN)}
            self.messages[one.key] = one

    def _sent(self, operation: SendOperation, sent: list[Expected], error: BusError | None) -> None:
        for one, message in zip(sent, operation.messages, strict=True):
            if error is None:
                self._accepted(one, message)
            elif isinstance(error, StoreFull) and not self.fragment.is_void:
                one.refused()
            else:
                self._doubtful_batches.add(one.batch)
                one.is_in_doubt()

    def _accepted(self, one: Expected, message: Message) -> None:
        number = int(message.number)
        assert number > self._highest[MAIN], f"number {number} is given out again"
        self._highest[MAIN] = number
        self.numbers[one.key] = number
        self.accepted_count += 1
        is_scheduled = bool(message.flags & IS_SCHEDULED)
        one.fates, one.coming = {Fate(MAIN, SCHEDULED if is_scheduled else ACTIVE)}, set()
        if not is_scheduled:
            one.expires_at_ms = int(message.expires_at)

    def ping(self) -> None:
        message = parse_message(build_ping())
        assert message.is_ping
        count = self.script.commit_count

        def answered(_operation: SendOperation, error: BusError | None) -> None:
            assert error is not None or self.script.commit_count > count, "a ping was answered without a commit"
            self.pings_answered += error is None

        try:
            self.fragment.send(SendOperation([message], 10, CallbackSendReply(answered), 0))
        except BusError as error:
            self._must_be_unavailable(error)

    def _must_be_unavailable(self, error: BusError) -> None:
        fragment = self.fragment
        assert isinstance(error, StoreUnavailable | OperationTimeout), error
        assert fragment.failure is not None or fragment.is_short_of_room or fragment.is_full, error

    # Receiving.

    def attach(self, lane: int, is_destructive: bool) -> Receiver:
        receiver = Receiver(lane, is_destructive)
        receiver.consumer = CallbackConsumer(
            is_destructive,
            lambda message, lock: self._delivered(receiver, message, lock),
            lambda: self._drained(receiver),
        )
        self.fragment.consumers(lane).add(receiver.link)
        self.receivers.append(receiver)
        return receiver

    def detach(self, receiver: Receiver) -> None:
        self.receivers.remove(receiver)
        self._may_have_removed = self._may_have_removed or receiver.is_destructive
        release_consumer(self.fragment, receiver.link, receiver.lane)
        self.take_note()

    def flow(self, receiver: Receiver, credit: int, is_drain: bool = False) -> None:
        link = receiver.link
        link.credit = max(credit - int(link.removing_count), 0)
        self.fragment.pump()
        consumers = self.fragment.consumers(receiver.lane)
        if is_drain:
            consumers.drain(link)
            consumers.finish_drains()
        self.broker.want(self.fragment)

    def _delivered(self, receiver: Receiver, message: Message, lock: MessageLock) -> None:
        self.take_note()
        key = key_of(message)
        one = self.messages[key]
        previous = self.held.pop(key, None)
        if previous is not None:
            assert previous.lock.settlement != OPEN, f"{key!r} is locked twice"
            if previous.has_lapsed:
                one.succeeded()
        here = Fate(receiver.lane, ACTIVE, int(lock.delivery_count), mark_of(message))
        possible = self._drifted(one)
        assert here in possible, f"{key!r} was delivered as {here}; it may be {possible}"
        self._check_content(one, message)
        if not receiver.is_destructive:
            # A receive-and-delete was decided before its commit, and something may have come back since.
            self._check_is_next(receiver.lane, one, message)
        self._batch_is_there(one)
        one.fates, one.coming = {GONE if receiver.is_destructive else here}, set()
        one.expires_at_ms = int(message.expires_at)
        self.numbers[key] = int(message.number)
        receiver.received.append(key)
        if not receiver.is_destructive:
            assert one.expires_at_ms == 0 or one.expires_at_ms > self.clock.now_ms(), "an expired message was delivered"
            receiver.locks.append(lock)
            self.held[key] = Held(lock, one)

    def _check_content(self, one: Expected, message: Message) -> None:
        if message.sections != one.sections:
            # Dead letters have properties added; everything else is as it was sent.
            assert message.sections[: message.properties_end] == one.sections[: message.properties_end]
            assert message.sections[message.application_end :] == one.sections[message.properties_end :]

    def _check_is_next(self, lane: int, one: Expected, message: Message) -> None:
        for other in self.messages.values():
            if other is not one and self._is_next_in_line(other, lane):
                assert self.numbers[other.key] > message.number, f"{one.key!r} came before {other.key!r}"

    def _is_next_in_line(self, one: Expected, lane: int) -> bool:
        """Whether it surely waits, and nobody has taken it in hand: a receiver, a purge, or a sweep."""
        if not one.is_surely_waiting(lane) or self._is_doubtful(one) or one.is_past(self.latest_ms):
            return False
        return self.numbers[one.key] not in self.fragment.lane(lane).held

    def _is_doubtful(self, one: Expected) -> bool:
        """A purge, or a receive-and-delete that failed, may have taken it."""
        is_taken = self._is_purging or self._may_have_removed
        return is_taken or one.batch in self._doubtful_batches or one.key not in self.numbers

    def _batch_is_there(self, one: Expected) -> None:
        """A batch is stored as a whole or not at all."""
        if one.batch in self._doubtful_batches:
            self._doubtful_batches.discard(one.batch)
            for other in self.messages.values():
                if other.batch == one.batch and len(other.fates) > 1:
                    other.fates.discard(GONE)

    def _drained(self, receiver: Receiver) -> None:
        link = receiver.link
        if link.credit > 0 and len(self.fragment.locks) < self.settings.max_locks:
            for one in self.messages.values():
                assert not self._is_next_in_line(one, receiver.lane), f"drained although {one.key!r} waits"
        link.credit = 0

    # Settling.

    def settle(self, held: Held, settlement: int, mark: int) -> None:
        lock, one = held.lock, held.message
        is_over = lock.settlement != OPEN or lock.locked_until <= self.clock.monotonic()
        lock.changes = {MARK: mark} if mark else None
        change = self._settled(held, settlement, mark)
        reply = CallbackSettleReply(lambda _, error: self._settlement_answered(held, error))
        if not is_over:
            one.begin(change)
        try:
            self.fragment.settle(lock, settlement, reply)
        except MessageLockLost:
            assert is_over, f"the lock of {one.key!r} is lost too early"
        except InvalidOperation:
            one.refused()
            assert lock.lane == DEAD_LETTER
            assert settlement == TO_DEAD_LETTERS
        except BusError as error:
            one.refused()
            self._must_be_unavailable(error)
        else:
            assert not is_over, f"a lapsed lock of {one.key!r} settled it"

    def _settled(self, held: Held, settlement: int, mark: int) -> Callable[[Fate], Fate]:
        is_past = bool(held.lock.expires_at) and held.lock.expires_at <= self.clock.now_ms()
        return settled(settlement, mark, is_past, self.settings.dead_letter_expired)

    def _settlement_answered(self, held: Held, error: BusError | None) -> None:
        if error is None:
            held.message.succeeded()
        else:
            held.message.is_in_doubt()
        if self.held.get(held.message.key) is held:
            del self.held[held.message.key]

    def renew(self, held: Held) -> None:
        is_over = held.lock.settlement != OPEN or held.lock.locked_until <= self.clock.monotonic()
        try:
            self.fragment.renew(held.lock.token)
        except MessageLockLost:
            assert is_over
        else:
            assert not is_over
            assert held.lock.locked_until == self.clock.monotonic() + LOCK_DURATION_S

    # What the management node does. Each may be overtaken by anything while it reads.

    def receive_deferred(self, one: Expected, is_destructive: bool) -> None:
        number = self.numbers.get(one.key, 0)
        self.begin(self._receive_deferred(one, number, is_destructive))

    async def _receive_deferred(self, one: Expected, number: int, is_destructive: bool) -> None:
        if is_destructive and one.is_surely(MAIN, DEFERRED) and one.key not in self.held:
            one.begin(gone)
        try:
            taken = await browsing.receive_deferred(self.broker, self.fragment, MAIN, [number], is_destructive)
        except MessageNotFound:
            one.refused()
            if one.is_past(self.clock.now_ms()):
                # The time to live of a deferred message is judged when somebody asks for it.
                one.begin(lambda fate: expired(fate, self.settings.dead_letter_expired))
                one.is_in_doubt()
            return
        except BusError:
            one.is_in_doubt()
            return
        ((lock, message),) = taken
        key = key_of(message)
        assert key == one.key or number == 0
        if is_destructive:
            one.succeeded()
            return
        here = Fate(MAIN, DEFERRED, int(lock.delivery_count), mark_of(message))
        assert here in one.possible(), f"{key!r} was received as {here}; it may be {one.possible()}"
        assert key not in self.held or self.held[key].lock.settlement != OPEN, f"{key!r} is locked twice"
        one.fates, one.coming = {here}, set()
        self.held[key] = Held(lock, one)

    def cancel(self, several: Sequence[Expected]) -> None:
        self.begin(self._cancel(several))

    async def _cancel(self, several: Sequence[Expected]) -> None:
        numbers = [self.numbers.get(one.key, 0) for one in several]
        for one in several:
            one.begin(lambda fate: GONE if fate.state == SCHEDULED else fate)
        try:
            await browsing.cancel_scheduled(self.broker, self.fragment, numbers)
        except MessageNotFound:
            for one in several:
                one.refused()
        except BusError:
            for one in several:
                one.is_in_doubt()
        else:
            for one in several:
                one.fates, one.coming = {GONE}, set()

    def purge(self, count: int) -> None:
        self.begin(self._purge(count))

    async def _purge(self, count: int) -> None:
        self._is_purging = True
        try:
            await browsing.delete_batch(self.broker, self.fragment, MAIN, count, self.clock.now_ms() + 1)
        except BusError:
            pass

    # Looking.

    def come_to_rest(self) -> None:
        """Nothing is under way any more, and everything that is due was done."""
        self.reset_script()
        self.wait_until_open()
        for _ in range(50):
            self.pass_time(1.0)
            if self.fragment.is_idle() and self.broker.failure is None and not self.fragment.is_short_of_room:
                break
        self.pass_time(1.0)
        self.take_note()

    def check(self) -> None:
        """Compare all the queue holds with all it may hold; from here on there is no doubt."""
        self.come_to_rest()
        found: dict[bytes, tuple[Fate, Message]] = {}
        for lane in (MAIN, DEAD_LETTER):
            peeked = self.loop.run(browsing.peek(self.broker, self.fragment, lane, 1, 10_000, 1 << 30))
            for one in peeked:
                key = key_of(one.message)
                assert key not in found, f"{key!r} is there twice"
                fate = Fate(lane, one.state, int(one.message.delivery_count), mark_of(one.message))
                found[key] = (fate, one.message)
        self._check_batches(found)
        for key, expected in self.messages.items():
            self._check_one(expected, found.get(key))
        assert set(found) <= set(self.messages), "a message that nobody sent"
        held = {key for key, one in self.held.items() if one.lock.settlement == OPEN}
        assert len(self.fragment.locks) == len(held) + self._waiting_to_expire()
        assert self.fragment.uncommitted_bytes == 0
        check_counts(self.fragment, found)
        latest_ms = self.highest_ms + int(LOCK_DURATION_S * 1000)
        self.loop.run(check_records(self.store, KEY, int(self.settings.block_size), found, held, latest_ms))
        self._is_purging = self._may_have_removed = False
        self._doubtful_batches.clear()
        self.latest_ms = self.clock.now_ms()

    def _waiting_to_expire(self) -> int:
        """Locks of the broker's own: while there is no room among the dead letters, an expired message is nobody's."""
        known = [one.lock for one in self.held.values()]
        locks = [lock for lane in self.fragment.lanes for lock in lane.held.values()]
        own = [lock for lock in locks if lock.owner is None and lock not in known]
        assert all(0 < lock.expires_at <= self.highest_ms for lock in own), "a lock that nobody has"
        return len(own)

    def _check_batches(self, found: dict[bytes, tuple[Fate, Message]]) -> None:
        for batch in self._doubtful_batches:
            members = [one for one in self.messages.values() if one.batch == batch]
            is_there = {one.key in found for one in members}
            if all(not one.is_past(self.latest_ms) for one in members) and not self._may_have_removed:
                assert self._is_purging or len(is_there) == 1, f"a part of batch {batch} was stored"

    def _check_one(self, one: Expected, found: tuple[Fate, Message] | None) -> None:
        fate = GONE if found is None else found[0]
        possible = self._drifted(one)
        assert fate in possible, f"{one.key!r} is {fate}; it may be {possible}"
        one.fates, one.coming = {fate}, set()
        if found is None:
            return
        message = found[1]
        self._check_content(one, message)
        number, now_ms = int(message.number), self.clock.now_ms()
        self.numbers[one.key] = number
        self._highest[fate.lane] = max(self._highest[fate.lane], number)
        one.expires_at_ms = int(message.expires_at)
        if one.key not in self.held:
            assert fate.state != SCHEDULED or one.scheduled_at_ms > now_ms, f"{one.key!r} was not activated"

    def _drifted(self, one: Expected) -> set[Fate]:
        fates = drifted(one, self.latest_ms, self.settings.dead_letter_expired)
        for fate in list(fates):
            is_purged = self._is_purging and fate.lane == MAIN
            if fate.state == ACTIVE and (is_purged or self._may_have_removed):
                fates.add(GONE)
        return fates

    # The end.

    def drain_everything(self) -> None:
        """Nothing is stuck: when all locks are over, all that waits is received, in order."""
        for receiver in list(self.receivers):
            self.detach(receiver)
        self.come_to_rest()
        self.pass_time(LOCK_DURATION_S + 1.0)
        self.check()
        for one in self.messages.values():
            is_past = one.expires_at_ms != 0 and one.expires_at_ms <= self.clock.now_ms()
            assert not (is_past and one.is_surely_waiting(MAIN)), f"{one.key!r} has expired and was not swept"
        for lane in (MAIN, DEAD_LETTER):
            waiting = [one.key for one in self.messages.values() if one.is_surely_waiting(lane)]
            waiting.sort(key=lambda key: self.numbers[key])
            receiver = self.attach(lane, is_destructive=True)
            self.flow(receiver, 10_000, is_drain=True)
            for _ in range(50):
                self.turn(40)
            assert receiver.received == waiting
            self.detach(receiver)
        self.check()
