"""Stores that must not be opened, in a namespace that serves its other ones."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tandembus.client import connect
from tandembus.config import ServeSettings
from tandembus.descriptions import QueueDescription
from tandembus.errors import BusError
from tandembus.limits import Limits
from tandembus.node.upkeep.check import check_quickly
from tandembus.node.waiting import comes_true
from tandembus.node.wiring import NamespaceNode
from tests.covers import covers

LIMITS = Limits(catalog_map_size_bytes=16 << 20)
FILES = ("catalog/data.mdb", "stores/0/data.mdb", "stores/0/catalog/data.mdb", "stores/1/catalog/data.mdb")


@contextlib.asynccontextmanager
async def started(data: Path) -> AsyncIterator[NamespaceNode]:
    settings = ServeSettings(data=data, amqp_port=0, http_port=0, amqps_port=None, stores=2, limits=LIMITS)
    node = NamespaceNode(settings)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


async def create(node: NamespaceNode, *names: str) -> None:
    for name in names:
        await node.namespace.administration.create_queue(QueueDescription(name))


def fill_with_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def failures(node: NamespaceNode) -> list[str | None]:
    return [None if broker.failure is None else str(broker.failure) for broker in node.brokers]


@covers("F2")
@pytest.mark.parametrize("files", [FILES[1:2], FILES, FILES[:1], FILES[2:]])
async def test_files_of_zeros_that_a_power_loss_left_of_a_first_start_are_new_ones(
    tmp_path: Path, files: tuple[str, ...]
) -> None:
    async with started(tmp_path):
        pass
    for name in files:
        fill_with_zeros(tmp_path / name)
    async with started(tmp_path) as node:
        assert failures(node) == [None, None]
        await create(node, "a", "b")
    async with started(tmp_path) as node:
        assert {entry.description.path for entry in node.namespace.catalog.entries()} == {"a", "b"}
    assert not [one for one in os.listdir(tmp_path) if "damaged" in one]


@covers("F6")
@pytest.mark.parametrize("lost", [(), ("catalog/data.mdb",), ("catalog/data.mdb", "stores/0/catalog/data.mdb")])
async def test_a_file_of_zeros_where_the_catalog_or_a_copy_knows_of_messages_is_fenced(
    tmp_path: Path, lost: tuple[str, ...]
) -> None:
    async with started(tmp_path) as node:
        await create(node, "a", "b")
        assert [entry.stores for entry in node.namespace.catalog.entries()] == [(0,), (1,)]
    for name in ("stores/0/data.mdb", *lost):
        fill_with_zeros(tmp_path / name)
    async with started(tmp_path) as node:
        damaged, sound = failures(node)
        assert "stores/0/data.mdb is damaged: it holds nothing but zeros" in str(damaged)
        assert sound is None
    content = (tmp_path / "stores/0/data.mdb").read_bytes()
    assert content
    assert not any(content)


@covers("F6")
async def test_a_file_of_zeros_is_fenced_where_only_a_copy_of_the_catalog_knows_of_messages(tmp_path: Path) -> None:
    async with started(tmp_path):
        pass
    shutil.copytree(tmp_path / "catalog", tmp_path / "earlier")
    async with started(tmp_path) as node:
        await create(node, "a", "b")
    shutil.rmtree(tmp_path / "catalog")
    (tmp_path / "earlier").rename(tmp_path / "catalog")
    fill_with_zeros(tmp_path / "stores/0/data.mdb")
    async with started(tmp_path) as node:
        assert list(node.namespace.catalog.entries()) == []
        damaged, sound = failures(node)
    assert "stores/0/data.mdb is damaged: it holds nothing but zeros" in str(damaged)
    assert sound is None


@covers("F6", "M4")
async def test_what_a_fenced_store_holds_is_not_said_to_be_missing(tmp_path: Path) -> None:
    async with started(tmp_path) as node:
        await create(node, "a", "b")
    fill_with_zeros(tmp_path / "stores/0/data.mdb")
    async with started(tmp_path) as node, await connect(node.connection_string) as bus:
        (fenced,) = [one.description.path for one in node.namespace.catalog.entries() if one.stores == (0,)]
        management = await bus.management(fenced)
        requests = (
            management.peek(),
            management.receive_deferred([1]),
            management.cancel([1]),
            management.batch_delete(1, node.clock.now()),
        )
        for request in requests:
            with pytest.raises(BusError, match="is damaged") as refused:
                await request
            assert refused.value.retryable


@covers("F6")
async def test_a_file_whose_first_pages_alone_are_zeros_is_fenced_and_left_as_it_is(tmp_path: Path) -> None:
    async with started(tmp_path):
        pass
    path = tmp_path / "stores/0/data.mdb"
    before = bytes(8192) + path.read_bytes()[8192:]
    path.write_bytes(before)
    async with started(tmp_path) as node:
        damaged, sound = failures(node)
        assert "stores/0/data.mdb is damaged: its first pages hold zeros" in str(damaged)
        assert sound is None
        await create(node, "a", "b")
        assert {entry.stores for entry in node.namespace.catalog.entries()} == {(1,)}, "where there is a store"
    assert path.read_bytes() == before


@covers("F6")
async def test_a_store_whose_file_is_replaced_while_the_namespace_runs_is_served(tmp_path: Path) -> None:
    async with started(tmp_path) as node:
        await create(node, "a", "b")
    path = tmp_path / "stores/0/data.mdb"
    sound = path.read_bytes()
    path.write_bytes(sound[:5_000])
    async with started(tmp_path) as node:
        broken = node.brokers[0]
        assert "cut short" in str(broken.failure)
        with pytest.raises(BusError, match="cut short"):
            await node.namespace.administration.delete_queue("a")
        path.write_bytes(sound)
        broken.reopen_soon()
        await comes_true(lambda: broken.failure is None, 20.0)
        await node.namespace.administration.delete_queue("a")
        await create(node, "c")


@covers("F6")
@pytest.mark.parametrize("is_known", [False, True])
async def test_a_short_look_names_the_damage_of_a_store(tmp_path: Path, is_known: bool) -> None:
    async with started(tmp_path) as node:
        await create(node, "a", "b")
    path = tmp_path / "stores/0/data.mdb"
    content = path.read_bytes()
    path.write_bytes(content[:8192] + bytes(len(content) - 8192))
    if is_known:
        async with started(tmp_path) as node:
            broken = node.brokers[0]
            broken.reopen_soon()  # LMDB has met the pages: all of them are read before it is opened again
            await comes_true(lambda: "page" in str(broken.failure), 20.0)
    parts = {part.name: part for part in check_quickly(tmp_path)}
    assert parts["stores/0"].damage_count > 0
    assert ("page" if is_known else "cannot be read") in parts["stores/0"].findings[0]
    assert (parts["stores/1"].damage_count, parts["catalog"].damage_count) == (0, 0)
