"""When a process counts as silent, and when one that ended is started again."""

from __future__ import annotations

from tandembus.node.supervision import (
    HEALTHY_AFTER_S,
    LONGEST_DELAY_S,
    START_TIMEOUT_S,
    ProcessLives,
    ProcessState,
)
from tests.covers import covers


def lives(restart_delay_s: float = 0.0, heartbeat_timeout_s: float = 5.0) -> ProcessLives:
    return ProcessLives(restart_delay_s, heartbeat_timeout_s)


def state_of(one: ProcessLives) -> ProcessState:
    return one.state


def pid_of(one: ProcessLives) -> int | None:
    return one.pid


def delays_of_short_lives(one: ProcessLives, count: int) -> list[float]:
    delays = []
    now = 0.0
    for _ in range(count):
        one.started(1, now)
        now += 0.1
        restart_at = one.ended(now)
        delays.append(round(restart_at - now, 6))
        now = restart_at
    return delays


@covers("P3")
def test_a_process_goes_through_its_states() -> None:
    one = lives()
    assert state_of(one) is ProcessState.DOWN
    one.started(7, 0.0)
    assert (one.state, one.pid, one.restart_count) == (ProcessState.STARTING, 7, 0)
    one.became_ready(1.0)
    assert state_of(one) is ProcessState.READY
    one.given_up(9.0)
    assert state_of(one) is ProcessState.ENDING
    assert one.pid == 7, "until its exit is known it may still own its stores"
    one.ended(9.5)
    assert state_of(one) is ProcessState.DOWN
    assert pid_of(one) is None
    one.started(8, 9.5)
    assert one.restart_count == 1


@covers("P3")
def test_a_process_is_silent_when_nothing_was_heard_for_the_heartbeat_timeout() -> None:
    one = lives()
    one.started(7, 100.0)
    assert one.silent_until() == 100.0 + START_TIMEOUT_S, "while it loads it can say nothing"
    one.heard(101.0)
    assert one.silent_until() == 106.0
    one.became_ready(102.0)
    assert one.silent_until() == 107.0
    one.heard(110.0)
    assert one.silent_until() == 115.0


@covers("P3")
def test_one_that_was_loaded_before_is_silent_when_it_does_not_read_its_orders() -> None:
    one = lives()
    one.started(7, 100.0, is_loaded=True)
    assert one.silent_until() == 105.0
    assert one.we_slept(110.0)
    assert one.silent_until() == 115.0
    one.has_orders()
    assert one.silent_until() == 100.0 + START_TIMEOUT_S, "while it opens its stores it says nothing"
    one.heard(111.0)
    one.has_orders()
    assert one.silent_until() == 116.0
    one.ended(120.0)
    one.started(8, 121.0)
    assert one.silent_until() == 121.0 + START_TIMEOUT_S


def test_a_supervisor_that_slept_blames_nobody_for_its_own_silence() -> None:
    one = lives()
    one.started(7, 0.0)
    one.heard(1.0)
    assert one.we_slept(60.0)
    assert one.silent_until() == 65.0


def test_a_supervisor_that_always_comes_late_gives_up_at_last_who_says_nothing() -> None:
    one = lives()
    one.started(7, 0.0)
    for at in (10.0, 100.0):
        one.heard(at)
        assert one.we_slept(at + 10.0)
        assert one.we_slept(at + 20.0)
        assert not one.we_slept(at + 30.0)
        assert one.silent_until() == at + 25.0


def test_one_that_cannot_be_started_after_a_long_life_is_not_tried_without_end() -> None:
    one = lives()
    one.started(7, 0.0)
    one.became_ready(1.0)
    delays = [one.ended(100.0) - 100.0 for _ in range(4)]
    assert delays == [0.0, 0.0, 0.25, 0.5]


@covers("P3")
def test_one_that_ends_at_once_again_and_again_is_started_ever_later() -> None:
    delays = delays_of_short_lives(lives(), 12)
    assert delays[:5] == [0.0, 0.25, 0.5, 1.0, 2.0]
    assert delays[-1] == LONGEST_DELAY_S


@covers("P3")
def test_one_that_has_served_for_a_while_is_started_at_once() -> None:
    one = lives()
    delays_of_short_lives(one, 5)
    one.started(1, 100.0)
    one.became_ready(101.0)
    assert one.ended(101.0 + HEALTHY_AFTER_S) == 101.0 + HEALTHY_AFTER_S


def test_one_that_was_killed_for_its_silence_has_served_all_the_same() -> None:
    one = lives()
    delays_of_short_lives(one, 5)
    one.started(1, 100.0)
    one.became_ready(101.0)
    one.given_up(200.0)
    assert one.ended(201.0) == 201.0


def test_one_that_ended_before_it_was_ready_has_served_nobody() -> None:
    one = lives()
    delays_of_short_lives(one, 1)
    one.started(1, 100.0)
    assert one.ended(200.0) == 200.25


def test_the_restart_delay_is_the_least_and_may_be_longer_than_any_back_off() -> None:
    assert delays_of_short_lives(lives(restart_delay_s=2.0), 4) == [2.0, 2.0, 4.0, 8.0]
    assert delays_of_short_lives(lives(restart_delay_s=100.0), 4) == [100.0] * 4


def test_one_that_resyncs_is_not_ready_until_it_says_so() -> None:
    one = lives()
    one.started(7, 0.0)
    one.became_ready(1.0)
    one.resyncs(50.0)
    assert state_of(one) is ProcessState.STARTING
    one.became_ready(51.0)
    assert state_of(one) is ProcessState.READY
    assert one.ended(52.0) == 52.0, "it has served since its first readiness"


@covers("F6")
def test_a_process_that_crashed_twice_within_a_minute_is_suspect_at_its_next_start() -> None:
    one = lives()
    suspicions = []
    for now in (100.0, 200.0, 260.0, 270.0, 400.0):
        one.started(7, now - 5.0)
        one.crashed(now)
        one.ended(now)
        suspicions.append(one.is_suspect)
    assert suspicions == [False, False, True, True, False]


@covers("F1")
def test_a_process_that_was_killed_after_it_was_suspect_is_not_suspect_any_more() -> None:
    one = lives()
    for now in (100.0, 110.0):
        one.started(7, now - 5.0)
        one.crashed(now)
        one.ended(now)
    one.started(7, 111.0)
    one.ended(112.0)
    assert not one.is_suspect
