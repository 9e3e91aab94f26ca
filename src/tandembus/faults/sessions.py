"""Sessions behind a gate: who waits for one, who holds one, who looks out for free ones.

Sessions are lost with their fragment, as they are when a front end loses its broker.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.operations import Consumer
from tandembus.broker.sessions import SESSION_LOST
from tandembus.errors import BusError, SessionLockLost
from tandembus.faults.effects import Effect, FragmentFaults
from tandembus.faults.receivers import GatedReceivers
from tandembus.faults.waiting_line import Waiting, WaitingLine
from tandembus.interconnect.traffic import SessionHold, SessionWatch, SessionWish, Traffic
from tandembus.store.messaging_store import MAIN

MIN_PRUNED: Final = 64


@final
class WaitingWish(Waiting):
    def __init__(self, sessions: GatedSessions, wish: SessionWish) -> None:
        super().__init__()
        self._sessions: Final = sessions
        self._wish: Final = wish

    def let_pass(self) -> None:
        if not self._wish.is_over:
            self._sessions.wish_now(self._wish)

    def fail(self, error: BusError) -> None:
        _refuse(self._wish, error)


@final
class WaitingLeave(Waiting):
    """The holder has left. What it settled before stands in line before it."""

    def __init__(self, inner: Traffic, hold: SessionHold) -> None:
        super().__init__()
        self._inner: Final = inner
        self._hold: Final = hold

    def let_pass(self) -> None:
        self._inner.leave_session(self._hold)

    def fail(self, error: BusError) -> None:
        self._inner.leave_session(self._hold)


@final
class GatedSessions:
    def __init__(self, inner: Traffic, faults: FragmentFaults, line: WaitingLine, receivers: GatedReceivers) -> None:
        self._inner: Final = inner
        self._faults: Final = faults
        self._line: Final = line
        self._receivers: Final = receivers
        self._holds: dict[SessionHold, Consumer] = {}
        self._wishes: dict[SessionWish, bool] = {}
        """Those that the fragment knows of. Who is granted a session is not told here: it is found out when that
        matters, or when there are many."""
        self._prune_at: i64 = MIN_PRUNED
        self._watch: SessionWatch | None = None
        """Set while the fragment cannot be told of it."""

    def is_used(self) -> bool:
        if self._holds or self._watch is not None:
            return True
        if self._wishes:
            self._prune()
        return len(self._wishes) > 0

    # Wishes.

    def wish(self, wish: SessionWish) -> None:
        """Waiting for a session is receiving: it is delayed as that is, and refused only while all of that is."""
        if not self._faults.is_clear():
            outage = self._faults.outage_now()
            if outage is not None:
                _refuse(wish, outage.error())
                return
            delay_s = self._faults.delay_s()
            if delay_s > 0.0 or self._line.is_busy():
                self._line.add(WaitingWish(self, wish), delay_s)
                self._faults.listen()
                return
        self.wish_now(wish)

    def wish_now(self, wish: SessionWish) -> None:
        self._inner.wish_session(wish)
        if not wish.is_over:
            self._wishes[wish] = True
            self._faults.listen()
            if len(self._wishes) >= self._prune_at:
                self._prune()
                self._prune_at = max(2 * i64(len(self._wishes)), i64(MIN_PRUNED))

    def _prune(self) -> None:
        live: dict[SessionWish, bool] = {}
        for wish in self._wishes:
            if not wish.is_over:
                live[wish] = True
        self._wishes = live

    def give_up(self, wish: SessionWish) -> None:
        wish.is_over = True
        self._wishes.pop(wish, None)
        self._inner.give_up_session(wish)

    # Holds.

    def hold(self, hold: SessionHold, consumer: Consumer) -> None:
        if not self._faults.is_clear() and self._faults.outage_now() is not None:
            hold.is_over = True
            self._inner.leave_session(hold)
            consumer.session_lost(SessionLockLost(SESSION_LOST))
            return
        self._holds[hold] = consumer
        self._faults.listen()
        self._inner.hold_session(hold, consumer)

    def leave(self, hold: SessionHold) -> None:
        consumer = self._holds.pop(hold, None)
        if consumer is not None:
            self._receivers.forget(consumer)
            if self._receivers.leaves_later(consumer, MAIN):
                self._line.add(WaitingLeave(self._inner, hold), 0.0)
                return
        self._inner.leave_session(hold)

    # Watches.

    def watch(self, watch: SessionWatch) -> None:
        if self._faults.is_clear() or self._faults.outage_now() is None:
            self._inner.watch_sessions(watch)
        else:
            self._watch = watch
            self._faults.listen()

    # Outages.

    def break_off(self, outage: Effect) -> None:
        inner = self._inner
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

    def resume(self) -> None:
        watch = self._watch
        if watch is not None:
            self._watch = None
            self._inner.watch_sessions(watch)


def _refuse(wish: SessionWish, error: BusError) -> None:
    if not wish.is_over:
        wish.is_over = True
        wish.refused(error)
