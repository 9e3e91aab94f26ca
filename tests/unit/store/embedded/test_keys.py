"""Byte order is numeric order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus.store.embedded import keys
from tandembus.store.messaging_store import Due

places = st.tuples(st.integers(0, keys.MAX_FRAGMENT), st.integers(0, keys.MAX_LANE), st.integers(0, keys.MAX_NUMBER))
dues = st.tuples(st.integers(0, 2**63 - 1), places)


@given(places, places)
def test_bodies_are_ordered_by_fragment_lane_and_number(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    assert (keys.body_key(*one) < keys.body_key(*other)) == (one < other)


@given(dues, dues)
def test_what_is_due_earlier_comes_first(
    one: tuple[int, tuple[int, int, int]], other: tuple[int, tuple[int, int, int]]
) -> None:
    first, second = (keys.due_key(keys.SCHEDULE, Due(at_ms, *place)) for at_ms, place in (one, other))
    assert (first < second) == (one < other)
    assert (first < keys.due_bound(keys.SCHEDULE, other[0])) == (one[0] < other[0])


@given(dues)
def test_a_key_says_what_it_was_made_of(due: tuple[int, tuple[int, int, int]]) -> None:
    at_ms, place = due
    read = keys.due_of(keys.due_key(keys.EXPIRY, Due(at_ms, *place)))
    assert (read.at_ms, (read.fragment, read.lane, read.number)) == due
    key = keys.place_key(keys.BLOCK, *place)
    read_place = keys.place_at(key, 1)
    assert (read_place.fragment, read_place.lane, read_place.number) == place
    assert keys.number_at(keys.body_key(*place), 0) == place[2]
    assert keys.fragment_at(keys.head_key(place[0]), 1) == place[0]


@pytest.mark.parametrize("place", [(1 << 32, 0, 0), (-1, 0, 0), (0, 256, 0), (0, -1, 0), (0, 0, 1 << 48), (0, 0, -1)])
def test_what_does_not_fit_a_key_is_refused_rather_than_cut(place: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        keys.body_key(*place)


def test_nothing_is_due_before_time_begins() -> None:
    with pytest.raises(ValueError, match="-1"):
        keys.due_key(keys.SCHEDULE, Due(-1, 1, 0, 1))
    with pytest.raises(ValueError, match="fragment"):
        keys.head_key(1 << 32)
