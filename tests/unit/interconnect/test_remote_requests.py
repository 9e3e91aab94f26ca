"""Requests to a fragment in another process."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

from tandembus.errors import (
    BusError,
    EntityNotFound,
    FragmentUnavailable,
    StoreUnavailable,
)
from tandembus.interconnect.remote_requests import RemoteRequests
from tandembus.interconnect.requests import Requests
from tandembus.interconnect.served_requests import REQUESTS
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import message
from tests.unit.interconnect.two_ends import KEY, TwoEnds, send, stage, until


def test_every_request_can_be_made_and_is_answered() -> None:
    names = {name for name, _ in inspect.getmembers(Requests, inspect.isfunction) if not name.startswith("_")}
    assert names - {"schedule"} == set(REQUESTS) - {"find_sent"}, "what is scheduled is sent, and only looked for"
    for name in names:
        assert inspect.signature(getattr(RemoteRequests, name)) == inspect.signature(getattr(Requests, name))


async def test_requests_to_what_is_not_there(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        with pytest.raises(EntityNotFound):
            await ends.front_end.requests(99).counts()
        await send(ends.traffic, "a")
        ends.broker.open_faults = [StoreUnavailable("not yet")] * 1_000_000
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.UNKNOWN_LOST
        stage(ends.traffic, message("b"))
        await until(lambda: not ends.front_end.channel.is_up)
        with pytest.raises(StoreUnavailable):
            await ends.front_end.requests().counts()
        ends.broker.open_faults.clear()


async def test_nonsense_in_a_call_is_an_error_of_that_call(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        for name in REQUESTS:
            for values in ([KEY], [KEY, "x", None, 7], [KEY, 99, 1, 1, 1, None], "no list", None):
                try:
                    await ends.front_end.channel.call(name, values, 5.0)
                except BusError:
                    pass  # as it must be
        assert (await ends.front_end.requests().counts()).active == 1


@covers("P13")
async def test_a_request_to_an_earlier_life_of_the_store_is_not_carried_out(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        requests = ends.front_end.requests()
        before = int(ends.front_end.channel.core.epoch)
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.UNKNOWN_LOST
        assert isinstance(await stage(ends.traffic, message("b")).wait(), FragmentUnavailable)
        await until(lambda: ends.front_end.channel.is_up and ends.front_end.channel.core.epoch != before)
        peer = ends.front_end.channel._peer
        assert peer is not None
        peer.epoch = before
        with pytest.raises(FragmentUnavailable):
            await peer.call("delete_one", [KEY, MAIN, 1])
        assert (await requests.counts()).active == 1
        await requests.delete_one(MAIN, 1)
        assert (await requests.counts()).active == 0


async def test_a_request_that_waited_for_its_fragment_while_the_store_was_opened_anew_is_refused(
    run_folder: Path,
) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        opening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        opened = len(ends.broker.opened)
        ends.broker.before_open = lambda _key: opening
        deleting = asyncio.ensure_future(ends.front_end.requests().delete_one(MAIN, 1))
        await until(lambda: len(ends.broker.opened) > opened)
        before = int(ends.front_end.channel.core.epoch)
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.UNKNOWN_LOST
        assert isinstance(await stage(ends.traffic, message("b")).wait(), FragmentUnavailable)
        await until(lambda: ends.front_end.channel.is_up and ends.front_end.channel.core.epoch != before)
        opening.set_result(None)
        with pytest.raises(FragmentUnavailable):
            await deleting
        ends.broker.before_open = None
        assert (await ends.front_end.requests().counts()).active == 1
