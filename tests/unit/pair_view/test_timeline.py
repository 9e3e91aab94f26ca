"""The story of one entity, out of what was seen of it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tandembus.pair_view.signs import Sign
from tandembus.pair_view.timeline import BACK_FOR_S, FAILED_OVER_FOR_S, FAILING_FOR_S, MAX_SEGMENTS, timeline
from tests.covers import covers
from tests.unit.pair_view.told import START, Runs, signs, states, story

OUTAGE: Runs = {
    Sign.REFUSED: [(0, 9, 5)],
    Sign.DIVERTED: [(10, 100, 300)],
    Sign.PING_REFUSED: [(11, 91, 5)],
    Sign.PING_ACCEPTED: [(101, 101, 1)],
    Sign.HOME: [(104, 110, 300)],
    Sign.TAKEN: [(104.1, 110.1, 300)],
}
"""An outage of an entity, as both namespaces have seen it from its beginning to its end."""


def told(seen: Runs, now: float, waiting: int | None = 0) -> list[tuple[str, float, float | None]]:
    return story(timeline(signs("orders", seen), waiting, START + now))


@covers("B4", "N16")
def test_an_outage_is_told_from_the_first_refusal_to_health() -> None:
    assert told(OUTAGE, 200) == [
        ("failing", 0, 10),
        ("failed-over", 10, 11),
        ("pinging", 11, 101),
        ("back", 101, 104),
        ("syphoning", 104, 110.1),
        ("back", 110.1, 110.1 + BACK_FOR_S),
        ("healthy", 110.1 + BACK_FOR_S, None),
    ]


@covers("B4")
@pytest.mark.parametrize(
    ("now", "waiting", "state"), [(5, 0, "failing"), (10.5, 3, "failed-over"), (50, 100, "pinging"), (111, 0, "back")]
)
def test_each_of_its_states_is_told_while_it_lasts(now: float, waiting: int, state: str) -> None:
    until_now: Runs = {
        sign: [(first, min(last, now), count) for first, last, count in runs if first <= now]
        for sign, runs in OUTAGE.items()
    }
    assert told(until_now, now, waiting)[-1][0] == state
    assert told(until_now, now, waiting)[-1][2] is None


@covers("B4")
def test_messages_on_their_way_home_are_syphoning_until_none_waits() -> None:
    moving: Runs = {Sign.DIVERTED: [(0, 10, 100)], Sign.PING_ACCEPTED: [(20, 20, 1)], Sign.TAKEN: [(21, 25, 40)]}
    assert told(moving, 26, 60)[-1] == ("syphoning", 21, None)
    assert told(moving, 36, 60)[-1] == ("back", 25, None), "nobody has moved anything for a while, and some wait"
    assert told(moving, 500, 60)[-1] == ("back", 25, None)


@covers("B4")
def test_a_send_that_is_accepted_again_ends_what_never_was_a_failover() -> None:
    seen: Runs = {Sign.REFUSED: [(0, 3, 2)], Sign.ACCEPTED: [(4, 4, 1)]}
    assert told(seen, 10) == [("failing", 0, 4), ("healthy", 4, None)]


@covers("B4")
def test_nobody_is_failing_who_does_not_try_any_more() -> None:
    assert told({Sign.REFUSED: [(0, 3, 2)]}, 1_000) == [
        ("failing", 0, 3 + FAILING_FOR_S),
        ("healthy", 3 + FAILING_FOR_S, None),
    ]


@covers("B4")
def test_the_secondary_alone_tells_of_a_primary_that_is_down() -> None:
    """THE case: no refusal and no ping was ever seen, since there was nobody to see them."""
    assert told({Sign.DIVERTED: [(5, 90, 1_000)]}, 95, 1_000) == [("failed-over", 5, None)]


@covers("B4")
def test_the_secondary_alone_tells_when_all_is_home() -> None:
    seen: Runs = {Sign.DIVERTED: [(5, 90, 1_000)], Sign.TAKEN: [(120, 130, 1_000)]}
    assert told(seen, 200) == [
        ("failed-over", 5, 120),
        ("syphoning", 120, 130),
        ("back", 130, 140),
        ("healthy", 140, None),
    ]


@covers("B4")
def test_a_syphon_that_caught_up_does_not_end_a_failover_that_goes_on() -> None:
    seen: Runs = {Sign.DIVERTED: [(5, 90, 100), (200, 290, 50)], Sign.TAKEN: [(20, 60, 80)], Sign.DEAD: [(61, 61, 2)]}
    assert told(seen, 295, 68)[-1] == ("failed-over", 60, None)


@covers("B4")
def test_dead_letters_wait_for_nobody() -> None:
    seen: Runs = {Sign.DIVERTED: [(0, 1, 10)], Sign.DEAD: [(5, 5, 4)], Sign.TAKEN: [(5, 6, 6)]}
    assert states(timeline(signs("orders", seen), 0, START + 7)) == ["failed-over", "syphoning", "back"]


@covers("B4")
def test_a_primary_that_was_restarted_has_forgotten_and_the_story_goes_on() -> None:
    """It knows of the ping that it accepted, and of what came home since: fewer than were diverted."""
    seen: Runs = {Sign.DIVERTED: [(5, 90, 100)], Sign.PING_ACCEPTED: [(95, 95, 1)], Sign.HOME: [(96, 99, 40)]}
    assert told(seen, 100, 60) == [("failed-over", 5, 95), ("back", 95, 96), ("syphoning", 96, None)]


@covers("B4")
def test_a_secondary_that_was_restarted_has_forgotten_what_came_and_the_story_goes_on() -> None:
    seen: Runs = {Sign.PING_REFUSED: [(0, 60, 2)], Sign.PING_ACCEPTED: [(120, 120, 1)], Sign.TAKEN: [(121, 125, 30)]}
    assert [state for state, _, _ in told(seen, 200)] == ["pinging", "back", "syphoning", "back", "healthy"]


@covers("B4")
def test_what_came_home_without_a_word_before_is_told_too() -> None:
    """Both have forgotten all that was before."""
    assert told({Sign.HOME: [(0, 5, 7)]}, 100) == [("syphoning", 0, 5), ("back", 5, 15), ("healthy", 15, None)]


@covers("B4")
def test_a_move_that_took_no_time_is_told_all_the_same() -> None:
    seen: Runs = {Sign.DIVERTED: [(0, 0, 3)], Sign.PING_ACCEPTED: [(10, 10, 1)], Sign.TAKEN: [(12, 12, 3)]}
    assert told(seen, 13) == [("failed-over", 0, 10), ("back", 10, 12), ("syphoning", 12, 12), ("back", 12, None)]


@covers("B4")
def test_what_was_on_its_way_to_the_backlog_when_a_ping_was_accepted_changes_nothing() -> None:
    seen: Runs = {Sign.DIVERTED: [(0, 10.5, 30)], Sign.PING_ACCEPTED: [(10, 10, 1)]}
    assert told(seen, 11, 30) == [("failed-over", 0, 10), ("back", 10, None)]


@covers("B4")
def test_another_client_that_is_still_failed_over_is_told() -> None:
    seen: Runs = {Sign.DIVERTED: [(0, 40, 30)], Sign.PING_ACCEPTED: [(10, 10, 1)]}
    assert told(seen, 41, 30)[-1][0] == "failed-over"


@covers("B4")
def test_a_second_outage_follows_on_the_first() -> None:
    again: Runs = {sign: [*runs, *[(a + 1000, b + 1000, n) for a, b, n in runs]] for sign, runs in OUTAGE.items()}
    found = [state for state, _, _ in told(again, 1_200)]
    once = ["failing", "failed-over", "pinging", "back", "syphoning", "back", "healthy"]
    assert found == [*once, *once]


@covers("B4")
@pytest.mark.parametrize("sign", [Sign.PING_REFUSED, Sign.DIVERTED])
def test_nobody_is_failed_over_who_has_not_been_heard_of_for_longer_than_pings_are_apart(sign: Sign) -> None:
    assert told({sign: [(0, 0, 1)]}, FAILED_OVER_FOR_S - 1)[-1][0] != "healthy"
    assert told({sign: [(0, 0, 1)]}, FAILED_OVER_FOR_S + 1)[-1] == ("healthy", FAILED_OVER_FOR_S, None)
    assert told({sign: [(0, 0, 1)]}, FAILED_OVER_FOR_S + 1, waiting=1)[-1][0] != "healthy", "something waits"


@covers("B4")
def test_a_clock_that_was_set_back_makes_no_segment_in_the_future() -> None:
    segments = timeline(signs("orders", OUTAGE), 0, START + 50)
    assert all(one.from_at <= START + 50 for one in segments)
    assert all(one.to_at is None or one.from_at <= one.to_at for one in segments)


@covers("B4")
def test_segments_follow_each_other_without_gaps_and_are_no_more_than_the_limit() -> None:
    runs = [(float(n * 1000), float(n * 1000 + 1), 1) for n in range(20)]
    seen: Runs = {
        Sign.REFUSED: runs,
        Sign.DIVERTED: [(a + 10, b + 10, n) for a, b, n in runs],
        Sign.TAKEN: [(a + 20, b + 20, n) for a, b, n in runs],
    }
    segments = timeline(signs("orders", seen), 0, START + 50_000)
    assert len(segments) == MAX_SEGMENTS
    assert all(one.to_at == other.from_at for one, other in pairwise(segments))


def test_no_sign_is_no_story() -> None:
    assert told({}, 10) == []
