"""The switch of one fragment: what the injected faults that concern it do to its operations.

A fragment has a switch only while a fault concerns it. What a fault does is what its cause would do. Out of reach:
operations are refused, and the fragment's traffic cuts its receivers and sessions off. Slow: operations wait in one
line, so that none overtakes another. The line is bounded, and it moves as soon as the faults allow it: at once when
they are healed, within the new latency when that is smaller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.clock import Clock
from tandembus.errors import BusError, FragmentUnavailable, ServerBusy, StoreFull

UNAVAILABLE: Final = 1
SLOW: Final = 2
THROTTLED: Final = 3
DISK_FULL: Final = 4

NEVER: Final = float("inf")
MAX_WAITING: Final = 4096
MAX_WAITING_BYTES: Final = 64 << 20
"""What one slow fragment may keep waiting; more is refused as overload, which is what slowness leads to."""

_BUSY: Final = "The namespace is busy: a fragment is too slow for what is sent to it. Please wait 10 seconds and retry."

Act = Callable[[], None]
Fail = Callable[[BusError], None]


@final
class Effect:
    """One fault as it concerns one fragment."""

    __slots__ = ("kind", "latency_s", "probability", "text")

    def __init__(self, kind: i64, text: str, probability: float, latency_s: float) -> None:
        self.kind: i64 = kind
        self.text: Final = text
        self.probability: float = probability
        self.latency_s: float = latency_s

    def error(self) -> BusError:
        """A new one each time: an error that is raised repeatedly would collect all its tracebacks."""
        if self.kind == THROTTLED:
            return ServerBusy(self.text)
        if self.kind == DISK_FULL:
            return StoreFull(self.text)
        return FragmentUnavailable(self.text)


@final
class FaultTimes:
    """What all switches of a process share: clock, chance and timers, and when the next fault ends."""

    def __init__(
        self,
        clock: Clock,
        draw: Callable[[], float],
        later: Callable[[float, Act], None],
        delay: Callable[[float, Callable[[], bool]], Awaitable[None]],
        end_faults: Act,
    ) -> None:
        """`draw` returns a random number from 0 to 1, `later` calls after so many seconds, `delay` waits so long or
        until nothing is slow any more, and `end_faults` removes the faults whose time is over."""
        self.clock: Final = clock
        self.draw: Final = draw
        self.later: Final = later
        self.delay: Final = delay
        self.next_end: float = NEVER
        """On the monotonic clock."""
        self._end_faults: Final = end_faults

    def catch_up(self) -> None:
        """No fault hits anything after its time, even if no timer has fired since."""
        if self.next_end != NEVER and self.clock.monotonic() >= self.next_end:
            self._end_faults()

    def hits(self, effect: Effect) -> bool:
        return effect.probability >= 1.0 or self.draw() < effect.probability


@final
class _Waiting:
    """An operation in the line. `fail` reports to whoever asked for it that it did not happen."""

    __slots__ = ("act", "due", "fail", "size_bytes")

    def __init__(self, due: float, size_bytes: i64, act: Act, fail: Fail) -> None:
        self.due: float = due
        self.size_bytes: i64 = size_bytes
        self.act: Final = act
        self.fail: Final = fail


@final
class _Alarm:
    """Wakes the line once, unless it was cancelled: `later` has no way to cancel."""

    __slots__ = ("at", "switch")

    def __init__(self, switch: FragmentSwitch, at: float) -> None:
        self.switch: FragmentSwitch | None = switch
        self.at: float = at

    def ring(self) -> None:
        if self.switch is not None:
            self.switch.let_due_pass()


@final
class FragmentSwitch:
    def __init__(self, times: FaultTimes, cut_off: Fail, reconnect: Act) -> None:
        """`cut_off` is called when the fragment goes out of reach, `reconnect` when it is back."""
        self.feeds: Final[dict[object, bool]] = {}
        """Receivers whose request for messages waits in the line, and whether they drain."""
        self.times: Final = times
        self._cut_off: Final = cut_off
        self._reconnect: Final = reconnect
        self._effects: list[Effect] = []
        self._outage: Effect | None = None
        self._line: Final[deque[_Waiting]] = deque()
        self._line_bytes: i64 = 0
        self._alarm: _Alarm | None = None
        self._is_passing: bool = False

    def change(self, effects: list[Effect]) -> None:
        """The faults that concern the fragment from now on."""
        before, outage = self._outage, None
        for effect in effects:
            if effect.kind == UNAVAILABLE and effect.probability >= 1.0:
                outage = effect
                break
        self._effects = effects
        self._outage = outage
        if outage is not None and before is None:
            self._fail_line(outage)
            self._cut_off(outage.error())
        elif outage is None and before is not None:
            self._reconnect()
        self._hurry()

    # What the faults do to an operation.

    def outage(self) -> BusError | None:
        """Why the fragment is out of reach, if it is."""
        self.times.catch_up()
        return None if self._outage is None else self._outage.error()

    def is_out(self) -> bool:
        self.times.catch_up()
        return self._outage is not None

    def is_slow(self) -> bool:
        return self._longest_delay_s() > 0.0

    def hit(self, is_new: bool, grows: bool) -> float:
        """Return by how many seconds the faults delay this operation, or raise the error that they cause.

        `is_new`: it can be repeated later, so throttling refuses it. `grows`: it needs room in the store."""
        self.times.catch_up()
        delay_s = 0.0
        for effect in self._effects:
            if not self.times.hits(effect):
                continue
            kind = effect.kind
            if kind == SLOW:
                delay_s += effect.latency_s
            elif kind == UNAVAILABLE or (kind == THROTTLED and is_new) or (kind == DISK_FULL and grows):
                raise effect.error()
        return delay_s

    def delay_s(self) -> float:
        """By how much the faults delay what they never refuse by chance: receiving, and counting."""
        self.times.catch_up()
        delay_s = 0.0
        for effect in self._effects:
            if effect.kind == SLOW and self.times.hits(effect):
                delay_s += effect.latency_s
        return delay_s

    def _longest_delay_s(self) -> float:
        """By how much they delay an operation that every fault hits."""
        delay_s = 0.0
        for effect in self._effects:
            if effect.kind == SLOW:
                delay_s += effect.latency_s
        return delay_s

    # The line.

    def is_waited_for(self) -> bool:
        return len(self._line) > 0

    def lets_pass(self) -> bool:
        """Whether this is the call for which an operation waited in the line."""
        is_passing = self._is_passing
        self._is_passing = False
        return is_passing

    def keeps(self, delay_s: float, size_bytes: i64, act: Act, fail: Fail) -> bool:
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

    def add(self, delay_s: float, size_bytes: i64, act: Act, fail: Fail) -> None:
        """To the end of the line: it is due no earlier than what waits already."""
        due = self.times.clock.monotonic() + delay_s
        if self._line:
            due = max(due, self._line[-1].due)
        self._line.append(_Waiting(due, size_bytes, act, fail))
        self._line_bytes += size_bytes
        self._set_alarm()

    def _hurry(self) -> None:
        """Nothing waits longer than the faults now ask for."""
        longest_s = self._longest_delay_s()
        if longest_s <= 0.0:
            self.let_all_pass()
        elif self._line:
            latest = self.times.clock.monotonic() + longest_s
            for one in self._line:
                one.due = min(one.due, latest)
            self._set_alarm()

    def _fail_line(self, outage: Effect) -> None:
        waiting = list(self._line)
        self._line.clear()
        self._line_bytes = 0
        for one in waiting:
            one.fail(outage.error())

    def let_all_pass(self) -> None:
        while self._line:
            self._let_first_pass()

    def let_due_pass(self) -> None:
        self._alarm = None
        now = self.times.clock.monotonic()
        while self._line and self._line[0].due <= now:
            self._let_first_pass()
        if self._line:
            self._set_alarm()

    def _let_first_pass(self) -> None:
        one = self._line.popleft()
        self._line_bytes -= one.size_bytes
        try:
            self.pass_by(one.act)
        except BusError as error:
            one.fail(error)

    def pass_by(self, act: Act) -> None:
        """Call `act` so that the operation in it does not wait."""
        self._is_passing = True
        try:
            act()
        finally:
            self._is_passing = False

    def _set_alarm(self) -> None:
        """For the first in line, unless there is one that is early enough."""
        first = self._line[0].due
        alarm = self._alarm
        if alarm is not None:
            if alarm.at <= first:
                return
            alarm.switch = None
        self._alarm = alarm = _Alarm(self, first)
        self.times.later(max(first - self.times.clock.monotonic(), 0.0), alarm.ring)
