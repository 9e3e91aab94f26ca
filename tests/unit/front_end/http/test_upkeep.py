"""Purging, deleting one message, and resubmitting dead letters."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tandembus.amqp.encoding.sections import data_section
from tandembus.broker.locks import DEFER
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.broker.transfer_destination import set_destination
from tandembus.clock import ManualClock
from tandembus.descriptions import (
    AuthorizationRule,
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.front_end.http.rest_message import BATCH_TYPE
from tandembus.limits import Limits
from tandembus.message import parse_message
from tandembus.namespace.policies import KeyKind
from tandembus.security.claims import Policy, Right
from tests.covers import covers
from tests.unit.front_end.http.harness import Reply, RunningFrontEnd, running_front_end
from tests.unit.front_end.http.test_messages import HEAD, broker, counted, locked, send, told
from tests.unit.front_end.http.test_server import refusal
from tests.unit.namespace.entity_fragment import fragment_of

ORDERS = QueueDescription("orders", max_delivery_count=1)
DEAD = "/orders/$DeadLetterQueue"


@pytest.fixture
async def orders(tmp_path: Path) -> AsyncIterator[RunningFrontEnd]:
    async with running_front_end(tmp_path, clock=ManualClock()) as running:
        await running.namespace.create_queue(ORDERS)
        yield running


async def die(orders: RunningFrontEnd, *bodies: str, **properties: object) -> None:
    """Messages that end among the dead letters."""
    for body in bodies:
        await send(orders, body, **properties)
        assert (await orders.request("PUT", locked(await orders.request("POST", HEAD)))).status == 200


async def bodies(orders: RunningFrontEnd, path: str) -> list[str]:
    """What is received from there until nothing is left."""
    found = []
    while (reply := await orders.request("DELETE", f"{path}/messages/head?timeout=0")).status == 200:
        found.append(reply.text)
    return found


async def counts(orders: RunningFrontEnd, name: str = "orders") -> tuple[int, int, int]:
    found = await orders.namespace.counts(name)
    return found.active, found.scheduled, found.dead_letter


def lines(reply: Reply) -> list[dict[str, Any]]:
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/x-ndjson")
    return [json.loads(line) for line in reply.body.splitlines()]


# Purging.


@covers("M1")
async def test_a_purge_removes_what_waits_and_nothing_else(orders: RunningFrontEnd) -> None:
    await die(orders, "dead")
    for number in range(5):
        await send(orders, str(number))
    await send(orders, "later", ScheduledEnqueueTimeUtc="Sun, 06 Nov 2044 08:49:37 GMT")
    held = await orders.request("POST", HEAD)
    reply = await orders.request("POST", "/Orders/$purge")
    assert (reply.status, json.loads(reply.body)) == (200, {"entity": "orders", "purged": 4})
    assert await counts(orders) == (1, 1, 1)
    assert (await orders.request("DELETE", locked(held))).status == 200
    reply = await orders.request("POST", f"{DEAD}/$Purge")
    assert json.loads(reply.body) == {"entity": "orders/$DeadLetterQueue", "purged": 1}
    assert await counts(orders) == (0, 1, 0)
    assert counted(orders)["delete_batch"] == (2, 5, 5)


# Deleting one.


@covers("M1")
async def test_one_message_is_deleted_by_its_number(orders: RunningFrontEnd) -> None:
    for body in "abc":
        await send(orders, body)
    assert (await orders.request("DELETE", "/orders/messages/2")).status == 200
    assert refusal(await orders.request("DELETE", "/orders/messages/2"))[0] == 404
    assert await bodies(orders, "/orders") == ["a", "c"]


async def test_a_dead_letter_is_deleted_by_its_number(orders: RunningFrontEnd) -> None:
    await die(orders, "a", "b")
    assert (await orders.request("DELETE", f"{DEAD}/messages/1")).status == 200
    assert await bodies(orders, DEAD) == ["b"]


async def test_scheduled_and_deferred_messages_are_deleted_by_their_number(orders: RunningFrontEnd) -> None:
    await orders.namespace.update_queue(replace(ORDERS, max_delivery_count=2))
    await send(orders, "later", ScheduledEnqueueTimeUtc="Sun, 06 Nov 2044 08:49:37 GMT")
    await send(orders, "aside")
    entity = await orders.namespace.entity("orders")
    reply = await orders.request("POST", HEAD)
    token = uuid.UUID(told(reply)["LockToken"]).bytes_le
    fragment_of(entity).settle(fragment_of(entity).find_lock(token), DEFER, None)
    await orders.namespace.brokers[0].finish_staged()
    assert told(reply)["SequenceNumber"] == 2
    for number in (1, 2):
        assert (await orders.request("DELETE", f"/orders/messages/{number}")).status == 200
    assert await counts(orders) == (0, 0, 0)


async def test_a_locked_message_is_not_deleted_behind_its_receiver_s_back(orders: RunningFrontEnd) -> None:
    await send(orders)
    reply = await orders.request("POST", HEAD)
    status, detail = refusal(await orders.request("DELETE", "/orders/messages/1"))
    assert (status, "locked" in detail) == (400, True)
    assert (await orders.request("DELETE", locked(reply))).status == 200


@pytest.mark.parametrize("number", [0, 1, 99, 2**47, 2**48 + 1, 2**63, 10**19 - 1])
async def test_a_number_that_nobody_has_is_not_found(orders: RunningFrontEnd, number: int) -> None:
    assert refusal(await orders.request("DELETE", f"/orders/messages/{number}"))[0] == 404


# Resubmitting.


@covers("M3")
async def test_dead_letters_go_back_to_their_queue_as_they_were_sent(orders: RunningFrontEnd) -> None:
    await die(orders, "a", MessageId="m1", Label="l1", CorrelationId="c1")
    await orders.request("POST", "/orders/messages", b"b", {**broker(SessionId="s"), "Customer": "12"})
    await orders.request("PUT", locked(await orders.request("POST", HEAD)))
    assert await counts(orders) == (0, 0, 2)
    assert lines(await orders.request("POST", f"{DEAD}/$resubmit")) == [
        {"moved": 2, "refused": 0},
        {"moved": 2, "refused": 0, "done": True},
    ]
    first, second = [await orders.request("DELETE", HEAD) for _ in range(2)]
    assert (first.text, told(first)["MessageId"], told(first)["Label"]) == ("a", "m1", "l1")
    assert (told(first)["CorrelationId"], told(first)["DeliveryCount"]) == ("c1", 1)
    assert "DeadLetterReason" not in first.headers
    assert (second.text, second.headers["Customer"], told(second)["SessionId"]) == ("b", "12", "s")
    assert await counts(orders) == (0, 0, 0)


async def test_dead_letters_go_to_another_queue_where_asked(orders: RunningFrontEnd) -> None:
    await orders.namespace.create_queue(QueueDescription("again"))
    await die(orders, "a", "b", "c")
    reply = await orders.request("POST", f"{DEAD}/$resubmit?to=Again&max=2")
    assert lines(reply)[-1] == {"moved": 2, "refused": 0, "done": True}
    assert await counts(orders) == (0, 0, 1)
    assert await bodies(orders, "/again") == ["a", "b"]


@covers("M15")
@pytest.mark.parametrize("how", ["key", "status"])
async def test_what_is_no_longer_allowed_goes_no_further(orders: RunningFrontEnd, how: str) -> None:
    namespace = orders.namespace
    await namespace.create_queue(QueueDescription("mortal", dead_lettering_on_message_expiration=True))
    again = (await namespace.create_queue(QueueDescription("again"))).description
    policy = await namespace.put_policy(AuthorizationRule("once", "", "", frozenset(["Send", "Listen"])))
    batch = json.dumps([{"Body": "x", "BrokerProperties": {"TimeToLive": 1}}] * 2000)
    await orders.request("POST", "/mortal/messages", batch, {"Content-Type": BATCH_TYPE})
    assert isinstance(orders.clock, ManualClock)
    orders.clock.advance(2.0)
    await namespace.brokers[0].catch_up()
    assert await counts(orders, "mortal") == (0, 0, 2000)
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"http://127.0.0.1:{orders.port}/mortal/$DeadLetterQueue/$resubmit?to=again",
            headers={"Authorization": orders.token("", "once", policy.primary_key)},
        ) as response,
    ):
        await response.content.readline()
        if how == "key":
            await namespace.regenerate_key("once", KeyKind.PRIMARY)
        else:
            await namespace.update_queue(replace(again, status=EntityStatus.SEND_DISABLED))
        last = json.loads((await response.content.read()).splitlines()[-1])
    assert last["done"] is False
    assert ("no longer valid" if how == "key" else "disabled") in last["error"]
    assert 100 <= last["moved"] < 2000
    assert (await counts(orders, "mortal"))[2] == 2000 - last["moved"]


async def test_progress_is_told_slice_by_slice(orders: RunningFrontEnd) -> None:
    batch = json.dumps([{"Body": str(number)} for number in range(250)])
    await orders.request("POST", "/orders/messages", batch, {"Content-Type": BATCH_TYPE})
    for _ in range(250):
        await orders.request("PUT", locked(await orders.request("POST", HEAD)))
    moved = [line["moved"] for line in lines(await orders.request("POST", f"{DEAD}/$resubmit"))]
    assert moved == [100, 200, 250, 250]
    assert await counts(orders) == (250, 0, 0)


async def test_what_the_target_refuses_stays_and_is_named(orders: RunningFrontEnd) -> None:
    await orders.namespace.create_queue(QueueDescription("small"))
    await die(orders, "a")
    entity = await orders.namespace.entity("small")
    fragment_of(entity).settings.max_size_bytes = 0
    reply = lines(await orders.request("POST", f"{DEAD}/$resubmit?to=small"))
    assert (reply[-1]["moved"], reply[-1]["refused"], reply[-1]["done"]) == (0, 1, True)
    assert reply[-1]["refusals"][0]["sequence_number"] == 1
    assert "maximum entity size" in reply[-1]["refusals"][0]["error"]
    assert await counts(orders) == (0, 0, 1)
    assert await bodies(orders, DEAD) == ["a"]


@covers("M10", "M11")
async def test_what_was_sent_via_the_queue_for_another_one_does_not_end_in_the_queue(orders: RunningFrontEnd) -> None:
    fragment = fragment_of(await orders.namespace.entity("orders"))
    message = parse_message(data_section(b"for another"))
    set_destination(message, "gone")
    fragment.send(
        SendOperation([message], len(message.sections), CallbackSendReply(lambda _one, _error: None), 0, True)
    )
    while (await orders.namespace.counts("orders")).transfer_dead_letter == 0:
        await orders.namespace.brokers[0].next_turn()
    path = "/orders/$Transfer/$DeadLetterQueue/$resubmit"
    last = lines(await orders.request("POST", path))[-1]
    assert (last["moved"], last["refused"], "'gone'" in last["refusals"][0]["error"]) == (0, 1, True)
    assert lines(await orders.request("POST", f"{path}?to=orders"))[-1]["moved"] == 1
    assert await bodies(orders, "/orders") == ["for another"]


async def test_locked_dead_letters_are_left_to_who_holds_them(orders: RunningFrontEnd) -> None:
    await die(orders, "a", "b")
    held = await orders.request("POST", f"{DEAD}/messages/head")
    assert lines(await orders.request("POST", f"{DEAD}/$resubmit"))[-1]["moved"] == 1
    assert (await orders.request("DELETE", locked(held))).status == 200
    assert await bodies(orders, "/orders") == ["b"]


async def test_nothing_is_moved_where_there_is_nothing(orders: RunningFrontEnd) -> None:
    assert lines(await orders.request("POST", f"{DEAD}/$resubmit")) == [{"moved": 0, "refused": 0, "done": True}]


@covers("M8")
@pytest.mark.parametrize("to", ["", "?to=other"])
async def test_what_the_target_would_drop_as_a_duplicate_stays(orders: RunningFrontEnd, to: str) -> None:
    for name in ("strict", "other"):
        await orders.namespace.create_queue(
            QueueDescription(name, max_delivery_count=1, requires_duplicate_detection=True)
        )
        await orders.request("POST", f"/{name}/messages", b"a", broker(MessageId="m1"))
    await orders.request("PUT", locked(await orders.request("POST", "/strict/messages/head")))
    last = lines(await orders.request("POST", f"/strict/$DeadLetterQueue/$resubmit{to}"))[-1]
    assert (last["moved"], last["refused"], "as a duplicate" in last["refusals"][0]["error"]) == (0, 1, True)
    assert "subscription" not in last["refusals"][0]["error"]
    assert await counts(orders, "strict") == (0, 0, 1)
    assert await bodies(orders, "/strict/$DeadLetterQueue") == ["a"]


@covers("M9")
async def test_dead_letters_of_a_subscription_go_through_its_topic_unless_nobody_takes_them(
    orders: RunningFrontEnd,
) -> None:
    namespace = orders.namespace
    await namespace.create_topic(TopicDescription("events"))
    await namespace.create_subscription(SubscriptionDescription("events", "audit", max_delivery_count=1))
    audit, dead = "/events/subscriptions/audit", "/events/subscriptions/audit/$DeadLetterQueue"
    for body in "ab":
        await orders.request("POST", "/events/messages", body, broker(Label=body))
        await orders.request("PUT", locked(await orders.request("POST", f"{audit}/messages/head")))
    await namespace.update_rule("events", "audit", RuleDescription("$Default", SqlFilter("sys.Label = 'b'")))
    last = lines(await orders.request("POST", f"{dead}/$resubmit"))[-1]
    assert (last["moved"], last["refused"], "no subscription" in last["refusals"][0]["error"]) == (1, 1, True)
    assert await bodies(orders, audit) == ["b"]
    assert lines(await orders.request("POST", f"{dead}/$resubmit?to=orders"))[-1]["moved"] == 1
    assert await bodies(orders, "/orders") == ["a"]
    assert await bodies(orders, dead) == []


@covers("M9")
async def test_messages_of_a_subscription_are_purged_and_deleted_for_it_alone(orders: RunningFrontEnd) -> None:
    await orders.namespace.create_topic(TopicDescription("events"))
    for name in ("one", "two"):
        await orders.namespace.create_subscription(SubscriptionDescription("events", name))
    for body in "abc":
        await orders.request("POST", "/events/messages", body, broker())
    assert (await orders.request("DELETE", "/events/subscriptions/one/messages/2")).status == 200
    reply = await orders.request("POST", "/events/subscriptions/one/$purge")
    assert json.loads(reply.body) == {"entity": "events/Subscriptions/one", "purged": 2}
    assert await bodies(orders, "/events/subscriptions/one") == []
    assert await bodies(orders, "/events/subscriptions/two") == ["a", "b", "c"]


@covers("M7")
async def test_messages_in_sessions_are_purged_deleted_and_resubmitted_without_one(orders: RunningFrontEnd) -> None:
    await orders.namespace.create_queue(QueueDescription("grouped", requires_session=True))
    for body in "abc":
        await orders.request("POST", "/grouped/messages", body, broker(SessionId=body))
    assert (await orders.request("DELETE", "/grouped/messages/2")).status == 200
    assert json.loads((await orders.request("POST", "/grouped/$purge")).body)["purged"] == 2
    await die(orders, "with", SessionId="s")
    await die(orders, "without")
    last = lines(await orders.request("POST", f"{DEAD}/$resubmit?to=grouped"))[-1]
    assert (last["moved"], last["refused"]) == (1, 1)
    assert await counts(orders, "grouped") == (1, 0, 0)
    assert await bodies(orders, DEAD) == ["without"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/orders/$resubmit", 400),
        (f"{DEAD}/$resubmit?max=0", 400),
        (f"{DEAD}/$resubmit?max=x", 400),
        (f"{DEAD}/$resubmit?to=nobody", 404),
        (f"{DEAD}/$resubmit?to=orders/$DeadLetterQueue", 400),
        (f"{DEAD}/$resubmit?to=orders/$management", 400),
        ("/nobody/$DeadLetterQueue/$resubmit", 404),
        ("/nobody/$purge", 404),
    ],
)
async def test_what_makes_no_sense_is_refused_and_moves_nothing(
    orders: RunningFrontEnd, path: str, status: int
) -> None:
    await die(orders, "a")
    assert refusal(await orders.request("POST", path))[0] == status
    assert await counts(orders) == (0, 0, 1)


@covers("M13")
async def test_a_disabled_target_takes_nothing(orders: RunningFrontEnd) -> None:
    await die(orders, "a")
    await orders.namespace.create_queue(QueueDescription("again", status=EntityStatus.SEND_DISABLED))
    assert refusal(await orders.request("POST", f"{DEAD}/$resubmit?to=again"))[0] == 403
    await orders.namespace.update_queue(replace(ORDERS, status=EntityStatus.RECEIVE_DISABLED))
    for method, path in (("POST", "/orders/$purge"), ("DELETE", "/orders/messages/1")):
        assert refusal(await orders.request(method, path))[0] == 403
    assert await counts(orders) == (0, 0, 1)


@covers("M15")
async def test_each_needs_listen_and_resubmitting_needs_send_on_the_target(orders: RunningFrontEnd) -> None:
    await orders.namespace.create_queue(QueueDescription("again"))
    listens, both = "bGlzdGVucw==", "Ym90aA=="
    for name in ("orders", "again"):
        orders.authorizer.set_policies(
            name,
            [
                Policy("listens", listens, "", frozenset([Right.LISTEN])),
                Policy("both", both, "", frozenset([Right.LISTEN, Right.SEND])),
                Policy("sends", "c2VuZHM=", "", frozenset([Right.SEND])),
            ],
        )
    await die(orders, "a")
    sends = orders.token("orders", "sends", "c2VuZHM=")
    for method, path in (
        ("POST", "/orders/$purge"),
        ("POST", f"{DEAD}/$purge"),
        ("DELETE", f"{DEAD}/messages/1"),
        ("POST", f"{DEAD}/$resubmit"),
    ):
        for token in (None, sends, orders.token("again", "both", both), orders.token("order")):
            assert refusal(await orders.request(method, path, token=token))[0] == 401
    only_listens = orders.token("orders", "listens", listens)
    assert (await orders.request("POST", f"{DEAD}/$resubmit", token=only_listens)).status == 401
    of_orders = orders.token("orders", "both", both)
    assert (await orders.request("POST", f"{DEAD}/$resubmit?to=again", token=of_orders)).status == 401
    assert await counts(orders) == (0, 0, 1)
    wrong = {"ServiceBusSupplementaryAuthorization": orders.token("again", "listens", listens)}
    path = f"{DEAD}/$resubmit?to=again"
    assert (await orders.request("POST", path, headers=wrong, token=of_orders)).status == 401
    right = {"ServiceBusSupplementaryAuthorization": orders.token("again", "sends", "c2VuZHM=")}
    assert lines(await orders.request("POST", path, headers=right, token=only_listens))[-1]["moved"] == 1
    assert await bodies(orders, "/again") == ["a"]


@covers("M14")
async def test_resubmitting_is_counted_as_receiving_completing_and_sending(tmp_path: Path) -> None:
    async with running_front_end(tmp_path, clock=ManualClock(), limits=Limits()) as running:
        await running.namespace.create_queue(ORDERS)
        await running.namespace.create_queue(QueueDescription("again"))
        await die(running, "a", "b")
        before = counted(running)
        await running.request("POST", f"{DEAD}/$resubmit?to=again")
        after = counted(running)
        assert after["receive"][1] - before["receive"][1] == 2
        assert after["complete"] == (1, 2, 2)
        rows = [row for row in running.meter.totals().since_start if row.entity == "again"]
        assert [(row.operation, row.count.messages) for row in rows] == [("send", 2)]
