"""A link on which a client receives: credit becomes deliveries, dispositions become settlements."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tandembus.amqp.encoding import encode, int_, symbol
from tandembus.amqp.encoding.delivery_states import (
    ACCEPTED_STATE,
    MODIFIED_STATE,
    RELEASED_STATE,
    AmqpError,
    modified_state,
    rejected_state,
)
from tandembus.amqp.encoding.sections import decode_message
from tandembus.amqp.encoding.values import Described
from tandembus.amqp.engine import DeliveryReceived
from tandembus.broker.locks import COMPLETE
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import DEAD_LETTER
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue, Receiver, properties_of
from tests.unit.front_end.amqp.linked_queue import LinkedQueue

ACCEPTED, REJECTED, RELEASED, MODIFIED = 0x24, 0x25, 0x26, 0x27


def bodies(deliveries: list[DeliveryReceived]) -> list[object]:
    return [decode_message(one.payload).body for one in deliveries]


def annotation(delivery: DeliveryReceived, name: str) -> object:
    return (decode_message(delivery.payload).message_annotations or {}).get(name)


async def settled(linked: LinkedQueue, delivery: DeliveryReceived, state: bytes, is_quiet: bool = False) -> None:
    number = int(delivery.delivery_id)
    linked.session.settle(number, number, state, is_quiet)
    await linked.settle_down()


async def dead(queue: OneQueue) -> Receiver:
    receiver = queue.receiver(DEAD_LETTER)
    await receiver.take(1)
    return receiver


@covers("M12")
async def test_deliveries_come_within_the_credit_and_in_order() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b", "c")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        assert bodies(await linked.received(link, 2)) == [b"a", b"b"]
        assert bodies(await linked.received(link, 5)) == [b"c"]


@covers("M2")
async def test_a_locked_delivery_has_its_token_as_tag_and_says_until_when() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        (delivery,) = await linked.received(link, 1)
        assert not delivery.settled
        assert queue.fragment.find_lock(delivery.tag).number == 1
        assert annotation(delivery, "x-opt-locked-until") == queue.clock.now_ms() + 60_000
        assert annotation(delivery, "x-opt-sequence-number") == 1


@covers("M2")
async def test_receive_and_delete_delivers_settled_and_without_a_lock() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver(is_destructive=True)
        (delivery,) = await linked.received(link, 1)
        assert delivery.settled
        assert annotation(delivery, "x-opt-locked-until") is None
        assert await queue.peek() == []


@pytest.mark.parametrize(
    ("state", "code", "left"),
    [
        (ACCEPTED_STATE, ACCEPTED, []),
        (RELEASED_STATE, RELEASED, ["a"]),
        (MODIFIED_STATE, MODIFIED, ["a"]),
        (modified_state(True, True, None), MODIFIED, ["a"]),
        (rejected_state(AmqpError("amqp:internal-error", "", None)), REJECTED, []),
    ],
    ids=["complete", "release", "abandon", "defer", "dead-letter"],
)
@covers("M3")
async def test_a_settlement_is_echoed_with_the_same_kind_of_outcome(state: bytes, code: int, left: list[str]) -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        (delivery,) = await linked.received(link, 1)
        await settled(linked, delivery, state)
        (echo,) = linked.confirmations()
        assert echo.outcome is not None
        assert (echo.settled, echo.outcome.code, echo.outcome.error) == (True, code, None)
        assert await queue.peek() == left


@covers("M3")
async def test_a_settlement_is_echoed_only_after_its_commit() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        (delivery,) = await linked.received(link, 1)
        queue.fault_next(Fault.HANG)
        linked.session.settle(int(delivery.delivery_id), int(delivery.delivery_id), ACCEPTED_STATE, False)
        linked.carry()
        await queue.disk.is_hanging.wait()
        linked.flusher.flush()
        assert linked.confirmations() == []
        queue.disk.go_on.set()
        await linked.settle_down()
        assert len(linked.confirmations()) == 1


@covers("M3")
async def test_a_client_that_has_settled_already_gets_no_answer() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        (delivery,) = await linked.received(link, 1)
        await settled(linked, delivery, ACCEPTED_STATE, is_quiet=True)
        assert linked.confirmations() == []
        assert await queue.peek() == []
        assert linked.receives.complete.messages == 1


@covers("M3")
async def test_echoes_of_one_commit_are_merged_into_ranges_of_one_outcome() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b", "c", "d")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        await linked.received(link, 4)
        linked.session.settle(0, 2, ACCEPTED_STATE, False)
        linked.session.settle(3, 3, RELEASED_STATE, False)
        await linked.settle_down()
        assert [(echo.first, echo.last) for echo in linked.confirmations()] == [(0, 2), (3, 3)]


@covers("M3")
async def test_abandoning_and_deferring_may_change_properties_with_their_types() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        (delivery,) = await linked.received(link, 1)
        await settled(linked, delivery, modified_state(True, False, {symbol("tries"): int_(1)}))
        (again,) = await linked.received(link, 1)
        found = decode_message(again.payload, typed=True)
        assert found.application_properties == {"tries": int_(1)}
        assert decode_message(again.payload).header is not None


@covers("M3")
async def test_a_dead_letter_carries_the_reason_from_the_errors_info() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        (delivery,) = await linked.received(link, 1)
        info: dict[object, object] = {
            "DeadLetterReason": "Broken",
            "DeadLetterErrorDescription": "it is",
            "own": int_(1),
        }
        await settled(linked, delivery, rejected_state(AmqpError("com.microsoft:dead-letter", "", info)))
        receiver = await dead(queue)
        assert properties_of(receiver.messages[0]) == {
            "DeadLetterReason": "Broken",
            "DeadLetterErrorDescription": "it is",
            "own": 1,
        }


@covers("M3")
async def test_a_reason_that_is_a_symbol_is_taken_as_its_text() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        (delivery,) = await linked.received(link, 1)
        info: dict[object, object] = {"DeadLetterReason": symbol("Broken")}
        await settled(linked, delivery, rejected_state(AmqpError("com.microsoft:dead-letter", "", info)))
        receiver = await dead(queue)
        assert properties_of(receiver.messages[0]) == {"DeadLetterReason": "Broken"}


@covers("M3")
async def test_a_very_long_reason_is_cut() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        (delivery,) = await linked.received(link, 1)
        await settled(linked, delivery, rejected_state(AmqpError("amqp:internal-error", "x" * 10_000, None)))
        receiver = await dead(queue)
        description = properties_of(receiver.messages[0])["DeadLetterErrorDescription"]
        assert isinstance(description, str)
        assert len(description) == 4096


@covers("M2")
async def test_a_settlement_after_the_lock_was_lost_is_refused_and_the_link_lives() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        (delivery,) = await linked.received(link, 1)
        queue.clock.advance(60.0)
        await settled(linked, delivery, ACCEPTED_STATE)
        (echo,) = linked.confirmations()
        assert echo.outcome is not None
        assert echo.outcome.error is not None
        assert echo.outcome.error.condition == "com.microsoft:message-lock-lost"
        await queue.pass_time(0.0)
        assert bodies(await linked.received(link, 1)) == [b"a"]


async def test_an_outcome_that_settles_nothing_is_refused() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        (delivery,) = await linked.received(link, 1)
        await settled(linked, delivery, encode(Described(0x33, [b"transaction"])))
        (echo,) = linked.confirmations()
        assert echo.outcome is not None
        assert echo.outcome.error is not None
        assert echo.outcome.error.condition == "com.microsoft:argument-error"
        assert await queue.peek() == ["a"]


@covers("M2")
async def test_settled_without_an_outcome_is_complete() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        (delivery,) = await linked.received(link, 1)
        await settled(linked, delivery, b"", is_quiet=True)
        assert await queue.peek() == []


@covers("M3", "F3")
async def test_a_settlement_whose_commit_failed_is_refused() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        (delivery,) = await linked.received(link, 1)
        queue.fault_next(Fault.UNKNOWN_LOST)
        await settled(linked, delivery, ACCEPTED_STATE)
        (echo,) = linked.confirmations()
        assert echo.outcome is not None
        assert echo.outcome.error is not None
        assert echo.outcome.error.condition == "amqp:internal-error"


@covers("M12")
async def test_a_drain_is_answered_when_nothing_is_left_and_an_empty_one_is_metered() -> None:
    async with OneQueue() as queue:
        linked = LinkedQueue(queue)
        link, half = linked.receiver()
        link.grant(10)
        link.drain()
        await linked.settle_down()
        assert half.credit == 0
        assert linked.receives.empty.operations == 1


@covers("M12")
async def test_a_drain_that_brought_messages_is_not_an_empty_receive() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, half = linked.receiver()
        link.grant(10)
        link.drain()
        await linked.settle_down()
        assert bodies(linked.deliveries()) == [b"a"]
        assert (half.credit, linked.receives.empty.operations) == (0, 0)


@covers("N11")
async def test_an_empty_receive_is_metered_also_after_one_that_used_up_its_credit() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        assert bodies(await linked.received(link, 1)) == [b"a"]
        link.grant(1)
        await linked.settle_down()
        link.drain()
        await linked.settle_down()
        assert linked.receives.empty.operations == 1


@covers("N11")
async def test_more_credit_is_a_new_receive_whatever_the_last_one_brought() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        assert bodies(await linked.received(link, 5)) == [b"a"]
        link.grant(5)
        link.drain()
        await linked.settle_down()
        assert linked.receives.empty.operations == 1


@covers("N11")
async def test_a_drain_that_takes_the_credit_back_ends_an_empty_receive() -> None:
    """As SDKs do it when they close a receiver."""
    async with OneQueue() as queue:
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        link.grant(5)
        await linked.settle_down()
        link.credit = 0
        link.drain()
        await linked.settle_down()
        assert linked.receives.empty.operations == 1


@covers("N11")
async def test_credit_that_stands_or_is_taken_back_costs_nothing() -> None:
    async with OneQueue() as queue:
        linked = LinkedQueue(queue)
        link, half = linked.receiver()
        for credit in (5, 5, 0):
            link.grant(credit)
            await linked.settle_down()
        link.drain()
        await linked.settle_down()
        assert (half.credit, linked.receives.empty.operations) == (0, 0)


@covers("M12")
async def test_a_connection_that_is_not_written_to_is_given_no_more() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        linked.host.is_backed_up = True
        assert await linked.received(link, 5) == []
        linked.host.is_backed_up = False
        queue.broker.want(queue.fragment)
        await linked.settle_down()
        assert bodies(linked.deliveries()) == [b"a", b"b"]


@covers("M12")
async def test_unsent_bytes_beyond_the_limit_put_deliveries_off_until_the_flush() -> None:
    async with OneQueue() as queue:
        linked = LinkedQueue(queue, max_unsent_bytes=0)
        _, half = linked.receiver()
        half.credit = 5
        half.link.session.write_flow()
        assert linked.pair.server.pending_bytes() > 0
        assert not half.can_take()
        half.flush()
        linked.flusher.flush()
        assert linked.fed_count == 1


async def test_deliveries_are_metered() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "b")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        await linked.received(link, 2)
        assert (linked.receives.receive.messages, linked.receives.receive.operations) == (2, 2)


@covers("M3")
async def test_a_dead_letter_link_takes_from_the_dead_letters() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        await queue.dead_letter(await queue.receiver().take_one())
        linked = LinkedQueue(queue)
        link, _ = linked.receiver(DEAD_LETTER)
        (delivery,) = await linked.received(link, 1)
        await settled(linked, delivery, ACCEPTED_STATE)
        assert await queue.dead_letters() == []


@covers("M2")
async def test_a_settlement_through_another_way_leaves_the_links_own_lost() -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        (delivery,) = await linked.received(link, 1)
        queue.settle(queue.fragment.find_lock(delivery.tag), COMPLETE)
        await settled(linked, delivery, MODIFIED_STATE)
        (echo,) = linked.confirmations()
        assert echo.outcome is not None
        assert echo.outcome.code == REJECTED
        assert await queue.peek() == []


async def test_what_nobody_flushes_goes_out_in_the_next_turn_of_the_loop() -> None:
    async with OneQueue() as queue:
        asked: list[Callable[[], None]] = []
        linked = LinkedQueue(queue, soon=asked.append)
        link, half = linked.receiver()
        asked.clear()
        await queue.send("one", "two")
        queue.broker.on_turn_end = lambda: None
        link.grant(2)
        linked.carry()
        assert (half.activity > 0, len(asked)) == (True, 1)
        asked[0]()
        assert bodies(linked.deliveries()) == [b"one", b"two"]
        half.flush()
        assert len(asked) == 2
