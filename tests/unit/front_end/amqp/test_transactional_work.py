"""What is sent and settled in a transaction, as a client sees it."""

from __future__ import annotations

import pytest

from tandembus.amqp.encoding import int_
from tandembus.amqp.encoding.delivery_states import (
    ACCEPTED_STATE,
    MODIFIED_STATE,
    RELEASED_STATE,
    AmqpError,
    modified_state,
    rejected_state,
    transactional_state,
)
from tandembus.amqp.encoding.sections import data_section, properties_section
from tandembus.store.messaging_store import DEAD_LETTER
from tests.covers import covers
from tests.unit.front_end.amqp.transacting import (
    ACCEPTED,
    LIMIT_EXCEEDED,
    MODIFIED,
    REJECTED,
    RELEASED,
    ROLLBACK,
    Server,
    TransactionClient,
    code_of,
    condition_of,
    fields_of,
    received,
    waiting,
)
from tests.unit.namespace.entity_fragment import fragment_of


@covers("M11")
async def test_what_is_sent_in_a_transaction_is_there_when_it_is_carried_out(
    server: Server, client: TransactionClient
) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "a", "b")
    assert await waiting(server) == []
    await client.commit(txn)
    assert await waiting(server) == ["a", "b"]


@covers("M11")
async def test_what_is_sent_in_a_transaction_that_fails_is_forgotten(server: Server, client: TransactionClient) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    await client.send_in(txn, sender, "a")
    await client.roll_back(txn)
    assert await waiting(server) == []
    assert server.front_end.transaction_memory.used_bytes == 0


@covers("M11")
async def test_transactions_and_ordinary_sends_go_on_side_by_side(server: Server, client: TransactionClient) -> None:
    sender = await client.sender("orders")
    first, second = await client.declare(), await client.declare()
    await client.send_in(first, sender, "first")
    await client.send_in(second, sender, "second")
    assert code_of(await client.send(sender, "plain")) == ACCEPTED
    await client.commit(second)
    await client.roll_back(first)
    assert await waiting(server) == ["plain", "second"]


@covers("M11")
async def test_a_batch_is_one_part_of_a_transaction_and_counts_message_by_message(
    server: Server, client: TransactionClient
) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()

    async def batch(count: int) -> object:
        parts = [data_section(properties_section(str(n)) + data_section(str(n).encode())) for n in range(count)]
        state = transactional_state(txn)
        delivery_id = client.transfer(sender, b"".join(parts), state, message_format=0x80013700)
        return await client.answer_to(delivery_id)

    assert code_of(await batch(3)) == 0x34
    assert condition_of(await batch(2)) == LIMIT_EXCEEDED
    assert condition_of(await client.discharge(txn)) == ROLLBACK
    assert await waiting(server) == []


@covers("M11")
async def test_sends_settled_in_advance_are_part_of_the_transaction_too(
    server: Server, client: TransactionClient
) -> None:
    sender = await client.sender("orders")
    txn = await client.declare()
    client.transfer(sender, properties_section("a") + data_section(b"a"), transactional_state(txn), settled=True)
    assert client.heard() == []
    await client.commit(txn)
    assert await waiting(server) == ["a"]


OUTCOMES = {
    "complete": (ACCEPTED_STATE, ACCEPTED, [], []),
    "abandon": (MODIFIED_STATE, MODIFIED, ["a"], []),
    "defer": (modified_state(True, True), MODIFIED, ["a"], []),
    "release": (RELEASED_STATE, RELEASED, ["a"], []),
    "dead-letter": (rejected_state(AmqpError("com.microsoft:dead-letter", "why")), REJECTED, [], ["a"]),
}


@covers("M11", "M3")
@pytest.mark.parametrize("name", OUTCOMES)
async def test_a_settlement_is_provisional_until_the_transaction_is_carried_out(
    server: Server, client: TransactionClient, name: str
) -> None:
    outcome, code, left, dead = OUTCOMES[name]
    (delivery_id,) = await received(client, "a")
    txn = await client.declare()
    provisional = await client.settle_in(txn, delivery_id, outcome)
    assert code_of(provisional) == code
    if code == REJECTED:
        assert fields_of(provisional) == [None]
    assert len(fragment_of(await server.life.namespace.entity("orders")).locks) == 1
    await client.commit(txn)
    assert code_of(await client.echo_in(txn, delivery_id)) == code
    assert (await waiting(server), await waiting(server, lane=DEAD_LETTER)) == (left, dead)
    assert len(fragment_of(await server.life.namespace.entity("orders")).locks) == 0


@covers("M11")
async def test_after_a_rollback_the_message_is_still_locked_and_can_be_settled(
    server: Server, client: TransactionClient
) -> None:
    (delivery_id,) = await received(client, "a")
    txn = await client.declare()
    await client.settle_in(txn, delivery_id, rejected_state(AmqpError("com.microsoft:dead-letter", "why")))
    await client.roll_back(txn)
    client.dispose(delivery_id, modified_state(True, False, {"tries": int_(1)}))
    assert code_of(await client.echo_of(delivery_id)) == MODIFIED
    assert await waiting(server) == ["a"]
    assert await waiting(server, lane=DEAD_LETTER) == []


@covers("M11")
async def test_the_last_word_on_a_message_counts(server: Server, client: TransactionClient) -> None:
    (delivery_id,) = await received(client, "a")
    txn = await client.declare()
    assert code_of(await client.settle_in(txn, delivery_id, ACCEPTED_STATE)) == ACCEPTED
    assert code_of(await client.settle_in(txn, delivery_id, RELEASED_STATE)) == RELEASED
    await client.commit(txn)
    assert code_of(await client.echo_in(txn, delivery_id)) == RELEASED
    assert await waiting(server) == ["a"]


@covers("M11")
@pytest.mark.parametrize("last_word", [b"", None], ids=["no outcome", "the same outcome"])
async def test_a_client_that_settles_before_the_discharge_gets_no_second_answer(
    server: Server, client: TransactionClient, last_word: bytes | None
) -> None:
    (delivery_id,) = await received(client, "a")
    txn = await client.declare()
    await client.settle_in(txn, delivery_id)
    state = transactional_state(txn, ACCEPTED_STATE) if last_word is None else last_word
    client.dispose(delivery_id, state, settled=True)
    assert await waiting(server) == ["a"]
    await client.commit(txn)
    assert await waiting(server) == []
    assert client.heard() == []


@covers("M11")
@pytest.mark.parametrize("end", ["discharge", "detach", "time-out", "loss"])
async def test_what_was_settled_in_advance_comes_again_after_a_rollback(
    server: Server, client: TransactionClient, end: str
) -> None:
    first, second = await received(client, "a", "b")
    txn = await client.declare()
    client.dispose(first, transactional_state(txn, ACCEPTED_STATE), settled=True)
    await client.settle_in(txn, second)
    if end == "discharge":
        await client.roll_back(txn)
    elif end == "detach":
        client.detach(client.control)
    elif end == "time-out":
        client.connection.host.transactions.tick(server.life.clock.monotonic() + 120.0)
    else:
        client.connection.connection_lost(None)
    await server.life.quiet()
    fragment = fragment_of(await server.life.namespace.entity("orders"))
    assert len(fragment.locks) == 1
    (lock,) = await server.life.receive("orders", 5)
    assert (int(lock.number), int(lock.delivery_count)) == (1, 1)


@covers("M11")
async def test_what_was_settled_in_advance_comes_again_after_a_refused_discharge(
    server: Server, client: TransactionClient
) -> None:
    first, second = await received(client, "a", "b")
    txn = await client.declare()
    client.dispose(first, transactional_state(txn, ACCEPTED_STATE), settled=True)
    await client.settle_in(txn, second)
    client.dispose(second, ACCEPTED_STATE)
    await client.echo_of(second)
    assert condition_of(await client.discharge(txn)) == ROLLBACK
    await server.life.quiet()
    assert len(await server.life.receive("orders", 5)) == 1


@covers("M11")
async def test_a_state_without_a_decision_decides_nothing(server: Server, client: TransactionClient) -> None:
    (delivery_id,) = await received(client, "a")
    txn = await client.declare()
    client.dispose(delivery_id, transactional_state(txn))
    client.dispose(delivery_id, transactional_state(txn, b"\x00\x53\x23\xc0\x03\x02\x43\x44"))
    await client.commit(txn)
    assert client.heard() == []
    assert await waiting(server) == ["a"]


@covers("M11")
async def test_sends_and_settlements_over_several_sessions_are_one_transaction(
    server: Server, client: TransactionClient
) -> None:
    await client.begin(channel=2)
    sender = await client.sender("orders")
    (delivery_id,) = await received(client, "a")
    await client.coordinator(channel=1)
    txn = await client.declare()
    await client.settle_in(txn, delivery_id)
    await client.send_in(txn, sender, "b")
    commits = server.life.machine.power.commit_count
    await client.commit(txn)
    await client.echo_of(delivery_id)
    assert server.life.machine.power.commit_count == commits + 1
    assert await waiting(server) == ["b"]


@covers("M11")
async def test_only_what_is_carried_out_is_counted(server: Server, client: TransactionClient) -> None:
    sender = await client.sender("orders")
    (delivery_id,) = await received(client, "a")

    def counted() -> dict[str, int]:
        return {name: server.meter.slot("orders", name, "normal").messages for name in ("send", "complete")}

    before = counted()
    txn = await client.declare()
    await client.send_in(txn, sender, "b")
    await client.settle_in(txn, delivery_id)
    await client.roll_back(txn)
    assert counted() == before
    txn = await client.declare()
    await client.send_in(txn, sender, "b")
    await client.settle_in(txn, delivery_id)
    await client.commit(txn)
    await client.echo_of(delivery_id)
    assert counted() == {"send": before["send"] + 1, "complete": before["complete"] + 1}
