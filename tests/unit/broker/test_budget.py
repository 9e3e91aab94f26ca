"""Throttling: how much may wait for a commit, and how many operations a second may come."""

from __future__ import annotations

import pytest

from tandembus.broker.budget import Budget
from tandembus.clock import ManualClock
from tandembus.errors import ServerBusy
from tests.covers import covers


@covers("M14")
def test_more_than_the_limit_may_not_wait_for_a_commit() -> None:
    budget = Budget(ManualClock(), max_uncommitted_bytes=100)
    budget.uncommitted_bytes = 60
    budget.check(40)
    with pytest.raises(ServerBusy):
        budget.check(41)


@covers("M14")
def test_a_single_large_operation_always_fits() -> None:
    Budget(ManualClock(), max_uncommitted_bytes=100).check(1000)


@covers("M14")
def test_throttling_says_how_long_to_wait() -> None:
    budget = Budget(ManualClock(), max_uncommitted_bytes=1)
    budget.uncommitted_bytes = 1
    with pytest.raises(ServerBusy, match="wait 10 seconds"):
        budget.check(1)


@covers("M14")
def test_without_a_limit_any_number_of_operations_is_allowed() -> None:
    budget = Budget(ManualClock())
    for _ in range(10_000):
        budget.check(0)


@covers("M14")
def test_as_many_operations_as_the_limit_come_through_in_a_second() -> None:
    budget = Budget(ManualClock(), operations_per_second=3.0)
    for _ in range(3):
        budget.check(0)
    with pytest.raises(ServerBusy):
        budget.check(0)


@covers("M14")
def test_operations_are_allowed_again_as_time_passes() -> None:
    clock = ManualClock()
    budget = Budget(clock, operations_per_second=4.0)
    for _ in range(4):
        budget.check(0)
    clock.advance(0.25)
    budget.check(0)
    with pytest.raises(ServerBusy):
        budget.check(0)


@covers("M14")
def test_what_was_not_used_is_saved_for_one_second_only() -> None:
    clock = ManualClock()
    budget = Budget(clock, operations_per_second=3.0)
    clock.advance(3600)
    for _ in range(3):
        budget.check(0)
    with pytest.raises(ServerBusy):
        budget.check(0)


@covers("M14")
def test_setting_the_wall_clock_allows_nothing_more() -> None:
    clock = ManualClock()
    budget = Budget(clock, operations_per_second=1.0)
    budget.check(0)
    clock.shift_wall(3600)
    with pytest.raises(ServerBusy):
        budget.check(0)
