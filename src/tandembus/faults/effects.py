"""Faults as the traffic of one fragment knows them: which concern it now, and what they do to one operation.

Two words for two things: a fault *hits* an operation or not, by chance where it has a probability, and what it hits is
refused or *delayed*.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.clock import Clock
from tandembus.errors import BusError, FragmentUnavailable, ServerBusy, StoreFull

UNAVAILABLE: Final = 1
SLOW: Final = 2
THROTTLED: Final = 3
DISK_FULL: Final = 4

NEVER: Final = float("inf")


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
        self.version: i64 = 0
        self.next_end: float = NEVER
        """When the next fault ends by itself, on the monotonic clock."""
        self.listeners: dict[FragmentFaults, bool] = {}
        """Those of gates that somebody waits behind: they have to be told. All others ask when they are used."""
        self._tick: Final = tick

    def changed(self) -> None:
        self.version += 1
        for faults in list(self.listeners):
            faults.look_again()

    def end_what_is_over(self) -> None:
        """No fault hits anything after its time, however long ago anybody looked at the clock."""
        if self.next_end != NEVER and self.clock.monotonic() >= self.next_end:
            self._tick()


@final
class FragmentFaults:
    """The faults of one fragment."""

    def __init__(
        self, state: FaultState, find: Callable[[], list[Effect]], changed: Callable[[Effect | None], None]
    ) -> None:
        """`find`: those that concern it now. `changed`: they are others than before; is told what kept it out of reach
        until now."""
        self.state: Final = state
        self._find: Final = find
        self._changed: Final = changed
        self._version: i64 = -1
        self._effects: list[Effect] = []
        self.outage: Effect | None = None
        """What keeps it out of reach, as of the last look."""

    # Whether there are any.

    def is_clear(self) -> bool:
        """No fault concerns it. This is all that an operation costs then."""
        if self._version != self.state.version:
            self.look_again()
        return len(self._effects) == 0

    def outage_now(self) -> Effect | None:
        self._catch_up()
        return self.outage

    def is_slow(self) -> bool:
        return self.most_delay_s() > 0.0

    def check_reach(self) -> None:
        """Raises when the fragment is out of reach by now."""
        outage = self.outage_now()
        if outage is not None:
            raise outage.error()

    def _catch_up(self) -> None:
        self.state.end_what_is_over()
        if self._version != self.state.version:
            self.look_again()

    def look_again(self) -> None:
        """The board has changed."""
        self._version = self.state.version
        effects = self._find()
        outage: Effect | None = None
        for effect in effects:
            if effect.kind == UNAVAILABLE and effect.probability >= 1.0:
                outage = effect
                break
        before = self.outage
        self._effects = effects
        self.outage = outage
        self._changed(before)

    def listen(self) -> None:
        """Somebody waits behind the gate from now on."""
        self.state.listeners[self] = True
        if self._version != self.state.version:
            self.look_again()

    def stop_listening(self) -> None:
        self.state.listeners.pop(self, None)

    # What they do to an operation.

    def hit(self, is_new: bool, grows: bool) -> float:
        """Raises what a fault does to an operation that it hits; returns by how many seconds others delay it.

        `is_new`: it can come again later, so throttling turns it away. `grows`: it needs room in the store."""
        self._catch_up()
        delay_s = 0.0
        for effect in self._effects:
            if not self._hits(effect):
                continue
            kind = effect.kind
            if kind == SLOW:
                delay_s += effect.latency_s
            elif kind == UNAVAILABLE or (kind == THROTTLED and is_new) or (kind == DISK_FULL and grows):
                raise effect.error()
        return delay_s

    def delay_s(self) -> float:
        """By how much they delay what they never refuse by chance: receiving, and telling how things are."""
        delay_s = 0.0
        for effect in self._effects:
            if effect.kind == SLOW and self._hits(effect):
                delay_s += effect.latency_s
        return delay_s

    def most_delay_s(self) -> float:
        """By how much they delay an operation that all of them hit."""
        delay_s = 0.0
        if self._version != self.state.version:
            self.look_again()
        for effect in self._effects:
            if effect.kind == SLOW:
                delay_s += effect.latency_s
        return delay_s

    def _hits(self, effect: Effect) -> bool:
        return effect.probability >= 1.0 or self.state.draw() < effect.probability
