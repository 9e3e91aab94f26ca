"""Deliveries of more than 1 MiB: each has room reserved for it, or its connection waits."""

from __future__ import annotations

from tandembus.amqp.engine.events import DeliveryReceived, DeliveryTooLarge, Event
from tandembus.large_messages import LARGE_BYTES, LargeMemory
from tests.covers import covers
from tests.unit.amqp.engine.peers import HandWritten, detach_frame, only, server_settings, transfer_frame

LIMIT = 2 * LARGE_BYTES
PART = b"x" * 60_000


def connected(memory: LargeMemory) -> HandWritten:
    peer = HandWritten(server_settings(max_message_size=LIMIT)).open()
    peer.server.large_memory = memory
    peer.attach_sender(1, "one", LIMIT, credit=10)
    peer.attach_sender(2, "two", LIMIT, credit=10)
    return peer


def begin(peer: HandWritten, delivery_id: int, handle: int) -> None:
    """More than 1 MiB of it."""
    for _ in range(LARGE_BYTES // len(PART) + 1):
        assert peer.send(transfer_frame(delivery_id, PART, True, handle)) == []


def end(peer: HandWritten, delivery_id: int, handle: int) -> list[Event]:
    return peer.send(transfer_frame(delivery_id, b"end", False, handle))


@covers("M12", "F13")
def test_a_large_delivery_reserves_its_links_limit_until_it_is_complete() -> None:
    memory = LargeMemory(10 * LIMIT)
    peer = connected(memory)
    begin(peer, 0, 1)
    begin(peer, 1, 2)
    assert memory.taken_bytes == 2 * LIMIT
    assert len(only(DeliveryReceived, end(peer, 0, 1)).payload) > LARGE_BYTES
    assert memory.taken_bytes == LIMIT
    peer.send(detach_frame(2))
    assert memory.taken_bytes == 0
    assert peer.server._unfinished_bytes == 0


@covers("M12", "F13")
def test_without_room_the_connection_waits_and_goes_on_when_there_is_some() -> None:
    memory = LargeMemory(LIMIT)
    memory.take(LIMIT)
    peer = connected(memory)
    begin(peer, 0, 1)
    assert peer.server.wanted_bytes == LIMIT
    assert not peer.server.room_came()
    memory.taken_bytes = 0
    assert peer.server.room_came()
    assert (peer.server.wanted_bytes, memory.taken_bytes) == (0, LIMIT)
    only(DeliveryReceived, end(peer, 0, 1))
    assert memory.taken_bytes == 0


@covers("M12", "F13")
def test_a_second_large_delivery_without_room_is_dropped_so_that_the_first_can_end() -> None:
    memory = LargeMemory(LIMIT)
    peer = connected(memory)
    begin(peer, 0, 1)
    begin(peer, 1, 2)
    assert peer.server.wanted_bytes == 0
    dropped = only(DeliveryTooLarge, end(peer, 1, 2))
    assert (dropped.delivery_id, dropped.lacks_room) == (1, True)
    only(DeliveryReceived, end(peer, 0, 1))
    begin(peer, 2, 2)
    only(DeliveryReceived, end(peer, 2, 2))
    assert (memory.taken_bytes, peer.server._unfinished_bytes) == (0, 0)


@covers("M12", "F13")
def test_a_connection_that_ends_gives_its_room_back() -> None:
    memory = LargeMemory(LIMIT)
    peer = connected(memory)
    begin(peer, 0, 1)
    peer.server.let_go()
    assert memory.taken_bytes == 0
