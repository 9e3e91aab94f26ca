"""Where a message that is sent via an entity is to go is kept in the message, and gone when it arrives."""

from __future__ import annotations

import pytest

from tandembus.amqp.encoding import int_, symbol, timestamp
from tandembus.amqp.encoding.sections import (
    data_section,
    decode_message,
    header_section,
    message_annotations_section,
    properties_section,
)
from tandembus.broker.transfer_destination import as_sent, destination_of, set_destination
from tandembus.message import Message, parse_message
from tandembus.store.messaging_store import TRANSFER
from tests.covers import covers
from tests.unit.broker.one_queue import KEY, OneQueue, message

ANNOTATIONS: dict[str, object] = {"x-mine": int_(7), "x-opt-partition-key": "s"}


def sent(annotations: dict[str, object] | None = None, ttl_ms: int | None = None) -> Message:
    payload = header_section(priority=9, ttl_ms=ttl_ms)
    payload += message_annotations_section(annotations) if annotations else b""
    return parse_message(payload + properties_section("id", group_id="s") + data_section(b"body"))


@covers("M11")
@pytest.mark.parametrize("annotations", [None, ANNOTATIONS], ids=["no annotations", "annotations"])
def test_a_destination_is_read_back_and_changes_nothing_else(annotations: dict[str, object] | None) -> None:
    one, other = sent(annotations), sent(annotations)
    assert destination_of(one) == ""
    set_destination(one, "Orders/Eu")
    assert destination_of(one) == "Orders/Eu"
    assert one.sections[one.annotations_end :] == other.sections[other.annotations_end :]
    found = decode_message(one.sections, typed=True).message_annotations or {}
    expected: dict[object, object] = {symbol(key): value for key, value in (annotations or {}).items()}
    assert found == {**expected, symbol("x-opt-transfer-destination"): "Orders/Eu"}
    arrived = as_sent(one, 128)
    assert destination_of(arrived) == ""
    assert arrived.sections == other.sections
    assert (arrived.session_id, arrived.priority) == ("s", 9)


@covers("M11")
def test_a_sender_cannot_set_a_destination() -> None:
    assert destination_of(sent({"x-opt-transfer-destination": "elsewhere"})) == ""


async def stored(queue: OneQueue, one: Message) -> Message:
    """Via the queue, and read back from its disk."""
    set_destination(one, "there")
    answer = queue.stage_via(one)
    await queue.quiet()
    assert answer.is_accepted
    return queue.disk.bodies[KEY, TRANSFER, int(one.number)]


@covers("M11")
async def test_time_to_live_and_schedule_count_from_the_arrival() -> None:
    async with OneQueue() as queue:
        at_ms = queue.clock.now_ms() + 60_000
        plain = as_sent(await stored(queue, message("a")), 128)
        short = as_sent(await stored(queue, message("b", ttl_ms=5_000)), 128)
        later = as_sent(await stored(queue, message("c", ttl_ms=5_000, scheduled_at_ms=at_ms)), 128)
        over = as_sent(await stored(queue, message("d", ttl_ms=1)), 128)
        assert [int(one.ttl_ms) for one in (plain, short, later, over)] == [-1, 5_000, 5_000, 1]
        assert [int(one.scheduled_at) for one in (plain, short, later, over)] == [0, 0, at_ms, 0]


@covers("M11")
async def test_in_the_transfer_lane_nothing_waits_for_its_time_and_nothing_expires() -> None:
    async with OneQueue() as queue:
        await stored(queue, message("a", ttl_ms=1_000))
        await stored(queue, message("b", scheduled_at_ms=queue.clock.now_ms() + 1_000))
        assert (queue.disk.schedules, queue.disk.expiries) == (set(), set())
        await queue.pass_time(3_600.0)
        assert await queue.peek(TRANSFER) == ["a", "b"]
        assert queue.fragment.transfer.scheduled_count == 0


def test_the_annotation_is_a_symbol_and_a_string() -> None:
    one = parse_message(message_annotations_section({"t": timestamp(5)}) + data_section(b"x"))
    set_destination(one, "q")
    assert decode_message(one.sections, typed=True).message_annotations == {
        symbol("t"): timestamp(5),
        symbol("x-opt-transfer-destination"): "q",
    }
