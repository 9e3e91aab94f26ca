"""A clock that runs with another and can be put forward."""

from __future__ import annotations

import pytest

from tandembus.clock import JumpingClock, ManualClock
from tests.covers import covers


@covers("B6")
def test_it_runs_as_the_other_clock_does_and_stays_ahead_of_it() -> None:
    running = ManualClock(now=1_000.0, monotonic=50.0)
    clock = JumpingClock(running)
    assert (clock.now(), clock.now_ms(), clock.monotonic()) == (1_000.0, 1_000_000, 50.0)
    clock.jump(30.5)
    running.advance(1.0)
    assert (clock.now(), clock.now_ms(), clock.monotonic()) == (1_031.5, 1_031_500, 81.5)


@covers("B6")
def test_only_its_wall_time_can_be_set_right() -> None:
    clock = JumpingClock(ManualClock(now=1_000.0, monotonic=50.0))
    clock.jump(30.0)
    clock.set_right()
    assert (clock.now(), clock.monotonic()) == (1_000.0, 80.0)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), 1e15])
def test_it_is_not_put_back_nor_out_of_all_times(seconds: float) -> None:
    clock = JumpingClock()
    with pytest.raises(ValueError, match="put forward"):
        clock.jump(seconds)
