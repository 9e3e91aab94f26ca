"""The gate in front of one fragment: what an injected fault does to its traffic.

While no fault concerns the fragment, a call costs one comparison more. What a fault does is what its cause would do.
Out of reach: nothing is taken, nothing is handed over, sessions are lost as they are when a front end loses its broker,
and what was received before stays locked; receivers stay attached and are fed again when it is over. Slow: everything
waits in one line, so that nothing overtakes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.locks import RELEASE, MessageLock, SettleReply
from tandembus.broker.operations import Consumer, SendOperation
from tandembus.broker.transactions import TransactionOperation
from tandembus.errors import BusError
from tandembus.faults.effects import Effect, FaultState, FragmentFaults
from tandembus.faults.receivers import GatedReceivers
from tandembus.faults.sessions import GatedSessions
from tandembus.faults.waiting_line import WaitingDischarge, WaitingLine, WaitingSend, WaitingSettle
from tandembus.interconnect.traffic import SessionHold, SessionWatch, SessionWish, Traffic


@final
class FaultGate(Traffic):
    def __init__(self, inner: Traffic, state: FaultState, effects: Callable[[], list[Effect]]) -> None:
        """`effects`: the faults that concern this fragment now."""
        super().__init__(inner.index, inner.is_partitioned)
        self.inner: Final = inner
        self.faults: Final = FragmentFaults(state, effects, self._faults_changed)
        self._line: Final = WaitingLine(state, self._let_go)
        self._receivers: Final = GatedReceivers(inner, self.faults, self._line)
        self._sessions: Final = GatedSessions(inner, self.faults, self._line, self._receivers)

    def failure(self) -> BusError | None:
        if not self.faults.is_clear():
            outage = self.faults.outage_now()
            if outage is not None:
                return outage.error()
        return self.inner.failure()

    def is_out(self) -> bool:
        if not self.faults.is_clear() and self.faults.outage_now() is not None:
            return True
        return self.inner.is_out()

    def _faults_changed(self, before: Effect | None) -> None:
        outage = self.faults.outage
        if outage is not None and before is None:
            self._receivers.break_off()
            self._line.break_off(outage)
            self._sessions.break_off(outage)
        elif outage is None and before is not None:
            self._receivers.resume()
            self._sessions.resume()
            self._let_go()
        self._line.hurry(self.faults.most_delay_s())

    def _let_go(self) -> None:
        """Perhaps nobody waits behind it any more."""
        if not (self._receivers.is_used() or self._line.is_busy() or self._sessions.is_used()):
            self.faults.stop_listening()

    def close(self) -> None:
        """The entity leaves the memory: what waits goes on, and nobody remembers this gate."""
        self._line.let_all_pass()
        self.faults.stop_listening()

    # Sending.

    def send(self, operation: SendOperation) -> None:
        if not self.faults.is_clear():
            delay_s = self.faults.hit(True, True)
            if delay_s > 0.0 or self._line.is_busy():
                self._line.put(WaitingSend(self.inner, operation), delay_s)
                self.faults.listen()
                return
        self.inner.send(operation)

    def transaction_index(self, operation: SendOperation) -> i64:
        return self.inner.transaction_index(operation)

    def transaction_key(self, operation: SendOperation) -> str | None:
        return self.inner.transaction_key(operation)

    # Receiving.

    def attach(self, consumer: Consumer, lane: i64) -> None:
        self._receivers.attach(consumer, lane)

    def feed(self, consumer: Consumer, lane: i64, is_draining: bool) -> None:
        if self.faults.is_clear():
            self.inner.feed(consumer, lane, is_draining)
        else:
            self._receivers.feed(consumer, lane, is_draining)

    def is_draining(self, consumer: Consumer, lane: i64) -> bool:
        return self.inner.is_draining(consumer, lane)

    def detach(self, consumer: Consumer, lane: i64) -> None:
        self._receivers.detach(consumer, lane)
        self._let_go()

    def handed_over(self, lock: MessageLock) -> None:
        self.inner.handed_over(lock)

    # Settling.

    def check_lock(self, lock: MessageLock) -> None:
        self.inner.check_lock(lock)

    def settle(self, lock: MessageLock, settlement: i64, reply: SettleReply | None) -> None:
        # What is given back by whoever kept it ready nobody waits for, and nothing may keep it.
        if (reply is not None or settlement != RELEASE) and not self.faults.is_clear():
            delay_s = self.faults.hit(False, False)
            if delay_s > 0.0 or self._line.is_busy():
                self._line.put(WaitingSettle(self.inner, lock, settlement, reply), delay_s)
                self.faults.listen()
                return
        self.inner.settle(lock, settlement, reply)

    def discharge(self, operation: TransactionOperation) -> None:
        delay_s = self._hit_discharge(operation)
        for part in operation.others:
            gate = part.traffic
            assert isinstance(gate, FaultGate)
            part.traffic = gate.inner
            delay_s = max(delay_s, gate._hit_discharge(part.operation))
        if delay_s > 0.0 or self._line.is_busy():
            self._line.put(WaitingDischarge(self.inner, operation), delay_s)
            self.faults.listen()
            return
        self.inner.discharge(operation)

    def _hit_discharge(self, operation: TransactionOperation) -> float:
        if self.faults.is_clear():
            return 0.0
        grows = len(operation.sends) > 0
        return self.faults.hit(grows, grows)

    # Sessions.

    def wish_session(self, wish: SessionWish) -> None:
        self._sessions.wish(wish)

    def give_up_session(self, wish: SessionWish) -> None:
        self._sessions.give_up(wish)
        self._let_go()

    def hold_session(self, hold: SessionHold, consumer: Consumer) -> None:
        self._sessions.hold(hold, consumer)

    def leave_session(self, hold: SessionHold) -> None:
        self._sessions.leave(hold)
        self._let_go()

    def watch_sessions(self, watch: SessionWatch) -> None:
        self._sessions.watch(watch)
