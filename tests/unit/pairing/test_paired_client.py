"""Senders, timers and pings on a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from tandembus.metering.paired_costs import pings_accepted, pings_sent
from tandembus.pairing import (
    BacklogQueueDropped,
    EntityHealthy,
    EntityState,
    FailoverEngaged,
    PairFaulted,
    PingFailed,
    PingSent,
    SendAvailabilityBacklogError,
)
from tandembus.pairing.sdk import Sendable
from tandembus.pairing.sender import PairedSender
from tests.covers import covers
from tests.unit.pairing.conftest import ScriptedPair

HEALTHY, FAILING, FAILED_OVER = EntityState.HEALTHY, EntityState.FAILING, EntityState.FAILED_OVER


async def fails(sender: PairedSender, text: str = "raised") -> None:
    with pytest.raises(ServiceBusConnectionError):
        await sender.send_messages(ServiceBusMessage(text))


@covers("N5")
async def test_failover_engages_at_the_interval_without_any_further_send(pair: ScriptedPair) -> None:
    sender = pair.client.get_queue_sender("orders")
    pair.primary.down.add("orders")
    await fails(sender)
    await pair.runtime.advance(59.9)
    assert pair.client.entity_state("orders") is FAILING
    await pair.runtime.advance(0.1)
    assert pair.client.entity_state("orders") is FAILED_OVER
    (engaged,) = pair.told(FailoverEngaged)
    assert engaged.failing_for_s == pytest.approx(60.0)
    assert isinstance(engaged.error, ServiceBusConnectionError)


@covers("N5")
async def test_many_senders_that_fail_together_start_one_timer(pair: ScriptedPair) -> None:
    senders = [pair.client.get_queue_sender("orders") for _ in range(50)]
    pair.primary.down.add("orders")
    await asyncio.gather(*(fails(sender) for sender in senders))
    assert pair.runtime.timer_count == 1
    await pair.runtime.advance(30.0)
    await asyncio.gather(*(fails(sender) for sender in senders))
    await pair.runtime.advance(30.0)
    assert len(pair.told(FailoverEngaged)) == 1
    assert len(pair.told(PingSent)) == 1


@covers("N5")
async def test_a_success_of_any_sender_keeps_all_of_them_on_the_primary(pair: ScriptedPair) -> None:
    first, second = pair.client.get_queue_sender("orders"), pair.client.get_queue_sender("Orders")
    pair.primary.down.add("orders")
    await fails(first)
    await pair.runtime.advance(59.0)
    await second.send_messages(ServiceBusMessage("accepted"))
    assert pair.client.entity_state("ORDERS") is HEALTHY
    await pair.runtime.advance(300.0)
    assert not pair.told(FailoverEngaged)


@covers("N5", "N6")
async def test_sends_under_way_are_in_the_backlog_the_moment_failover_engages(pair: ScriptedPair) -> None:
    hanging, failing = pair.client.get_queue_sender("orders"), pair.client.get_queue_sender("orders")
    pair.primary.down.add("orders")
    await fails(failing)
    await pair.runtime.advance(10.0)
    pair.primary.hangs.add("orders")
    under_way = [asyncio.ensure_future(hanging.send_messages(ServiceBusMessage(str(number)))) for number in range(10)]
    await pair.runtime.advance(49.99)
    assert not any(task.done() for task in under_way)
    await pair.runtime.advance(0.01)
    assert pair.client.entity_state("orders") is FAILED_OVER
    await asyncio.gather(*under_way)
    assert sorted(pair.in_backlog(), key=int) == [str(number) for number in range(10)]


@covers("N6")
async def test_while_failed_over_the_primary_sees_pings_and_nothing_else(pair: ScriptedPair) -> None:
    sender = pair.client.get_queue_sender("orders")
    pair.primary.down.add("orders")
    await fails(sender)
    await pair.runtime.advance(60.0)
    tried = pair.primary.tried["orders"]
    for number in range(30):
        await sender.send_messages(ServiceBusMessage(str(number)))
        await pair.runtime.advance(10.0)
    assert pair.primary.tried["orders"] == tried
    assert pair.in_backlog() == [str(number) for number in range(30)]


@covers("N10")
async def test_one_ping_per_interval_until_one_is_accepted_and_none_after_it(pair: ScriptedPair) -> None:
    pair.primary.down |= {"orders", "bills"}
    for path in ("orders", "bills"):
        await fails(pair.client.get_queue_sender(path))
    await pair.runtime.advance(60.0 + 600.0)
    assert pair.primary.pings["orders"] == [False] * 11
    assert pair.primary.pings["bills"] == [False] * 11
    pair.primary.down.remove("orders")
    await pair.runtime.advance(600.0)
    assert pair.primary.pings["orders"] == [False] * 11 + [True]
    assert len(pair.primary.pings["bills"]) == 21
    assert len(pair.told(PingFailed)) == 11 + 21


@covers("N10")
@pytest.mark.parametrize(("outage_s", "ping_s"), [(59, 60), (60, 60), (61, 60), (300, 60), (301, 60), (100, 7)])
async def test_as_many_pings_are_sent_and_accepted_as_the_calculator_says(outage_s: int, ping_s: int) -> None:
    pair = ScriptedPair(ping_primary_interval=timedelta(seconds=ping_s))
    paths = ("orders", "bills")
    pair.primary.down |= set(paths)
    for path in paths:
        await fails(pair.client.get_queue_sender(path))
    await pair.runtime.advance(outage_s - 0.001)
    pair.primary.down.clear()
    if outage_s < 60:
        for path in paths:
            await pair.client.get_queue_sender(path).send_messages(ServiceBusMessage("accepted"))
    await pair.runtime.advance(200.0)
    assert len(pair.told(PingSent)) == pings_sent(2, 1, outage_s, ping_s)
    assert sum([pair.primary.pings[path].count(True) for path in paths]) == pings_accepted(2, 1, outage_s)


@covers("N10", "N6")
async def test_senders_are_back_on_the_primary_the_moment_a_ping_is_accepted(pair: ScriptedPair) -> None:
    senders = [pair.client.get_queue_sender("orders") for _ in range(3)]
    pair.primary.down.add("orders")
    await fails(senders[0])
    await pair.runtime.advance(90.0)
    pair.primary.down.clear()
    await pair.runtime.advance(29.99)
    assert pair.client.entity_state("orders") is FAILED_OVER
    await pair.runtime.advance(0.01)
    assert pair.client.entity_state("orders") is HEALTHY
    (healthy,) = pair.told(EntityHealthy)
    assert healthy.failed_over_for_s == pytest.approx(60.0)
    for sender in senders:
        await sender.send_messages(ServiceBusMessage("home"))
    assert pair.primary.bodies("orders") == ["home"] * 3


def _annotated() -> AmqpAnnotatedMessage:
    return ServiceBusMessage("x", partition_key="p", message_id="m").raw_amqp_message


KEYED: dict[str, tuple[Sendable, str]] = {
    "session": (ServiceBusMessage("x", session_id="s", partition_key="s", message_id="m"), "s"),
    "partition key": (ServiceBusMessage("x", partition_key="p", message_id="m"), "p"),
    "message id": (ServiceBusMessage("x", message_id="m"), "m"),
    "mapping": ({"body": "x", "partition_key": "p"}, "p"),
    "annotated": (_annotated(), "p"),
    "list": ([ServiceBusMessage("x", partition_key="p"), ServiceBusMessage("x", partition_key="q")], "p"),
}


@covers("N10")
@pytest.mark.parametrize(("message", "key"), KEYED.values(), ids=KEYED)
async def test_pings_carry_the_key_of_the_message_whose_failure_counted_first(
    pair: ScriptedPair, message: Sendable, key: str
) -> None:
    sender = pair.client.get_queue_sender("orders")
    pair.primary.down.add("orders")
    for each in (message, ServiceBusMessage("raised", session_id="another")):
        with pytest.raises(ServiceBusConnectionError):
            await sender.send_messages(each)
    await pair.runtime.advance(200.0)
    assert pair.primary.ping_keys["orders"] == [key] * 3


@covers("N10")
async def test_pings_for_a_batch_carry_the_key_that_was_added_to_it(pair: ScriptedPair) -> None:
    sender = pair.client.get_queue_sender("orders")
    message = ServiceBusMessage("x", session_id="added")
    ours, sdks = await sender.create_message_batch(), ServiceBusMessageBatch(1000)
    for batch in (ours, sdks):
        message.session_id = "added"
        batch.add_message(message)
        message.session_id = "changed since"
        pair.primary.down.add("orders")
        with pytest.raises(ServiceBusConnectionError):
            await sender.send_messages(batch)
        await pair.runtime.advance(60.0)
        pair.primary.down.clear()
        await pair.runtime.advance(60.0)
    assert pair.primary.ping_keys["orders"] == ["added"] * 4


@covers("N10")
async def test_pings_have_the_key_of_the_latest_failover_or_a_random_one(pair: ScriptedPair) -> None:
    sender = pair.client.get_queue_sender("orders")
    pair.primary.down.add("orders")
    with pytest.raises(ServiceBusConnectionError):
        await sender.create_message_batch()
    await fails(sender)
    await pair.runtime.advance(60.0)
    pair.client.mark_path_healthy("orders")
    for text, key in (("first", "1"), ("second", "2")):
        with pytest.raises(ServiceBusConnectionError):
            await sender.send_messages(ServiceBusMessage(text, partition_key=key))
        await pair.runtime.advance(60.0)
        pair.client.mark_path_healthy("orders")
    with pytest.raises(ServiceBusConnectionError):
        await sender.create_message_batch()
    with pytest.raises(ServiceBusConnectionError):
        await sender.send_messages(ServiceBusMessage("a message that has a key", partition_key="3"))
    await pair.runtime.advance(60.0)
    keyless, *keyed = pair.primary.ping_keys["orders"]
    assert keyless
    assert keyed == ["1", "2", "3"]


@covers("N10")
async def test_a_ping_that_hangs_is_given_up_and_the_next_one_follows(pair: ScriptedPair) -> None:
    pair.primary.hangs.add("orders")
    sender = pair.client.get_queue_sender("orders")
    sending = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("raised"), timeout=5.0))
    await pair.runtime.advance(5.0)
    with pytest.raises(OperationTimeoutError):
        await sending
    await pair.runtime.advance(60.0)
    assert len(pair.told(PingSent)) == 1
    await pair.runtime.advance(60.0)
    assert (len(pair.told(PingSent)), len(pair.told(PingFailed))) == (2, 1)
    pair.primary.hangs.clear()
    await pair.runtime.advance(60.0)
    assert pair.client.entity_state("orders") is HEALTHY


@covers("N10")
async def test_a_ping_of_an_earlier_failover_says_nothing_about_this_one() -> None:
    pair = ScriptedPair(failover_interval=timedelta(0), ping_primary_interval=timedelta(minutes=30))
    pair.primary.hangs.add("orders")
    sender = pair.client.get_queue_sender("orders")
    sending = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("0")))
    await pair.runtime.advance(60.0)
    await sending
    pair.client.mark_path_healthy("orders")
    await pair.runtime.settle()
    assert pair.runtime.timer_count == 0, "no ping waits for anything any more"
    sending = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("1")))
    await pair.runtime.advance(60.0)
    await sending
    assert len(pair.told(PingSent)) == 2
    assert pair.client.entity_state("orders") is FAILED_OVER


@covers("N1")
async def test_without_a_time_out_of_the_callers_the_operation_time_out_holds(pair: ScriptedPair) -> None:
    pair.primary.hangs.add("orders")
    sending = asyncio.ensure_future(pair.client.get_queue_sender("orders").send_messages(ServiceBusMessage("raised")))
    await pair.runtime.advance(59.9)
    assert not sending.done()
    await pair.runtime.advance(0.1)
    with pytest.raises(OperationTimeoutError):
        await sending
    assert pair.client.entity_state("orders") is FAILING


@covers("N5")
async def test_a_call_that_the_caller_cancels_says_nothing_about_the_primary() -> None:
    pair = ScriptedPair(failover_interval=timedelta(0))
    pair.primary.hangs.add("orders")
    sending = asyncio.ensure_future(
        pair.client.get_queue_sender("orders").send_messages(ServiceBusMessage("cancelled"))
    )
    await pair.runtime.settle()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await pair.runtime.advance(120.0)
    assert pair.client.entity_state("orders") is HEALTHY
    assert pair.in_backlog() == []


@covers("N5")
async def test_a_cancelled_diverted_send_takes_no_backlog_queue_out_of_use(pair: ScriptedPair) -> None:
    pair.primary.down.add("orders")
    sender = pair.client.get_queue_sender("orders")
    await fails(sender)
    await pair.runtime.advance(60.0)
    pair.secondary.hangs |= set(pair.queues)
    sending = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("cancelled")))
    await pair.runtime.settle()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert len(pair.client.backlog_queues) == 3


@covers("N5")
async def test_throttling_never_fails_over(pair: ScriptedPair) -> None:
    pair.primary.busy.add("orders")
    sender = pair.client.get_queue_sender("orders")
    for _ in range(10):
        with pytest.raises(ServiceBusServerBusyError):
            await sender.send_messages(ServiceBusMessage("raised"))
        await pair.runtime.advance(30.0)
    assert pair.client.entity_state("orders") is HEALTHY


COUNTING = [
    OperationTimeoutError(),
    ServiceBusConnectionError(),
    ServiceBusCommunicationError(),
    MessagingEntityDisabledError(),
    ServiceBusError("anything else"),
    OSError("no route to host"),
]
ANSWERS = [
    ServiceBusServerBusyError(),
    ServiceBusAuthenticationError(),
    ServiceBusAuthorizationError(),
    MessagingEntityNotFoundError(),
    MessageSizeExceededError(condition=b"amqp:link:message-size-exceeded"),
    ServiceBusQuotaExceededError(),
    ServiceBusError("a bad argument", condition=b"amqp:not-allowed"),
]
SAYING_NOTHING = [ClientAuthenticationError("no token"), MessageSizeExceededError(message="found by the SDK")]
FAILOVER_AT_S = {
    # Sends 10 s apart, the first at 0 s, that end with a failure that counts (c), an answer of the entity (a), or
    # neither (n). The interval is 60 s.
    "ca": None, "ac": 70, "cc": 60, "aa": None, "nc": 70, "cn": 60, "na": None, "an": None, "nn": None,
    "cca": None, "cac": 80, "acc": 70, "caa": None, "aca": None, "aac": 80, "ccc": 60, "aaa": None,
    "ccn": 60, "cnc": 60, "ncc": 70, "cnn": 60, "ncn": 70, "nnc": 80, "nnn": None,
    "can": None, "cna": None, "acn": 70, "anc": 80, "nca": None, "nac": 80,
    "aan": None, "ana": None, "naa": None, "ann": None, "nan": None, "nna": None,
}  # fmt: skip


async def ends_with(error: Exception, pair: ScriptedPair, sender: PairedSender) -> None:
    pair.primary.refused = {"one": error}
    with pytest.raises(type(error)) as raised:
        await sender.send_messages(ServiceBusMessage("one"))
    assert raised.value is error, "as the SDK raised it"


@covers("N5")
@pytest.mark.parametrize(("sequence", "failover_at_s"), FAILOVER_AT_S.items())
async def test_failover_is_timed_from_the_first_failure_since_the_entity_last_answered(
    pair: ScriptedPair, sequence: str, failover_at_s: float | None
) -> None:
    sender = pair.client.get_queue_sender("orders")
    errors = {"c": COUNTING[0], "a": ANSWERS[0], "n": SAYING_NOTHING[0]}
    for number, kind in enumerate(sequence):
        await pair.runtime.advance(10.0 if number else 0.0)
        await ends_with(errors[kind], pair, sender)
    began_at = pair.runtime.manual.now() - 10.0 * (len(sequence) - 1)
    await pair.runtime.advance(600.0)
    told = [pytest.approx(event.at - began_at) for event in pair.told(FailoverEngaged)]
    assert told == ([] if failover_at_s is None else [failover_at_s])


@covers("N5")
@pytest.mark.parametrize("first", COUNTING, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("second", [*COUNTING, *ANSWERS, *SAYING_NOTHING], ids=lambda error: type(error).__name__)
async def test_what_follows_a_failure_that_counts(pair: ScriptedPair, first: Exception, second: Exception) -> None:
    sender = pair.client.get_queue_sender("orders")
    await ends_with(first, pair, sender)
    await ends_with(second, pair, sender)
    assert pair.client.entity_state("orders") is (HEALTHY if second in ANSWERS else FAILING)


@covers("N7")
async def test_a_backlog_queue_that_hangs_is_left_after_the_operation_time_out(pair: ScriptedPair) -> None:
    pair.primary.down.add("orders")
    sender = pair.client.get_queue_sender("orders")
    await fails(sender)
    await pair.runtime.advance(60.0)
    await sender.send_messages(ServiceBusMessage("0"))
    (own,) = [queue for queue in pair.queues if pair.secondary.bodies(queue)]
    pair.secondary.hangs.add(own)
    sending = [asyncio.ensure_future(sender.send_messages(ServiceBusMessage(str(number)))) for number in range(1, 9)]
    await pair.runtime.advance(59.9)
    assert not any(task.done() for task in sending)
    await pair.runtime.advance(0.1)
    await asyncio.gather(*sending)
    (dropped,) = pair.told(BacklogQueueDropped)
    assert (dropped.queue, dropped.queues_left) == (own, 2)
    assert own not in pair.client.backlog_queues
    assert sorted(pair.in_backlog()) == [str(number) for number in range(9)]


@covers("N7")
async def test_a_secondary_that_was_restarted_since_the_last_send_loses_no_backlog_queue(pair: ScriptedPair) -> None:
    pair.primary.down.add("orders")
    sender = pair.client.get_queue_sender("orders")
    await fails(sender)
    await pair.runtime.advance(60.0)
    await sender.send_messages(ServiceBusMessage("0"))
    pair.secondary.restart()
    await sender.send_messages(ServiceBusMessage("1"))
    (own,) = [queue for queue in pair.queues if pair.secondary.bodies(queue)]
    assert pair.secondary.bodies(own) == ["0", "1"]
    assert pair.told(BacklogQueueDropped) == []
    pair.secondary.down.add(own)
    await sender.send_messages(ServiceBusMessage("2"))
    (dropped,) = pair.told(BacklogQueueDropped)
    assert (dropped.queue, dropped.queues_left) == (own, 2)


@covers("N1", "N7")
async def test_a_callers_time_out_bounds_everything_in_the_backlog(pair: ScriptedPair) -> None:
    pair.primary.down.add("orders")
    sender = pair.client.get_queue_sender("orders")
    await fails(sender)
    await pair.runtime.advance(60.0)
    pair.secondary.hangs |= set(pair.queues)
    sending = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("late"), timeout=2.0))
    waiting = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("behind it"), timeout=1.0))
    await pair.runtime.advance(2.0)
    for late in (sending, waiting):
        with pytest.raises(SendAvailabilityBacklogError) as caught:
            await late
        (cause,) = caught.value.causes.values()
        assert isinstance(cause, OperationTimeoutError)
    assert len(pair.client.backlog_queues) == 2, "only the one that hung, not those that nobody came to"


@covers("N7")
@pytest.mark.parametrize("timeout", [None, 2.0])
async def test_when_no_queue_is_left_every_send_is_told_why(timeout: float | None) -> None:
    pair = ScriptedPair(failover_interval=timedelta(0), backlog_queue_count=2, operation_timeout=timedelta(seconds=2))
    pair.primary.down.add("orders")
    pair.secondary.down.add(pair.queues[0])
    pair.secondary.hangs.add(pair.queues[1])
    sender = pair.client.get_queue_sender("orders")
    for _ in range(3):
        sending = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("0"), timeout=timeout))
        await pair.runtime.advance(2.0)
        with pytest.raises(SendAvailabilityBacklogError) as caught:
            await sending
    assert pair.client.backlog_queues == ()
    assert [type(caught.value.causes[queue]) for queue in pair.queues] == [
        ServiceBusConnectionError,
        OperationTimeoutError,
    ]
    assert len(str(SendAvailabilityBacklogError("orders", (), {str(one): OSError() for one in range(1000)}))) < 200


@covers("N7")
async def test_what_of_a_list_is_in_the_backlog_and_what_is_not_is_told() -> None:
    pair = ScriptedPair(failover_interval=timedelta(0), backlog_queue_by_key=True, backlog_queue_count=1)
    pair.primary.down.add("orders")
    sender = pair.client.get_queue_sender("orders")
    messages = [ServiceBusMessage(name, session_id=name) for name in ("alice", "bob", "carol")]
    pair.secondary.room[pair.queues[0]] = 1
    with pytest.raises(SendAvailabilityBacklogError) as caught:
        await sender.send_messages(messages)
    assert pair.in_backlog() == ["alice"]
    assert caught.value.unsent == (messages[1], messages[2])
    assert isinstance(caught.value.causes[pair.queues[0]], ServiceBusQuotaExceededError)


@covers("N7", "N17")
async def test_a_batch_is_made_by_the_namespace_that_can_and_sent_to_the_one_that_is_there() -> None:
    pair = ScriptedPair(failover_interval=timedelta(0))
    sender = pair.client.get_queue_sender("orders")
    for_the_primary = await sender.create_message_batch()
    for_the_primary.add_message(ServiceBusMessage("one"))
    pair.primary.down.add("orders")
    pair.secondary.down |= set(pair.queues[:2])
    for_the_backlog = await sender.create_message_batch()
    for_the_backlog.add_message(ServiceBusMessage("two"))
    await sender.send_messages(for_the_primary)
    assert len(pair.secondary.accepted[pair.queues[2]]) == 0, "it went as bytes, not as an object"
    assert pair.secondary.tried[pair.queues[2]] == 1
    pair.client.mark_path_healthy("orders")
    pair.primary.down.clear()
    await sender.send_messages(for_the_backlog)
    assert pair.primary.bodies("orders") == ["two"]
    pair.primary.down.add("orders")
    pair.secondary.down |= set(pair.queues)
    with pytest.raises(SendAvailabilityBacklogError) as caught:
        await sender.create_message_batch()
    assert set(caught.value.causes) <= set(pair.queues)


@covers("N14")
@pytest.mark.parametrize("first", ["primary", "secondary"])
async def test_with_a_syphon_a_client_whose_partner_was_closed_is_closed_after_five_seconds(first: str) -> None:
    pair = ScriptedPair(enable_syphon=True)
    clients = {"primary": pair.primary_client, "secondary": pair.options.secondary_client}
    (other,) = set(clients) - {first}
    sender = pair.client.get_queue_sender("orders")
    await clients[first].close()
    await pair.runtime.advance(4.99)
    assert not clients[other].is_closed
    await pair.runtime.advance(0.01)
    assert clients[other].is_closed
    for call in (
        lambda: sender.send_messages(ServiceBusMessage("x")),
        sender.create_message_batch,
        lambda: sender.cancel_scheduled_messages(1),
    ):
        with pytest.raises(PairFaulted) as caught:
            await call()
        assert caught.value.first == first
    with pytest.raises(PairFaulted):
        pair.client.get_queue_sender("orders")
    with pytest.raises(PairFaulted):
        pair.client.get_queue_receiver("orders")


@covers("N14")
async def test_a_partner_that_follows_in_time_is_not_faulted() -> None:
    pair = ScriptedPair(enable_syphon=True)
    await pair.primary_client.close()
    await pair.runtime.advance(4.0)
    await pair.options.secondary_client.close()
    await pair.runtime.advance(60.0)
    pair.client.get_queue_sender("orders")
    assert pair.runtime.timer_count == 0


@covers("N14")
async def test_without_a_syphon_each_client_goes_its_own_way(pair: ScriptedPair) -> None:
    await pair.primary_client.close()
    await pair.runtime.advance(60.0)
    assert not pair.options.secondary_client.is_closed


@covers("N14")
async def test_a_client_that_has_faulted_takes_its_partner_along_and_says_why() -> None:
    pair = ScriptedPair(enable_syphon=True)
    pair.client._client_faulted("secondary", PermissionError("the key was refused"))
    await pair.runtime.advance(5.0)
    assert pair.primary_client.is_closed  # type: ignore[attr-defined]
    with pytest.raises(PairFaulted, match=r"the secondary client has faulted .*the key was refused"):
        pair.client.get_queue_sender("orders")


@covers("N14")
async def test_closing_ends_pings_and_timers_and_leaves_the_clients_as_they_were(pair: ScriptedPair) -> None:
    close = type(pair.primary_client).close
    sender = pair.client.get_queue_sender("orders")
    pair.primary.down |= {"orders", "bills"}
    await fails(sender)
    await pair.runtime.advance(60.0)
    await fails(pair.client.get_queue_sender("bills"))
    await pair.client.close()
    assert pair.runtime.timer_count == 0
    assert not pair.primary_client.is_closed  # type: ignore[attr-defined]
    assert pair.primary_client.close.__func__ is close  # type: ignore[attr-defined]


@covers("N14")
async def test_a_client_in_two_pairs_is_observed_for_both() -> None:
    first = ScriptedPair(enable_syphon=True)
    second = ScriptedPair(enable_syphon=True, secondary_client=first.options.secondary_client)
    await first.client.close()
    await second.options.secondary_client.close()
    await second.runtime.advance(5.0)
    assert second.primary_client.is_closed  # type: ignore[attr-defined]
    assert not first.primary_client.is_closed  # type: ignore[attr-defined]


@covers("N16")
async def test_a_listener_that_fails_stops_nobody(pair: ScriptedPair) -> None:
    def fail(event: object) -> None:
        raise RuntimeError("no room for it")

    pair.options.on_event(fail)
    pair.primary.down.add("orders")
    await fails(pair.client.get_queue_sender("orders"))
    await pair.runtime.advance(60.0)
    assert pair.client.entity_state("orders") is FAILED_OVER
    assert pair.told(PingFailed)


@covers("N4")
async def test_on_the_way_to_a_healthy_primary_the_message_is_the_callers_own(pair: ScriptedPair) -> None:
    message = ServiceBusMessage("one")
    sender = pair.client.get_queue_sender("orders")
    for _ in range(3):
        await sender.send_messages(message)
    assert all(accepted is message for accepted in pair.primary.accepted["orders"])
    assert (pair.primary.connections, pair.secondary.connections) == (1, 0)
    assert pair.runtime.timer_count == 0
