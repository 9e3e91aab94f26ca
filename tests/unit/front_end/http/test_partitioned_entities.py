"""Partitioned entities over HTTP: how they are asked for, what is shown of them, and what is refused."""

from __future__ import annotations

import asyncio
import re

import pytest

from tandembus.errors import StoreUnavailable
from tests.covers import covers
from tests.unit.front_end.http.harness import Reply, RunningFrontEnd
from tests.unit.front_end.http.test_server import refusal
from tests.unit.front_end.http.test_topics import PARTITIONED, body

KINDS = pytest.mark.parametrize("kind", ["Queue", "Topic"])


def size(megabytes: int) -> str:
    return f"<MaxSizeInMegabytes>{megabytes}</MaxSizeInMegabytes>"


def shown(reply: Reply, name: str) -> str:
    found = re.search(f"<{name}>(.*?)</{name}>", reply.text)
    assert found is not None, name
    return found.group(1)


@covers("P7", "P8", "P19")
@KINDS
async def test_it_is_asked_for_at_creation_and_shows_the_size_of_all_fragments(
    front_end: RunningFrontEnd, kind: str
) -> None:
    created = await front_end.request("PUT", "/wide?api-version=2021-05", body(kind, size(2048) + PARTITIONED))
    assert created.status == 201
    for reply in (created, await front_end.request("GET", "/wide")):
        assert shown(reply, "EnablePartitioning") == "true"
        assert shown(reply, "MaxSizeInMegabytes") == str(16 * 2048)
        assert shown(reply, "EntityAvailabilityStatus") == "Available"
        assert shown(reply, "MessageCount" if kind == "Queue" else "SubscriptionCount") == "0"


@covers("P8")
@KINDS
async def test_the_size_that_was_shown_can_be_sent_back_and_another_one_asked_for(
    front_end: RunningFrontEnd, kind: str
) -> None:
    await front_end.request("PUT", "/wide", body(kind, PARTITIONED))
    read = await front_end.request("GET", "/wide")
    for document in (read.text, body(kind, size(16 * 1024) + PARTITIONED), body(kind, size(1024) + PARTITIONED)):
        reply = await front_end.request("PUT", "/wide", document, {"If-Match": "*"})
        assert (reply.status, shown(reply, "MaxSizeInMegabytes")) == (200, str(16 * 1024))
    larger = await front_end.request("PUT", "/wide", body(kind, size(5120) + PARTITIONED), {"If-Match": "*"})
    assert (larger.status, shown(larger, "MaxSizeInMegabytes")) == (200, "81920")


@covers("P8")
@KINDS
@pytest.mark.parametrize("megabytes", [0, 512, 1536, 5121, 6144, 16384, 81920])
async def test_a_size_outside_of_one_to_five_gigabytes_is_refused(
    front_end: RunningFrontEnd, kind: str, megabytes: int
) -> None:
    reply = await front_end.request("PUT", "/wide", body(kind, size(megabytes) + PARTITIONED))
    status, detail = refusal(reply)
    assert status == 400
    assert f"MaxSizeInMegabytes is {megabytes}; allowed: 1024, 2048, 3072, 4096, 5120." in detail
    assert (await front_end.request("GET", "/wide")).status == 404


@covers("P7")
@KINDS
@pytest.mark.parametrize("before", [PARTITIONED, ""])
async def test_partitioning_cannot_be_changed(front_end: RunningFrontEnd, kind: str, before: str) -> None:
    await front_end.request("PUT", "/wide", body(kind, before))
    after = "" if before else PARTITIONED
    status, detail = refusal(await front_end.request("PUT", "/wide", body(kind, after), {"If-Match": "*"}))
    assert (status, "EnablePartitioning of 'wide' cannot be changed" in detail) == (400, True)


COUNTS = (
    "SizeInBytes",
    "MessageCount",
    "d2p1:ActiveMessageCount",
    "d2p1:DeadLetterMessageCount",
    "d2p1:ScheduledMessageCount",
    "d2p1:TransferMessageCount",
    "d2p1:TransferDeadLetterMessageCount",
)


@covers("P19")
@pytest.mark.parametrize("partitioned", [PARTITIONED, ""], ids=["partitioned", "plain"])
async def test_an_entity_that_is_out_of_reach_is_listed_as_limited_without_counts_and_cannot_be_changed(
    front_end: RunningFrontEnd, partitioned: str
) -> None:
    await front_end.request("PUT", "/wide", body("Queue", partitioned))
    failed = asyncio.Event()
    broker = front_end.namespace.brokers[0]
    broker.on_failed.append(lambda _error: failed.set())
    broker.lose_store(StoreUnavailable("the cable is out"))
    await failed.wait()
    status, detail = refusal(await front_end.request("GET", "/wide"))
    assert (status, "No fragment of 'wide' can be reached" in detail) == (503, True)
    listed = await front_end.request("GET", "/$Resources/queues")
    assert (listed.status, shown(listed, "EntityAvailabilityStatus")) == (200, "Limited")
    assert [shown(listed, name) for name in COUNTS] == ["-1"] * len(COUNTS)
    assert shown(listed, "LockDuration") == "PT1M"
    update = await front_end.request("PUT", "/wide", body("Queue", partitioned), {"If-Match": "*"})
    assert refusal(update)[0] == 500
    assert refusal(await front_end.request("DELETE", "/wide"))[0] == 500
    reopened = asyncio.Event()
    broker.on_reopened.append(reopened.set)
    broker.reopen_soon()
    await reopened.wait()
    reply = await front_end.request("GET", "/wide")
    assert shown(reply, "EntityAvailabilityStatus") == "Available"
    assert [shown(reply, name) for name in COUNTS] == ["0"] * len(COUNTS)
    assert (await front_end.request("DELETE", "/wide")).status == 200
