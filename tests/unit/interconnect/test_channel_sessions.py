"""Sessions over a channel."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tandembus.broker.locks import COMPLETE
from tandembus.errors import (
    BusError,
    FragmentUnavailable,
    OperationTimeout,
    SessionCannotBeLocked,
    SessionLockLapsed,
    SessionLockLost,
)
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.remote_traffic import RemoteTraffic
from tandembus.interconnect.requests import Listing
from tandembus.interconnect.traffic import SessionHold, SessionWatch, SessionWish
from tests.covers import covers
from tests.unit.broker.one_queue import message
from tests.unit.interconnect.two_ends import KEY, FrontEnd, Receiver, TwoEnds, in_the_turn, settle, stage, until


class Wisher:
    def __init__(self, traffic: RemoteTraffic, session_id: str | None = None, is_patient: bool = True) -> None:
        self.hold: SessionHold | None = None
        self.refusal: BusError | None = None
        self.wish = SessionWish(session_id, is_patient, self._granted, self._refused)
        self.traffic = traffic
        traffic.wish_session(self.wish)

    def _granted(self, hold: SessionHold) -> None:
        assert self.hold is None
        self.hold = hold

    def _refused(self, error: BusError) -> None:
        assert self.refusal is None
        self.refusal = error

    async def granted(self) -> SessionHold:
        await until(lambda: self.hold is not None)
        assert self.hold is not None
        return self.hold

    async def refused(self) -> BusError:
        await until(lambda: self.refusal is not None)
        assert self.refusal is not None
        return self.refusal


def sessions(folder: Path) -> TwoEnds:
    ends = TwoEnds(folder, requires_session=True)
    ends.traffic = ends.front_end.traffic(requires_session=True)
    return ends


async def fill(ends: TwoEnds, *names: str) -> None:
    for name in names:
        session_id = name.split(".")[0]
        assert await stage(ends.traffic, message(name, session_id=session_id)).wait() is None


def holder(ends: TwoEnds, hold: SessionHold, is_destructive: bool = False) -> Receiver:
    receiver = Receiver(ends.traffic, is_destructive=is_destructive)
    ends.traffic.hold_session(hold, receiver.consumer)
    return receiver


@covers("P4")
async def test_a_session_is_accepted_received_and_left(run_folder: Path) -> None:
    async with sessions(run_folder) as ends:
        await fill(ends, "a.1", "b.1", "a.2")
        hold = await Wisher(ends.traffic).granted()
        assert (hold.session_id, int(hold.index)) == ("a", 0)
        assert hold.locked_until_ms == ends.clock.now_ms() + 60_000
        receiver = holder(ends, hold)
        assert await receiver.take(2) == ["a.1", "a.2"]
        assert await settle(ends.traffic, receiver.locks[0], COMPLETE).wait() is None
        ends.traffic.leave_session(hold)
        again = await Wisher(ends.traffic, "a", False).granted()
        second = holder(ends, again)
        assert await second.take(1) == ["a.2"]
        assert int(second.locks[0].delivery_count) == 0


async def test_a_session_that_somebody_holds_is_refused_and_waited_for_in_line(run_folder: Path) -> None:
    async with sessions(run_folder) as ends:
        await fill(ends, "a.1")
        hold = await Wisher(ends.traffic).granted()
        assert isinstance(await Wisher(ends.traffic, "a", False).refused(), SessionCannotBeLocked)
        assert isinstance(await Wisher(ends.traffic, None, False).refused(), OperationTimeout)
        waiting = Wisher(ends.traffic)
        await ends.front_end.requests().counts()
        assert waiting.hold is None
        ends.traffic.leave_session(hold)
        assert (await waiting.granted()).session_id == "a"


async def test_a_wish_that_was_given_up_takes_no_session(run_folder: Path) -> None:
    async with sessions(run_folder) as ends:
        early = Wisher(ends.traffic)
        ends.traffic.give_up_session(early.wish)
        await fill(ends, "a.1")
        assert (await Wisher(ends.traffic).granted()).session_id == "a"
        assert early.hold is None


async def test_a_wish_given_up_while_it_is_being_granted_leaves_the_session_free(run_folder: Path) -> None:
    async with sessions(run_folder) as ends:
        wisher = Wisher(ends.traffic)
        await ends.front_end.requests().counts()
        (served,) = ends.broker.served._channels.values()
        answer = stage(ends.traffic, message("a.1", session_id="a"))
        await in_the_turn(lambda: served.receivers.sessions.hold_of(1) is not None)
        assert wisher.hold is None, "the broker has granted it, and nobody here knows yet"
        ends.traffic.give_up_session(wisher.wish)
        assert await answer.wait() is None
        assert (await Wisher(ends.traffic).granted()).session_id == "a"
        assert wisher.hold is None


async def test_credit_given_before_the_session_is_held_counts(run_folder: Path) -> None:
    async with sessions(run_folder) as ends:
        await fill(ends, "a.1", "a.2")
        hold = await Wisher(ends.traffic).granted()
        receiver = Receiver(ends.traffic)
        receiver.consumer.credit = 2
        ends.traffic.hold_session(hold, receiver.consumer)
        await until(lambda: receiver.bodies == ["a.1", "a.2"])
        receiver.want(5, True)
        await until(lambda: receiver.drain_count == 1)


@covers("P6")
async def test_receive_and_delete_in_a_session(run_folder: Path) -> None:
    async with sessions(run_folder) as ends:
        await fill(ends, "a.1", "a.2", "a.3")
        receiver = holder(ends, await Wisher(ends.traffic).granted(), is_destructive=True)
        assert await receiver.take(2) == ["a.1", "a.2"]
        assert ends.broker.broker.by_key[KEY].main.live_count == 1


async def test_a_lapsed_session_is_lost_to_its_holder(run_folder: Path) -> None:
    async with sessions(run_folder) as ends:
        await fill(ends, "a.1")
        hold = await Wisher(ends.traffic).granted()
        receiver = holder(ends, hold)
        await receiver.take(1)
        ends.clock.advance(61.0)
        await ends.broker.broker.catch_up()
        await until(lambda: receiver.loss is not None)
        assert isinstance(receiver.loss, SessionLockLapsed), "a broker that is gone is another matter"
        assert hold.is_over
        assert isinstance(await settle(ends.traffic, receiver.locks[0], COMPLETE).wait(), BusError)
        ends.traffic.leave_session(hold)
        assert ends.traffic._receivers == {}


async def test_a_session_that_lapsed_before_it_was_held_stays_with_its_next_holder(run_folder: Path) -> None:
    async with sessions(run_folder) as ends:
        await fill(ends, "a.1")
        late = await Wisher(ends.traffic).granted()
        ends.clock.advance(61.0)
        await ends.broker.broker.catch_up()
        first = holder(ends, await Wisher(ends.traffic, "a", False).granted())
        second = holder(ends, late)
        await until(lambda: second.loss is not None)
        assert isinstance(second.loss, SessionLockLost)
        assert await first.take(1) == ["a.1"]


@covers("P6")
async def test_a_dead_front_end_frees_its_sessions_at_once(run_folder: Path) -> None:
    async with sessions(run_folder) as ends:
        await fill(ends, "a.1")
        hold = await Wisher(ends.traffic).granted()
        receiver = holder(ends, hold)
        await receiver.take(1)
        unheld = await Wisher(ends.traffic, "b", False).granted()
        assert unheld.session_id == "b"
        other = await FrontEnd(ends.path, ends.clock).start()
        traffic = other.traffic(requires_session=True)
        waiting = Wisher(traffic)
        await ends.front_end.kill()
        assert (await waiting.granted()).session_id == "a"
        assert (await Wisher(traffic, "b", False).granted()).session_id == "b"
        await other.stop()


@covers("P4")
async def test_a_broker_that_is_gone_takes_its_sessions_along(run_folder: Path) -> None:
    async with sessions(run_folder) as ends:
        await fill(ends, "a.1")
        hold = await Wisher(ends.traffic).granted()
        receiver = holder(ends, hold)
        await receiver.take(1)
        unheld = await Wisher(ends.traffic, "b", False).granted()
        waiting = Wisher(ends.traffic)
        await ends.restart_broker()
        await until(lambda: receiver.loss is not None)
        assert isinstance(receiver.loss, SessionLockLost)
        refusal = await waiting.refused()
        assert isinstance(refusal, FragmentUnavailable)
        assert "Fragment 0 is unavailable" in str(refusal)
        assert (hold.is_over, unheld.is_over) == (True, True)
        late = Receiver(ends.traffic)
        ends.traffic.hold_session(unheld, late.consumer)
        assert isinstance(late.loss, SessionLockLost)
        assert await ends.front_end.channel.until_up(10.0)
        again = holder(ends, await Wisher(ends.traffic).granted())
        assert await again.take(1) == ["a.1"]


@covers("P4")
async def test_whoever_looks_out_for_sessions_is_told_once_also_after_a_restart(run_folder: Path) -> None:
    async with sessions(run_folder) as ends:
        told: list[tuple[int, int]] = []
        ends.traffic.watch_sessions(SessionWatch(lambda index, at: told.append((index, at))))
        await ends.front_end.requests().counts()
        await ends.restart_broker()
        assert await ends.front_end.channel.until_up(10.0)
        await fill(ends, "a.1", "b.1")
        await until(lambda: len(told) > 0)
        assert told == [(0, ends.clock.now_ms())]
        (served,) = ends.broker.served._channels.values()
        ends.traffic.watch_sessions(SessionWatch(lambda index, at: told.append((index, at))))
        await until(lambda: len(told) == 2)
        await ends.front_end.kill()
        await until(lambda: not served.is_connected)


@covers("P4", "M7")
async def test_whoever_looks_out_is_told_that_there_is_none_and_goes_on_looking_out(run_folder: Path) -> None:
    async with sessions(run_folder) as ends:
        told: list[tuple[int, int]] = []
        nothing: list[int] = []
        ends.traffic.watch_sessions(SessionWatch(lambda index, at: told.append((index, at)), nothing.append))
        await until(lambda: nothing == [0])
        await fill(ends, "a.1")
        await until(lambda: told == [(0, ends.clock.now_ms())])
        assert nothing == [0]


async def test_states_renewals_and_listings(run_folder: Path) -> None:
    async with sessions(run_folder) as ends:
        await fill(ends, "a.1", "b.1", "c.1")
        requests = ends.front_end.requests()
        hold = await Wisher(ends.traffic, "b", False).granted()
        assert await requests.session_state(hold) is None
        await requests.set_session_state(hold, b"\0\xff")
        assert await requests.session_state(hold) == b"\0\xff"
        await requests.set_session_state(hold, None)
        assert await requests.session_state(hold) is None
        ends.clock.advance(10.0)
        assert await requests.renew_session(hold) == ends.clock.now_ms() + 60_000 == hold.locked_until_ms
        listing = Listing()
        assert [list(await requests.list_sessions(None, skip, 2, listing)) for skip in (0, 2)] == [["a", "b"], ["c"]]
        ends.traffic.leave_session(hold)
        with pytest.raises(SessionLockLost):
            await requests.session_state(hold)


async def test_thousands_of_wishes_meet_single_sessions(run_folder: Path) -> None:
    async with sessions(run_folder) as ends:
        wishes = [Wisher(ends.traffic) for _ in range(1500)]
        await fill(ends, "a.1", "b.1")
        await until(lambda: sum(one.hold is not None for one in wishes) == 2)
        assert [one.hold.session_id for one in wishes[:2] if one.hold is not None] == ["a", "b"]


async def test_who_looked_out_and_was_gone_before_the_fragment_was_open_leaves_nothing_there(run_folder: Path) -> None:
    async with sessions(run_folder) as ends:
        opening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ends.broker.before_open = lambda _key: opening
        told: list[int] = []
        ends.traffic.watch_sessions(SessionWatch(lambda index, _at: told.append(index)))
        await until(lambda: ends.broker.opened == [KEY])
        await ends.front_end.kill()
        await until(lambda: not ends.broker.served._peers)
        opening.set_result(None)
        await until(lambda: not ends.broker.served._opening)
        index = ends.broker.broker.by_key[KEY].sessions
        assert index is not None
        assert index.watchers == []


@covers("P4")
async def test_whoever_leaves_a_session_and_wishes_for_it_again_gets_it_behind_all_settlements(
    run_folder: Path,
) -> None:
    ends = TwoEnds(run_folder, settings=ChannelSettings(window_count=2), requires_session=True)
    ends.traffic = ends.front_end.traffic(requires_session=True)
    async with ends:
        await fill(ends, *[f"a.{number}" for number in range(8)])
        hold = await Wisher(ends.traffic, "a").granted()
        receiver = holder(ends, hold)
        await receiver.take(8)
        answers = [settle(ends.traffic, lock, COMPLETE) for lock in receiver.locks[:7]]
        ends.traffic.leave_session(hold)
        again = Wisher(ends.traffic, "a")
        given_up = Wisher(ends.traffic, "b")
        ends.traffic.give_up_session(given_up.wish)
        assert await holder(ends, await again.granted()).take(1) == ["a.7"]
        assert [await answer.wait() for answer in answers] == [None] * 7
        await Wisher(ends.traffic, "b").granted()
