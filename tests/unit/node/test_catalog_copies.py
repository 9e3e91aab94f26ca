"""Copies of the catalog beside the stores, and a namespace that has lost a folder."""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import lmdb
import pytest

from tandembus.config import ServeSettings
from tandembus.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from tandembus.errors import StoreUnavailable
from tandembus.limits import Limits
from tandembus.namespace import catalog_view
from tandembus.namespace.applying import apply
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.catalog_change import CatalogChange, CatalogEvent
from tandembus.namespace.directory import Directory
from tandembus.namespace.following import Followers
from tandembus.node.catalog_copy import NOTHING, CatalogCopies, CopiesFollowing, DurableCopies
from tandembus.node.waiting import comes_true
from tandembus.node.wiring import NamespaceNode
from tandembus.store.embedded.catalog_store import CatalogStore, DamagedRecord
from tandembus.store.memory_records import MemoryRecords
from tests.covers import covers
from tests.unit.store.embedded.raw import harmed_pages

LIMITS = Limits(catalog_map_size_bytes=16 * 1024 * 1024)
SIZE = LIMITS.catalog_map_size_bytes
NOW = 1_700_000_000.0


class Copied:
    """A catalog in memory with durable copies in folders."""

    def __init__(self, folders: list[Path], confirm_s: float = 30.0) -> None:
        self.folders = folders
        self._confirm_s = confirm_s
        self.catalog = Catalog(MemoryRecords(), NOW)
        self.followers = Followers(self.catalog)
        self.catalog.listeners.append(lambda change, _events: self.followers.publish(change))
        self.open()

    def open(self) -> None:
        self.copies = DurableCopies(self.folders, SIZE)
        self.following = CopiesFollowing(self.catalog, self.copies, self.followers, self._confirm_s, 0.01)

    async def create(self, name: str) -> None:
        entry = await self.catalog.begin_create(QueueDescription(name), LIMITS, NOW)
        await self.catalog.finish_create(entry, NOW)
        await self.followers.confirmed()

    async def close(self) -> None:
        await self.following.stop()
        self.copies.close()

    async def contents(self) -> list[dict[bytes, object]]:
        await self.close()
        found: list[dict[bytes, object]] = []
        for folder in self.folders:
            store = CatalogStore(folder / "catalog", SIZE)
            found.append(dict(store.read_all()[0]))
            store.close()
        return found


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("a", "b")]


async def all_there_is(catalog: Catalog) -> dict[bytes, object]:
    return dict((await catalog.snapshot()).puts)


@covers("P1")
async def test_every_copy_holds_what_the_catalog_holds_after_each_change(folders: list[Path]) -> None:
    copied = Copied(folders)
    await copied.following.start()
    for name in ("one", "two"):
        await copied.create(name)
        assert copied.copies.have(copied.catalog.version)
    await copied.catalog.delete_queue("one", NOW)
    await copied.followers.confirmed()
    assert await copied.contents() == [await all_there_is(copied.catalog)] * 2


@covers("P1", "F6")
async def test_copies_that_missed_something_or_are_damaged_are_written_anew(folders: list[Path]) -> None:
    copied = Copied(folders)
    await copied.following.start()
    await copied.create("one")
    await copied.close()
    await copied.create("two")
    with lmdb.open(str(folders[1] / "catalog")) as environment, environment.begin(write=True) as txn:
        txn.put(b"qone", b"x" * 40)
    copied.open()
    assert not copied.copies.have(copied.catalog.version)
    await copied.following.start()
    assert copied.copies.have(copied.catalog.version)
    assert await copied.contents() == [await all_there_is(copied.catalog)] * 2


@covers("P1", "F6")
async def test_a_copy_with_a_damaged_page_is_kept_beside_and_written_again(folders: list[Path]) -> None:
    copied = Copied(folders)
    await copied.following.start()
    await copied.create("one")
    await copied.close()
    kept = 0
    for harm in harmed_pages(folders[1] / "catalog" / "data.mdb"):
        damaged = (folders[1] / "catalog" / "data.mdb").read_bytes()
        copied.open()
        await copied.following.start()
        assert await copied.contents() == [await all_there_is(copied.catalog)] * 2, harm
        aside = folders[1] / "catalog.damaged-1"
        if aside.exists():
            assert (aside / "data.mdb").read_bytes() == damaged
            shutil.rmtree(aside)
            kept += 1
    assert kept > 10


@covers("P1")
async def test_copies_of_another_namespace_are_replaced(folders: list[Path]) -> None:
    other = Copied(folders)
    await other.following.start()
    await other.create("strange")
    await other.close()
    copied = Copied(folders)
    await copied.create("own")
    assert copied.catalog.version == other.catalog.version
    await copied.following.start()
    assert await copied.contents() == [await all_there_is(copied.catalog)] * 2


@covers("P1", "F6")
async def test_what_the_catalog_cannot_read_any_more_stays_in_the_copies(folders: list[Path]) -> None:
    copied = Copied(folders[:1])
    await copied.following.start()
    await copied.create("one")
    whole = await copied.catalog.snapshot()
    damaged = CatalogChange(
        whole.version + 1,
        {key: document for key, document in whole.puts.items() if key != b"qone"},
        is_whole=True,
        damaged=[DamagedRecord(b"qone", "its checksum is wrong")],
    )
    await copied.copies.write(damaged, NOTHING)
    (kept,) = await copied.contents()
    assert kept[b"qone"] == whole.puts[b"qone"]


HOLD = """
import sys, lmdb
with lmdb.open(sys.argv[1]) as environment:
    with environment.begin(write=True):
        print("held", flush=True)
        sys.stdin.readline()
"""


async def hold(folder: Path) -> asyncio.subprocess.Process:
    """Somebody else is writing there, and does not come to an end: whoever writes now hangs."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, str(folder / "catalog"), stdin=pipe, stdout=pipe
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"held\n"
    return process


@covers("P18")
async def test_nobody_waits_long_for_a_disk_that_hangs_and_its_copy_catches_up(folders: list[Path]) -> None:
    copied = Copied(folders, 0.05)
    await copied.following.start()
    holder = await hold(folders[0])
    await asyncio.wait_for(copied.create("one"), 10)
    assert not copied.copies.have(copied.catalog.version)
    assert holder.stdin is not None
    holder.stdin.write(b"\n")
    await holder.wait()
    await comes_true(lambda: copied.copies.have(copied.catalog.version), 10)
    assert await copied.contents() == [await all_there_is(copied.catalog)] * 2


@covers("P1")
async def test_a_change_that_comes_while_copies_catch_up_is_not_left_out(folders: list[Path]) -> None:
    copied = Copied(folders, 0.05)
    await copied.following.start()
    snapshot = copied.catalog.snapshot

    async def overtaken() -> CatalogChange:
        copied.catalog.snapshot = snapshot  # type: ignore[method-assign]
        whole = await snapshot()
        await copied.create("two")
        return whole

    copied.followers.leave(copied.following)
    await copied.create("one")
    copied.catalog.snapshot = overtaken  # type: ignore[method-assign]
    copied.following.cut_off(StoreUnavailable("behind"))
    await comes_true(lambda: copied.catalog.find_queue("two") is not None, 10)
    assert await comes_true(lambda: copied.copies.have(copied.catalog.version), 10)
    assert await copied.contents() == [await all_there_is(copied.catalog)] * 2


@covers("P1", "F6")
async def test_a_copy_that_cannot_be_written_at_the_start_is_tried_again(folders: list[Path]) -> None:
    copied = Copied(folders)
    await copied.create("one")
    copied.copies.close()
    shutil.rmtree(folders[0] / "catalog")
    (folders[0] / "catalog").write_text("in the way")
    copied.open()
    await copied.following.start()
    assert not copied.copies.have(copied.catalog.version)
    (folders[0] / "catalog").unlink()
    assert await comes_true(lambda: copied.copies.have(copied.catalog.version), 10)
    assert await copied.contents() == [await all_there_is(copied.catalog)] * 2


# What a process goes by that has not the catalog itself.


class Process:
    """With a copy of its own, which it applies in these threads."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.copies = CatalogCopies(lambda: DurableCopies([folder], SIZE))
        self.copies.on_changed = self._changed
        self.told: list[str] = []
        self.threads: list[int] = []
        monkeypatch.setattr(catalog_view, "apply", self._apply)

    def _apply(self, directory: Directory, change: CatalogChange) -> list[CatalogEvent]:
        self.threads.append(threading.get_ident())
        return apply(directory, change)

    async def _changed(self, events: Sequence[CatalogEvent]) -> None:
        self.told += [type(event).__name__ for event in events]

    async def take(self, catalog: Catalog) -> None:
        await self.copies.take(await catalog.snapshot())


@covers("P1")
async def test_a_whole_catalog_is_built_beside_the_loop_until_somebody_goes_by_it(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one takes longer than a process may be silent."""
    here, copied = threading.get_ident(), Copied(folders)
    await copied.create("one")
    earlier = Process(folders[0].parent / "own", monkeypatch)
    assert await earlier.copies.known() == ("", NOTHING)
    await earlier.take(copied.catalog)
    earlier.copies.close()
    await copied.create("two")
    process = Process(folders[0].parent / "own", monkeypatch)
    assert (await process.copies.known())[1] < copied.catalog.version
    await process.take(copied.catalog)
    assert len(process.threads) == 2
    assert here not in process.threads
    assert [entry.key for entry in process.copies.view.queues()] == ["one", "two"]
    await copied.catalog.delete_queue("one", NOW)
    await process.take(copied.catalog)
    assert process.threads[2:] == [here]
    assert process.told == ["EntityCreated"] * 2 + ["EntityEnded", "FragmentBuried"]
    process.copies.close()
    await copied.close()


@covers("P1")
async def test_a_copy_in_use_is_compared_with_a_whole_catalog_also_if_nothing_was_missing_before(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = Copied(folders)
    await copied.create("one")
    earlier = Process(folders[0].parent / "own", monkeypatch)
    await earlier.copies.known()
    await earlier.take(copied.catalog)
    earlier.copies.close()
    process = Process(folders[0].parent / "own", monkeypatch)
    assert await process.copies.known() == (copied.catalog.namespace_id, copied.catalog.version)
    process.copies.is_relied_on = True
    await process.take(copied.catalog)
    assert len(process.threads) == 1, "it is known already"
    await copied.catalog.delete_queue("one", NOW)
    await process.take(copied.catalog)
    assert process.told == ["EntityEnded", "FragmentBuried"]
    process.copies.close()
    await copied.close()


# A namespace that has lost a folder.


def settings(data: Path) -> ServeSettings:
    return ServeSettings(data=data, amqp_port=0, amqps_port=None, http_port=0, stores=3, limits=LIMITS)


async def paths_of(node: NamespaceNode) -> list[str]:
    return [entry.description.path for entry in node.namespace.catalog.entries()]


@covers("P1", "F6")
@pytest.mark.parametrize("lost", ["catalog", "stores/0", "stores/1", "stores/2"])
async def test_no_folder_is_the_only_one_that_knows_which_entities_there_are(tmp_path: Path, lost: str) -> None:
    node = NamespaceNode(settings(tmp_path))
    await node.start()
    for number in range(3):
        await node.namespace.create_queue(QueueDescription(f"plain{number}"))
    await node.namespace.create_topic(TopicDescription("wide", enable_partitioning=True))
    await node.namespace.create_subscription(SubscriptionDescription("wide", "all"))
    before = list(node.namespace.catalog.entries())
    await node.stop()
    shutil.rmtree(tmp_path / lost)
    again = NamespaceNode(settings(tmp_path))
    await again.start()
    assert list(again.namespace.catalog.entries()) == before
    for path in await paths_of(again):
        assert (await again.namespace.condition(path)).is_limited is False
    await again.namespace.create_queue(QueueDescription("next"))
    await again.stop()
