"""The switch of one fragment: what the injected faults that concern it do to its operations.

A fragment has a switch only while a fault concerns it. What a fault does is what its cause would do. Out of reach:
operations are refused, and the fragment's traffic cuts its receivers and sessions off. Slow: operations wait in one
line, so that none overtakes another. The line is bounded, and it moves as soon as the faults allow it: at once when
they are healed, within the new latency when that is smaller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, final

from tandembus.errors import BusError, ServerBusy
from tandembus.faults.fault import Fault, Kind

if TYPE_CHECKING:
    from tandembus.faults.board import FaultBoard

MAX_WAITING: Final = 4096
MAX_WAITING_BYTES: Final = 64 << 20
"""The most operations and bytes that wait for one slow fragment; more are refused as overload."""
NEVER: Final = float("inf")

_BUSY: Final = "The namespace is busy: a fragment is too slow for what is sent to it. Please wait 10 seconds and retry."

Act = Callable[[], None]
Fail = Callable[[BusError], None]


class Switched(Protocol):
    """The traffic of a fragment."""

    fault: FragmentSwitch | None
    """None while no fault concerns the fragment."""

    def cut_off(self, error: BusError) -> None:
        """The fragment goes out of reach."""

    def reconnect(self) -> None:
        """The fragment can be reached again."""


@dataclass(slots=True)
class _Waiting:
    """An operation in the line. `fail` answers it without `act` having been called."""

    due: float
    size_bytes: int
    act: Act
    fail: Fail


@final
class FragmentSwitch:
    def __init__(self, board: FaultBoard, traffic: Switched) -> None:
        self.feeds: Final[dict[object, bool]] = {}
        """Receivers whose request for messages waits in the line, and whether they drain."""
        self._board: Final = board
        self._traffic: Final = traffic
        self._faults: Sequence[Fault] = ()
        self._outage: Fault | None = None
        self._line: Final[deque[_Waiting]] = deque()
        self._line_bytes = 0
        self._alarm_at = NEVER
        self._is_passing = False

    def change(self, faults: Sequence[Fault]) -> None:
        """The faults that concern the fragment from now on."""
        before = self._outage
        self._faults = faults
        self._outage = next((fault for fault in faults if fault.is_outage), None)
        if self._outage is not None and before is None:
            self._fail_line(self._outage)
            self._traffic.cut_off(self._outage.error())
        elif self._outage is None and before is not None:
            self._traffic.reconnect()
        self._hurry()

    # What the faults do to an operation.

    def outage(self) -> BusError | None:
        """Why the fragment is out of reach, if it is."""
        return self._outage.error() if self.is_out() and self._outage is not None else None

    def is_out(self) -> bool:
        self._board.tick()
        return self._outage is not None

    def is_slow(self) -> bool:
        return self._longest_delay_s() > 0.0

    def hit(self, is_new: bool, grows: bool) -> float:
        """Return by how many seconds the faults delay this operation, or raise the error that they cause.

        `is_new`: it can be repeated later, so throttling refuses it. `grows`: it needs room in the store."""
        self._board.tick()
        refusing = {Kind.UNAVAILABLE: True, Kind.SLOW: False, Kind.THROTTLED: is_new, Kind.DISK_FULL: grows}
        delay_s = 0.0
        for fault in self._faults:
            if self._board.hits(fault):
                if refusing[fault.kind]:
                    raise fault.error()
                delay_s += fault.latency_s
        return delay_s

    def delay_s(self) -> float:
        """By how much the faults delay what they never refuse by chance: receiving, and counting."""
        self._board.tick()
        return sum((fault.latency_s for fault in self._slow() if self._board.hits(fault)), 0.0)

    async def delay(self, delay_s: float) -> None:
        """Wait so long, or until the fragment is not slow any more."""
        await self._board.delay(delay_s, self.is_slow)

    def _longest_delay_s(self) -> float:
        """By how much they delay an operation that every fault hits."""
        return sum((fault.latency_s for fault in self._slow()), 0.0)

    def _slow(self) -> list[Fault]:
        return [fault for fault in self._faults if fault.kind is Kind.SLOW]

    # The line.

    def is_waited_for(self) -> bool:
        return len(self._line) > 0

    def lets_pass(self) -> bool:
        """Whether this is the call for which an operation waited in the line."""
        is_passing, self._is_passing = self._is_passing, False
        return is_passing

    def keeps(self, delay_s: float, size_bytes: int, act: Act, fail: Fail) -> bool:
        """Whether an operation has to wait; if so, `act` is called when it is due. Raises ServerBusy when too much is
        waiting already; a single large operation always may."""
        if delay_s <= 0.0 and not self._line:
            return False
        is_full = len(self._line) >= MAX_WAITING or self._line_bytes + size_bytes > MAX_WAITING_BYTES
        if is_full and self._line:
            raise ServerBusy(_BUSY)
        self.add(delay_s, size_bytes, act, fail)
        return True

    def keeps_receiver(self, act: Act, fail: Fail) -> bool:
        """The same for receivers, which are not refused: nobody can have many of them."""
        if self.lets_pass() or self.is_out():
            return False
        delay_s = self.delay_s()
        if delay_s <= 0.0 and not self._line:
            return False
        self.add(delay_s, 0, act, fail)
        return True

    def add(self, delay_s: float, size_bytes: int, act: Act, fail: Fail) -> None:
        """To the end of the line: it is due no earlier than what waits already."""
        due = self._board.clock.monotonic() + delay_s
        if self._line:
            due = max(due, self._line[-1].due)
        self._line.append(_Waiting(due, size_bytes, act, fail))
        self._line_bytes += size_bytes
        self._set_alarm()

    def pass_by(self, act: Act) -> None:
        """Call `act` so that the operation in it does not wait."""
        self._is_passing = True
        try:
            act()
        finally:
            self._is_passing = False

    def _hurry(self) -> None:
        """Nothing waits longer than the faults now ask for."""
        latest = self._board.clock.monotonic() + self._longest_delay_s()
        for one in self._line:
            one.due = min(one.due, latest)
        self._let_due_pass()

    def _fail_line(self, outage: Fault) -> None:
        waiting = list(self._line)
        self._line.clear()
        self._line_bytes = 0
        for one in waiting:
            one.fail(outage.error())

    def _let_due_pass(self) -> None:
        while self._line and self._line[0].due <= self._board.clock.monotonic():
            one = self._line.popleft()
            self._line_bytes -= one.size_bytes
            try:
                self.pass_by(one.act)
            except BusError as error:
                one.fail(error)
        if self._line:
            self._set_alarm()

    def _set_alarm(self) -> None:
        """For the first in line, unless there is one that is early enough."""
        first = self._line[0].due
        if first < self._alarm_at:
            self._alarm_at = first
            self._board.later(max(first - self._board.clock.monotonic(), 0.0), partial(self._ring, first))

    def _ring(self, at: float) -> None:
        if at == self._alarm_at:  # else an earlier alarm has taken its place
            self._alarm_at = NEVER
            self._let_due_pass()
