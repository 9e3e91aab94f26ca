"""The line in which everything waits that a slow fragment has not been told yet, so that nothing overtakes.

It is bounded, and what is waiting goes on as soon as the faults allow: healed, at once; less slow, after no more than
the new latency.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.locks import RELEASE, MessageLock, SettleReply
from tandembus.broker.operations import SendOperation
from tandembus.broker.transactions import TransactionOperation
from tandembus.errors import BusError, ServerBusy
from tandembus.faults.effects import Effect, FaultState
from tandembus.interconnect.traffic import Traffic

MAX_WAITING: Final = 4096
MAX_WAITING_BYTES: Final = 64 << 20
"""What one slow fragment may keep waiting; more is refused as overload, which is what slowness leads to."""

_BUSY: Final = "The namespace is busy: a fragment is too slow for what is sent to it. Please wait 10 seconds and retry."


class Waiting:
    """Something in the line."""

    def __init__(self) -> None:
        self.due: float = 0.0

    def size_bytes(self) -> i64:
        return 0

    def let_pass(self) -> None:
        """Its turn has come. Raises what the fragment refuses it with."""
        raise AssertionError("what waits must go on some time")

    def fail(self, error: BusError) -> None:
        """Nothing came of it."""


@final
class WaitingSend(Waiting):
    def __init__(self, inner: Traffic, operation: SendOperation) -> None:
        super().__init__()
        self._inner: Final = inner
        self._operation: Final = operation

    def size_bytes(self) -> i64:
        return self._operation.size_bytes

    def let_pass(self) -> None:
        self._inner.send(self._operation)

    def fail(self, error: BusError) -> None:
        self._operation.reply.sent(self._operation, error)


@final
class WaitingSettle(Waiting):
    def __init__(self, inner: Traffic, lock: MessageLock, settlement: i64, reply: SettleReply | None) -> None:
        super().__init__()
        self._inner: Final = inner
        self._lock: Final = lock
        self._settlement: i64 = settlement
        self._reply: Final = reply

    def let_pass(self) -> None:
        reply = self._reply
        if reply is None or reply.is_wanted():
            self._inner.settle(self._lock, self._settlement, reply)
        else:
            self._inner.settle(self._lock, RELEASE, None)

    def fail(self, error: BusError) -> None:
        if self._reply is not None:
            self._reply.settled(self._lock, error)


@final
class WaitingDischarge(Waiting):
    def __init__(self, inner: Traffic, operation: TransactionOperation) -> None:
        super().__init__()
        self._inner: Final = inner
        self._operation: Final = operation

    def size_bytes(self) -> i64:
        return self._operation.size_bytes

    def let_pass(self) -> None:
        self._inner.discharge(self._operation)

    def fail(self, error: BusError) -> None:
        self._operation.reply.discharged(self._operation, error)


@final
class _Alarm:
    """Wakes the line once, unless it was called off: timers themselves cannot be taken back."""

    __slots__ = ("at", "line")

    def __init__(self, line: WaitingLine, at: float) -> None:
        self.line: WaitingLine | None = line
        self.at: float = at

    def call_off(self) -> None:
        self.line = None

    def ring(self) -> None:
        line = self.line
        if line is not None:
            self.line = None
            line.rung()


@final
class WaitingLine:
    def __init__(self, state: FaultState, when_empty: Callable[[], None]) -> None:
        self._state: Final = state
        self._when_empty: Final = when_empty
        self._line: deque[Waiting] = deque()
        self._size_bytes: i64 = 0
        self._alarm: _Alarm | None = None

    def is_busy(self) -> bool:
        return len(self._line) > 0

    def put(self, one: Waiting, delay_s: float) -> None:
        """At its end. Raises ServerBusy when too much is waiting already; a single large operation always can."""
        is_full = len(self._line) >= MAX_WAITING or self._size_bytes + one.size_bytes() > MAX_WAITING_BYTES
        if is_full and self._line:
            raise ServerBusy(_BUSY)
        self.add(one, delay_s)

    def add(self, one: Waiting, delay_s: float) -> None:
        """The same for what cannot be refused, of which nobody can have many."""
        one.due = self._state.clock.monotonic() + delay_s
        if self._line:
            # Nothing overtakes what waits already.
            one.due = max(one.due, self._line[-1].due)
        self._line.append(one)
        self._size_bytes += one.size_bytes()
        self._set_alarm()

    def hurry(self, most_delay_s: float) -> None:
        """Nothing waits for longer than this from now on."""
        if not self._line:
            return
        latest = self._state.clock.monotonic() + most_delay_s
        for one in self._line:
            one.due = min(one.due, latest)
        if most_delay_s > 0.0:
            self._set_alarm()
        else:
            self.let_all_pass()

    def break_off(self, outage: Effect) -> None:
        """None of it reaches the fragment any more."""
        waiting = self._line
        self._line = deque()
        self._size_bytes = 0
        self._call_off()
        for one in waiting:
            one.fail(outage.error())

    def let_all_pass(self) -> None:
        while self._line:
            self._let_first_pass()
        self._call_off()
        self._when_empty()

    def rung(self) -> None:
        self._alarm = None
        now = self._state.clock.monotonic()
        while self._line and self._line[0].due <= now:
            self._let_first_pass()
        if self._line:
            self._set_alarm()
        else:
            self._when_empty()

    def _let_first_pass(self) -> None:
        one = self._line.popleft()
        self._size_bytes -= one.size_bytes()
        try:
            one.let_pass()
        except BusError as error:
            one.fail(error)

    def _set_alarm(self) -> None:
        """For the first in line, unless there is one that is early enough."""
        first = self._line[0].due
        alarm = self._alarm
        if alarm is not None and alarm.at <= first:
            return
        self._call_off()
        self._alarm = alarm = _Alarm(self, first)
        self._state.later(max(first - self._state.clock.monotonic(), 0.0), alarm.ring)

    def _call_off(self) -> None:
        if self._alarm is not None:
            self._alarm.call_off()
            self._alarm = None
