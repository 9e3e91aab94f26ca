"""Failures on demand of the memory store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tandembus.errors import StoreFull, StoreUnavailable
from tandembus.message import Message
from tandembus.store.memory import Fault, MemoryDisk, MemoryStore, PlaceKey
from tandembus.store.messaging_store import MAIN, Changes, Damage, Overlay
from tests.contract.samples import FRAGMENT, sends
from tests.covers import covers


async def content_after(disk: MemoryDisk) -> list[int]:
    disk.is_held = False
    return list(await MemoryStore(disk).bodies_left(FRAGMENT, MAIN, 100))


@covers("M13")
async def test_a_full_commit_writes_nothing_and_leaves_the_store_usable() -> None:
    disk = MemoryDisk()
    disk.faults[2] = Fault.FULL
    store = MemoryStore(disk)
    await store.commit(sends([1]))
    with pytest.raises(StoreFull):
        await store.commit(sends([2]))
    await store.commit(sends([3]))
    assert await store.bodies_left(FRAGMENT, MAIN, 10) == [1, 3]


@covers("F3")
@pytest.mark.parametrize(("fault", "left"), [(Fault.UNKNOWN_LOST, [1]), (Fault.UNKNOWN_KEPT, [1, 2])])
async def test_after_an_unknown_outcome_the_store_answers_nothing_until_opened_again(
    fault: Fault, left: list[int]
) -> None:
    disk = MemoryDisk()
    disk.faults[2] = fault
    store = MemoryStore(disk)
    await store.commit(sends([1]))
    with pytest.raises(StoreUnavailable) as unknown:
        await store.commit(sends([2]))
    assert not isinstance(unknown.value, StoreFull)
    with pytest.raises(StoreUnavailable):
        await store.heads()
    await store.close()
    assert await content_after(disk) == left


@covers("F3")
async def test_a_hanging_commit_goes_on_when_the_test_lets_it() -> None:
    disk = MemoryDisk()
    disk.faults[1] = Fault.HANG
    store = MemoryStore(disk)
    commit = asyncio.ensure_future(store.commit(sends([1])))
    await disk.is_hanging.wait()
    assert await store.bodies_left(FRAGMENT, MAIN, 10) == []
    disk.go_on.set()
    await commit
    assert await store.bodies_left(FRAGMENT, MAIN, 10) == [1]


async def test_a_read_answers_only_when_the_test_lets_it() -> None:
    disk = MemoryDisk()
    may_answer = asyncio.Event()

    async def wait() -> None:
        await may_answer.wait()

    disk.before_read = wait
    store = MemoryStore(disk)
    read = asyncio.ensure_future(store.bodies_left(FRAGMENT, MAIN, 10))
    await store.commit(sends([1]))
    assert not read.done()
    may_answer.set()
    assert await read == [1], "a late read sees what was committed meanwhile"


@covers("F6")
async def test_a_body_that_went_bad_is_reported_in_its_place() -> None:
    disk = MemoryDisk()
    store = MemoryStore(disk)
    await store.commit(sends([1, 2]))
    disk.damaged.add((FRAGMENT, MAIN, 1))
    bad, good = await store.bodies(FRAGMENT, MAIN, [1, 2], 1000)
    assert isinstance(bad, Damage)
    assert not bad.is_missing
    assert isinstance(good, Message)


async def test_room_is_what_the_test_says() -> None:
    disk = MemoryDisk(free_bytes=100, reserve_bytes=10)
    store = MemoryStore(disk)
    await store.commit(Changes())
    assert (store.room().free_bytes, store.room().reserve_bytes) == (100, 10)


class CountedOverlays(dict[PlaceKey, Overlay]):
    """Counts how often somebody goes through all of them."""

    walks = 0

    def __iter__(self) -> Iterator[PlaceKey]:
        self.walks += 1
        return super().__iter__()


@covers("M4")
async def test_an_overlay_is_found_without_looking_at_all_others() -> None:
    disk = MemoryDisk()
    overlays = disk.overlays = CountedOverlays()
    store = MemoryStore(disk)
    changes = Changes()
    changes.overlays = [Overlay(FRAGMENT, MAIN, number, 0, number, b"") for number in (5, 3, 4, 9)]
    changes.overlays.append(Overlay(FRAGMENT + 1, MAIN, 4, 0, 0, b""))
    await store.commit(changes)
    assert [one.number for one in await store.overlays(FRAGMENT, MAIN, 4, 4)] == [4]
    assert overlays.walks == 0
    assert [one.number for one in await store.overlays(FRAGMENT, MAIN, 3, 5)] == [3, 4, 5]
    assert [one.number for one in await store.overlays(FRAGMENT, MAIN, 0, 1 << 48)] == [3, 4, 5, 9]
    assert overlays.walks == 1
