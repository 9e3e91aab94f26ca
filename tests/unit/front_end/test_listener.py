"""Places for connections that have shown no valid claim yet: nobody can take those of all others."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tandembus.front_end.listener import Doors, Refusal, Speaker, Stranger
from tandembus.limits import Limits
from tests.covers import covers


def _nobody_speaks(*_: object) -> Speaker:
    raise AssertionError("nothing is said in these tests")


class Visitors:
    """Who enters through doors with these limits; `ended` are those that had to go again."""

    def __init__(self, limits: Limits) -> None:
        self.doors = Doors(_nobody_speaks, _nobody_speaks, None, limits)
        self.ended: list[Stranger] = []

    def enter(self, address: str) -> Stranger | None:
        stranger = self.doors.enter(address)
        if stranger is not None:
            stranger.end = lambda: self.ended.append(stranger)
        return stranger

    def count_admitted(self, address: str, attempts: int) -> int:
        return len([one for one in (self.enter(address) for _ in range(attempts)) if one is not None])


@covers("F18")
async def test_one_address_has_a_tenth_of_the_strangers_places() -> None:
    visitors = Visitors(Limits(max_unauthenticated_connections=50))
    assert visitors.count_admitted("192.0.2.7", 20) == 5
    assert visitors.count_admitted("2001:db8::7", 20) == 5
    assert (visitors.ended, visitors.doors.refusals[Refusal.ADDRESS]) == ([], 30)


@covers("F18")
@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"])
async def test_a_loopback_address_has_all_of_them_unless_its_share_is_set(address: str) -> None:
    assert Visitors(Limits(max_unauthenticated_connections=50)).count_admitted(address, 50) == 50
    limits = Limits(max_unauthenticated_connections=50, max_unauthenticated_connections_per_address=3)
    assert Visitors(limits).count_admitted(address, 50) == 3


@covers("F18")
async def test_the_oldest_stranger_of_the_address_that_has_most_makes_room() -> None:
    visitors = Visitors(Limits(max_unauthenticated_connections=10, max_unauthenticated_connections_per_address=6))
    quiet = [visitors.enter("192.0.2.1") for _ in range(4)]
    greedy = [visitors.enter("192.0.2.2") for _ in range(6)]
    assert visitors.count_admitted("192.0.2.3", 2) == 2
    assert (visitors.ended, len(quiet)) == (greedy[:2], 4)
    assert visitors.doors.stranger_count == 10
    assert visitors.doors.refusals[Refusal.GAVE_WAY] == 2


@covers("F18")
async def test_who_has_shown_a_claim_or_is_gone_takes_no_place() -> None:
    visitors = Visitors(Limits(max_unauthenticated_connections=2, pre_auth_timeout_s=0.01))
    for _ in range(5):
        known, gone = visitors.enter("127.0.0.1"), visitors.enter("127.0.0.1")
        assert known is not None
        assert gone is not None
        visitors.doors.claimed(known)
        visitors.doors.leave(gone)
        visitors.doors.leave(gone)
    assert (visitors.doors.stranger_count, visitors.doors.open_count) == (0, 5)
    last = visitors.enter("127.0.0.1")
    assert last is not None
    is_over = asyncio.Event()
    last.end = is_over.set
    await asyncio.wait_for(is_over.wait(), 10.0)
    assert visitors.doors.refusals == {Refusal.TIMEOUT: 1}


@covers("F18")
async def test_refusals_are_counted_one_by_one_and_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    visitors = Visitors(Limits(max_unauthenticated_connections=10))
    visitors.count_admitted("192.0.2.7", 1001)
    assert visitors.doors.refusals[Refusal.ADDRESS] == 1000
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "192.0.2.7" in caplog.text
