"""What is refused in a transaction, or lost before its discharge: then nothing of it is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandembus.amqp.encoding import Described, ubyte, uint
from tandembus.amqp.encoding.delivery_states import (
    ACCEPTED_STATE,
    modified_state,
    transactional_state,
)
from tandembus.amqp.encoding.sections import data_section, properties_section
from tandembus.descriptions import EntityStatus, QueueDescription
from tandembus.errors import InvalidOperation
from tandembus.security.claims import Policy, Right
from tests.covers import covers
from tests.unit.amqp.engine.peers import ATTACH, DETACH
from tests.unit.front_end.amqp.transacting import (
    ACCEPTED,
    KEY,
    LIMIT_EXCEEDED,
    NOT_ALLOWED,
    ROLLBACK,
    SMALL,
    UNKNOWN_ID,
    Server,
    TransactionClient,
    code_of,
    condition_of,
    is_doomed,
    received,
    waiting,
)
from tests.unit.namespace.namespace_lives import Machine


@covers("M11")
async def test_a_second_entity_is_not_allowed(server: Server, client: TransactionClient) -> None:
    orders, bills = await client.sender("orders"), await client.sender("bills")
    txn = await client.declare()
    await client.send_in(txn, orders, "a")
    assert condition_of(await client.send(bills, "b", txn)) == NOT_ALLOWED
    assert condition_of(await client.send(orders, "c", txn)) == ROLLBACK
    await is_doomed(client, txn)


@covers("M11")
async def test_settling_here_and_sending_there_is_not_allowed(server: Server, client: TransactionClient) -> None:
    bills = await client.sender("bills")
    (delivery_id,) = await received(client, "a")
    txn = await client.declare()
    await client.send_in(txn, bills, "b")
    client.dispose(delivery_id, transactional_state(txn, ACCEPTED_STATE))
    assert condition_of(await client.echo_of(delivery_id)) == NOT_ALLOWED
    assert condition_of(await client.discharge(txn)) == ROLLBACK
    assert (await waiting(server), await waiting(server, "bills")) == (["a"], [])


@covers("M11", "M13")
async def test_more_messages_than_a_transaction_takes(server: Server, client: TransactionClient) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "a", "b", "c", "d")
    assert condition_of(await client.send(sender, "e", txn)) == LIMIT_EXCEEDED
    await is_doomed(client, txn)


@covers("M11", "M13")
async def test_more_bytes_than_a_transaction_takes(server: Server, client: TransactionClient) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    assert code_of(await client.send(sender, "a", txn, padding=3000)) == 0x34
    assert condition_of(await client.send(sender, "b", txn, padding=3000)) == LIMIT_EXCEEDED
    await is_doomed(client, txn)


@covers("M11", "M13")
async def test_large_properties_count_as_bytes_too(server: Server, client: TransactionClient) -> None:
    (delivery_id,) = await received(client, "a")
    txn = await client.declare()
    outcome = modified_state(True, False, {"large": "x" * 5000})
    client.dispose(delivery_id, transactional_state(txn, outcome))
    assert condition_of(await client.echo_of(delivery_id)) == LIMIT_EXCEEDED


@covers("M11", "M14")
async def test_all_transactions_together_hold_only_so_much(server: Server, client: TransactionClient) -> None:
    server.front_end.transaction_memory.max_bytes = 1000
    sender = await client.sender("orders")
    first, second = await client.declare(), await client.declare()
    assert code_of(await client.send(sender, "a", first, padding=600)) == 0x34
    assert condition_of(await client.send(sender, "b", second, padding=600)) == "com.microsoft:server-busy"
    await client.roll_back(first)
    third = await client.declare()
    assert code_of(await client.send(sender, "c", third, padding=600)) == 0x34


@covers("M11")
@pytest.mark.parametrize("settled", [False, True])
async def test_a_malformed_message_dooms_its_transaction(
    server: Server, client: TransactionClient, settled: bool
) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "a")
    delivery_id = client.transfer(sender, b"nonsense", transactional_state(txn), settled)
    if not settled:
        assert condition_of(await client.answer_to(delivery_id)) == "amqp:decode-error"
    await is_doomed(client, txn)


@covers("M11")
@pytest.mark.parametrize("settled", [False, True])
async def test_a_message_too_large_dooms_its_transaction(
    server: Server, client: TransactionClient, settled: bool
) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "a")
    payload = properties_section("large") + data_section(bytes(3600))
    delivery_id = client.transfer(sender, payload, transactional_state(txn), settled)
    if not settled:
        assert condition_of(await client.answer_to(delivery_id)) == "amqp:link:message-size-exceeded"
    await is_doomed(client, txn)


@covers("M11")
async def test_a_lock_that_is_lost_already_dooms(server: Server, client: TransactionClient) -> None:
    (delivery_id,) = await received(client, "a")
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "b")
    server.life.clock.advance(60.0)
    client.dispose(delivery_id, transactional_state(txn, ACCEPTED_STATE))
    assert condition_of(await client.echo_of(delivery_id)) == "com.microsoft:message-lock-lost"
    assert condition_of(await client.discharge(txn)) == ROLLBACK
    assert await waiting(server) == ["a"]


@covers("M11")
async def test_a_lock_lost_before_the_discharge_rolls_back(server: Server, client: TransactionClient) -> None:
    first, second = await received(client, "a", "b")
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.settle_in(txn, first)
    await client.settle_in(txn, second)
    await client.send_in(txn, sender, "c")
    client.dispose(second, ACCEPTED_STATE)
    await client.echo_of(second)
    state = await client.discharge(txn)
    assert condition_of(state) == ROLLBACK
    assert "lock is lost" in str(state)
    assert await waiting(server) == ["a"]
    client.dispose(first, ACCEPTED_STATE)
    assert code_of(await client.echo_of(first)) == ACCEPTED


@covers("M11")
async def test_a_lock_that_lapses_before_the_discharge_rolls_back(server: Server, client: TransactionClient) -> None:
    (delivery_id,) = await received(client, "a")
    txn = await client.declare()
    await client.settle_in(txn, delivery_id)
    server.life.clock.advance(60.0)
    assert condition_of(await client.discharge(txn)) == ROLLBACK
    assert await waiting(server) == ["a"]


@covers("M11")
async def test_a_receiver_may_leave_before_the_discharge(server: Server, client: TransactionClient) -> None:
    await server.life.send("orders", "a")
    receiver = await client.receiver("orders", credit=1)
    delivery_id, _ = await client.delivery()
    txn = await client.declare()
    await client.settle_in(txn, delivery_id)
    client.detach(receiver)
    await client.expect(DETACH)
    assert code_of(await client.discharge(txn)) == ACCEPTED
    assert await waiting(server) == []


@covers("M11")
async def test_a_sender_may_leave_before_the_discharge(server: Server, client: TransactionClient) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "a")
    client.detach(sender)
    await client.expect(DETACH)
    server.life.clock.advance(119.0)
    await server.life.namespace.keep_house()
    await client.commit(txn)
    assert await waiting(server) == ["a"]


@covers("M11")
@pytest.mark.parametrize("queue", ["orders", "nowhere"])
async def test_a_message_on_a_link_that_is_over_dooms_its_transaction(
    server: Server, client: TransactionClient, queue: str
) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "a")
    handle, _ = await client.attach(False, Described(0x28, ["me"]), Described(0x29, [queue]))
    for entity_link in list(client.connection._links.values())[1:]:
        entity_link.cut(InvalidOperation("for this test"))
    client.transfer(handle, properties_section("b") + data_section(b"b"), transactional_state(txn), settled=True)
    await client.expect(DETACH)
    assert condition_of(await client.discharge(txn)) == ROLLBACK
    assert await waiting(server) == []


@covers("M11")
@pytest.mark.parametrize("is_given_up", [False, True])
async def test_a_message_sent_ahead_of_an_attach_that_fails_dooms_its_transaction(
    server: Server, client: TransactionClient, is_given_up: bool
) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "a")
    target = Described(0x29, ["bills" if is_given_up else "nowhere"])
    client.say(ATTACH, ["early", uint(99), False, ubyte(0), ubyte(1), Described(0x28, ["me"]), target])
    client.transfer(99, properties_section("b") + data_section(b"b"), transactional_state(txn), settled=True)
    if is_given_up:
        client.detach(99)
    await client.expect(ATTACH)
    await client.expect(DETACH)
    await server.life.quiet()
    assert condition_of(await client.discharge(txn)) == ROLLBACK
    assert await waiting(server) == []


@covers("M11")
async def test_settling_what_is_no_longer_there_dooms(server: Server, client: TransactionClient) -> None:
    await server.life.send("orders", "a")
    receiver = await client.receiver("orders", credit=1)
    delivery_id, _ = await client.delivery()
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "b")
    client.detach(receiver)
    await client.expect(DETACH)
    client.dispose(delivery_id, transactional_state(txn, ACCEPTED_STATE), settled=True)
    assert condition_of(await client.discharge(txn)) == ROLLBACK
    assert await waiting(server) == ["a"]


@covers("M11", "M15")
async def test_a_claim_that_is_gone_at_the_discharge_rolls_back(server: Server) -> None:
    client = await server.client("sends", "orders", "bills")
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "a")
    server.authorizer.set_policies("", [Policy("root", KEY, "", frozenset(Right))])
    await is_doomed(client, txn)


@covers("M11")
async def test_an_entity_disabled_before_the_discharge_rolls_back(server: Server, client: TransactionClient) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "a")
    disabled = QueueDescription("orders", status=EntityStatus.SEND_DISABLED)
    await server.life.namespace.update_queue(disabled)
    await client.expect(DETACH)
    await is_doomed(client, txn)


@covers("M11")
async def test_an_entity_deleted_before_the_discharge_rolls_back(server: Server, client: TransactionClient) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "a")
    await server.life.namespace.delete_queue("orders")
    await client.expect(DETACH)
    await server.life.dropped()
    await server.life.namespace.create_queue(QueueDescription("orders"))
    await is_doomed(client, txn)


@covers("M11", "F2")
async def test_when_the_store_fails_the_outcome_is_unknown_and_said_so(
    server: Server, client: TransactionClient
) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "a")
    server.life.machine.power.cut()
    state = await client.discharge(txn)
    assert condition_of(state) == "amqp:internal-error"
    assert "unknown" in str(state)
    assert condition_of(await client.discharge(txn)) == UNKNOWN_ID


@covers("M11")
async def test_nothing_of_an_undischarged_transaction_survives(tmp_path: Path) -> None:
    machine = Machine(SMALL)
    async with machine.life() as life:
        server = Server(life, tmp_path)
        client = await server.client("root", "orders")
        sender = await client.sender("orders")
        done, cut = await client.declare(), await client.declare()
        await client.send_in(done, sender, "done")
        await client.send_in(cut, sender, "cut")
        await client.commit(done)
    async with machine.life() as life:
        assert await life.peek("orders") == ["done"]
