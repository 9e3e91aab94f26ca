"""Requests to a fragment in another process."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

from tandembus.broker.locks import COMPLETE, DEFER, REMOVE
from tandembus.errors import (
    BusError,
    EntityNotFound,
    FragmentUnavailable,
    MessageLockLost,
    MessageNotFound,
    StoreUnavailable,
)
from tandembus.interconnect.remote_requests import RemoteRequests
from tandembus.interconnect.requests import Requests
from tandembus.interconnect.served_requests import REQUESTS
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import DEAD_LETTER, MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import body_of, message
from tests.unit.interconnect.two_ends import KEY, TwoEnds, send, settle, stage, until


def test_every_request_can_be_made_and_is_answered() -> None:
    names = {name for name, _ in inspect.getmembers(Requests, inspect.isfunction) if not name.startswith("_")}
    assert names - {"schedule"} == set(REQUESTS) - {"find_sent"}, "what is scheduled is sent, and only looked for"
    for name in names:
        assert inspect.signature(getattr(RemoteRequests, name)) == inspect.signature(getattr(Requests, name))


@covers("P19")
async def test_counts_and_ends(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a", "b")
        requests = ends.front_end.requests()
        counts = await requests.counts()
        assert (counts.active, counts.dead_letter) == (2, 0)
        assert counts.size_bytes == int(ends.broker.broker.by_key[KEY].live_bytes())
        assert list(await requests.ends(MAIN)) == [3]
        assert list(await requests.ends(DEAD_LETTER)) == [1]


@covers("P22", "P26")
async def test_peek_shows_whole_sequence_numbers_and_states(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        traffic, requests = ends.front_end.traffic(KEY + 1, 1), ends.front_end.requests(KEY + 1)
        await send(traffic, "a", "b", "c")
        base = 1 << 48
        found = await requests.peek(MAIN, 0, 2, 1 << 20)
        assert [(body_of(one.message), one.sequence_number) for one in found] == [("a", base + 1), ("b", base + 2)]
        found = await requests.peek(MAIN, base + 3, 10, 1 << 20)
        assert [body_of(one.message) for one in found] == ["c"]
        assert await requests.peek(MAIN, 2 << 48, 10, 1 << 20) == []


async def test_locks_are_found_renewed_and_settled_by_token(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        receiver = ends.receiver()
        await receiver.take(1)
        requests = ends.front_end.requests()
        ends.clock.advance(30.0)
        token = receiver.locks[0].token
        assert list(await requests.renew([token])) == [ends.clock.now_ms() + 60_000]
        ends.clock.advance(40.0)
        (lock,) = await requests.find_locks([token], MAIN)
        assert (lock.token, int(lock.number)) == (token, 1)
        assert await settle(ends.traffic, lock, COMPLETE).wait() is None
        with pytest.raises(MessageLockLost):
            await requests.find_locks([token], MAIN)
        with pytest.raises(MessageLockLost):
            await requests.renew([b"\0" * 16])


@covers("P24")
async def test_deferred_messages_are_received_by_number(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a", "b")
        receiver = ends.receiver()
        await receiver.take(2)
        for lock in receiver.locks:
            assert await settle(ends.traffic, lock, DEFER).wait() is None
        requests = ends.front_end.requests()
        ((lock, received),) = await requests.receive_deferred(MAIN, [1], False)
        assert body_of(received) == "a"
        assert lock.locked_until_ms == ends.clock.now_ms() + 60_000
        assert await settle(ends.traffic, lock, COMPLETE).wait() is None
        ((_, destroyed),) = await requests.receive_deferred(MAIN, [2], True)
        assert body_of(destroyed) == "b"
        with pytest.raises(MessageNotFound):
            await requests.receive_deferred(MAIN, [2], False)
        with pytest.raises(MessageNotFound):
            await requests.receive_deferred(MAIN, [(5 << 48) + 1], False)


@covers("P24")
async def test_messages_are_scheduled_and_cancelled(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        requests = ends.front_end.requests()
        at_ms = ends.clock.now_ms() + 60_000
        later = [message(body, scheduled_at_ms=at_ms) for body in ("a", "b")]
        numbers = await requests.schedule(later, 100)
        assert list(numbers) == [1, 2]
        await requests.cancel_scheduled([1])
        assert (await requests.counts()).scheduled == 1
        with pytest.raises(MessageNotFound):
            await requests.cancel_scheduled([1])


async def test_messages_are_deleted_and_taken(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a", "b", "c", "d")
        requests = ends.front_end.requests()
        await requests.delete_one(MAIN, 1)
        assert await requests.delete_batch(MAIN, 1, ends.clock.now_ms() + 1) == 1
        taken = await requests.take_waiting(MAIN, 1, 5, 10, 1 << 20)
        assert ([body_of(one) for _, one in taken.messages], taken.next_number) == (["c", "d"], 5)
        for lock, _ in taken.messages:
            assert await settle(ends.traffic, lock, REMOVE).wait() is None
        assert (await requests.counts()).active == 0


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
