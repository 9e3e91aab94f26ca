"""Messages over HTTP: sent, received, settled, and refused."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tandembus.amqp.encoding.sections import (
    amqp_value_section,
    application_properties_section,
    properties_section,
)
from tandembus.amqp.encoding.values import symbol
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.clock import ManualClock
from tandembus.descriptions import EntityStatus, QueueDescription
from tandembus.errors import ServerBusy
from tandembus.front_end.http.connection import HttpTimings
from tandembus.front_end.http.rest_message import BATCH_TYPE, LONGEST_S
from tandembus.front_end.http.waiting import HeadReceiver
from tandembus.large_messages import LargeMemory
from tandembus.limits import Limits
from tandembus.message import parse_message
from tandembus.security.claims import Policy, Right
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.front_end.http.harness import Reply, RunningFrontEnd, running_front_end
from tests.unit.front_end.http.test_server import queue_body, refusal
from tests.unit.namespace.entity_fragment import fragment_of

HEAD = "/orders/messages/head"
TEXT = {"Content-Type": "text/plain"}


@pytest.fixture
async def orders(tmp_path: Path) -> AsyncIterator[RunningFrontEnd]:
    async with running_front_end(tmp_path, clock=ManualClock()) as running:
        await running.namespace.create_queue(QueueDescription("orders", max_delivery_count=3))
        yield running


def broker(**properties: object) -> dict[str, str]:
    return {**TEXT, "BrokerProperties": json.dumps(properties)}


async def send(orders: RunningFrontEnd, body: str = "one", **properties: object) -> None:
    reply = await orders.request("POST", "/orders/messages", body, broker(**properties))
    assert (reply.status, reply.body) == (201, b"")


def told(reply: Reply) -> dict[str, Any]:
    properties: dict[str, Any] = json.loads(reply.headers["BrokerProperties"])
    return properties


def locked(reply: Reply) -> str:
    """Where the locked message is settled."""
    assert reply.status == 201
    return reply.headers["Location"].partition("127.0.0.1:")[2].partition("/")[2].join(["/", ""])


async def counts(orders: RunningFrontEnd) -> tuple[int, int]:
    found = await orders.namespace.counts("orders")
    return found.active, found.dead_letter


async def amqp_send(orders: RunningFrontEnd, payload: bytes) -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reply = CallbackSendReply(lambda _operation, _error: done.set_result(None))
    fragment = fragment_of(await orders.namespace.entity("orders"))
    fragment.send(SendOperation([parse_message(payload)], len(payload), reply, 0))
    await done


async def waiting(orders: RunningFrontEnd, lane: int = MAIN) -> None:
    """Until a receiver stands in line."""
    fragment = fragment_of(await orders.namespace.entity("orders"))
    while fragment.consumers(lane).is_empty():
        await orders.namespace.brokers[0].next_turn()


async def nobody_waits(orders: RunningFrontEnd) -> None:
    entity = await orders.namespace.entity("orders")
    while not fragment_of(entity).consumers(MAIN).is_empty() or entity.links:
        await orders.namespace.brokers[0].next_turn()


def counted(orders: RunningFrontEnd) -> dict[str, tuple[int, int, int]]:
    """Calls, messages and operations by operation."""
    return {
        row.operation: (row.count.calls, row.count.messages, row.count.operations)
        for row in orders.meter.totals().since_start
        if row.entity == "orders"
    }


# Sending and receiving.


@covers("B1", "M1")
async def test_a_message_keeps_its_body_properties_and_types(orders: RunningFrontEnd) -> None:
    headers = {
        **broker(
            MessageId="m1",
            Label="invoice",
            To="there",
            ReplyTo="back",
            CorrelationId="c1",
            ReplyToSessionId="rs",
            SessionId="s1",
            PartitionKey="s1",
            TimeToLive=30,
        ),
        "Priority": '"High"',
        "Customer": "12345",
        "Rate": "1.5",
        "Paid": "true",
        "Due": "Sun, 06 Nov 2044 08:49:37 GMT",
        "Name": '"\\u00c4 \\"x\\""',
    }
    sent = await orders.request("POST", "/orders/messages", b"\x00body\xff", headers)
    assert sent.status == 201
    reply = await orders.request("DELETE", HEAD)
    assert (reply.status, reply.body, reply.headers["Content-Type"]) == (200, b"\x00body\xff", "text/plain")
    for name in ("Priority", "Customer", "Rate", "Paid", "Due", "Name"):
        assert reply.headers[name] == headers[name]
    assert "UserProperties" not in reply.headers
    assert "Location" not in reply.headers
    enqueued = "Tue, 14 Nov 2023 22:13:20 GMT"
    assert told(reply) == {
        "MessageId": "m1",
        "Label": "invoice",
        "To": "there",
        "ReplyTo": "back",
        "CorrelationId": "c1",
        "ReplyToSessionId": "rs",
        "SessionId": "s1",
        "PartitionKey": "s1",
        "ContentType": "text/plain",
        "TimeToLive": 30.0,
        "SequenceNumber": 1,
        "EnqueuedSequenceNumber": told(reply)["EnqueuedSequenceNumber"],
        "EnqueuedTimeUtc": enqueued,
        "DeliveryCount": 1,
        "ForcePersistence": False,
        "State": "Active",
    }
    assert await counts(orders) == (0, 0)


@covers("B1")
async def test_a_message_without_properties_gets_an_id_and_lives_for_ever(orders: RunningFrontEnd) -> None:
    await orders.request("POST", "/orders/messages", b"", {"Content-Type": "application/json"})
    reply = await orders.request("DELETE", HEAD)
    assert (reply.status, reply.body) == (200, b"")
    assert len(told(reply)["MessageId"]) == 32
    assert told(reply)["TimeToLive"] == LONGEST_S
    assert told(reply)["ContentType"] == "application/json"


@covers("B1", "M2")
async def test_a_locked_message_is_completed_at_its_location(orders: RunningFrontEnd) -> None:
    await send(orders, MessageId="m1")
    reply = await orders.request("POST", HEAD)
    properties = told(reply)
    assert (reply.status, reply.body) == (201, b"one")
    assert uuid.UUID(properties["LockToken"])
    assert properties["LockedUntilUtc"] == "Tue, 14 Nov 2023 22:14:20 GMT"
    assert reply.headers["Location"] == (f"http://127.0.0.1:{orders.port}/orders/messages/m1/{properties['LockToken']}")
    assert (await orders.request("DELETE", f"{HEAD}?timeout=0")).status == 204
    done = await orders.request("DELETE", locked(reply))
    assert (done.status, done.body) == (200, b"")
    assert await counts(orders) == (0, 0)
    assert refusal(await orders.request("DELETE", locked(reply)))[0] == 404


@covers("M2", "M3")
async def test_an_unlocked_message_comes_again_and_counts_its_deliveries(orders: RunningFrontEnd) -> None:
    await send(orders)
    for delivery in (1, 2, 3):
        reply = await orders.request("POST", HEAD)
        assert told(reply)["DeliveryCount"] == delivery
        assert (await orders.request("PUT", locked(reply))).status == 200
    assert await counts(orders) == (0, 1)
    dead = await orders.request("POST", "/orders/$DeadLetterQueue/messages/head")
    assert dead.headers["DeadLetterReason"] == '"MaxDeliveryCountExceeded"'
    assert "/orders/$DeadLetterQueue/messages/" in dead.headers["Location"]
    assert (await orders.request("DELETE", locked(dead))).status == 200
    assert await counts(orders) == (0, 0)


@covers("M2")
async def test_a_renewed_lock_lives_on(orders: RunningFrontEnd) -> None:
    assert isinstance(orders.clock, ManualClock)
    await send(orders)
    reply = await orders.request("POST", HEAD)
    orders.clock.advance(40.0)
    renewed = await orders.request("POST", locked(reply))
    assert (renewed.status, told(renewed)) == (200, {"LockedUntilUtc": "Tue, 14 Nov 2023 22:15:00 GMT"})
    orders.clock.advance(40.0)
    assert (await orders.request("DELETE", locked(reply))).status == 200


@covers("M2")
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_a_lock_that_has_lapsed_is_not_found(orders: RunningFrontEnd, method: str) -> None:
    assert isinstance(orders.clock, ManualClock)
    await send(orders)
    reply = await orders.request("POST", HEAD)
    orders.clock.advance(60.0)
    status, detail = refusal(await orders.request(method, locked(reply)))
    assert (status, "SubCode=40402" in detail) == (404, True)


async def test_a_lock_is_found_by_its_token_whether_id_or_number_stands_before_it(orders: RunningFrontEnd) -> None:
    for number, name in enumerate(("m1", "1", "a/b c?%")):
        await send(orders, MessageId=name)
        reply = await orders.request("POST", HEAD)
        assert (f"/{number + 1}/" in reply.headers["Location"]) == (name == "a/b c?%" or name == str(number + 1))
        token = told(reply)["LockToken"]
        path = ["a%2Fb%20c%3F%25", str(number + 1), "whatever"][number]
        assert (await orders.request("DELETE", f"/Orders/Messages/{path}/{token.upper()}")).status == 200
    assert await counts(orders) == (0, 0)


@covers("M15")
async def test_a_lock_of_one_queue_is_none_of_its_dead_letters(orders: RunningFrontEnd) -> None:
    await send(orders)
    reply = await orders.request("POST", HEAD)
    path = locked(reply).replace("/orders/", "/orders/$DeadLetterQueue/")
    for method in ("POST", "PUT", "DELETE"):
        assert refusal(await orders.request(method, path))[0] == 404
    assert (await orders.request("DELETE", locked(reply))).status == 200


@covers("M4")
async def test_a_scheduled_message_waits_for_its_time(orders: RunningFrontEnd) -> None:
    await send(orders, ScheduledEnqueueTimeUtc="Sun, 06 Nov 2044 08:49:37 GMT")
    found = await orders.namespace.counts("orders")
    assert (found.active, found.scheduled) == (0, 1)
    assert (await orders.request("DELETE", f"{HEAD}?timeout=0")).status == 204


@covers("M5")
async def test_a_time_to_live_beyond_49_days_is_kept(orders: RunningFrontEnd) -> None:
    await send(orders, TimeToLive=100 * 86400)
    assert told(await orders.request("DELETE", HEAD))["TimeToLive"] == 100 * 86400


# Batches.


@covers("B1", "M1")
async def test_a_batch_is_stored_in_its_order(orders: RunningFrontEnd) -> None:
    batch = [
        {"Body": "one", "BrokerProperties": {"Label": "l1", "TimeToLive": 10}, "UserProperties": {"Priority": "Low"}},
        {"Body": "zwei \u00e4", "UserProperties": {"Count": 2, "Rate": 0.5, "Paid": False}},
        {"Body": "three", "BrokerProperties": None},
    ]
    sent = await orders.request("POST", "/orders/messages", json.dumps(batch), {"Content-Type": BATCH_TYPE})
    assert (sent.status, sent.body) == (201, b"")
    first, second, third = [await orders.request("DELETE", HEAD) for _ in range(3)]
    assert (first.text, told(first)["Label"], first.headers["Priority"]) == ("one", "l1", '"Low"')
    assert (second.text, second.headers["Count"], second.headers["Paid"]) == ("zwei \u00e4", "2", "false")
    assert "ContentType" not in told(second)
    assert third.text == "three"
    assert counted(orders)["send"] == (1, 3, 3)


@pytest.mark.parametrize(
    "batch",
    [
        "",
        "[]",
        "{}",
        "[1]",
        "[[]]",
        '[{"Body": "a"}, {"Body": 1}]',
        '[{"Body": "a"}, {"Body": {"a": 1}}]',
        '[{"Body": "a"}, {"body": "b"}]',
        '[{"Body": "a"}, {"Body": "\\ud800"}]',
        '[{"Body": "a"}, {"Body": "b", "BrokerProperties": []}]',
        '[{"Body": "a"}, {"Body": "b", "BrokerProperties": {"Subject": "s"}}]',
        '[{"Body": "a"}, {"Body": "b", "BrokerProperties": [1]}]',
        '[{"Body": "a"}, {"Body": "b", "BrokerProperties": {"TimeToLive": NaN}}]',
        '[{"Body": "a"}, {"Body": "b", "BrokerProperties": {"SessionId": "s", "PartitionKey": "p"}}]',
        '[{"Body": "a"}, {"Body": "b", "UserProperties": {"a": [1]}}]',
        '[{"Body": "a"}, {"Body": "b", "UserProperties": {"a": 1e999}}]',
        '[{"Body": "a"}, {"Body": "b", "Body": "c"}]',
        '[{"Body": "a"}, ' + "[" * 50_000,
        b"\xff\xfe",
    ],
)
async def test_of_a_batch_with_anything_wrong_nothing_is_stored(orders: RunningFrontEnd, batch: str | bytes) -> None:
    reply = await orders.request("POST", "/orders/messages", batch, {"Content-Type": BATCH_TYPE})
    assert refusal(reply)[0] == 400
    assert await counts(orders) == (0, 0)


async def test_an_unknown_key_is_called_one(orders: RunningFrontEnd) -> None:
    batch = {"Content-Type": BATCH_TYPE}
    reply = await orders.request("POST", "/orders/messages", '[{"Body": "a", "Label": "b"}]', batch)
    assert "'Label' is an unknown key" in refusal(reply)[1]
    reply = await orders.request("POST", "/orders/messages", b"a", {"BrokerProperties": '{"Subject": "s"}'})
    status, detail = refusal(reply)
    assert (status, "'Subject' is an unknown key" in detail) == (400, True)
    assert await counts(orders) == (0, 0)


async def test_a_batch_has_its_limits(tmp_path: Path) -> None:
    async with running_front_end(
        tmp_path, limits=Limits(max_batch_messages=300, max_message_size_bytes=1024)
    ) as running:
        await running.namespace.create_queue(QueueDescription("orders"))
        batches = {301: "[" + "{}," * 300 + "{}]", 300: "[" + "{}," * 299 + "{}]"}
        replies = {
            size: await running.request("POST", "/orders/messages", batch, {"Content-Type": BATCH_TYPE})
            for size, batch in batches.items()
        }
        assert refusal(replies[301])[0] == 400
        assert refusal(replies[300])[0] == 403
        assert await counts(running) == (0, 0)


# What is refused.


@pytest.mark.parametrize(
    "headers",
    [
        {"BrokerProperties": "{"},
        {"BrokerProperties": '{"MessageId": 1}'},
        {"BrokerProperties": '{"TimeToLive": NaN}'},
        {"BrokerProperties": json.dumps({"MessageId": "m" * 129})},
        {"BrokerProperties": json.dumps({"SessionId": "m" * 129})},
        {"BrokerProperties": json.dumps({"SessionId": "a", "PartitionKey": "b"})},
        {"BrokerProperties": json.dumps({"ContentType": "\u00e4"})},
        {"Content-Type": "text/pl\u00e4in"},
    ],
)
async def test_of_a_message_with_anything_wrong_nothing_is_stored(
    orders: RunningFrontEnd, headers: dict[str, str]
) -> None:
    assert refusal(await orders.request("POST", "/orders/messages", b"body", headers))[0] == 400
    assert await counts(orders) == (0, 0)


@pytest.mark.parametrize(
    "head",
    [
        b"BrokerProperties: {}\r\nBrokerProperties: {}\r\n",
        b"Customer: 1\r\ncustomer: 2\r\n",
        b"Customer: \xff\xfe\r\n",
        b"Cus tomer: 1\r\n",
        b"Customer: a\x00b\r\n",
        b"Customer: a\r b\r\n",
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"X: " + b"x" * 40_000 + b"\r\n",
        b"".join([b"X-%d: 1\r\n" % number for number in range(100)]),
    ],
)
async def test_a_head_that_could_be_read_in_two_ways_stores_nothing(orders: RunningFrontEnd, head: bytes) -> None:
    start = f"POST /orders/messages HTTP/1.1\r\nHost: h\r\nAuthorization: {orders.token()}\r\nConnection: close\r\n"
    answer = await orders.raw(start.encode() + head + b"Content-Length: 4\r\n\r\nbody")
    assert answer[9:12] in (b"400", b"431")
    assert await counts(orders) == (0, 0)


@covers("M13")
@pytest.mark.parametrize("is_chunked", [True, False])
async def test_a_body_above_the_limit_is_not_read(tmp_path: Path, is_chunked: bool) -> None:
    limits, timings = Limits(max_message_size_bytes=1024), HttpTimings(lingering_s=0.01)
    async with running_front_end(tmp_path, limits=limits, timings=timings) as running:
        await running.namespace.create_queue(QueueDescription("orders"))
        start = (
            f"POST /orders/messages HTTP/1.1\r\nHost: h\r\nAuthorization: {running.token()}\r\nConnection: close\r\n"
        )
        if is_chunked:
            rest = b"Transfer-Encoding: chunked\r\n\r\n" + (b"400\r\n" + b"x" * 1024 + b"\r\n") * 2
        else:
            rest = b"Content-Length: 1000000000\r\n\r\nx"
        answer = await running.raw(start.encode() + rest)
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert b"SubCode=40302" in answer
        size = b"more than 1024" if is_chunked else b"1000000000"
        assert b"delivery size: " + size + b" bytes" in answer
        assert await counts(running) == (0, 0)


async def test_a_message_that_is_just_too_large_with_its_properties_is_refused(tmp_path: Path) -> None:
    async with running_front_end(tmp_path, limits=Limits(max_message_size_bytes=1024)) as running:
        await running.namespace.create_queue(QueueDescription("orders"))
        status, told = refusal(await running.request("POST", "/orders/messages", b"x" * 1024, TEXT))
        size = re.search(r"delivery size: (\d+) bytes", told)
        assert size is not None, told
        assert (status, int(size[1]) > 1024) == (403, True)
        assert (await running.request("POST", "/orders/messages", b"x" * 900, TEXT)).status == 201
        assert await counts(running) == (1, 0)


async def test_a_compressed_body_is_refused(orders: RunningFrontEnd) -> None:
    headers = {"Content-Encoding": "gzip"}
    assert refusal(await orders.request("POST", "/orders/messages", b"body", headers))[0] == 415


@pytest.mark.parametrize("timeout", ["x", "-1", "1e3", "nan", "", "99999999999", "1;2"])
async def test_a_timeout_is_a_number_of_seconds(orders: RunningFrontEnd, timeout: str) -> None:
    assert refusal(await orders.request("DELETE", f"{HEAD}?timeout={timeout}"))[0] == 400
    assert refusal(await orders.request("POST", f"/orders/messages?timeout={timeout}", b"body"))[0] == 400
    assert await counts(orders) == (0, 0)


async def test_what_is_not_there_is_not_found(orders: RunningFrontEnd) -> None:
    token = uuid.uuid4()
    for method, path in (
        ("POST", "/nobody/messages"),
        ("POST", "/nobody/messages/head"),
        ("DELETE", "/nobody/messages/head"),
        ("DELETE", f"/nobody/messages/1/{token}"),
        ("DELETE", f"/orders/messages/1/{token}"),
        ("PUT", f"/orders/messages/1/{token}"),
        ("POST", f"/orders/messages/1/{token}"),
        ("POST", "/orders/$management/messages"),
    ):
        assert refusal(await orders.request(method, path, b"" if path.endswith("messages") else None))[0] == 404


async def test_nothing_is_sent_to_a_dead_letter_queue(orders: RunningFrontEnd) -> None:
    for path in ("$DeadLetterQueue", "$Transfer/$DeadLetterQueue"):
        assert refusal(await orders.request("POST", f"/orders/{path}/messages", b"body", TEXT))[0] == 400
    assert await counts(orders) == (0, 0)


@covers("M13")
async def test_a_disabled_queue_takes_and_gives_nothing(orders: RunningFrontEnd) -> None:
    await send(orders)
    await orders.namespace.update_queue(QueueDescription("orders", status=EntityStatus.DISABLED))
    for method, path in (("POST", "/orders/messages"), ("POST", HEAD), ("DELETE", HEAD)):
        status, detail = refusal(await orders.request(method, path, b"body", TEXT))
        assert (status, "SubCode=40301" in detail) == (403, True)
    assert await counts(orders) == (1, 0)


async def test_overload_says_when_to_come_again(orders: RunningFrontEnd) -> None:
    fragment = fragment_of(await orders.namespace.entity("orders"))
    fragment.failure = ServerBusy("too much at once")
    for method, path in (("POST", "/orders/messages"), ("POST", HEAD)):
        reply = await orders.request(method, path, b"body", TEXT)
        assert refusal(reply)[0] == 503
        assert reply.headers["Retry-After"] == "10"


@covers("M15")
async def test_each_operation_needs_its_own_right(orders: RunningFrontEnd) -> None:
    policies = {
        "sends": (Right.SEND, "c2VuZHM="),
        "listens": (Right.LISTEN, "bGlzdGVucw=="),
        "manages": (Right.MANAGE, "bWFuYWdlcw=="),
    }
    orders.authorizer.set_policies(
        "orders", [Policy(name, key, "", frozenset([right])) for name, (right, key) in policies.items()]
    )
    lock = f"/orders/messages/1/{uuid.uuid4()}"
    needs = [
        ("POST", "/orders/messages", "sends"),
        ("POST", f"{HEAD}?timeout=0", "listens"),
        ("DELETE", f"{HEAD}?timeout=0", "listens"),
        ("POST", lock, "listens"),
        ("PUT", lock, "listens"),
        ("DELETE", lock, "listens"),
    ]
    for method, path, needed in needs:
        body = b"body" if path == "/orders/messages" else None
        for policy, (_, key) in policies.items():
            for scope in ("orders", "orders/messages", path[1:].partition("?")[0]):
                reply = await orders.request(method, path, body, token=orders.token(scope, policy, key))
                assert (reply.status == 401) == (policy not in (needed, "manages")), (method, path, policy, scope)
            other = orders.token("orders/$deadletterqueue", policy, key)
            assert (await orders.request(method, path, body, token=other)).status == 401
        for token in (None, orders.token("orders2"), orders.token("order"), orders.token(lifetime_s=-1.0)):
            assert refusal(await orders.request(method, path, body, token=token))[0] == 401


# Waiting.


@covers("B1")
@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_a_receiver_waits_until_a_message_comes(orders: RunningFrontEnd, method: str) -> None:
    receiving = asyncio.create_task(orders.request(method, HEAD))
    await waiting(orders)
    turns = orders.namespace.brokers[0].commit_count
    await send(orders)
    reply = await receiving
    assert (reply.status, reply.body) == (201 if method == "POST" else 200, b"one")
    assert orders.namespace.brokers[0].commit_count - turns <= 2
    await nobody_waits(orders)


async def test_messages_are_shared_among_those_who_wait(orders: RunningFrontEnd) -> None:
    receiving = [asyncio.create_task(orders.request("DELETE", HEAD)) for _ in range(5)]
    entity = await orders.namespace.entity("orders")
    while len(entity.links) < 5:
        await orders.namespace.brokers[0].next_turn()
    for number in range(5):
        await send(orders, str(number))
    assert sorted([reply.text for reply in await asyncio.gather(*receiving)]) == ["0", "1", "2", "3", "4"]
    await nobody_waits(orders)


@covers("N11")
@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize("timeout", ["0", "0.01"])
async def test_a_receiver_that_has_waited_enough_gets_nothing(
    orders: RunningFrontEnd, method: str, timeout: str
) -> None:
    reply = await orders.request(method, f"{HEAD}?timeout={timeout}")
    assert (reply.status, reply.body) == (204, b"")
    await nobody_waits(orders)
    assert counted(orders)["empty_receive"] == (1, 0, 1)


@pytest.mark.parametrize("limits", [Limits(window_messages=1), Limits(window_messages=3), Limits(window_bytes=1)])
async def test_what_is_there_comes_even_to_who_does_not_wait(tmp_path: Path, limits: Limits) -> None:
    async with running_front_end(tmp_path, limits=limits) as running:
        await running.namespace.create_queue(QueueDescription("orders"))
        for number in range(5):
            await send(running, str(number))
        replies = [await running.request("DELETE", f"{HEAD}?timeout=0") for _ in range(6)]
        assert [reply.text for reply in replies] == ["0", "1", "2", "3", "4", ""]


async def test_the_longest_wait_is_a_setting(tmp_path: Path) -> None:
    async with running_front_end(tmp_path, limits=Limits(max_receive_wait_s=0.01)) as running:
        await running.namespace.create_queue(QueueDescription("orders"))
        assert (await running.request("DELETE", f"{HEAD}?timeout=600")).status == 204
        assert (await running.request("DELETE", HEAD)).status == 204


async def test_a_wait_may_be_longer_than_strangers_are_given(tmp_path: Path) -> None:
    async with running_front_end(tmp_path, limits=Limits(pre_auth_timeout_s=0.05)) as running:
        await running.namespace.create_queue(QueueDescription("orders"))
        assert (await running.request("DELETE", f"{HEAD}?timeout=0.2")).status == 204


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_who_leaves_while_it_waits_gets_no_message(orders: RunningFrontEnd, method: str) -> None:
    _reader, writer = await asyncio.open_connection("127.0.0.1", orders.port)
    writer.write(f"{method} {HEAD} HTTP/1.1\r\nHost: h\r\nAuthorization: {orders.token()}\r\n\r\n".encode())
    await waiting(orders)
    writer.transport.abort()
    await nobody_waits(orders)
    await send(orders)
    reply = await orders.request("POST", f"{HEAD}?timeout=0")
    assert (reply.status, told(reply)["DeliveryCount"]) == (201, 1)


async def test_a_message_taken_for_who_has_left_goes_back_uncounted(orders: RunningFrontEnd) -> None:
    await send(orders)
    entity = await orders.namespace.entity("orders")
    receiver = HeadReceiver(entity, MAIN, False, orders.clock, LargeMemory())
    assert await receiver.wait(10.0)
    assert (await orders.request("POST", f"{HEAD}?timeout=0")).status == 204
    receiver.give_back()
    reply = await orders.request("POST", HEAD)
    assert (reply.status, told(reply)["DeliveryCount"]) == (201, 1)


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_a_queue_that_is_deleted_ends_the_wait(orders: RunningFrontEnd, method: str) -> None:
    receiving = asyncio.create_task(orders.request(method, HEAD))
    await waiting(orders)
    await orders.namespace.delete_queue("orders")
    assert refusal(await receiving)[0] == 410


async def test_a_queue_that_is_disabled_ends_the_wait(orders: RunningFrontEnd) -> None:
    receiving = asyncio.create_task(orders.request("POST", HEAD))
    await waiting(orders)
    await orders.namespace.update_queue(QueueDescription("orders", status=EntityStatus.RECEIVE_DISABLED))
    assert refusal(await receiving)[0] == 403


@covers("M15")
async def test_a_token_that_expires_ends_the_wait(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_front_end(tmp_path, clock=clock, limits=Limits(token_check_interval_s=0.01)) as running:
        await running.namespace.create_queue(QueueDescription("orders"))
        token = running.token(lifetime_s=30.0)
        receiving = asyncio.create_task(running.request("POST", HEAD, token=token))
        await waiting(running)
        clock.advance(31.0)
        assert refusal(await receiving)[0] == 401
        await nobody_waits(running)


async def test_the_namespace_s_stop_ends_the_wait(orders: RunningFrontEnd) -> None:
    receiving = asyncio.create_task(orders.request("DELETE", HEAD))
    await waiting(orders)
    await orders.runner.shutdown()
    assert (await receiving).status == 204
    assert (await orders.request("DELETE", HEAD)).status == 204


# Messages that did not come over HTTP.


@pytest.mark.parametrize(
    ("value", "body", "content_type"),
    [
        ("text \u00e4", "text \u00e4".encode(), "text/plain;charset=utf-8"),
        (b"bytes", b"bytes", "application/octet-stream"),
        ({"a": [1, None, symbol("s")]}, b'{"a": [1, null, "s"]}', "application/json"),
        (None, b"null", "application/json"),
    ],
)
async def test_other_bodies_come_as_what_http_has_for_them(
    orders: RunningFrontEnd, value: object, body: bytes, content_type: str
) -> None:
    await amqp_send(orders, amqp_value_section(value))
    reply = await orders.request("DELETE", HEAD)
    assert (reply.body, reply.headers["Content-Type"]) == (body, content_type)


@covers("M15")
async def test_a_message_cannot_write_headers_of_its_own(orders: RunningFrontEnd) -> None:
    evil = "a\r\nSet-Cookie: evil=1"
    await amqp_send(
        orders,
        properties_section(message_id=evil, subject=evil, content_type=evil)
        + application_properties_section(
            {evil: evil, "Transfer-Encoding": "chunked", "Content-Length": 0, "Safe": evil}
        )
        + amqp_value_section("body"),
    )
    reply = await orders.request("POST", HEAD)
    assert (reply.status, reply.body) == (201, b"body")
    assert "Set-Cookie" not in reply.headers
    assert "Transfer-Encoding" not in reply.headers
    assert json.loads(reply.headers["Safe"]) == evil
    assert json.loads(reply.headers["UserProperties"])[evil] == evil
    assert (told(reply)["MessageId"], told(reply)["Label"], told(reply)["ContentType"]) == (evil, evil, evil)
    assert (await orders.request("DELETE", locked(reply))).status == 200


# What it costs.


@covers("M14")
async def test_every_operation_is_counted_as_over_amqp(orders: RunningFrontEnd) -> None:
    await send(orders, "x" * 70_000)
    reply = await orders.request("POST", HEAD)
    await orders.request("POST", locked(reply))
    await orders.request("PUT", locked(reply))
    reply = await orders.request("POST", HEAD)
    await orders.request("DELETE", locked(reply))
    assert counted(orders) == {
        "send": (1, 1, 2),
        "receive": (2, 2, 4),
        "renew_lock": (1, 1, 1),
        "abandon": (1, 1, 1),
        "complete": (1, 1, 1),
    }


@covers("M14")
async def test_a_ping_is_counted_apart_and_not_kept(orders: RunningFrontEnd) -> None:
    await send(orders, "", ContentType="application/vnd.ms-servicebus-ping")
    assert [(row.operation, row.reason) for row in orders.meter.totals().since_start] == [("send", "ping")]
    assert await counts(orders) == (0, 0)


@covers("B1", "M15")
@pytest.mark.parametrize("policy", ["entity", "namespace"])
async def test_a_token_for_an_entity_called_messages_opens_nothing_above_it(
    orders: RunningFrontEnd, policy: str
) -> None:
    inner = "orders/messages"
    await orders.namespace.create_queue(QueueDescription(inner))
    orders.authorizer.set_policies(inner, [Policy("entity", "a2V5", "", frozenset([Right.SEND, Right.LISTEN]))])
    token = orders.token(inner, "entity", "a2V5") if policy == "entity" else orders.token(inner)
    for method, path in (("POST", "/orders/messages"), ("POST", HEAD), ("DELETE", f"{HEAD}?timeout=0")):
        assert refusal(await orders.request(method, path, b"body", TEXT, token))[0] == 401
    assert (await orders.request("POST", f"/{inner}/messages", b"body", TEXT, token)).status == 201
    assert (await orders.request("DELETE", f"/{inner}/messages/head", token=token)).body == b"body"


async def test_names_that_would_hide_behind_message_addresses_are_refused(orders: RunningFrontEnd) -> None:
    for name in ("a/messages/head", "a/Messages/17"):
        assert refusal(await orders.request("PUT", f"/{name}", queue_body()))[0] == 400
    assert (await orders.request("PUT", "/a/messages", queue_body())).status == 201
    assert (await orders.request("GET", "/a/messages")).status == 200
    assert (await orders.request("POST", "/a/messages/messages", b"body", TEXT)).status == 201
    assert (await orders.request("DELETE", "/a/messages/messages/head")).body == b"body"
