"""Paired namespaces with the SDK's clients, asyncio and blocking, and faults on purpose."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from azure.servicebus.management import AccessRights, AuthorizationRule, ServiceBusAdministrationClient

from tandembus.client.administration import Administration
from tandembus.client.meter import since_start
from tandembus.config import Limits
from tandembus.metering.slot import PING
from tandembus.namespace.partitioning import fragment_of_key
from tandembus.pairing import (
    BacklogMessageTooLarge,
    BacklogQueueDropped,
    ClientFaulted,
    EntityHealthy,
    EntityState,
    FailoverEngaged,
    PairClosed,
    PairFaulted,
    PingFailed,
    PingSent,
    ReservedPropertyName,
    SchedulingUnavailable,
    SendAvailabilityBacklogError,
    closing,
)
from tandembus.testing import EmbeddedNamespace
from tandembus.testing.asynchronous import FaultKind
from tests.covers import covers
from tests.integration.pairs import COMES_WITHIN_S, INTERVAL, Form, Pair
from tests.integration.python_sdk import Closer, LoopThread

HEALTHY, FAILING, FAILED_OVER = EntityState.HEALTHY, EntityState.FAILING, EntityState.FAILED_OVER


@pytest.fixture
def form(request: pytest.FixtureRequest, loop_thread: LoopThread, own_closer: Closer) -> Iterator[Form]:
    """One form is enough where the blocking one only waits for the other."""
    form = Form(getattr(request, "param", "async"), loop_thread)
    yield form
    own_closer.close(form.close)


both_forms = pytest.mark.parametrize("form", ["async", "sync"], indirect=True)


@pytest.fixture
def orders(primary: EmbeddedNamespace) -> str:
    return primary.create_queue(f"orders-{uuid.uuid4().hex[:8]}")


MakePair = Callable[..., Pair]


@pytest.fixture
def make_pair(form: Form, primary: EmbeddedNamespace, secondary: EmbeddedNamespace) -> Iterator[MakePair]:
    made: list[Pair] = []

    def make(**options: Any) -> Pair:
        first = options.pop("primary", None) or form.client(primary.connection_string)
        second = form.client(secondary.connection_string)
        made.append(
            Pair(form, first, second, form.admin(secondary.tls_connection_string, secondary.ca_path), **options)
        )
        return made[-1]

    yield make
    primary.heal()
    secondary.heal()
    for pair in made:
        form.closing_first(pair.close)


@pytest.fixture
def pair(make_pair: MakePair) -> Pair:
    return make_pair()


# Failing over and returning.


@both_forms
@covers("N4", "N17")
def test_on_a_healthy_primary_nothing_reaches_the_secondary(
    pair: Pair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    sender = pair.sender(orders)
    with sender:
        sender.send_messages(ServiceBusMessage("one"))
        sender.send_messages([ServiceBusMessage("two"), {"body": "three"}])
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("four"))
        sender.send_messages(batch)
        sender.send_messages(ServiceBusMessage(text) for text in ("five", "six"))
        sender.send_messages([])
        (number,) = sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
        sender.cancel_scheduled_messages(number)
    assert primary.counts(orders).active == 6
    assert primary.counts(orders).scheduled == 0
    assert _in_backlog(pair, secondary) == 0
    assert pair.state(orders) is HEALTHY
    assert not pair.events.of(FailoverEngaged)


@both_forms
@covers("N5", "N6", "N10", "N16")
def test_sends_fail_then_go_to_the_backlog_and_return_after_a_ping(
    pair: Pair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    sender, other = pair.sender(orders), pair.sender(orders)
    sender.send_messages(ServiceBusMessage("before"))
    primary.inject_fault(f"entity/{orders}", "unavailable")
    with pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("raised"))
    assert pair.state(orders) in (FAILING, FAILED_OVER)  # the interval is short, and the machine may be busy
    engaged = pair.events.wait_for(FailoverEngaged)
    assert engaged.failing_for_s >= INTERVAL.total_seconds()  # how exactly is seen on a clock that does not run
    assert pair.state(orders) is FAILED_OVER
    message = ServiceBusMessage("diverted", session_id="alice", message_id="m1", time_to_live=timedelta(hours=1))
    sender.send_messages(message)
    other.send_messages(ServiceBusMessage("diverted, too"))
    assert (message.session_id, message.time_to_live, message.application_properties) == (
        "alice",
        timedelta(hours=1),
        None,
    )
    assert _in_backlog(pair, secondary) == 2
    pair.events.wait_for(PingFailed)
    primary.heal()
    healthy = pair.events.wait_for(EntityHealthy)
    assert (healthy.path, healthy.because) == (orders, "ping")
    assert _metered_pings(primary, orders) == 1, "those that were refused cost nothing"
    sender.send_messages(ServiceBusMessage("after"))
    other.send_messages(ServiceBusMessage("after, too"))
    assert primary.counts(orders).active == 3
    assert _in_backlog(pair, secondary) == 2
    (diverted, *_) = _peek(pair, secondary, "diverted")
    assert diverted.session_id is None
    assert diverted.time_to_live is None
    properties = diverted.application_properties
    assert (properties[b"x-ms-path"], properties[b"x-ms-sessionid"]) == (orders.encode(), b"alice")
    assert properties[b"x-ms-timetolive"] == 3_600_000


@covers("N5")
def test_only_the_entity_that_fails_is_failed_over(
    pair: Pair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    bills = primary.create_topic(f"bills-{uuid.uuid4().hex[:8]}")
    primary.create_subscription(bills, "all")
    primary.inject_fault(f"entity/{orders}", "unavailable")
    _fail_over(pair, orders)
    pair.topic_sender(bills).send_messages(ServiceBusMessage("to the primary"))
    assert primary.counts(f"{bills}/Subscriptions/all").active == 1
    assert pair.state(bills) is HEALTHY
    assert _in_backlog(pair, secondary) == 0


@covers("N5")
def test_a_topic_fails_over_as_a_queue_does(
    make_pair: MakePair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace
) -> None:
    pair = make_pair(failover_interval=timedelta(0))
    bills = primary.create_topic(f"bills-{uuid.uuid4().hex[:8]}")
    primary.inject_fault(f"entity/{bills}", "unavailable")
    pair.topic_sender(bills).send_messages(ServiceBusMessage("diverted"))
    assert _in_backlog(pair, secondary) == 1
    primary.heal()
    pair.events.wait_for(EntityHealthy)


@both_forms
@covers("N5")
def test_without_an_interval_the_send_that_fails_is_in_the_backlog_when_it_returns(
    make_pair: MakePair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    pair = make_pair(failover_interval=timedelta(0))
    primary.inject_fault(f"entity/{orders}", "unavailable")
    pair.sender(orders).send_messages(ServiceBusMessage("never raised"))
    assert _in_backlog(pair, secondary) == 1


@covers("N5")
def test_a_success_within_the_interval_keeps_everybody_on_the_primary(
    make_pair: MakePair, primary: EmbeddedNamespace, orders: str
) -> None:
    pair = make_pair(failover_interval=timedelta(seconds=30))
    sender = pair.sender(orders)
    with primary.fault(f"entity/{orders}", "unavailable"), pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("raised"))
    assert pair.state(orders) is FAILING
    sender.send_messages(ServiceBusMessage("accepted"))
    assert pair.state(orders) is HEALTHY


@covers("N5")
def test_a_disabled_entity_counts(
    pair: Pair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    _set_status(primary, orders, "Disabled")
    with pytest.raises(MessagingEntityDisabledError):
        pair.sender(orders).send_messages(ServiceBusMessage("raised"))
    pair.events.wait_for(FailoverEngaged)
    pair.sender(orders).send_messages(ServiceBusMessage("diverted"))
    assert _in_backlog(pair, secondary) == 1
    _set_status(primary, orders, "Active")
    pair.events.wait_for(EntityHealthy)


@covers("N5")
def test_throttling_does_not_count(pair: Pair, primary: EmbeddedNamespace, orders: str) -> None:
    sender = pair.sender(orders)
    primary.inject_fault(f"entity/{orders}", "throttled")
    for _ in range(2):
        with pytest.raises(ServiceBusServerBusyError):
            sender.send_messages(ServiceBusMessage("too much"))
    assert pair.state(orders) is HEALTHY


@both_forms
@covers("N5")
def test_a_busy_primary_and_a_revoked_key_stop_the_timer_that_a_failure_has_started(
    make_pair: MakePair, form: Form, primary: EmbeddedNamespace, orders: str
) -> None:
    sends_only = form.client(_allow_to_send(primary, orders))
    pair = make_pair(failover_interval=timedelta(minutes=10), primary=sends_only)
    sender = pair.sender(orders)
    sender.send_messages(ServiceBusMessage("accepted"))

    def fails_while(fault: FaultKind, error: type[ServiceBusError]) -> None:
        with primary.fault(f"entity/{orders}", fault), pytest.raises(error):
            sender.send_messages(ServiceBusMessage("raised"))

    fails_while("unavailable", ServiceBusError)
    assert pair.state(orders) is FAILING
    fails_while("throttled", ServiceBusServerBusyError)
    assert pair.state(orders) is HEALTHY
    fails_while("unavailable", ServiceBusError)
    assert pair.state(orders) is FAILING
    _revoke(primary, orders)
    with pytest.raises(ServiceBusAuthenticationError):
        sender.send_messages(ServiceBusMessage("raised"))
    assert pair.state(orders) is HEALTHY


@covers("N5")
def test_a_wrong_key_and_an_unknown_entity_do_not_count(
    make_pair: MakePair, form: Form, primary: EmbeddedNamespace, orders: str
) -> None:
    wrong = primary.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")
    pair = make_pair(failover_interval=timedelta(0), primary=form.client(wrong))
    with pytest.raises(ServiceBusError):
        pair.sender(orders).send_messages(ServiceBusMessage("not mine"))
    assert pair.state(orders) is HEALTHY
    right = make_pair(failover_interval=timedelta(0))
    with pytest.raises(ServiceBusError):
        right.sender("nowhere").send_messages(ServiceBusMessage("lost?"))
    assert right.state("nowhere") is HEALTHY


@covers("N5")
@pytest.mark.parametrize(
    "message",
    [
        ServiceBusMessage("x", application_properties={"what": object()}),  # type: ignore[dict-item]
        ServiceBusMessage("x" * 300_000),
        ServiceBusMessage("x", session_id="a", partition_key="a"),
        "not a message",
    ],
    ids=["unknown type", "too large", "conflicting keys", "no message"],
)
def test_bad_messages_do_not_count(make_pair: MakePair, orders: str, message: ServiceBusMessage) -> None:
    if message is not None and isinstance(message, ServiceBusMessage) and message.session_id:
        message.raw_amqp_message.annotations[b"x-opt-partition-key"] = "b"  # type: ignore[index]
    pair = make_pair(failover_interval=timedelta(0))
    with pytest.raises((ServiceBusError, TypeError, ValueError)):
        pair.sender(orders).send_messages(message)
    assert pair.state(orders) is HEALTHY


@covers("N6", "N10")
@pytest.mark.parametrize("kind", ["session_id", "partition_key", "message_id"])
def test_a_keyed_sender_stays_in_the_backlog_until_the_fragment_of_its_key_is_back(
    make_pair: MakePair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, kind: str
) -> None:
    entity = primary.create_queue(
        f"orders-{uuid.uuid4().hex[:8]}", enable_partitioning=True, requires_duplicate_detection=kind == "message_id"
    )
    key = "Order-7"
    assert fragment_of_key(key) != fragment_of_key(key.casefold())
    fragment = fragment_of_key(key if kind == "message_id" else key.casefold())
    pair = make_pair(failover_interval=timedelta(0))
    sender = pair.sender(entity)
    with primary.fault(f"fragment/{entity}/{fragment}", "unavailable"):
        for number in range(2):
            sender.send_messages({"body": str(number), kind: key})
            pair.events.wait_for(PingFailed, count=number + 1)
        assert pair.state(entity) is FAILED_OVER
    pair.events.wait_for(EntityHealthy)
    assert len(pair.events.of(FailoverEngaged)) == 1
    assert _in_backlog(pair, secondary) == 2
    sender.send_messages({"body": "at home", kind: key})
    assert primary.counts(entity).active == 1


@covers("N6", "N16")
def test_marking_a_path_healthy_and_clearing_return_without_a_ping(
    make_pair: MakePair, primary: EmbeddedNamespace, orders: str
) -> None:
    pair = make_pair(failover_interval=timedelta(0), ping_primary_interval=timedelta(minutes=30))
    sender = pair.sender(orders)
    for return_now in (lambda: pair.client.mark_path_healthy(orders.upper()), pair.client.clear):
        with primary.fault(f"entity/{orders}", "unavailable"):
            sender.send_messages(ServiceBusMessage("diverted"))
            assert pair.state(orders) is FAILED_OVER
            pair.events.wait_for(PingFailed, count=len(pair.events.of(FailoverEngaged)))
        pair.form.call(return_now)
        assert pair.state(orders) is HEALTHY
        sender.send_messages(ServiceBusMessage("at home"))
    assert primary.counts(orders).active == 2
    assert [event.because for event in pair.events.of(EntityHealthy)] == ["marked", "marked"]


@both_forms
@covers("N10")
def test_one_ping_at_a_time_per_entity_however_many_senders_there_are(
    make_pair: MakePair, primary: EmbeddedNamespace, orders: str
) -> None:
    pair = make_pair(failover_interval=timedelta(0))
    primary.inject_fault(f"entity/{orders}", "unavailable")
    senders = [pair.sender(orders) for _ in range(4)]
    _all_at_once([partial(sender.send_messages, ServiceBusMessage("x")) for sender in senders])
    pair.events.wait_for(PingFailed, count=3)
    pings = [event.at for event in pair.events.of(PingSent)]
    assert all(later - earlier > 0.5 for earlier, later in itertools.pairwise(pings))
    assert len(pair.events.of(FailoverEngaged)) == 1


# In the backlog.


@both_forms
@covers("N7")
def test_a_backlog_queue_that_fails_leaves_the_rotation_for_everybody(
    make_pair: MakePair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    pair = make_pair(failover_interval=timedelta(0))
    primary.inject_fault(f"entity/{orders}", "unavailable")
    for broken in pair.queues[:2]:
        secondary.inject_fault(f"entity/{broken}", "unavailable")
    for _ in range(4):
        pair.sender(orders).send_messages(ServiceBusMessage("diverted"))
    assert secondary.counts(pair.queues[2]).active == 4
    assert {event.queue for event in pair.events.of(BacklogQueueDropped)} <= set(pair.queues[:2])
    assert len(pair.events.of(BacklogQueueDropped)) == 3 - len(pair.form.call(lambda: pair.client.backlog_queues))


@both_forms
@covers("N7")
def test_with_no_backlog_queue_left_the_message_is_still_the_callers(
    make_pair: MakePair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    pair = make_pair(failover_interval=timedelta(0))
    primary.inject_fault(f"entity/{orders}", "unavailable")
    for broken in pair.queues:
        secondary.inject_fault(f"entity/{broken}", "unavailable")
    sender, messages = pair.sender(orders), [ServiceBusMessage("a"), ServiceBusMessage("b")]
    with pytest.raises(SendAvailabilityBacklogError) as caught:
        sender.send_messages(messages)
    assert list(caught.value.unsent) == messages
    assert set(caught.value.causes) == set(pair.queues)
    with pytest.raises(SendAvailabilityBacklogError) as again:
        sender.send_messages(messages[0])
    assert again.value.causes == caught.value.causes
    dropped_at = pair.events.of(BacklogQueueDropped)[-1].at
    secondary.heal()
    while True:
        try:
            sender.send_messages(messages)
            break
        except SendAvailabilityBacklogError:
            threading.Event().wait(0.2)
    assert time.time() >= dropped_at + 1.0
    assert _in_backlog(pair, secondary) == 2


@both_forms
@covers("N9")
def test_a_batch_that_no_longer_fits_is_split_and_a_message_that_does_not_is_refused_before_anything_is_sent(
    make_pair: MakePair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    pair = make_pair(failover_interval=timedelta(0))
    sender = pair.sender(orders)
    batch = sender.create_message_batch()
    properties: dict[str | bytes, Any] = {}
    message = ServiceBusMessage("x" * 1000, application_properties=properties)
    count = 0
    while batch.size_in_bytes + 1200 < batch.max_size_in_bytes:
        properties["number"] = count
        batch.add_message(message)
        count += 1
    primary.inject_fault(f"entity/{orders}", "unavailable")
    sender.send_messages(batch)
    assert _in_backlog(pair, secondary) == count
    numbers = [one.application_properties[b"number"] for one in _peek(pair, secondary, "x" * 1000)]
    assert numbers == list(range(count)), "a batch holds what was added, even if the object changed since"
    nearly = ServiceBusMessage(b"x" * (Limits().max_message_size_bytes - 60))
    for sendable in (nearly, [ServiceBusMessage("fits"), nearly]):
        with pytest.raises(BacklogMessageTooLarge):
            sender.send_messages(sendable)
    assert _in_backlog(pair, secondary) == count
    assert not pair.events.of(BacklogQueueDropped)


@covers("N8")
def test_the_backlogs_own_names_are_refused(
    make_pair: MakePair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    pair = make_pair(failover_interval=timedelta(0))
    primary.inject_fault(f"entity/{orders}", "unavailable")
    with pytest.raises(ReservedPropertyName):
        pair.sender(orders).send_messages(ServiceBusMessage("x", application_properties={"x-ms-path": "elsewhere"}))
    assert _in_backlog(pair, secondary) == 0


@covers("N6")
def test_by_key_messages_of_a_session_share_a_backlog_queue_and_keep_their_order(
    make_pair: MakePair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    pair = make_pair(failover_interval=timedelta(0), backlog_queue_by_key=True)
    primary.inject_fault(f"entity/{orders}", "unavailable")
    first, second = pair.sender(orders), pair.sender(orders)
    for number in range(4):
        sender = (first, second)[number % 2]
        sender.send_messages(
            [ServiceBusMessage(str(number), session_id=session) for session in ("alice", "bob", "carol")]
        )
    found: dict[bytes, list[tuple[str, str]]] = {}
    for queue in pair.queues:
        for message in _peek_queue(secondary, queue):
            session = message.application_properties[b"x-ms-sessionid"]
            found.setdefault(session, []).append((queue, str(message)))
    assert len(found) == 3
    for places in found.values():
        assert len({queue for queue, _ in places}) == 1
        assert [text for _, text in places] == ["0", "1", "2", "3"]


# Scheduling.


@covers("N17")
def test_scheduling_needs_the_primary(make_pair: MakePair, primary: EmbeddedNamespace, orders: str) -> None:
    pair = make_pair(failover_interval=timedelta(0))
    sender, later = pair.sender(orders), datetime.now(UTC) + timedelta(hours=1)
    (number,) = sender.schedule_messages(ServiceBusMessage("later"), later)
    primary.inject_fault(f"entity/{orders}", "unavailable")
    with pytest.raises(SchedulingUnavailable):
        sender.schedule_messages(ServiceBusMessage("later"), later)
    assert pair.state(orders) is FAILED_OVER
    with pytest.raises(SchedulingUnavailable):
        sender.schedule_messages([ServiceBusMessage("later")], later)
    with pytest.raises(ServiceBusError):
        sender.cancel_scheduled_messages(number)
    sender.send_messages(ServiceBusMessage("instead", scheduled_enqueue_time_utc=later))
    primary.heal()
    sender.cancel_scheduled_messages(number)
    assert primary.counts(orders).scheduled == 0


# Several pairs, and the end.


@covers("N1")
def test_several_primaries_share_one_secondary(
    make_pair: MakePair, form: Form, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    with EmbeddedNamespace(name="adatum") as another:
        another.create_queue(orders)
        first = make_pair(failover_interval=timedelta(0))
        second = make_pair(failover_interval=timedelta(0), primary=form.client(another.connection_string))
        primary.inject_fault(f"entity/{orders}", "unavailable")
        first.sender(orders).send_messages(ServiceBusMessage("contoso's"))
        assert second.state(orders) is HEALTHY
        another.inject_fault("namespace", "unavailable")
        second.sender(orders).send_messages(ServiceBusMessage("adatum's"))
        assert [str(message) for message in _peek(first, secondary, "contoso's")] == ["contoso's"]
        assert [str(message) for message in _peek(second, secondary, "adatum's")] == ["adatum's"]
        second.close()


@both_forms
@covers("N14", "N17")
def test_closing_the_paired_client_ends_its_senders_and_leaves_the_clients_open(
    pair: Pair, primary: EmbeddedNamespace, orders: str
) -> None:
    sender = pair.sender(orders)
    sender.send_messages(ServiceBusMessage("one"))
    with pair.form.blocking(pair.form.call(pair.client.get_queue_receiver, orders, max_wait_time=5)) as receiver:
        assert [str(message) for message in receiver.receive_messages()] == ["one"]
    pair.close()
    with pytest.raises(PairClosed):
        sender.send_messages(ServiceBusMessage("two"))
    with pytest.raises(PairClosed):
        pair.sender(orders)
    plain = pair.form.blocking(pair.form.call(pair.primary.get_queue_sender, orders))
    with plain:
        plain.send_messages(ServiceBusMessage("three"))
        pair.form.call(pair.primary.close)
    assert primary.counts(orders).active == 2


@pytest.mark.parametrize(("form", "first"), [("async", "secondary"), ("sync", "primary")], indirect=["form"])
@covers("N14")
def test_with_a_syphon_a_client_follows_its_partner_after_five_seconds(
    make_pair: MakePair, orders: str, first: str
) -> None:
    pair = make_pair(enable_syphon=True)
    sender = pair.sender(orders)
    sender.send_messages(ServiceBusMessage("one"))
    began = time.monotonic()
    pair.form.call((pair.primary if first == "primary" else pair.secondary).close)
    faulted = pair.events.wait_for(ClientFaulted)
    assert pair.events.time_of(ClientFaulted) - began > 4.9  # how exactly is a row of the fault matrix
    assert (faulted.first, faulted.side == first) == (first, False)
    for call in (partial(sender.send_messages, ServiceBusMessage("two")), sender.create_message_batch):
        with pytest.raises(PairFaulted, match=f"the {first} client was closed"):
            call()


@both_forms
@covers("N14")
def test_with_a_syphon_a_primary_that_refuses_its_key_for_good_takes_its_partner_along(
    make_pair: MakePair, form: Form, primary: EmbeddedNamespace, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "REFUSED_FOR_S", 2.0)  # the whole minute is waited for on a manual clock
    wrong = primary.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")
    pair = make_pair(enable_syphon=True, primary=form.client(wrong))
    sender = pair.sender(orders)
    give_up_at = time.monotonic() + 3 * COMES_WITHIN_S
    while not pair.events.of(ClientFaulted) and time.monotonic() < give_up_at:
        with pytest.raises((ServiceBusAuthenticationError, PairFaulted)):
            sender.send_messages(ServiceBusMessage("refused"))
    faulted = pair.events.wait_for(ClientFaulted)
    assert (faulted.first, faulted.side) == ("primary", "secondary")
    with pytest.raises(PairFaulted, match="the primary client has faulted"):
        pair.state(orders)


@both_forms
@covers("N1")
def test_a_callers_time_out_is_kept(
    make_pair: MakePair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    pair = make_pair(failover_interval=timedelta(seconds=30))
    sender = pair.sender(orders)
    sender.send_messages(ServiceBusMessage("opened"))
    primary.inject_fault("store/0", "slow", latency=10.0)
    began = time.monotonic()
    with pytest.raises(OperationTimeoutError):
        sender.send_messages(ServiceBusMessage("late"), timeout=0.5)
    assert 0.4 < time.monotonic() - began < 8.0
    assert pair.state(orders) is FAILING
    with pytest.raises(ValueError, match="greater than 0"):
        sender.send_messages(ServiceBusMessage("x"), timeout=0)


@both_forms
@covers("N5", "N6")
def test_a_send_that_is_running_when_failover_engages_goes_to_the_backlog_within_the_same_call(
    make_pair: MakePair, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    pair = make_pair(failover_interval=timedelta(seconds=1))
    hanging, failing = pair.sender(orders), pair.sender(orders)
    hanging.send_messages(ServiceBusMessage("opened"))
    failing.send_messages(ServiceBusMessage("opened"))
    primary.inject_fault("store/0", "slow", latency=20.0)
    ended: list[float] = []

    def hang() -> None:
        hanging.send_messages(ServiceBusMessage("hung"))
        ended.append(time.monotonic())

    thread = threading.Thread(target=hang)
    thread.start()
    with pytest.raises(OperationTimeoutError):
        failing.send_messages(ServiceBusMessage("raised"), timeout=0.2)
    pair.events.wait_for(FailoverEngaged)
    thread.join(10.0)
    assert ended[0] - pair.events.time_of(FailoverEngaged) < 5.0
    assert [str(message) for message in _peek(pair, secondary, "hung")] == ["hung"]


# What is where.


def _fail_over(pair: Pair, path: str) -> None:
    with pytest.raises(ServiceBusError):
        pair.sender(path).send_messages(ServiceBusMessage("raised"))
    pair.events.wait_for(FailoverEngaged)


def _in_backlog(pair: Pair, secondary: EmbeddedNamespace) -> int:
    return sum(secondary.counts(queue).active for queue in pair.queues)


def _all_at_once(calls: list[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _peek(pair: Pair, secondary: EmbeddedNamespace, body: str) -> list[Any]:
    return [message for queue in pair.queues for message in _peek_queue(secondary, queue) if str(message) == body]


def _peek_queue(secondary: EmbeddedNamespace, queue: str) -> list[Any]:
    found: list[Any] = []
    client = ServiceBusClient.from_connection_string(secondary.connection_string)
    with client, client.get_queue_receiver(queue) as receiver:
        number = 1
        while messages := receiver.peek_messages(250, sequence_number=number):
            found += messages
            number = (messages[-1].sequence_number or 0) + 1
    return found


def _metered_pings(namespace: EmbeddedNamespace, queue: str) -> int:
    async def ask() -> int:
        async with Administration(namespace.connection_string) as administration:
            counted = [row async for row in since_start(administration.requests, queue)]
        return sum([row.operations for row in counted if row.reason == PING])

    return asyncio.run(ask())


def _set_status(namespace: EmbeddedNamespace, queue: str, status: str) -> None:
    with _admin(namespace) as admin:
        found = admin.get_queue(queue)
        found.status = status
        admin.update_queue(found)


def _allow_to_send(namespace: EmbeddedNamespace, queue: str) -> str:
    """A connection string with a key of the queue's own."""
    key = "c2VuZHMgdW50aWwgaXQgaXMgcmV2b2tlZCEhISEhIQ=="
    policy = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND],
        key_name="sender",
        primary_key=key,
        secondary_key=key,
    )
    _set_policies(namespace, queue, [policy])
    endpoint = namespace.connection_string.partition(";")[0]
    return f"{endpoint};SharedAccessKeyName=sender;SharedAccessKey={key};UseDevelopmentEmulator=true"


def _revoke(namespace: EmbeddedNamespace, queue: str) -> None:
    _set_policies(namespace, queue, [])


def _set_policies(namespace: EmbeddedNamespace, queue: str, policies: list[AuthorizationRule]) -> None:
    with _admin(namespace) as admin:
        found = admin.get_queue(queue)
        found.authorization_rules = policies
        admin.update_queue(found)


def _admin(namespace: EmbeddedNamespace) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        namespace.tls_connection_string, connection_verify=str(namespace.ca_path)
    )
