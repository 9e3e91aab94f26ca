"""When the senders of an entity leave the primary, and when they return."""

from __future__ import annotations

import pytest

from tandembus.clock import ManualClock
from tandembus.pairing.entity_health import EntityHealth, EntityState
from tests.covers import covers

HEALTHY, FAILING, FAILED_OVER = EntityState.HEALTHY, EntityState.FAILING, EntityState.FAILED_OVER


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def orders(clock: ManualClock) -> EntityHealth:
    return EntityHealth(60.0, clock)


@covers("N5")
def test_an_entity_fails_over_once_the_interval_passes_without_a_successful_send(
    orders: EntityHealth, clock: ManualClock
) -> None:
    assert orders.send_failed()
    clock.advance(59.9)
    assert not orders.interval_elapsed()
    assert orders.due_in_s() == pytest.approx(0.1)
    clock.advance(0.1)
    assert orders.interval_elapsed()
    assert orders.state is FAILED_OVER


@covers("N5")
def test_one_answer_within_the_interval_ends_the_spell(orders: EntityHealth, clock: ManualClock) -> None:
    orders.send_failed()
    clock.advance(59.0)
    assert orders.entity_answered()
    clock.advance(5.0)
    assert not orders.interval_elapsed()
    assert orders.send_failed()
    clock.advance(59.0)
    assert not orders.interval_elapsed()
    clock.advance(1.0)
    assert orders.interval_elapsed()


@covers("N5")
def test_many_sends_that_fail_together_are_one_spell_from_the_first_of_them(
    orders: EntityHealth, clock: ManualClock
) -> None:
    assert orders.send_failed()
    for _ in range(100):
        clock.advance(0.5)
        assert not orders.send_failed()
    clock.advance(10.0)
    assert orders.interval_elapsed()
    assert not orders.interval_elapsed()


@covers("N6")
def test_while_failed_over_no_outcome_of_a_send_changes_anything(orders: EntityHealth, clock: ManualClock) -> None:
    orders.send_failed()
    clock.advance(60.0)
    orders.interval_elapsed()
    assert not orders.entity_answered()
    assert not orders.send_failed()
    assert orders.state is FAILED_OVER


@covers("N6", "N10")
def test_a_ping_brings_the_senders_back_and_the_next_spell_starts_anew(
    orders: EntityHealth, clock: ManualClock
) -> None:
    orders.send_failed()
    clock.advance(60.0)
    orders.interval_elapsed()
    assert orders.recovered()
    assert orders.state is HEALTHY
    assert not orders.recovered()
    orders.send_failed()
    clock.advance(59.0)
    assert orders.state is FAILING
    assert not orders.interval_elapsed()


@covers("N5")
def test_with_no_interval_the_first_failure_engages(clock: ManualClock) -> None:
    orders = EntityHealth(0.0, clock)
    orders.send_failed()
    assert orders.due_in_s() == 0.0
    assert orders.interval_elapsed()


@covers("N5")
def test_setting_the_wall_clock_moves_nobody(orders: EntityHealth, clock: ManualClock) -> None:
    orders.send_failed()
    clock.shift_wall(3600.0)
    assert not orders.interval_elapsed()
    clock.advance(60.0)
    assert orders.interval_elapsed()


@covers("N5")
def test_a_timer_without_a_spell_engages_nothing(orders: EntityHealth) -> None:
    assert orders.due_in_s() is None
    assert not orders.interval_elapsed()
    assert orders.state is HEALTHY
