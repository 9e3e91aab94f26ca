"""The control link: transactions are declared and discharged on it, and end with it."""

from __future__ import annotations

import pytest

from tandembus.amqp.encoding import Described
from tandembus.amqp.encoding.delivery_states import (
    ACCEPTED_STATE,
    transactional_state,
)
from tandembus.amqp.encoding.sections import amqp_value_section, data_section
from tandembus.amqp.encoding.transactions import declare_message
from tests.covers import covers
from tests.unit.amqp.engine.peers import DETACH, DISPOSITION, END
from tests.unit.front_end.amqp.transacting import (
    ACCEPTED,
    LIMIT_EXCEEDED,
    NOT_ALLOWED,
    TIMEOUT,
    UNKNOWN_ID,
    Server,
    TransactionClient,
    code_of,
    condition_of,
    fields_of,
    received,
    waiting,
)


@covers("M11")
async def test_a_coordinator_says_what_it_can(client: TransactionClient) -> None:
    attach = await client.coordinator()
    target = attach.fields[6]
    assert code_of(target) == 0x30
    assert fields_of(target) == [["amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn"]]


@covers("M11")
async def test_every_transaction_has_an_id_of_its_own(client: TransactionClient) -> None:
    first, second = await client.declare(), await client.declare()
    assert first != second
    assert (len(first), len(second)) == (16, 16)


@covers("M11", "M15")
async def test_a_transaction_may_be_declared_before_any_token_but_no_entity_is_reached(server: Server) -> None:
    client = await server.client("")
    txn = await client.declare()
    await client.attach(False, Described(0x28, ["me"]), Described(0x29, ["orders"]))
    assert await client.refusal() == "amqp:unauthorized-access"
    await client.commit(txn)


@covers("M11")
async def test_a_coordinator_is_no_source(client: TransactionClient) -> None:
    await client.attach(True, Described(0x30, [None]), Described(0x29, ["me"]))
    assert await client.refusal() == NOT_ALLOWED


@covers("M11")
async def test_distributed_transactions_are_refused(client: TransactionClient) -> None:
    await client.coordinator()
    delivery_id = client.transfer(client.control, amqp_value_section(Described(0x31, [b"global"])))
    assert condition_of(await client.answer_to(delivery_id)) == "amqp:not-implemented"


@covers("M11", "M12")
@pytest.mark.parametrize("payload", [b"", b"\x00", data_section(b"x"), amqp_value_section("declare")], ids=bytes.hex)
async def test_nonsense_on_the_control_link_is_rejected_and_the_link_goes_on(
    client: TransactionClient, payload: bytes
) -> None:
    await client.coordinator()
    delivery_id = client.transfer(client.control, payload)
    assert condition_of(await client.answer_to(delivery_id)) == "amqp:decode-error"
    await client.commit(await client.declare())


@covers("M11", "M12")
async def test_a_huge_control_message_is_rejected(client: TransactionClient) -> None:
    await client.coordinator()
    delivery_id = client.transfer(client.control, declare_message() + bytes(2000))
    assert condition_of(await client.answer_to(delivery_id)) == "amqp:link:message-size-exceeded"


@covers("M11")
async def test_a_declaration_settled_in_advance_declares_nothing(client: TransactionClient) -> None:
    await client.coordinator()
    client.transfer(client.control, declare_message(), settled=True)
    assert client.heard() == []
    assert len(client.connection.host.transactions) == 0


@covers("M11")
async def test_credit_on_the_control_link_is_given_again(client: TransactionClient) -> None:
    for _ in range(150):
        await client.roll_back(await client.declare())


@covers("M11")
async def test_an_empty_transaction_is_carried_out(client: TransactionClient) -> None:
    await client.commit(await client.declare())


@covers("M11", "M13")
async def test_a_connection_has_a_limit_of_open_transactions(client: TransactionClient) -> None:
    first, _second = await client.declare(), await client.declare()
    refused = await client.answer_to(client.transfer(client.control, declare_message()))
    assert condition_of(refused) == LIMIT_EXCEEDED
    await client.roll_back(first)
    await client.declare()


async def forgotten(client: TransactionClient, txn: bytes) -> None:
    await client.coordinator()
    assert condition_of(await client.discharge(txn)) == UNKNOWN_ID


@covers("M11")
async def test_an_id_is_good_for_one_discharge(client: TransactionClient) -> None:
    for fail in (False, True):
        txn = await client.declare()
        assert code_of(await client.discharge(txn, fail)) == ACCEPTED
        assert condition_of(await client.discharge(txn, fail)) == UNKNOWN_ID


@covers("M11")
async def test_an_unknown_id_is_refused_everywhere(server: Server, client: TransactionClient) -> None:
    sender = await client.sender("orders")
    (delivery_id,) = await received(client, "a")
    await client.coordinator()
    assert condition_of(await client.send(sender, "b", b"nobody's")) == UNKNOWN_ID
    client.dispose(delivery_id, transactional_state(b"nobody's", ACCEPTED_STATE))
    assert condition_of(await client.echo_of(delivery_id)) == UNKNOWN_ID
    assert condition_of(await client.discharge(b"nobody's")) == UNKNOWN_ID
    assert condition_of(await client.discharge(b"", True)) == UNKNOWN_ID
    assert await waiting(server) == ["a"]


@covers("M11")
async def test_another_connections_id_is_unknown(server: Server, client: TransactionClient) -> None:
    txn = await client.declare()
    other = await server.client()
    await forgotten(other, txn)
    await client.commit(txn)


@covers("M11")
async def test_a_transaction_is_discharged_on_the_link_that_declared_it(client: TransactionClient) -> None:
    txn = await client.declare()
    first = client.control
    await forgotten(client, txn)
    client.control = first
    await client.commit(txn)


@covers("M11")
async def test_the_end_of_the_control_link_rolls_back(server: Server, client: TransactionClient) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "a")
    client.detach(client.control)
    await client.expect(DETACH)
    await forgotten(client, txn)
    assert condition_of(await client.send(sender, "b", txn)) == UNKNOWN_ID
    assert await waiting(server) == []
    assert server.front_end.transaction_memory.used_bytes == 0


@covers("M11")
async def test_the_end_of_one_control_link_leaves_the_others_transactions_alone(
    server: Server, client: TransactionClient
) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    first = client.control
    await client.coordinator()
    client.detach(client.control)
    await client.expect(DETACH)
    client.control = first
    await client.send_in(txn, sender, "a")
    await client.commit(txn)
    assert await waiting(server) == ["a"]


@covers("M11")
async def test_the_end_of_the_control_links_session_rolls_back(server: Server, client: TransactionClient) -> None:
    await client.begin(channel=2)
    sender = await client.sender("orders")
    handle, _ = await client.attach(False, Described(0x28, ["me"]), Described(0x30, [None]), channel=2)
    client.transfer(handle, declare_message(), channel=2)
    answer = await client.expect(DISPOSITION)
    (txn,) = fields_of(answer.fields[4])
    assert isinstance(txn, bytes)
    await client.send_in(txn, sender, "a")
    client.end(channel=2)
    await client.expect(END)
    await forgotten(client, txn)
    assert await waiting(server) == []


@covers("M11")
@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "closed"])
async def test_the_end_of_the_connection_rolls_back(server: Server, client: TransactionClient, is_lost: bool) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "a")
    entity = await server.life.namespace.entity("orders")
    assert entity._use_count == 1
    if is_lost:
        client.connection.connection_lost(None)
    else:
        client.say(0x18, [], channel=0)
    assert await waiting(server) == []
    assert server.front_end.transaction_memory.used_bytes == 0
    assert entity._use_count == 0


@covers("M11")
async def test_a_transaction_times_out_on_the_monotonic_clock(server: Server, client: TransactionClient) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "a")
    server.life.clock.shift_wall(3_600.0)
    server.life.clock.advance(119.9)
    await client.send_in(txn, sender, "b")
    server.life.clock.advance(0.1)
    assert condition_of(await client.send(sender, "c", txn)) == TIMEOUT
    assert condition_of(await client.discharge(txn)) == TIMEOUT
    assert code_of(await client.discharge(txn, fail=True)) == ACCEPTED
    assert await waiting(server) == []


@covers("M11")
async def test_the_memory_of_a_transaction_that_timed_out_is_free_without_anybodys_asking(
    server: Server, client: TransactionClient
) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "a")
    assert server.front_end.transaction_memory.used_bytes > 0
    server.life.clock.advance(120.0)
    client.connection.tick(server.life.clock.monotonic())
    assert server.front_end.transaction_memory.used_bytes == 0
    assert condition_of(await client.discharge(txn)) == TIMEOUT
