"""A catalog that is lost, damaged or put back to an earlier state, and what its copies make of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest

from tandembus.descriptions import (
    AuthorizationRule,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    default_rule,
)
from tandembus.errors import StoreDamaged, StoreUnavailable
from tandembus.limits import Limits
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.catalog_recovery import open_catalog
from tandembus.namespace.placement import Stores
from tandembus.store.embedded.catalog_store import FORMAT_VERSION, CatalogStore, encode_record
from tests.covers import covers
from tests.unit.store.embedded.raw import harmed_pages

LIMITS = Limits(catalog_map_size_bytes=16 * 1024 * 1024)
NOW = 1_700_000_000.0
FOUR = Stores(range(4), range(4))


class Folders:
    def __init__(self, root: Path) -> None:
        self.catalog = root / "catalog"
        self.copies = [root / "stores" / str(number) / "catalog" for number in range(3)]

    def open(self) -> Catalog:
        return open_catalog(self.catalog, self.copies, LIMITS, NOW)

    async def copy(self, catalog: Catalog, *numbers: int) -> None:
        whole = await catalog.snapshot()
        for number in numbers:
            shutil.rmtree(self.copies[number], ignore_errors=True)
            store = CatalogStore(self.copies[number], LIMITS.catalog_map_size_bytes)
            store.commit(whole.puts)
            store.close()

    def put_aside(self) -> list[Path]:
        return sorted(self.catalog.parent.glob("catalog.damaged-*"))


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


async def create(catalog: Catalog, name: str) -> None:
    description = QueueDescription(name, enable_partitioning=name.startswith("wide"))
    await catalog.finish_create(await catalog.begin_create(description, LIMITS, NOW, FOUR), NOW)


async def fill(catalog: Catalog) -> None:
    await create(catalog, "orders")
    await create(catalog, "wide")
    topic = await catalog.begin_create_topic(TopicDescription("news"), LIMITS, NOW, FOUR)
    await catalog.finish_create(topic, NOW)
    wanted = SubscriptionDescription("news", "all")
    await catalog.finish_create(await catalog.begin_create_subscription(wanted, [default_rule()], LIMITS, NOW), NOW)
    await catalog.put_policy(AuthorizationRule("reader", "k", "", frozenset({"Listen"})), NOW)
    await create(catalog, "gone")
    await catalog.delete_queue("gone", NOW)
    await catalog.record_accesses({"orders": NOW + 5}, NOW)


def content(catalog: Catalog) -> object:
    return (
        catalog.namespace_id,
        catalog.version,
        list(catalog.entries()),
        catalog.rules("news", "all"),
        catalog.policies(),
        catalog.tombstones(),
        catalog.accessed_at("orders"),
        catalog._directory.facts,
    )


def lose(folder: Path) -> None:
    shutil.rmtree(folder)


def empty(folder: Path) -> None:
    (folder / "data.mdb").write_bytes(b"")


def cut(folder: Path) -> None:
    data = (folder / "data.mdb").read_bytes()
    (folder / "data.mdb").write_bytes(data[: len(data) // 2])


def garble(folder: Path) -> None:
    (folder / "data.mdb").write_bytes(b"no catalog at all" * 1000)


def flip(*keys: bytes) -> Callable[[Path], None]:
    def flip_all(folder: Path) -> None:
        with lmdb.open(str(folder)) as environment, environment.begin(write=True) as txn:
            for key in keys:
                value = bytearray(txn.get(key) or b"")
                value[-1] ^= 1
                txn.put(key, bytes(value))

    return flip_all


lose_counters = flip(b"m0", b"m1")


@covers("F6", "P1")
@pytest.mark.parametrize("harm", [lose, empty, cut, garble, lose_counters, flip(b"qorders"), flip(b"qwide", b"tnews")])
async def test_a_catalog_that_is_lost_or_damaged_is_what_its_newest_copy_says(
    folders: Folders, harm: Callable[[Path], None]
) -> None:
    catalog = folders.open()
    await create(catalog, "early")
    await folders.copy(catalog, 0)
    await catalog.delete_queue("early", NOW)
    await fill(catalog)
    before = content(catalog)
    await folders.copy(catalog, 1, 2)
    catalog.close()
    harm(folders.catalog)
    again = folders.open()
    assert content(again) == before
    assert again.damaged == []
    await create(again, "new")
    assert again.get_queue("new").fragment_key == max(again._directory.tombstones) + 1
    again.close()
    assert folders.open().find_queue("new") is not None


@covers("F6", "P1")
@pytest.mark.parametrize("victim", ["catalog", "copy"])
async def test_damage_in_any_page_of_the_catalog_or_of_a_copy_loses_nothing(folders: Folders, victim: str) -> None:
    """LMDB would follow such a page, and the process would end at every start."""
    catalog = folders.open()
    await fill(catalog)
    for number in range(6):
        await create(catalog, f"queue-{number}")
    before = content(catalog)
    await folders.copy(catalog, 0, 1)
    catalog.close()
    folder = folders.catalog if victim == "catalog" else folders.copies[0]
    sound = folder.with_name("sound")
    folder.rename(sound)
    for harm in harmed_pages(sound / "data.mdb"):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(sound, folder)
        again = folders.open()
        assert content(again) == before, harm
        again.close()
        if victim == "copy":
            shutil.rmtree(folders.catalog)
            rebuilt = folders.open()
            assert content(rebuilt) == before, harm
            rebuilt.close()
    assert victim == "copy" or folders.put_aside(), "most pages are in use"


@covers("F6")
async def test_what_cannot_be_used_any_more_is_kept_beside(folders: Folders) -> None:
    catalog = folders.open()
    await fill(catalog)
    await folders.copy(catalog, 1)
    catalog.close()
    for count in (1, 2):
        garble(folders.catalog)
        folders.open().close()
        assert len(folders.put_aside()) == count
        assert all(b"no catalog at all" in (one / "data.mdb").read_bytes() for one in folders.put_aside())


@covers("F6")
async def test_without_a_copy_a_damaged_catalog_is_said_to_be_so_and_left_alone(folders: Folders) -> None:
    catalog = folders.open()
    await fill(catalog)
    catalog.close()
    cut(folders.catalog)
    before = (folders.catalog / "data.mdb").read_bytes()
    with pytest.raises(StoreDamaged, match="cut short"):
        folders.open()
    assert (folders.catalog / "data.mdb").read_bytes() == before
    assert folders.put_aside() == []


@covers("P1")
async def test_a_catalog_put_back_to_an_earlier_state_counts_and_takes_no_version_twice(
    folders: Folders, tmp_path: Path
) -> None:
    catalog = folders.open()
    await create(catalog, "early")
    catalog.close()
    shutil.copytree(folders.catalog, tmp_path / "backup")
    catalog = folders.open()
    await fill(catalog)
    last = catalog.version
    await folders.copy(catalog, 2)
    catalog.close()
    shutil.rmtree(folders.catalog)
    shutil.copytree(tmp_path / "backup", folders.catalog)
    again = folders.open()
    assert [entry.description.path for entry in again.entries()] == ["early"]
    assert again.version > last
    again.close()
    flip(b"qearly")(folders.catalog)
    mended = folders.open()
    assert mended.version > last
    mended.close()


@covers("P1", "F6")
async def test_a_damaged_catalog_that_is_older_than_a_copy_is_rebuilt(folders: Folders, tmp_path: Path) -> None:
    catalog = folders.open()
    await create(catalog, "early")
    catalog.close()
    shutil.copytree(folders.catalog, tmp_path / "backup")
    catalog = folders.open()
    await fill(catalog)
    before = content(catalog)
    await folders.copy(catalog, 2)
    catalog.close()
    shutil.rmtree(folders.catalog)
    shutil.copytree(tmp_path / "backup", folders.catalog)
    flip(b"qearly")(folders.catalog)
    again = folders.open()
    assert content(again) == before
    again.close()


async def test_older_copies_change_nothing(folders: Folders) -> None:
    catalog = folders.open()
    await create(catalog, "early")
    await folders.copy(catalog, 0, 1)
    await catalog.delete_queue("early", NOW)
    await fill(catalog)
    before = content(catalog)
    catalog.close()
    again = folders.open()
    assert content(again) == before
    assert folders.put_aside() == []
    again.close()


@covers("F6")
async def test_a_damaged_record_is_not_taken_from_a_copy_that_is_older(folders: Folders) -> None:
    catalog = folders.open()
    await create(catalog, "orders")
    await folders.copy(catalog, 0)
    await catalog.update_queue(replace(catalog.get_queue("orders").description, max_delivery_count=3), NOW)
    catalog.close()
    flip(b"qorders")(folders.catalog)
    again = folders.open()
    assert [one.key for one in again.damaged] == [b"qorders"]
    assert again.find_queue("orders") is None
    again.close()


@covers("F6")
async def test_a_damaged_record_is_not_taken_from_an_earlier_life(folders: Folders) -> None:
    """A copy keeps what the catalog cannot read: of a queue that was deleted and made again, it may be the old one."""
    catalog = folders.open()
    await create(catalog, "orders")
    early = await catalog.snapshot()
    await catalog.delete_queue("orders", NOW)
    await create(catalog, "orders")
    await folders.copy(catalog, 0)
    catalog.close()
    store = CatalogStore(folders.copies[0], LIMITS.catalog_map_size_bytes)
    store.commit({b"qorders": early.puts[b"qorders"]})
    store.close()
    flip(b"qorders")(folders.catalog)
    again = folders.open()
    assert [one.key for one in again.damaged] == [b"qorders"]
    again.close()


async def test_copies_of_another_namespace_change_nothing(folders: Folders, tmp_path: Path) -> None:
    other = Folders(tmp_path / "other")
    strange = other.open()
    await fill(strange)
    await folders.copy(strange, 0)
    strange.close()
    Catalog.open(folders.catalog, LIMITS, NOW).close()
    catalog = folders.open()
    assert list(catalog.entries()) == []
    assert catalog.namespace_id != strange.namespace_id
    catalog.close()


@covers("F6")
async def test_a_copy_that_cannot_be_used_is_passed_over(folders: Folders) -> None:
    catalog = folders.open()
    await fill(catalog)
    await folders.copy(catalog, 2)
    before = content(catalog)
    await create(catalog, "late")
    await folders.copy(catalog, 0, 1)
    catalog.close()
    lose(folders.catalog)
    cut(folders.copies[0])
    lose_counters(folders.copies[1])
    again = folders.open()
    assert content(again) == before
    again.close()


async def test_nothing_is_rebuilt_while_another_process_holds_the_catalog(folders: Folders) -> None:
    catalog = folders.open()
    await folders.copy(catalog, 0)
    with pytest.raises(StoreUnavailable, match="in use"):
        folders.open()
    assert folders.put_aside() == []
    catalog.close()


async def test_a_catalog_of_a_newer_format_is_not_taken_for_a_damaged_one(folders: Folders) -> None:
    catalog = folders.open()
    await folders.copy(catalog, 0)
    catalog.close()
    newer = FORMAT_VERSION + 1
    with lmdb.open(str(folders.catalog)) as environment, environment.begin(write=True) as txn:
        for key in (b"m0", b"m1"):
            txn.put(key, encode_record(key, {}, version=newer))
    with pytest.raises(StoreDamaged, match=f"format {newer}"):
        folders.open()
    assert folders.put_aside() == []


async def test_where_there_is_nothing_at_all_a_new_catalog_is_made(folders: Folders) -> None:
    catalog = folders.open()
    assert (catalog.version, list(catalog.entries())) == (0, [])
    catalog.close()
