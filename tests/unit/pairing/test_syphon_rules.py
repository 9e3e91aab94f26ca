"""What the syphon decides: what refusals mean, how much it asks for, what waits behind a dead destination."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus import errors
from tandembus.client.errors import ConnectionLost
from tandembus.pairing.payloads import Browsed
from tandembus.pairing.syphon_lane import Lane
from tandembus.pairing.syphon_messages import Delivery, Held
from tandembus.pairing.syphon_rules import (
    Followers,
    PrimaryUnreachable,
    SyphonSettings,
    Verdict,
    Window,
    dead_letter_reason,
    verdict_on,
)
from tandembus.pairing.syphon_search import Look
from tests.covers import covers

LATER = [
    errors.EntityDisabled,
    errors.QuotaExceeded,
    errors.ServerBusy,
    errors.OperationTimeout,
    errors.StoreUnavailable,
    errors.Unauthorized,
    errors.BusError,
    ConnectionLost,
    OSError,
]
REFUSED = [errors.MessageTooLarge, errors.InvalidOperation, errors.InvalidArgument, errors.MalformedData]


@covers("N12")
@pytest.mark.parametrize("kind", LATER)
def test_what_may_pass_is_tried_again(kind: type[Exception]) -> None:
    assert verdict_on(kind("x")) is Verdict.LATER


@covers("N12")
@pytest.mark.parametrize("kind", REFUSED)
def test_what_a_destination_says_about_a_message_is_for_good(kind: type[Exception]) -> None:
    assert verdict_on(kind("x")) is Verdict.REFUSED


@covers("N12")
def test_a_missing_destination_and_a_missing_primary_are_told_apart() -> None:
    assert verdict_on(errors.EntityNotFound("x")) is Verdict.GONE
    assert verdict_on(PrimaryUnreachable("x")) is Verdict.UNREACHABLE


@covers("N12")
def test_a_dead_letter_tells_where_it_was_meant_to_go_and_why_it_is_not_there() -> None:
    reason, description = dead_letter_reason(Verdict.GONE, "orders", errors.EntityNotFound("no such entity"))
    assert reason == "DestinationNotFound"
    assert description == "'orders' on the primary: no such entity"
    assert len(dead_letter_reason(Verdict.REFUSED, "orders", ValueError("x" * 9999))[1]) == 1024


@covers("N12")
@pytest.mark.parametrize("seconds", [0.0, 0.9, 120.1, -1.0, float("nan")])
def test_a_retry_interval_out_of_range_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="1 s to 2 min"):
        SyphonSettings(retry_interval_s=seconds)


def test_the_window_grows_while_it_is_filled_and_shrinks_with_large_messages() -> None:
    window = Window(SyphonSettings(window=500, window_bytes=1_000_000))
    assert window.count == 32
    window.received(1000, 32)
    assert window.count == 64
    window.received(1000, 10)
    assert window.count == 64
    for _ in range(5):
        window.received(1000, window.count)
    assert window.count == 500
    window.received(250_000, 3)
    assert window.count == 4
    window.received(5_000_000, 1)
    assert window.count == 1


@covers("N12")
@given(st.lists(st.integers(1, 10_000), unique=True, max_size=200), st.integers(1, 50))
def test_followers_leave_in_the_order_of_their_numbers(numbers: list[int], count: int) -> None:
    followers = Followers()
    followers.add(numbers)
    taken: list[int] = []
    while some := followers.take(count):
        taken += some
    assert taken == sorted(numbers)
    assert followers.look_from is None


@covers("N12")
def test_followers_are_bounded_and_say_from_where_on_there_are_more() -> None:
    followers = Followers(limit=10)
    followers.add(range(1, 26))
    assert (len(followers), followers.look_from) == (10, 11)
    assert followers.take(6) == [1, 2, 3, 4, 5, 6]
    followers.add([26])  # Not before those that were not kept.
    assert followers.take(10) == [7, 8, 9, 10]
    assert all(followers.found(number) for number in range(11, 19))
    followers.known_below(19)
    assert followers.take(20) == list(range(11, 19))
    assert followers.look_from == 19
    assert all(followers.found(number) for number in range(19, 27))
    followers.known_below(None)
    followers.add([27])
    assert followers.take(20) == list(range(19, 28))


@covers("N12")
def test_followers_that_were_not_taken_home_are_next_again() -> None:
    followers = Followers()
    followers.add(range(1, 6000))
    for _ in range(4):
        taken = followers.take(1000)
    followers.put_back(taken[500:])
    followers.add([7])
    assert followers.take(3) == [7, 3501, 3502]


def held(number: int, payload: bytes = b"") -> Held:
    return Held(Delivery(b"", None), "orders", payload, number)


@covers("N12")
def test_an_older_message_that_comes_back_takes_the_lead() -> None:
    former, older, newer = held(5), held(3), held(9)
    lane = Lane("orders", former, 0.0)
    assert lane.queue_up(newer) == [newer]
    assert lane.queue_up(older) == [former]
    assert lane.lead is older
    lane.is_trying = True
    oldest = held(1)
    assert lane.queue_up(oldest) == [oldest]


@covers("N12")
def test_a_lead_whose_lock_was_lost_leads_again_when_it_is_back() -> None:
    lane = Lane("orders", held(5, b"five"), 0.0)
    lane.lead = None
    lane.wait_until(10.0)
    assert lane.is_waiting(9.0)
    another = held(5, b"in a queue that was made again")
    assert lane.queue_up(another) == [another]
    again = held(5, b"five")
    assert lane.queue_up(again) == []
    assert lane.lead is again
    assert not lane.is_waiting(9.0)


class LookedAt(Look):
    """A look that is told what was browsed."""

    def tell(self, lanes: dict[str, Lane], *messages: Browsed) -> None:
        takers = self._takers(lanes)
        for message in messages:
            self._see(message, lanes, takers)


@covers("N12")
def test_a_sweep_tells_deferred_messages_with_a_lead_from_those_without() -> None:
    look = LookedAt(1, scan_beyond=100, is_sweep=True)
    look.tell(
        {},
        Browsed("orders", 1, 1, False),
        Browsed("Orders", 2, 0, True),
        Browsed("events", 3, 0, True),
        Browsed("events", 4, 0, False),
        Browsed("EVENTS", 5, 0, True),
        Browsed(None, 6, 0, True),
        Browsed("../orders", 7, 0, True),
    )
    assert look.suspected == {"orders", "events"}
    assert list(look.leaderless) == ["events"]
    assert look.leaderless["events"].followers.take(9) == [3]
    assert look.has_active


@covers("N12")
def test_one_look_serves_all_lanes_whose_unknown_part_is_ahead() -> None:
    lanes = {name: Lane(name, held(1), 0.0) for name in ("orders", "events", "audit")}
    lanes["orders"].followers.look_again(2)
    lanes["events"].followers.look_again(1)  # A look that has begun behind that is of no use to it.
    look = LookedAt(2, scan_beyond=100)
    look.tell(lanes, *[Browsed(name, number, 1, True) for number in (2, 3) for name in lanes])
    found = {name: lane.followers.take(9) for name, lane in lanes.items()}
    assert found == {"orders": [2, 3], "events": [], "audit": []}
    look.see([], lanes)
    assert lanes["orders"].followers.look_from is None
    assert lanes["events"].followers.look_from == 1
    assert look.is_over(lanes)


def test_a_look_ends_after_so_many_messages_that_nobody_has_touched() -> None:
    look = LookedAt(1, scan_beyond=10, is_sweep=True)
    look.tell({}, *[Browsed("orders", number, 0, False) for number in range(9)], Browsed("orders", 10, 1, False))
    assert not look.is_over({})
    look.tell({}, *[Browsed("orders", number, 0, False) for number in range(11, 21)])
    assert look.is_over({})


@covers("N12")
def test_scheduled_messages_neither_end_a_look_nor_lead() -> None:
    look = LookedAt(1, scan_beyond=10, is_sweep=True)
    look.tell({}, *[Browsed("orders", number, 0, False, is_scheduled=True) for number in range(1, 50)])
    assert not look.is_over({})
    look.tell({}, Browsed("orders", 50, 0, True))
    assert list(look.leaderless) == ["orders"]
    assert not look.suspected


@covers("N12")
def test_a_page_that_nobody_can_read_is_not_the_end_of_the_queue() -> None:
    look = Look(1, scan_beyond=100, is_sweep=True)
    look.see([b"?"] * 3, {})
    assert not look.is_over({})
    assert look.position == 4
    look.see([], {})
    assert look.is_over({})


@covers("N12")
def test_a_queue_that_nobody_can_read_is_not_read_for_ever() -> None:
    look = Look(1, scan_beyond=100, is_sweep=True)
    for _ in range(100):
        if not look.is_over({}):
            look.see([b"?"] * 3, {})
    assert look.is_over({})
