"""A link on which a client sends: transfers become operations, commits become dispositions."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.amqp.encoding.sections import (
    application_properties_section,
    data_section,
    message_annotations_section,
    properties_section,
)
from tandembus.amqp.engine import DispositionReceived
from tandembus.errors import InvalidArgument, InvalidOperation, MessageTooLarge
from tandembus.message import BATCH_FORMAT
from tandembus.store.memory import Fault
from tests.covers import covers
from tests.unit.broker.one_queue import PING, OneQueue, small
from tests.unit.front_end.amqp.linked_queue import LinkedQueue, checks

ACCEPTED, REJECTED = 0x24, 0x25


def payload(body: str, padding: int = 0) -> bytes:
    return properties_section(body) + data_section(body.encode() + bytes(padding))


@covers("M1")
async def test_a_send_is_accepted_after_its_commit_and_not_before() -> None:
    async with OneQueue() as queue:
        linked = LinkedQueue(queue)
        link, _ = linked.sender()
        queue.fault_next(Fault.HANG)
        link.send(b"1", payload("a"), False, None)
        linked.carry()
        await queue.disk.is_hanging.wait()
        linked.flusher.flush()
        assert linked.answers() == []
        queue.disk.go_on.set()
        await linked.settle_down()
        assert [(one, outcome.code) for one, outcome in linked.answers()] == [(0, ACCEPTED)]
        assert await queue.peek() == ["a"]


@covers("M12")
async def test_the_answers_of_one_commit_go_out_as_one_range() -> None:
    async with OneQueue() as queue:
        linked = LinkedQueue(queue)
        link, _ = linked.sender()
        for index in range(50):
            link.send(str(index).encode(), payload(f"{index:02}"), False, None)
        await linked.settle_down()
        frames = [event for event in linked.at_client if isinstance(event, DispositionReceived)]
        assert [len(frame.deliveries) for frame in frames] == [50]


@covers("M12")
async def test_a_refusal_stops_nothing_behind_it() -> None:
    async with OneQueue() as queue:
        linked = LinkedQueue(queue)
        link, _ = linked.sender()
        for body in (payload("a"), b"no message", payload("b")):
            link.send(body[:4], body, False, None)
        await linked.settle_down()
        assert sorted((one, outcome.code) for one, outcome in linked.answers()) == [
            (0, ACCEPTED),
            (1, REJECTED),
            (2, ACCEPTED),
        ]
        assert await queue.peek() == ["a", "b"]


async def test_a_refused_message_says_why() -> None:
    async with OneQueue() as queue:
        linked = LinkedQueue(queue)
        link, _ = linked.sender()
        link.send(b"1", b"no message", False, None)
        await linked.settle_down()
        ((_, outcome),) = linked.answers()
        assert outcome.error is not None
        assert outcome.error.condition == "amqp:decode-error"
        assert outcome.error.description


async def test_a_settled_send_is_stored_and_not_answered() -> None:
    async with OneQueue() as queue:
        linked = LinkedQueue(queue)
        link, _ = linked.sender()
        link.send(b"1", payload("a"), True, None)
        link.send(b"2", b"no message", True, None)
        await linked.settle_down()
        assert linked.answers() == []
        assert await queue.peek() == ["a"]


@covers("M12")
async def test_a_batch_is_one_delivery_and_many_messages() -> None:
    async with OneQueue() as queue:
        linked = LinkedQueue(queue)
        link, _ = linked.sender()
        batch = b"".join(data_section(payload(body)) for body in "abc")
        link.send(b"1", batch, False, None, BATCH_FORMAT)
        await linked.settle_down()
        assert [outcome.code for _, outcome in linked.answers()] == [ACCEPTED]
        assert await queue.peek() == ["a", "b", "c"]
        assert linked.sends.normal.messages == 3


@covers("M12")
async def test_a_batch_with_one_bad_message_is_refused_whole() -> None:
    async with OneQueue() as queue:
        linked = LinkedQueue(queue)
        link, _ = linked.sender()
        link.send(b"1", data_section(payload("a")) + data_section(b"bad"), False, None, BATCH_FORMAT)
        await linked.settle_down()
        assert [outcome.code for _, outcome in linked.answers()] == [REJECTED]
        assert await queue.peek() == []


@covers("M12")
async def test_credit_is_given_back_when_half_of_it_is_used_up() -> None:
    async with OneQueue() as queue:
        linked = LinkedQueue(queue)
        link, _ = linked.sender(credit=10)
        assert link.credit == 10
        for index in range(4):
            link.send(str(index).encode(), payload("a"), False, None)
        await linked.settle_down()
        assert link.credit == 6
        link.send(b"5", payload("a"), False, None)
        await linked.settle_down()
        assert link.credit == 10


@covers("M12")
async def test_credit_comes_back_after_refusals_too() -> None:
    async with OneQueue() as queue:
        linked = LinkedQueue(queue)
        link, _ = linked.sender(credit=4)
        for index in range(4):
            link.send(str(index).encode(), b"bad", False, None)
        await linked.settle_down()
        assert link.credit == 4


@covers("M13")
async def test_a_full_entity_and_a_failing_store_are_told_apart() -> None:
    async with OneQueue(small(max_size_bytes=100)) as queue:
        linked = LinkedQueue(queue)
        link, _ = linked.sender()
        link.send(b"1", payload("a", padding=200), False, None)
        await linked.settle_down()
        queue.fault_next(Fault.UNKNOWN_LOST)
        link.send(b"2", payload("b"), False, None)
        await linked.settle_down()
        conditions = [outcome.error.condition for _, outcome in linked.answers() if outcome.error is not None]
        assert conditions == ["amqp:resource-limit-exceeded", "amqp:internal-error"]


@covers("N10")
async def test_a_ping_is_accepted_and_metered_under_its_own_reason() -> None:
    async with OneQueue() as queue:
        linked = LinkedQueue(queue)
        link, _ = linked.sender()
        link.send(b"1", properties_section("p", content_type=PING) + data_section(b""), False, None)
        await linked.settle_down()
        assert [outcome.code for _, outcome in linked.answers()] == [ACCEPTED]
        assert (linked.sends.pings.messages, linked.sends.normal.messages) == (1, 0)
        assert await queue.peek() == []


async def test_only_accepted_sends_are_metered_by_size() -> None:
    async with OneQueue() as queue:
        linked = LinkedQueue(queue)
        link, _ = linked.sender(send_checks=checks(max_message_bytes=200_000))
        link.send(b"1", payload("a", padding=70_000), False, None)
        link.send(b"2", b"bad", False, None)
        await linked.settle_down()
        assert (linked.sends.normal.messages, linked.sends.normal.operations) == (1, 2)


async def test_an_answer_for_a_link_that_is_gone_goes_nowhere() -> None:
    async with OneQueue() as queue:
        linked = LinkedQueue(queue)
        link, half = linked.sender()
        link.send(b"1", payload("a"), False, None)
        linked.carry()
        half.is_open = False
        await linked.settle_down()
        assert linked.answers() == []
        assert await queue.peek() == ["a"]
        assert linked.host.unacknowledged_bytes == 0


@covers("M12")
async def test_a_client_that_sends_faster_than_we_store_is_not_read_until_half_is_stored() -> None:
    async with OneQueue() as queue:
        linked = LinkedQueue(queue, max_unacknowledged_bytes=100)
        link, _ = linked.sender()
        queue.fault_next(Fault.HANG)
        link.send(b"1", payload("a", padding=200), False, None)
        linked.carry()
        assert linked.host.must_pause()
        linked.host.is_unread = True
        await queue.disk.is_hanging.wait()
        linked.host.flush()
        assert linked.resumed_count == 0
        queue.disk.go_on.set()
        await linked.settle_down()
        assert linked.resumed_count == 1


# What may be sent.


@covers("M12")
def test_a_message_above_the_limit_is_too_large() -> None:
    message = payload("a", padding=1000)
    with pytest.raises(MessageTooLarge, match=rf"delivery size: {len(message)} bytes\) exceeds the limit \(1000 bytes"):
        checks(max_message_bytes=1000).parse(message, 0)


@covers("M12")
def test_a_batch_above_the_limit_is_too_large_as_a_whole() -> None:
    batch = b"".join(data_section(payload("a", padding=400)) for _ in range(3))
    with pytest.raises(MessageTooLarge, match=f"delivery size: {len(batch)} bytes"):
        checks(max_message_bytes=1000).parse(batch, BATCH_FORMAT)


@covers("M12")
def test_a_batch_of_too_many_messages_is_refused() -> None:
    batch = b"".join(data_section(payload("a")) for _ in range(11))
    with pytest.raises(InvalidArgument, match="at most 10 messages"):
        checks().parse(batch, BATCH_FORMAT)


@covers("M13")
def test_properties_above_their_limits_are_refused() -> None:
    large_header = message_annotations_section({"x-opt-own": "x" * 3_000}) + payload("a")
    large_properties = properties_section("a") + application_properties_section({"a": "x" * 1_500})
    for sent in (large_header, large_properties):
        with pytest.raises(InvalidArgument, match="exceed"):
            checks().parse(sent, 0)


@covers("M13")
def test_session_and_partition_key_must_agree() -> None:
    key = message_annotations_section({"x-opt-partition-key": "one"})
    with pytest.raises(InvalidOperation):
        checks().parse(key + properties_section("a", group_id="two"), 0)
    checks().parse(key + properties_section("a", group_id="one"), 0)
    checks().parse(key + properties_section("a"), 0)


async def test_new_limits_hold_for_links_that_are_there_already() -> None:
    async with OneQueue() as queue:
        linked = LinkedQueue(queue)
        link, half = linked.sender()
        half.change_checks(checks(max_message_bytes=10))
        link.send(b"1", payload("a"), False, None)
        await linked.settle_down()
        ((_, outcome),) = linked.answers()
        assert outcome.error is not None
        assert outcome.error.condition == "amqp:link:message-size-exceeded"


async def test_sends_of_many_links_share_one_commit() -> None:
    async with OneQueue() as queue:
        first, second = LinkedQueue(queue), LinkedQueue(queue)
        links = [first.sender()[0], second.sender()[0]]
        before = queue.disk.commit_count
        for link in links:
            link.send(b"1", payload("a"), False, None)
        first.carry()
        second.carry()
        await queue.quiet()
        assert queue.disk.commit_count == before + 1
        await asyncio.sleep(0)
