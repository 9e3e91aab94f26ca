"""Transactions of clients that make mistakes, take too much, or die: a typed error, and nothing half done."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import map_section
from tandembus.amqp.encoding.transactions import declare_message
from tandembus.amqp.encoding.values import uint
from tests.covers import covers
from tests.integration.bus import COMES_WITHIN_S, Bus, Counts
from tests.integration.raw_amqp import RawAmqp, state_of
from tests.integration.raw_transactions import CONTROL
from tests.integration.shapes import on_every_shape
from tests.integration.test_messages_as_json import Api, texts
from tests.sdk.dotnet_frames import DotNetClient, condition, message
from tests.sdk.test_cross_entity_transactions import LIMIT_EXCEEDED, NOT_ALLOWED, ROLLBACK, UNKNOWN_ID, fill

pytestmark = on_every_shape

TIMEOUT = "amqp:transaction:timeout"
MOST_OPEN = 100
LARGE = map_section(codes.FOOTER, {"x-large": "x" * 200_000})
PIECES = 4
MOST_LARGE = 20
"""So many of these fit into the bytes that one transaction may gather."""


@pytest.fixture
def client(bus: Bus) -> Iterator[DotNetClient]:
    with DotNetClient(bus.running.port) as client:
        yield client


def completes(client: DotNetClient, delivery_id: int) -> bool:
    """Without any transaction."""
    client.raw.dispose(delivery_id, state_of(codes.ACCEPTED))
    answer = client.raw.expect(codes.DISPOSITION)
    return answer.described(4)[0] == codes.ACCEPTED


# Ids.


@covers("M11")
def test_the_id_of_another_connections_transaction_is_unknown(client: DotNetClient, bus: Bus, queue: str) -> None:
    fill(bus, queue, "order")
    client.coordinate()
    to_queue = client.sender(queue)
    txn_id = client.declare()
    client.send_in(to_queue, message("mine", bus.shape.key), txn_id)
    with DotNetClient(bus.running.port) as other:
        other.coordinate()
        other.receiver(queue)
        delivery_id = other.receive()
        sender = other.sender(queue)
        assert condition(other.send(sender, message("theirs", bus.shape.key), txn_id)) == UNKNOWN_ID
        assert condition(other.dispose_in(txn_id, delivery_id)) == UNKNOWN_ID
        assert condition(other.discharge(txn_id)) == UNKNOWN_ID
        assert condition(other.discharge(txn_id, fail=True)) == UNKNOWN_ID
    client.commit(txn_id)
    assert texts(Api(bus.running).browse(queue)) == ["mine", "order"]


@covers("M11")
@pytest.mark.parametrize("txn_id", [b"", b"nobody's", bytes(16), b"x" * 32], ids=["empty", "short", "zero", "long"])
def test_an_id_that_nobody_declared_is_unknown_and_harms_nothing(
    client: DotNetClient, bus: Bus, queue: str, txn_id: bytes
) -> None:
    fill(bus, queue, "order")
    client.coordinate()
    client.receiver(queue)
    delivery_id = client.receive()
    to_queue = client.sender(queue)
    assert condition(client.send(to_queue, message("a", bus.shape.key), txn_id)) == UNKNOWN_ID
    assert condition(client.dispose_in(txn_id, delivery_id)) == UNKNOWN_ID
    assert condition(client.discharge(txn_id)) == UNKNOWN_ID
    good = client.declare()
    client.send_in(to_queue, message("b", bus.shape.key), good)
    client.commit(good)
    assert texts(Api(bus.running).browse(queue)) == ["b", "order"]


# Entities and AMQP sessions.


@covers("M11")
def test_what_another_amqp_session_received_elsewhere_is_no_part_of_it(
    client: DotNetClient, bus: Bus, queue: str
) -> None:
    there = bus.make_queue()
    fill(bus, queue, "order")
    fill(bus, there, "bill")
    client.coordinate()
    client.receiver(queue)
    delivery_id = client.receive()
    client.put_token(there)
    raw, channel = client.raw, 2
    raw.begin(channel)
    raw.attach_receiver(3, there, channel=channel)
    raw.flow(3, 1, channel=channel)
    elsewhere = client.receive()
    txn_id = client.declare()
    client.complete_in(txn_id, delivery_id)
    state = state_of(codes.TRANSACTIONAL_STATE, txn_id, state_of(codes.ACCEPTED))
    raw.perform(codes.DISPOSITION, [True, uint(elsewhere), None, False, state], channel=channel)
    refused = raw.expect(codes.DISPOSITION)
    assert (refused.channel, condition(refused)) == (channel, NOT_ALLOWED)
    assert condition(client.discharge(txn_id)) == ROLLBACK
    assert (bus.counts(queue), bus.counts(there)) == (Counts(1), Counts(1))
    assert completes(client, delivery_id)


@covers("M11")
def test_with_a_coordinator_that_comes_late_one_entity_is_a_transaction_as_before(
    client: DotNetClient, bus: Bus, queue: str
) -> None:
    fill(bus, queue, "order")
    client.receiver(queue)
    delivery_id = client.receive()
    to_queue = client.sender(queue)
    client.coordinate()
    txn_id = client.declare()
    client.complete_in(txn_id, delivery_id)
    client.send_in(to_queue, message("again", bus.shape.key), txn_id)
    assert texts(Api(bus.running).browse(queue)) == ["order"]
    client.commit(txn_id)
    assert texts(Api(bus.running).browse(queue)) == ["again"]


# Limits.


@covers("M11", "M13")
def test_a_transaction_of_too_many_bytes_is_rolled_back_everywhere(client: DotNetClient, bus: Bus, queue: str) -> None:
    there = bus.make_queue()
    fill(bus, queue, "order")
    client.coordinate()
    client.receiver(queue)
    delivery_id = client.receive()
    to_there = client.sender(there)
    txn_id = client.declare()
    client.complete_in(txn_id, delivery_id)
    for number in range(MOST_LARGE):
        answer = client.transfer(to_there, message(str(number), bus.shape.key) + LARGE, txn_id, PIECES)
        assert answer.described(4)[0] == codes.TRANSACTIONAL_STATE
    over = client.transfer(to_there, message("one more", bus.shape.key) + LARGE, txn_id, PIECES)
    assert condition(over) == LIMIT_EXCEEDED
    assert condition(client.discharge(txn_id)) == ROLLBACK
    assert (bus.counts(queue), bus.counts(there)) == (Counts(1), Counts(0))
    again = client.declare()
    client.complete_in(again, delivery_id)
    client.send_in(to_there, message("bill", bus.shape.key), again)
    client.commit(again)
    assert bus.comes_to(there, Counts(1))
    assert bus.counts(queue) == Counts(0)


@covers("M11", "M13")
def test_a_connection_has_so_many_transactions_open_and_no_more(client: DotNetClient, bus: Bus, queue: str) -> None:
    client.coordinate()
    to_queue = client.sender(queue)
    open_ones = [client.declare() for _ in range(MOST_OPEN)]
    assert condition(client.transfer(CONTROL, declare_message())) == LIMIT_EXCEEDED
    client.send_in(to_queue, message("a", bus.shape.key), open_ones[0])
    assert client.discharge(open_ones[1], fail=True).described(4)[0] == codes.ACCEPTED
    client.declare()
    client.commit(open_ones[0])
    assert bus.counts(queue) == Counts(1)


@covers("M11", "M13")
def test_a_transaction_that_is_open_for_too_long_is_rolled_back_everywhere(small_bus: Bus) -> None:
    here, there = small_bus.make_queue(), small_bus.make_queue()
    fill(small_bus, here, "order")
    with DotNetClient(small_bus.running.port) as client:
        client.coordinate()
        client.receiver(here)
        delivery_id = client.receive()
        to_there = client.sender(there)
        txn_id = client.declare()
        client.send_in(to_there, message("bill", small_bus.shape.key), txn_id)
        answer = client.dispose_in(txn_id, delivery_id)
        while answer.described(4)[0] == codes.TRANSACTIONAL_STATE:
            answer = client.dispose_in(txn_id, delivery_id)
        assert condition(answer) == TIMEOUT
        assert condition(client.send(to_there, message("more", small_bus.shape.key), txn_id)) == TIMEOUT
        assert condition(client.discharge(txn_id)) == TIMEOUT
        assert (small_bus.counts(here), small_bus.counts(there)) == (Counts(1), Counts(0))
        again = client.declare()
        client.send_in(to_there, message("bill", small_bus.shape.key, via_key="v"), again)
        client.commit(again)
    assert small_bus.comes_to(there, Counts(1))


# Clients that die.


def close(raw: RawAmqp) -> None:
    raw.socket.close()


def reset(raw: RawAmqp) -> None:
    """What is on its way is thrown away on both sides."""
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.socket.close()


@covers("M11")
@pytest.mark.parametrize("die", [close, reset])
def test_a_client_that_dies_during_its_discharge_has_done_all_of_it_or_nothing(
    bus: Bus, queue: str, die: Callable[[RawAmqp], None]
) -> None:
    there = bus.make_queue()
    names = {str(number) for number in range(4)}
    fill(bus, queue, *sorted(names))
    for _ in names:
        client = DotNetClient(bus.running.port)
        client.coordinate()
        client.receiver(queue)
        frame, order = client.raw.receive_message()
        to_there = client.sender(there)
        txn_id = client.declare()
        client.complete_in(txn_id, frame.number(1))
        client.send_in(to_there, message(str(order.property_at(0)), bus.shape.key), txn_id)
        client.begin_discharge(txn_id)
        die(client.raw)
    api = Api(bus.running)
    give_up_at = time.monotonic() + COMES_WITHIN_S
    while sorted(texts(api.browse(queue)) + texts(api.browse(there))) != sorted(names):
        assert time.monotonic() < give_up_at, (texts(api.browse(queue)), texts(api.browse(there)))
