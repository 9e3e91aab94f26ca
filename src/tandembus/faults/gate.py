"""The gate in front of one fragment: what an injected fault does to its traffic.

While no fault concerns the fragment, a call costs one comparison more. What a fault does is what its cause would do.
Out of reach: nothing is taken, nothing is handed over, sessions are lost as they are when a front end loses its broker,
and what was received before stays locked; receivers stay attached and are fed again when it is over. Slow: everything
waits in one line, so that nothing overtakes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.locks import RELEASE, MessageLock, SettleReply
from tandembus.broker.operations import Consumer, SendOperation
from tandembus.broker.sessions import SESSION_LOST
from tandembus.broker.transactions import TransactionOperation
from tandembus.clock import Clock
from tandembus.errors import BusError, FragmentUnavailable, ServerBusy, SessionLockLost, StoreFull
from tandembus.interconnect.traffic import SessionHold, SessionWatch, SessionWish, Traffic

UNAVAILABLE: Final = 1
SLOW: Final = 2
THROTTLED: Final = 3
DISK_FULL: Final = 4

MAX_WAITING: Final = 4096
MAX_WAITING_BYTES: Final = 64 << 20
"""What one slow fragment may keep waiting; more is refused as overload, which is what slowness leads to."""
MIN_PRUNED: Final = 64

_BUSY: Final = "The namespace is busy: a fragment is too slow for what is sent to it. Please wait 10 seconds and retry."


@final
class Effect:
    """One fault as one fragment feels it."""

    __slots__ = ("kind", "latency_s", "probability", "text")

    def __init__(self, kind: i64, text: str, probability: float, latency_s: float) -> None:
        self.kind: i64 = kind
        self.text: Final = text
        self.probability: float = probability
        self.latency_s: float = latency_s

    def error(self) -> BusError:
        """A new one each time: an error that is raised again and again would gather all its traces."""
        if self.kind == THROTTLED:
            return ServerBusy(self.text)
        if self.kind == DISK_FULL:
            return StoreFull(self.text)
        return FragmentUnavailable(self.text)


@final
class FaultState:
    """What all gates of a process share: which version of the board holds, and whom to wake when it changes."""

    def __init__(
        self,
        clock: Clock,
        draw: Callable[[], float],
        later: Callable[[float, Callable[[], None]], None],
        tick: Callable[[], None],
    ) -> None:
        """`draw`: a number from 0 to 1 by chance. `later`: calls after so many seconds. `tick`: faults whose time is
        over shall end."""
        self.clock: Final = clock
        self.draw: Final = draw
        self.later: Final = later
        self.tick: Final = tick
        self.version: i64 = 0
        self.gates: dict[FaultGate, bool] = {}
        """Those that somebody waits behind: they have to be told. All others ask when they are used."""

    def changed(self) -> None:
        self.version += 1
        for gate in list(self.gates):
            gate.look_again()


@final
class _Waiting:
    """Something that a slow fragment has not been told yet."""

    __slots__ = ("consumer", "due", "is_draining", "lane", "lock", "reply", "send", "settlement", "transaction")

    def __init__(self, due: float) -> None:
        self.due: float = due
        self.send: SendOperation | None = None
        self.lock: MessageLock | None = None
        self.settlement: i64 = 0
        self.reply: SettleReply | None = None
        self.transaction: TransactionOperation | None = None
        self.consumer: Consumer | None = None
        self.lane: i64 = 0
        self.is_draining: bool = False

    def size_bytes(self) -> i64:
        send, transaction = self.send, self.transaction
        if send is not None:
            return send.size_bytes
        return transaction.size_bytes if transaction is not None else 0

    def fail(self, error: BusError) -> None:
        """It never reached the fragment."""
        send, lock, transaction, consumer = self.send, self.lock, self.transaction, self.consumer
        if send is not None:
            send.reply.sent(send, error)
        elif lock is not None:
            reply = self.reply
            if reply is not None:
                reply.settled(lock, error)
        elif transaction is not None:
            transaction.reply.discharged(transaction, error)
        elif consumer is not None and self.is_draining:
            consumer.drained()


@final
class FaultGate(Traffic):
    def __init__(self, inner: Traffic, state: FaultState, effects: Callable[[], list[Effect]]) -> None:
        """`effects`: the faults that concern this fragment now."""
        super().__init__(inner.index, inner.is_partitioned)
        self.inner: Final = inner
        self._state: Final = state
        self._find: Final = effects
        self._version: i64 = -1
        self._effects: list[Effect] = []
        self._outage: Effect | None = None
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes: i64 = 0
        self._is_timed: bool = False
        self._attached: dict[Consumer, int] = {}
        self._holds: dict[SessionHold, Consumer] = {}
        self._feeds: dict[Consumer, _Waiting] = {}
        """Who is to be fed later; once, however often it asks."""
        self._wishes: dict[SessionWish, bool] = {}
        self._prune_at: i64 = MIN_PRUNED
        self._watch: SessionWatch | None = None
        """Set while the fragment cannot be told of it."""

    # What is wrong.

    def is_clear(self) -> bool:
        """No fault concerns it."""
        if self._version != self._state.version:
            self.look_again()
        return not self._effects

    def failure(self) -> BusError | None:
        if self._effects or self._version != self._state.version:
            self._catch_up()
            outage = self._outage
            if outage is not None:
                return outage.error()
        return self.inner.failure()

    def is_slow(self) -> bool:
        if self._version != self._state.version:
            self.look_again()
        for effect in self._effects:
            if effect.kind == SLOW:
                return True
        return False

    def strike(self, is_new: bool, grows: bool) -> float:
        """Raises what a fault does to an operation that it hits; returns by how many seconds others delay it.

        `is_new`: it can come again later, so throttling turns it away. `grows`: it needs room in the store."""
        delay_s = 0.0
        if not self._effects and self._version == self._state.version:
            return delay_s
        self._catch_up()
        for effect in self._effects:
            if effect.probability < 1.0 and self._state.draw() >= effect.probability:
                continue
            kind = effect.kind
            if kind == SLOW:
                delay_s += effect.latency_s
            elif kind == UNAVAILABLE or (kind == THROTTLED and is_new) or (kind == DISK_FULL and grows):
                raise effect.error()
        return delay_s

    def check_reach(self) -> None:
        """Raises when the fragment is out of reach by now."""
        self._catch_up()
        outage = self._outage
        if outage is not None:
            raise outage.error()

    def _catch_up(self) -> None:
        self._state.tick()
        if self._version != self._state.version:
            self.look_again()

    def look_again(self) -> None:
        """The board has changed."""
        self._version = self._state.version
        effects = self._find()
        outage: Effect | None = None
        for effect in effects:
            if effect.kind == UNAVAILABLE and effect.probability >= 1.0:
                outage = effect
                break
        before = self._outage
        self._effects = effects
        self._outage = outage
        if outage is not None and before is None:
            self._break_off(outage)
        elif outage is None and before is not None:
            self._resume()
        if self._waiting and not self.is_slow():
            self._let_all_pass()

    def _break_off(self, outage: Effect) -> None:
        """Out of reach from now on."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self._feeds = {}
        self._waiting_bytes = 0
        for one in waiting:
            one.fail(outage.error())
        inner = self.inner
        for consumer, lane in list(self._attached.items()):
            inner.detach(consumer, lane, False)
            consumer.locks_lost()
        holds = self._holds
        self._holds = {}
        for hold, consumer in holds.items():
            inner.leave_session(hold)
            consumer.session_lost(SessionLockLost(SESSION_LOST))
        wishes = self._wishes
        self._wishes = {}
        for wish in wishes:
            if not wish.is_over:
                inner.give_up_session(wish)
                wish.refused(outage.error())

    def _resume(self) -> None:
        """It can be reached again."""
        inner = self.inner
        for consumer, lane in list(self._attached.items()):
            inner.attach(consumer, lane)
            if consumer.credit > 0:
                inner.feed(consumer, lane, False)
        watch = self._watch
        if watch is not None:
            self._watch = None
            inner.watch_sessions(watch)
        self._let_go()

    def _enlist(self) -> None:
        """Somebody waits behind this gate from now on."""
        self._state.gates[self] = True
        if self._version != self._state.version:
            self.look_again()

    def _let_go(self) -> None:
        """Perhaps nobody does any more."""
        if not (self._attached or self._holds or self._wishes or self._waiting or self._watch is not None):
            self._state.gates.pop(self, None)

    # What has to wait.

    def _put_off(self, one: _Waiting, delay_s: float) -> None:
        now = self._state.clock.monotonic()
        one.due = now + delay_s
        if self._waiting:
            # Nothing overtakes what waits already.
            one.due = max(one.due, self._waiting[-1].due)
        self._waiting.append(one)
        self._waiting_bytes += one.size_bytes()
        self._enlist()
        if not self._is_timed:
            self._is_timed = True
            self._state.later(one.due - now, self._let_due_pass)

    def _check_can_wait(self, size_bytes: i64) -> None:
        """A single large operation always can."""
        is_full = len(self._waiting) >= MAX_WAITING or self._waiting_bytes + size_bytes > MAX_WAITING_BYTES
        if is_full and self._waiting:
            raise ServerBusy(_BUSY)

    def _let_due_pass(self) -> None:
        self._is_timed = False
        now = self._state.clock.monotonic()
        while self._waiting and self._waiting[0].due <= now:
            self._let_pass(self._waiting.popleft())
        if self._waiting:
            self._is_timed = True
            self._state.later(self._waiting[0].due - now, self._let_due_pass)
        else:
            self._let_go()

    def _let_all_pass(self) -> None:
        while self._waiting:
            self._let_pass(self._waiting.popleft())
        self._let_go()

    def _let_pass(self, one: _Waiting) -> None:
        self._waiting_bytes -= one.size_bytes()
        send, lock, transaction, consumer = one.send, one.lock, one.transaction, one.consumer
        try:
            if send is not None:
                self.inner.send(send)
            elif lock is not None:
                self.inner.settle(lock, one.settlement, one.reply)
            elif transaction is not None:
                self.inner.discharge(transaction)
            elif consumer is not None:
                self._feeds.pop(consumer, None)
                if self._is_here(consumer):
                    self.inner.feed(consumer, one.lane, one.is_draining)
        except BusError as error:
            one.fail(error)

    def _is_here(self, consumer: Consumer) -> bool:
        if consumer in self._attached:
            return True
        for holder in self._holds.values():
            if holder is consumer:
                return True
        return False

    # Sending.

    def send(self, operation: SendOperation) -> None:
        if self._effects or self._version != self._state.version:
            delay_s = self.strike(True, True)
            if delay_s > 0.0 or self._waiting:
                self._check_can_wait(operation.size_bytes)
                one = _Waiting(0.0)
                one.send = operation
                self._put_off(one, delay_s)
                return
        self.inner.send(operation)

    def transaction_index(self, operation: SendOperation) -> i64:
        return self.inner.transaction_index(operation)

    def transaction_key(self, operation: SendOperation) -> str | None:
        return self.inner.transaction_key(operation)

    # Receiving.

    def attach(self, consumer: Consumer, lane: i64) -> None:
        self._enlist()
        self._attached[consumer] = int(lane)
        if self._outage is None:
            self.inner.attach(consumer, lane)

    def feed(self, consumer: Consumer, lane: i64, is_draining: bool) -> None:
        if self._effects:
            self._catch_up()
            if self._outage is not None:
                # What is out of reach has nothing to give: it counts as drained.
                if is_draining:
                    consumer.drained()
                return
            delay_s = self.delay_s()
            if delay_s > 0.0 or self._waiting:
                self._feed_later(consumer, lane, is_draining, delay_s)
                return
        self.inner.feed(consumer, lane, is_draining)

    def _feed_later(self, consumer: Consumer, lane: i64, is_draining: bool, delay_s: float) -> None:
        one = self._feeds.get(consumer)
        if one is None:
            one = _Waiting(0.0)
            one.consumer = consumer
            one.lane = lane
            self._feeds[consumer] = one
            self._put_off(one, delay_s)
        one.is_draining = one.is_draining or is_draining

    def delay_s(self) -> float:
        """By how much faults delay what they never refuse by chance: receiving, and telling how things are."""
        delay_s = 0.0
        for effect in self._effects:
            if effect.kind == SLOW and (effect.probability >= 1.0 or self._state.draw() < effect.probability):
                delay_s += effect.latency_s
        return delay_s

    def detach(self, consumer: Consumer, lane: i64, is_orderly: bool) -> None:
        self._attached.pop(consumer, None)
        if self._outage is None:
            self.inner.detach(consumer, lane, is_orderly)
        self._let_go()

    def handed_over(self, lock: MessageLock) -> None:
        self.inner.handed_over(lock)

    # Settling.

    def check_lock(self, lock: MessageLock) -> None:
        self.inner.check_lock(lock)

    def settle(self, lock: MessageLock, settlement: i64, reply: SettleReply | None) -> None:
        if self._effects or self._version != self._state.version:
            if reply is None and settlement == RELEASE:
                # Given back by whoever kept it ready: nobody waits for that, and nothing may keep it.
                self.inner.settle(lock, settlement, reply)
                return
            delay_s = self.strike(False, False)
            if delay_s > 0.0 or self._waiting:
                self._check_can_wait(0)
                one = _Waiting(0.0)
                one.lock = lock
                one.settlement = settlement
                one.reply = reply
                self._put_off(one, delay_s)
                return
        self.inner.settle(lock, settlement, reply)

    def discharge(self, operation: TransactionOperation) -> None:
        if self._effects or self._version != self._state.version:
            grows = len(operation.sends) > 0
            delay_s = self.strike(grows, grows)
            if delay_s > 0.0 or self._waiting:
                self._check_can_wait(operation.size_bytes)
                one = _Waiting(0.0)
                one.transaction = operation
                self._put_off(one, delay_s)
                return
        self.inner.discharge(operation)

    # Sessions.

    def wish_session(self, wish: SessionWish) -> None:
        self._enlist()
        outage = self._outage
        if outage is not None:
            wish.is_over = True
            wish.refused(outage.error())
            return
        self.inner.wish_session(wish)
        if not wish.is_over:
            self._remember(wish)

    def _remember(self, wish: SessionWish) -> None:
        """Who is granted a session is not told here: those are found out when there are many."""
        self._wishes[wish] = True
        if len(self._wishes) >= self._prune_at:
            live: dict[SessionWish, bool] = {}
            for one in self._wishes:
                if not one.is_over:
                    live[one] = True
            self._wishes = live
            self._prune_at = max(2 * i64(len(live)), i64(MIN_PRUNED))

    def give_up_session(self, wish: SessionWish) -> None:
        self._wishes.pop(wish, None)
        self.inner.give_up_session(wish)
        self._let_go()

    def hold_session(self, hold: SessionHold, consumer: Consumer) -> None:
        self._enlist()
        if self._outage is not None:
            hold.is_over = True
            self.inner.leave_session(hold)
            consumer.session_lost(SessionLockLost(SESSION_LOST))
            return
        self._holds[hold] = consumer
        self.inner.hold_session(hold, consumer)

    def leave_session(self, hold: SessionHold) -> None:
        self._holds.pop(hold, None)
        self.inner.leave_session(hold)
        self._let_go()

    def watch_sessions(self, watch: SessionWatch) -> None:
        if self._version != self._state.version:
            self.look_again()
        if self._outage is None:
            self.inner.watch_sessions(watch)
        else:
            self._watch = watch
            self._enlist()
