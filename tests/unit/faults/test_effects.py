"""What looking at the faults of a fragment costs: nothing that grows with how often it is asked."""

from __future__ import annotations

from tandembus.clock import ManualClock
from tandembus.faults.effects import DISK_FULL, THROTTLED, UNAVAILABLE, Effect, FaultState, FragmentFaults
from tests.covers import covers


class Looks:
    """Counts who looks at the clock, and who has the board look for faults whose time is over."""

    def __init__(self, *effects: Effect) -> None:
        self.clock = ManualClock()
        self.clock_count = 0
        self.tick_count = 0
        self.effects = list(effects)
        self.state = FaultState(self, lambda: 0.5, lambda _delay_s, _act: None, self._tick)
        self.faults = FragmentFaults(self.state, lambda: self.effects, lambda _before: None)

    def _tick(self) -> None:
        self.tick_count += 1
        self.state.next_end = float("inf")
        self.effects = []
        self.state.changed()

    def monotonic(self) -> float:
        self.clock_count += 1
        return self.clock.monotonic()

    def now(self) -> float:
        return self.clock.now()

    def now_ms(self) -> int:
        return self.clock.now_ms()


@covers("B3")
def test_faults_without_an_end_are_looked_at_without_looking_at_the_clock() -> None:
    looks = Looks(Effect(THROTTLED, "busy", 0.01, 0.0), Effect(DISK_FULL, "full", 1.0, 0.0))
    for _ in range(100):
        assert not looks.faults.is_clear()
        assert looks.faults.outage_now() is None
        assert looks.faults.hit(False, False) == 0.0
    assert (looks.clock_count, looks.tick_count) == (0, 0)


@covers("B3")
def test_a_fault_with_an_end_is_over_in_time_and_looked_for_once() -> None:
    looks = Looks(Effect(UNAVAILABLE, "out", 1.0, 0.0))
    looks.state.next_end = looks.clock.monotonic() + 10.0
    for _ in range(100):
        assert looks.faults.outage_now() is not None
    assert looks.tick_count == 0
    looks.clock.advance(10.0)
    for _ in range(100):
        assert looks.faults.outage_now() is None
    assert looks.tick_count == 1
    assert looks.faults.is_clear()
