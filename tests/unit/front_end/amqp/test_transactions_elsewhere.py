"""Transactions beyond the links of one entity: its management node, and messages sent via it."""

from __future__ import annotations

import uuid

import pytest

from tandembus.amqp.encoding import Array, Described, int_, symbol
from tandembus.broker.transfer_destination import destination_of
from tandembus.descriptions import SubscriptionDescription, TopicDescription
from tandembus.security.sas import make_token
from tandembus.store.messaging_store import DEAD_LETTER, TRANSFER
from tests.covers import covers
from tests.unit.front_end.amqp.transacting import (
    ACCEPTED,
    KEY,
    NOT_ALLOWED,
    UNKNOWN_ID,
    Server,
    TransactionClient,
    code_of,
    is_doomed,
    received,
    waiting,
)


def disposition(token: bytes, status: str = "completed") -> dict[object, object]:
    tokens: list[object] = [uuid.UUID(bytes_le=token)]
    return {"disposition-status": status, "lock-tokens": Array(0x98, tokens)}


@covers("M11")
async def test_a_settlement_through_the_management_node_can_be_part_of_a_transaction(
    server: Server, client: TransactionClient
) -> None:
    await server.life.send("orders", "a", "b")
    locks = await server.life.receive("orders", 2)
    node = await client.node("orders")
    txn, other = await client.declare(), await client.declare()
    operation = "com.microsoft:update-disposition"
    assert await client.ask(node, operation, disposition(locks[0].token), txn) == (200, "")
    assert await client.ask(node, operation, disposition(locks[1].token, "suspended"), other) == (200, "")
    assert await waiting(server) == ["a", "b"]
    await client.roll_back(other)
    await client.commit(txn)
    assert await waiting(server) == ["b"]
    assert await waiting(server, lane=DEAD_LETTER) == []


@covers("M11")
async def test_requests_that_change_nothing_may_be_made_during_a_transaction(
    server: Server, client: TransactionClient
) -> None:
    await server.life.send("orders", "a")
    node = await client.node("orders")
    txn = await client.declare()
    body = {"from-sequence-number": 1, "message-count": int_(5)}
    assert await client.ask(node, "com.microsoft:peek-message", body, txn) == (200, "")
    await client.commit(txn)


@covers("M11")
@pytest.mark.parametrize(
    ("operation", "condition"),
    [
        ("com.microsoft:schedule-message", (400, "com.microsoft:argument-error")),
        ("com.microsoft:cancel-scheduled-message", (400, "com.microsoft:argument-error")),
        ("com.microsoft:set-session-state", (400, NOT_ALLOWED)),
        ("com.microsoft:receive-by-sequence-number", (400, NOT_ALLOWED)),
        ("com.microsoft:batch-delete-messages", (400, NOT_ALLOWED)),
        ("com.microsoft:no-such-thing", (501, "amqp:not-implemented")),
    ],
)
async def test_other_requests_cannot_be_part_of_a_transaction_and_doom_it(
    server: Server, client: TransactionClient, operation: str, condition: tuple[int, str]
) -> None:
    sender, node = await client.sender("orders"), await client.node("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "a")
    assert await client.ask(node, operation, {}, txn) == condition
    await is_doomed(client, txn)


@covers("M11", "M9")
@pytest.mark.parametrize("operation", ["add-rule", "remove-rule"])
async def test_rules_are_not_changed_in_a_transaction(client: TransactionClient, operation: str) -> None:
    namespace = client.server.life.namespace
    await namespace.create_topic(TopicDescription("news"))
    await namespace.create_subscription(SubscriptionDescription("news", "all"))
    node = await client.node("news/subscriptions/all")
    txn = await client.declare()
    body = {"rule-name": "$Default"}
    assert await client.ask(node, f"com.microsoft:{operation}", body, txn) == (400, NOT_ALLOWED)
    assert len(namespace.rules("news", "all")) == 1
    await is_doomed(client, txn)


@covers("M11")
async def test_a_request_in_an_unknown_transaction_is_refused(server: Server, client: TransactionClient) -> None:
    await server.life.send("orders", "a")
    (lock,) = await server.life.receive("orders", 1)
    node = await client.node("orders")
    found = await client.ask(node, "com.microsoft:update-disposition", disposition(lock.token), b"nobody's")
    assert found == (404, UNKNOWN_ID)
    assert await waiting(server) == ["a"]


@covers("M11")
async def test_what_is_sent_via_an_entity_waits_there_with_its_destination(
    server: Server, client: TransactionClient
) -> None:
    via = await client.sender("Bills", via="orders")
    assert code_of(await client.send(via, "outside")) == ACCEPTED
    (delivery_id,) = await received(client, "a")
    txn = await client.declare()
    await client.settle_in(txn, delivery_id)
    await client.send_in(txn, via, "inside")
    await client.commit(txn)
    await client.echo_of(delivery_id)
    assert await waiting(server) == []
    bodies = server.life.machine.disk.bodies
    sent = [one for key, one in bodies.items() if key[1] == TRANSFER]
    assert len(sent) == 2
    assert {destination_of(one) for one in sent} == {"Bills"}


@covers("M11", "M15")
@pytest.mark.parametrize("audience", ["orders", "bills"])
async def test_sending_via_needs_the_right_to_send_to_both(server: Server, audience: str) -> None:
    await server.client("root", "orders", "bills")
    client = await server.client("listens")
    claims = server.authorizer.verify_token(_token(server, audience), f"sb://bus/{audience}", server.life.clock.now())
    client.connection.held.put(audience, claims)
    properties: dict[str, object] = {"com.microsoft:transfer-destination-address": "bills"}
    await client.attach(False, Described(0x28, ["me"]), Described(0x29, ["orders"]), properties)
    assert await client.refusal() == "amqp:unauthorized-access"


def _token(server: Server, path: str) -> str:
    return make_token(f"sb://bus/{path}", "sends", KEY, int(server.life.clock.now() + 60))


@covers("M11")
@pytest.mark.parametrize(
    ("destination", "condition"),
    [
        ("nowhere", "amqp:not-found"),
        ("bills/$DeadLetterQueue", NOT_ALLOWED),
        ("bills/$management", NOT_ALLOWED),
        ("", "com.microsoft:argument-error"),
        (5, "com.microsoft:argument-error"),
        (symbol("bills"), None),
        ("amqps://host:1/bills", None),
    ],
    ids=str,
)
async def test_a_destination_must_be_an_entity_that_can_be_sent_to(
    client: TransactionClient, destination: object, condition: str | None
) -> None:
    properties: dict[str, object] = {"com.microsoft:transfer-destination-address": destination}
    _, answer = await client.attach(False, Described(0x28, ["me"]), Described(0x29, ["orders"]), properties)
    if condition is None:
        assert answer.fields[6] is not None
    else:
        assert await client.refusal() == condition
