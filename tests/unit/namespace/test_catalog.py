"""Names, lives and numbers of queues, over restarts, failures and damage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest
import pytest_asyncio

from tandembus.descriptions import AuthorizationRule, QueueDescription
from tandembus.errors import (
    EntityAlreadyExists,
    EntityNotFound,
    QuotaExceeded,
    StoreDamaged,
    StoreFull,
    StoreUnavailable,
)
from tandembus.limits import Limits
from tandembus.namespace.catalog import Catalog, EntityState, QueueEntry
from tandembus.namespace.catalog_records import (
    RecordStore,
    entry_document,
    facts_documents,
    queue_key,
)
from tandembus.namespace.entries import Facts
from tandembus.store.embedded.catalog_store import CatalogStore, DamagedRecord, Document, encode_record
from tests.covers import covers

LIMITS = Limits(catalog_map_size_bytes=16 * 1024 * 1024)
NOW = 1_700_000_000.0


@pytest_asyncio.fixture
async def catalog(tmp_path: Path) -> AsyncIterator[Catalog]:
    opened = Catalog.open(tmp_path, LIMITS, NOW)
    yield opened
    opened.close()


def reopened(catalog: Catalog, folder: Path, now: float = NOW + 100) -> Catalog:
    catalog.close()
    return Catalog.open(folder, LIMITS, now)


async def create(catalog: Catalog, name: str, now: float = NOW, limits: Limits = LIMITS) -> QueueEntry:
    entry = await catalog.begin_create(QueueDescription(name), limits, now)
    return await catalog.finish_create(entry, now)


@covers("M1")
async def test_a_created_queue_is_found_in_whatever_letters_also_after_a_restart(
    catalog: Catalog, tmp_path: Path
) -> None:
    entry = await create(catalog, "Orders/EU")
    again = reopened(catalog, tmp_path)
    for one in (catalog, again):
        assert one.find_queue("orders/eu") == one.find_queue("ORDERS/EU") == entry
    assert entry.description.name == "Orders/EU"
    assert again.find_queue("orders") is None
    again.close()


async def test_a_queue_is_not_there_before_its_creation_is_finished(catalog: Catalog) -> None:
    entry = await catalog.begin_create(QueueDescription("orders"), LIMITS, NOW)
    assert entry.state is EntityState.CREATING
    assert catalog.find_queue("orders") is None
    assert catalog.queue_count() == 0
    with pytest.raises(StoreUnavailable, match="not free yet"):
        await catalog.begin_create(QueueDescription("ORDERS"), LIMITS, NOW)
    await catalog.finish_create(entry, NOW)
    with pytest.raises(EntityAlreadyExists):
        await catalog.begin_create(QueueDescription("Orders"), LIMITS, NOW)


async def test_of_many_who_create_the_same_name_one_succeeds(catalog: Catalog) -> None:
    outcomes = await asyncio.gather(*(create(catalog, "orders") for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(one, QueueEntry) for one in outcomes) == 1
    assert sum(isinstance(one, EntityAlreadyExists | StoreUnavailable) for one in outcomes) == 19


async def test_a_creation_that_failed_frees_the_name_and_leaves_a_tombstone(catalog: Catalog) -> None:
    entry = await catalog.begin_create(QueueDescription("orders"), LIMITS, NOW)
    tombstones = await catalog.abandon_create(entry, NOW)
    assert [one.fragment_key for one in tombstones] == [entry.fragment_key]
    assert catalog.tombstones() == tombstones
    assert await catalog.abandon_create(entry, NOW) == []
    with pytest.raises(EntityNotFound):
        await catalog.finish_create(entry, NOW)
    second = await create(catalog, "orders")
    assert second.fragment_key > entry.fragment_key
    assert second.incarnation > entry.incarnation
    assert await catalog.abandon_create(entry, NOW) == []
    assert catalog.find_queue("orders") == second


async def test_a_restart_buries_what_was_being_created(catalog: Catalog, tmp_path: Path) -> None:
    entry = await catalog.begin_create(QueueDescription("orders"), LIMITS, NOW)
    again = reopened(catalog, tmp_path)
    assert again.find_queue("orders") is None
    assert [(one.fragment_key, one.path) for one in again.tombstones()] == [(entry.fragment_key, "orders")]
    assert (await create(again, "orders")).incarnation > entry.incarnation
    again.close()


async def test_a_deleted_queue_leaves_a_tombstone_until_it_is_forgotten(catalog: Catalog, tmp_path: Path) -> None:
    entry = await create(catalog, "Orders")
    (tombstone,) = await catalog.delete_queue("ORDERS", NOW + 5)
    assert (tombstone.path, tombstone.fragment_key, tombstone.incarnation) == (
        "Orders",
        entry.fragment_key,
        entry.incarnation,
    )
    assert catalog.find_queue("orders") is None
    with pytest.raises(EntityNotFound):
        await catalog.delete_queue("orders", NOW)
    again = reopened(catalog, tmp_path)
    assert again.tombstones() == [tombstone]
    await again.forget([tombstone], NOW)
    await again.forget([tombstone], NOW)
    last = reopened(again, tmp_path)
    assert last.tombstones() == []
    last.close()


@covers("P26")
async def test_numbers_are_never_given_out_twice(catalog: Catalog, tmp_path: Path) -> None:
    seen: list[int] = []
    for round_number in range(5):
        entry = await create(catalog, "orders")
        seen.append(entry.fragment_key)
        await catalog.forget(await catalog.delete_queue("orders", NOW), NOW)
        half = await catalog.begin_create(QueueDescription(f"half{round_number}"), LIMITS, NOW)
        seen.append(half.fragment_key)
        catalog = reopened(catalog, tmp_path)
    assert seen == sorted(set(seen))
    catalog.close()


async def test_an_update_keeps_the_life_and_the_letters_of_the_name(catalog: Catalog, tmp_path: Path) -> None:
    old = await create(catalog, "Orders")
    new = await catalog.update_queue(QueueDescription("ORDERS", lock_duration_s=30.0), NOW + 9)
    assert new == replace(
        old, description=QueueDescription("Orders", lock_duration_s=30.0), updated_at=NOW + 9, version=2
    )
    with pytest.raises(EntityNotFound):
        await catalog.update_queue(QueueDescription("other"), NOW)
    again = reopened(catalog, tmp_path)
    assert again.find_queue("orders") == new
    again.close()


async def test_pages_are_sorted_by_name(catalog: Catalog) -> None:
    for name in ("b", "C", "a", "a/b", "D", "a-b"):
        await create(catalog, name)
    await catalog.delete_queue("c", NOW)
    names = [entry.description.name for entry in catalog.queues()]
    assert names == ["a", "a-b", "a/b", "b", "D"]
    assert [entry.description.name for entry in catalog.queues(1, 2)] == names[1:3]
    assert catalog.queues(5, 100) == []
    assert catalog.queues(4, 0) == []


@covers("M13")
async def test_the_number_of_entities_is_limited(catalog: Catalog) -> None:
    limits = replace(LIMITS, max_entities=3)
    await create(catalog, "a", limits=limits)
    await create(catalog, "b", limits=limits)
    half = await catalog.begin_create(QueueDescription("c"), limits, NOW)
    with pytest.raises(QuotaExceeded, match="at most 3"):
        await create(catalog, "d", limits=limits)
    await catalog.abandon_create(half, NOW)
    await create(catalog, "d", limits=limits)


@covers("M6")
async def test_times_of_use_survive_a_restart_and_end_with_the_queue(catalog: Catalog, tmp_path: Path) -> None:
    await create(catalog, "Orders")
    assert catalog.accessed_at("orders") == NOW
    await catalog.record_accesses({"ORDERS": NOW + 60, "unknown": NOW}, NOW + 61)
    await catalog.record_accesses({}, NOW + 61)
    again = reopened(catalog, tmp_path)
    assert again.accessed_at("orders") == NOW + 60
    await again.delete_queue("orders", NOW + 70)
    await create(again, "orders", NOW + 80)
    assert again.accessed_at("orders") == NOW + 80
    last = reopened(again, tmp_path)
    assert last.accessed_at("orders") == NOW + 80
    last.close()


@covers("M15")
async def test_policies_are_kept(catalog: Catalog, tmp_path: Path) -> None:
    policy = AuthorizationRule("till", "k", "l", frozenset({"Send", "Listen"}), NOW, NOW + 1)
    await catalog.put_policy(policy, NOW)
    rule = AuthorizationRule("own", "k", "l", frozenset({"Send"}))
    entry = await catalog.begin_create(QueueDescription("q", authorization_rules=(rule,)), LIMITS, NOW)
    await catalog.finish_create(entry, NOW)
    again = reopened(catalog, tmp_path)
    assert again.policies() == [policy]
    assert again.get_queue("q").description.authorization_rules == (rule,)
    await again.remove_policy("till", NOW)
    with pytest.raises(EntityNotFound):
        await again.remove_policy("till", NOW)
    assert again.policies() == []
    again.close()


async def test_the_namespace_remembers_when_it_began_and_counts_its_changes(catalog: Catalog, tmp_path: Path) -> None:
    assert (catalog.created_at, catalog.version) == (NOW, 0)
    await create(catalog, "orders")
    version = catalog.version
    again = reopened(catalog, tmp_path)
    assert (again.created_at, again.namespace_id, again.version) == (NOW, catalog.namespace_id, version)
    again.close()


async def test_a_change_is_carried_through_when_its_caller_goes_away(catalog: Catalog, tmp_path: Path) -> None:
    task = asyncio.create_task(create(catalog, "orders"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await create(catalog, "next")
    known = (catalog.queue_count(), len(catalog.tombstones()), catalog.version)
    with pytest.raises(StoreUnavailable, match="not free yet"):
        await catalog.begin_create(QueueDescription("orders"), LIMITS, NOW)
    again = reopened(catalog, tmp_path)
    assert (again.queue_count(), again.version) == (known[0], known[2] + 1)  # the burial is a change, too
    assert [one.path for one in again.tombstones()] == ["orders"]
    again.close()


async def test_a_catalog_is_settled_once_what_was_begun_is_written(catalog: Catalog, tmp_path: Path) -> None:
    """Only then may it be closed: a change writes in a thread, and goes on when its caller has gone."""
    task = asyncio.create_task(catalog.begin_create(QueueDescription("orders"), LIMITS, NOW))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    before = catalog.version
    await catalog.settled()
    assert catalog.version == before + 1
    again = reopened(catalog, tmp_path)
    assert [one.path for one in again.tombstones()] == ["orders"]
    again.close()


async def test_one_process_at_a_time_holds_the_catalog(catalog: Catalog, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="in use"):
        Catalog.open(tmp_path, LIMITS, NOW)
    catalog.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await create(catalog, "orders")


class FailingStore:
    """A real store whose n-th commit fails, before or after the change has become durable."""

    def __init__(self, store: CatalogStore, fails_at: int, is_durable: bool) -> None:
        self._store = store
        self._left = fails_at
        self._is_durable = is_durable

    def commit(self, puts: Mapping[bytes, Document], drops: Iterable[bytes] = ()) -> None:
        self._left -= 1
        if self._left != 0 or self._is_durable:
            self._store.commit(puts, drops)
        if self._left == 0:
            raise StoreUnavailable("nobody knows what became of it")

    def read_all(self) -> tuple[dict[bytes, Document], list[DamagedRecord]]:
        return self._store.read_all()

    def reopen(self) -> None:
        self._store.reopen()

    def close(self) -> None:
        self._store.close()


async def life_of_a_queue(catalog: Catalog) -> None:
    """Every kind of change once, each repeated or undone the way a careful caller does."""
    for name in ("one", "two"):
        try:
            entry = await catalog.begin_create(QueueDescription(name), LIMITS, NOW)
        except StoreUnavailable:
            entry = await catalog.begin_create(QueueDescription(name), LIMITS, NOW)
        try:
            await catalog.finish_create(entry, NOW)
        except StoreUnavailable:
            await catalog.abandon_create(entry, NOW)
            await create(catalog, name)
    for change in (
        lambda: catalog.update_queue(QueueDescription("one", max_delivery_count=3), NOW),
        lambda: catalog.record_accesses({"one": NOW + 1}, NOW),
        lambda: catalog.put_policy(AuthorizationRule("p", "k", "", frozenset({"Send"})), NOW),
        lambda: catalog.delete_queue("two", NOW),
    ):
        try:
            await change()
        except StoreUnavailable:
            if catalog.find_queue("two") is not None:
                await change()
    for tombstone in catalog.tombstones():
        try:
            await catalog.forget([tombstone], NOW)
        except StoreUnavailable:
            await catalog.forget([tombstone], NOW)


def seen_from_outside(catalog: Catalog) -> object:
    return (catalog.queues(), catalog.tombstones(), catalog.policies(), catalog.accessed_at("one"), catalog.version)


@covers("M1")
@pytest.mark.parametrize("is_durable", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("fails_at", range(1, 14))
async def test_after_a_commit_of_unknown_outcome_memory_is_what_is_durable(
    tmp_path: Path, fails_at: int, is_durable: bool
) -> None:
    first = CatalogStore(tmp_path, LIMITS.catalog_map_size_bytes)
    Catalog(first, NOW).close()
    store: RecordStore = FailingStore(CatalogStore(tmp_path, LIMITS.catalog_map_size_bytes), fails_at, is_durable)
    catalog = Catalog(store, NOW)
    await life_of_a_queue(catalog)
    remembered = seen_from_outside(catalog)
    again = reopened(catalog, tmp_path)
    assert seen_from_outside(again) == remembered
    assert [entry.description.name for entry in again.queues()] == ["one"]
    assert again.get_queue("one").description.max_delivery_count == 3
    assert again.tombstones() == []
    again.close()


async def create_until_full(catalog: Catalog, limits: Limits) -> list[str]:
    created: list[str] = []
    for number in range(1_000):
        description = QueueDescription(f"queue{number}", user_metadata="x" * 1_000)
        try:
            await catalog.finish_create(await catalog.begin_create(description, limits, NOW), NOW)
        except StoreFull:
            return created
        created.append(description.name)
    raise AssertionError("the catalog never got full")


@covers("M13")
async def test_a_full_catalog_refuses_and_keeps_working(tmp_path: Path) -> None:
    limits = replace(LIMITS, catalog_map_size_bytes=256 * 1024)
    catalog = Catalog.open(tmp_path, limits, NOW)
    created = await create_until_full(catalog, limits)
    assert len(created) > 20
    assert set(created) <= {entry.description.name for entry in catalog.queues()}
    for name in created[:10]:
        await catalog.forget(await catalog.delete_queue(name, NOW), NOW)
    await create(catalog, "one-more", limits=limits)
    catalog.close()


@covers("F6")
async def test_a_damaged_record_is_reported_not_served_and_does_not_stop_the_rest(
    catalog: Catalog, tmp_path: Path
) -> None:
    for name in ("good", "bad"):
        await create(catalog, name)
    catalog.close()
    flip(tmp_path, b"qbad", 40)
    again = Catalog.open(tmp_path, LIMITS, NOW)
    assert [one.key for one in again.damaged] == [b"qbad"]
    assert again.find_queue("bad") is None
    assert again.find_queue("good") is not None
    assert again.tombstones() == []
    with pytest.raises(StoreDamaged, match="damaged"):
        await create(again, "Bad")
    assert (await create(again, "new")).fragment_key == 3
    again.close()


@covers("F6")
async def test_the_counters_survive_the_damage_of_one_copy(catalog: Catalog, tmp_path: Path) -> None:
    await create(catalog, "orders")
    catalog.close()
    flip(tmp_path, b"m0", 20)
    again = Catalog.open(tmp_path, LIMITS, NOW)
    assert (await create(again, "new")).fragment_key == 2
    last = reopened(again, tmp_path)
    assert last.damaged == []
    last.close()
    flip(tmp_path, b"m0", 20)
    flip(tmp_path, b"m1", 20)
    with pytest.raises(StoreDamaged, match="counters"):
        Catalog.open(tmp_path, LIMITS, NOW)


async def test_a_catalog_of_a_newer_format_is_refused_and_left_alone(catalog: Catalog, tmp_path: Path) -> None:
    catalog.close()
    with lmdb.open(str(tmp_path)) as environment, environment.begin(write=True) as txn:
        txn.put(b"m0", encode_record(b"m0", {}, version=4))
    before = (tmp_path / "data.mdb").read_bytes()
    with pytest.raises(StoreDamaged, match="format 4"):
        Catalog.open(tmp_path, LIMITS, NOW)
    assert (tmp_path / "data.mdb").read_bytes() == before


@covers("M13")
async def test_ten_thousand_queues_are_looked_up_and_listed_quickly(tmp_path: Path) -> None:
    store = CatalogStore(tmp_path, LIMITS.catalog_map_size_bytes * 4)
    Catalog(store, NOW).close()
    fill(tmp_path, 10_000)
    started_at = time.process_time()  # neighbours on a busy machine do not count
    catalog = Catalog.open(tmp_path, replace(LIMITS, catalog_map_size_bytes=64 * 1024 * 1024), NOW)
    opened_at = time.process_time()
    assert catalog.queue_count() == 10_000
    for number in range(10_000):
        assert catalog.find_queue(f"QUEUE{number:05}") is not None
    for skip in range(0, 10_000, 100):
        assert catalog.queues(skip, 100)[0].description.name == f"queue{skip:05}"
    finished_at = time.process_time()
    # Generous: both take a tenth of this.
    assert opened_at - started_at < 5.0
    assert finished_at - opened_at < 1.0
    with pytest.raises(QuotaExceeded):
        await create(catalog, "one-more")
    catalog.close()


def flip(folder: Path, key: bytes, position: int) -> None:
    with lmdb.open(str(folder)) as environment, environment.begin(write=True) as txn:
        value = bytearray(txn.get(key) or b"")
        value[position] ^= 1
        txn.put(key, bytes(value))


def fill(folder: Path, count: int) -> None:
    """What so many creations leave behind, in one commit."""
    store = CatalogStore(folder, 64 * 1024 * 1024)
    entries = [QueueEntry(QueueDescription(f"queue{n:05}"), n + 1, n + 1, NOW, NOW) for n in range(count)]
    facts = Facts("id", NOW, count + 1, count + 1, count)
    store.commit({**facts_documents(facts), **{queue_key(one.key): entry_document(one) for one in entries}})
    store.close()
