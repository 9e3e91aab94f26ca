"""Whoever asked for a change may be gone before it is made: it is made all the same, or nothing of it remains."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tandembus.clock import SystemClock
from tandembus.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from tandembus.errors import BusError, InvalidArgument
from tandembus.limits import Limits
from tandembus.namespace.administration import Administration
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.entries import Entry
from tandembus.namespace.following import Followers
from tandembus.node.waiting import comes_true
from tandembus.store.memory_records import MemoryRecords
from tests.covers import covers

NOW = 1_700_000_000.0
QUEUE = QueueDescription("orders")
TOPIC = TopicDescription("more")
AUDIT = SubscriptionDescription("news", "audit")

Create = Callable[[Administration], Awaitable[Entry]]


class Store:
    """One that is always there."""

    index = 0
    newest_key = 0

    def failure(self) -> BusError | None:
        return None

    async def make(self, _entry: Entry) -> None:
        await asyncio.sleep(0)

    async def check(self, _entry: Entry) -> None:
        await asyncio.sleep(0)


class Stage:
    def __init__(self) -> None:
        self.catalog = Catalog(MemoryRecords(), NOW)
        followers = Followers(self.catalog)
        self.administration = Administration(
            "shop", self.catalog, {0: Store()}, [0], followers, Limits(), SystemClock()
        )


async def cancelled_after(work: Awaitable[object], turns: int) -> bool:
    """Whether it was still under way."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    was_under_way = task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return was_under_way


@covers("P18", "F6")
@pytest.mark.parametrize(
    ("path", "create"),
    [
        (QUEUE.path, lambda one: one.create_queue(QUEUE)),
        (TOPIC.path, lambda one: one.create_topic(TOPIC)),
        (AUDIT.path, lambda one: one.create_subscription(AUDIT)),
    ],
    ids=["queue", "topic", "subscription"],
)
async def test_a_create_whose_caller_is_gone_at_any_moment_is_finished(path: str, create: Create) -> None:
    for turns in range(1, 100):
        stage = Stage()
        await stage.administration.create_topic(TopicDescription("news"))
        if not await cancelled_after(create(stage.administration), turns):
            break
        assert await comes_true(lambda stage=stage: stage.catalog.find(path) is not None, 10), turns  # type: ignore[misc]
    assert turns > 3, "it was over before anybody could go"


@covers("P18")
async def test_changes_whose_callers_are_gone_still_wait_for_each_other() -> None:
    """Two that forward to each other are fine one by one: whichever comes second is refused."""
    stage = Stage()
    for name in ("a", "b"):
        await stage.administration.create_queue(QueueDescription(name))
    going = stage.administration.update_queue(QueueDescription("a", forward_to="b"))
    assert await cancelled_after(going, 3)
    with pytest.raises(InvalidArgument):
        await stage.administration.update_queue(QueueDescription("b", forward_to="a"))
