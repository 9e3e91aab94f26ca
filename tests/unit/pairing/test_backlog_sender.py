"""What a call leaves in the backlog, and what its caller is told of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError, ServiceBusConnectionError

from tandembus.pairing import BacklogMessageTooLarge, PairClosed, SendAvailabilityBacklogError
from tandembus.pairing.sender import PairedSender
from tests.covers import covers
from tests.unit.pairing.conftest import ScriptedPair

NEARLY_FULL = b"x" * 262_100
"""Fits into a message, and does not with what the backlog adds."""
HALF = "h" * 120_000
"""Two of them fit into a batch, three do not."""

NOT_PAIRED = ServiceBusClient.from_connection_string(
    "Endpoint=sb://contoso.example;SharedAccessKeyName=a;SharedAccessKey=YQ=="
)


def failed_over(**options: bool | int) -> tuple[ScriptedPair, PairedSender]:
    pair = ScriptedPair(failover_interval=timedelta(0), **options)
    pair.primary.down.add("orders")
    return pair, pair.client.get_queue_sender("orders")


@covers("N9")
@pytest.mark.parametrize("is_by_key", [False, True])
async def test_one_message_of_a_list_that_is_too_large_leaves_nothing_of_it_in_the_backlog(is_by_key: bool) -> None:
    pair, sender = failed_over(backlog_queue_by_key=is_by_key)
    small = [ServiceBusMessage("small", session_id=f"session {number}") for number in range(20)]
    with pytest.raises(BacklogMessageTooLarge):
        await sender.send_messages([*small, ServiceBusMessage(NEARLY_FULL, session_id="large")])
    assert pair.in_backlog() == []
    await sender.send_messages(small)
    assert pair.in_backlog() == ["small"] * 20


@covers("N9", "N17")
@pytest.mark.parametrize("given", ["text", b"text", 7, ["text"], [["text"]], [{"text": 1}]])
async def test_what_is_no_message_is_the_same_type_error_as_without_a_failover(given: Any) -> None:
    pair, sender = failed_over()
    await sender.send_messages(ServiceBusMessage("first"))
    for messages in (given, [ServiceBusMessage("with it"), *given] if isinstance(given, list) else given):
        with pytest.raises(TypeError) as caught:
            await sender.send_messages(messages)
        with pytest.raises(TypeError) as without:
            await NOT_PAIRED.get_queue_sender("orders").send_messages(messages)
        assert str(caught.value) == str(without.value)
    assert pair.in_backlog() == ["first"]


@covers("N7", "N9")
async def test_a_message_that_is_refused_behind_others_is_told_together_with_all_that_were_not_sent() -> None:
    pair, sender = failed_over()
    messages = [ServiceBusMessage(text) for text in (HALF, HALF, "refused" + HALF, "behind it" + HALF)]
    pair.secondary.refused["refused"] = refusal = MessageSizeExceededError(message="too large after all")
    with pytest.raises(SendAvailabilityBacklogError) as caught:
        await sender.send_messages(messages)
    assert pair.in_backlog() == [HALF, HALF]
    assert caught.value.unsent == tuple(messages[2:])
    assert list(caught.value.causes.values()) == [refusal]
    assert len(pair.client.backlog_queues) == 3, "no queue is to blame for it"


@covers("N9")
async def test_a_message_that_is_refused_before_any_other_was_sent_raises_what_it_raises() -> None:
    pair, sender = failed_over()
    pair.secondary.refused["refused"] = MessageSizeExceededError(message="too large after all")
    with pytest.raises(MessageSizeExceededError):
        await sender.send_messages([ServiceBusMessage("refused"), ServiceBusMessage("behind it")])
    assert pair.in_backlog() == []


@covers("N7")
async def test_who_waits_too_long_for_the_second_queue_is_told_what_the_first_has_taken() -> None:
    pair, sender = failed_over(backlog_queue_by_key=True)
    for number in range(20):
        await sender.send_messages(ServiceBusMessage(f"{number}", session_id=f"{number}"))
    quick, busy, _ = pair.queues
    first, second = (ServiceBusMessage("x", session_id=pair.secondary.bodies(queue)[0]) for queue in (quick, busy))
    pair.secondary.hangs.add(busy)
    hanging = asyncio.ensure_future(sender.send_messages(second))
    await pair.runtime.settle()
    both = asyncio.ensure_future(sender.send_messages([first, second], timeout=5.0))
    await pair.runtime.advance(5.0)
    with pytest.raises(SendAvailabilityBacklogError) as caught:
        await both
    assert caught.value.unsent == (second,)
    assert isinstance(caught.value.causes[busy], OperationTimeoutError)
    hanging.cancel()


@covers("N7", "N17")
async def test_a_batch_is_made_by_another_queue_when_the_one_it_waited_for_is_given_up() -> None:
    pair, sender = failed_over()
    await sender.send_messages(ServiceBusMessage("0"))
    (own,) = [queue for queue in pair.queues if pair.secondary.bodies(queue)]
    pair.secondary.hangs.add(own)
    hanging = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("1"), timeout=1.0))
    await pair.runtime.settle()
    making = asyncio.ensure_future(sender.create_message_batch())
    await pair.runtime.advance(1.0)
    with pytest.raises(SendAvailabilityBacklogError):
        await hanging
    assert len(await making) == 0


@covers("N1")
async def test_who_asks_for_a_batch_does_not_wait_for_ever() -> None:
    pair, sender = failed_over(backlog_queue_count=1)
    await sender.send_messages(ServiceBusMessage("0"))
    pair.secondary.hangs |= set(pair.queues)
    sends = [asyncio.ensure_future(sender.send_messages(ServiceBusMessage("1"), timeout=600.0)) for _ in range(2)]
    await pair.runtime.settle()
    making = asyncio.ensure_future(sender.create_message_batch())
    await pair.runtime.advance(60.0)
    with pytest.raises(OperationTimeoutError):
        await making
    for send in sends:
        send.cancel()


@covers("N7", "N14")
async def test_closing_ends_diverted_sends_and_tells_which_messages_are_in_the_backlog() -> None:
    pair, sender = failed_over()
    whole = ServiceBusMessage("whole")
    await sender.send_messages(ServiceBusMessage("0"))
    (own,) = [queue for queue in pair.queues if pair.secondary.bodies(queue)]
    messages = [ServiceBusMessage(HALF), ServiceBusMessage(HALF), ServiceBusMessage("rest" + HALF)]
    pair.secondary.hangs_on["rest"] = own
    partly = asyncio.ensure_future(sender.send_messages(messages))
    await pair.runtime.settle()
    waiting = asyncio.ensure_future(sender.send_messages(whole))
    await pair.runtime.settle()
    await sender.close()
    with pytest.raises(SendAvailabilityBacklogError) as caught:
        await partly
    assert caught.value.unsent == (messages[2],)
    assert isinstance(caught.value.causes[own], PairClosed)
    with pytest.raises(PairClosed):
        await waiting
    assert pair.in_backlog() == ["0", HALF, HALF]
    assert len(pair.client.backlog_queues) == 3
    assert pair.secondary.connections == 0


@covers("N7")
async def test_a_queue_whose_old_connection_broke_in_the_middle_of_a_list_takes_the_rest_on_a_new_one() -> None:
    pair, sender = failed_over(backlog_queue_count=1)
    await sender.send_messages(ServiceBusMessage("0"))
    pair.secondary.refused["broken"] = ServiceBusConnectionError(message="cut off")
    messages = [ServiceBusMessage(HALF), ServiceBusMessage(HALF), ServiceBusMessage("broken" + HALF)]
    with pytest.raises(SendAvailabilityBacklogError) as caught:
        await sender.send_messages(messages)
    assert caught.value.unsent == (messages[2],)
    assert pair.secondary.tried[pair.queues[0]] == 1 + 1 + 2
