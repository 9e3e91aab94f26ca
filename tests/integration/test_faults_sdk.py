"""Injected faults as the unmodified SDK and HTTP clients meet them: every target, every kind, plain and partitioned."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, cast

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import (
    ServiceBusError,
    ServiceBusServerBusyError,
    SessionLockLostError,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from tandembus.namespace.partitioning import fragment_of_key
from tandembus.namespace.paths import SubQueue
from tandembus.security.sas import make_token, parse_connection_string
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.integration.python_sdk import AsyncSdk, Closer, LoopThread, PythonSdk, SyncSdk, body_of, receive

STORES = 4
Kind = Literal["unavailable", "slow", "throttled", "disk-full"]
ERRORS: dict[str, type[Exception]] = {
    "unavailable": ServiceBusError,
    "throttled": ServiceBusServerBusyError,
    "disk-full": ServiceBusError,
}


@pytest.fixture(scope="module")
def namespace() -> Iterator[EmbeddedNamespace]:
    with EmbeddedNamespace(stores=STORES) as namespace:
        yield namespace


@pytest.fixture(autouse=True)
def _healed(namespace: EmbeddedNamespace) -> Iterator[None]:
    yield
    namespace.heal()


@pytest.fixture(scope="module")
def own_closer(namespace: EmbeddedNamespace) -> Iterator[Closer]:
    closer = Closer()
    yield closer
    closer.finish()


class Http:
    def __init__(self, namespace: EmbeddedNamespace) -> None:
        parts = parse_connection_string(namespace.connection_string)
        assert parts.key_name is not None
        assert parts.key is not None
        self._base = f"http://localhost:{namespace.port}"
        self._token = make_token(self._base, parts.key_name, parts.key, time.time() + 600)

    def ask(self, method: str, path: str, body: bytes | None = None) -> int:
        return self.answer(method, path, body)[0]

    def answer(self, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
        """The status, and where a message is that was locked. A connection of its own each time."""
        headers = {"Authorization": self._token, "Content-Type": "text/plain"}
        request = urllib.request.Request(f"{self._base}/{path}", body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                location = response.headers.get("Location") or ""
                return response.status, "/".join(location.split("/")[3:])
        except urllib.error.HTTPError as error:
            return error.code, ""


@pytest.fixture(scope="module")
def http(namespace: EmbeddedNamespace) -> Http:
    return Http(namespace)


@pytest.fixture(scope="module")
def admin(namespace: EmbeddedNamespace) -> Iterator[ServiceBusAdministrationClient]:
    """One that tries nothing twice."""
    with ServiceBusAdministrationClient.from_connection_string(
        namespace.tls_connection_string, connection_verify=str(namespace.ca_path), retry_total=0
    ) as admin:
        yield admin


@dataclass
class Stage:
    """A queue that a client sends to, which tries nothing twice."""

    namespace: EmbeddedNamespace
    sdk: PythonSdk
    queue: str
    is_partitioned: bool
    sender: ServiceBusSender

    def fresh(self) -> tuple[Stage, ServiceBusReceiver]:
        """Another such queue, and a receiver of it: one that was used keeps its credit, and takes what comes later."""
        queue = self.namespace.create_queue(f"{self.queue}-{uuid.uuid4().hex}", enable_partitioning=self.is_partitioned)
        sender, receiver = self.sdk.pair(queue)
        return Stage(self.namespace, self.sdk, queue, self.is_partitioned, sender), receiver

    @property
    def stores(self) -> tuple[int, ...]:
        entry = self.namespace._inner.namespace.catalog.find(self.queue)
        assert entry is not None
        return entry.stores

    def target(self, scope: str) -> str:
        """The whole queue, or the part that `pinned` messages go to."""
        index = HIT if self.is_partitioned else 0
        return {
            "entity": f"entity/{self.queue}",
            "fragment": f"fragment/{self.queue}/{index}",
            "broker": f"broker/{self.stores[index]}",
            "store": f"store/{self.stores[index]}",
        }[scope]

    def pinned(self) -> ServiceBusMessage:
        """To the fragment that a fault hits."""
        return ServiceBusMessage("pinned", partition_key=key_for(HIT))

    def elsewhere(self, scope: str) -> ServiceBusMessage:
        """With a key of a fragment that is not hit."""
        own = {HIT} if scope == "fragment" else {i for i, store in enumerate(self.stores) if store == self.stores[HIT]}
        return ServiceBusMessage("elsewhere", partition_key=key_for(next(i for i in range(16) if i not in own)))

    def take_count(self) -> int:
        """How many messages there are; then there are none."""
        count = self.namespace.counts(self.queue).active
        namespace = self.namespace._inner.namespace
        assert self.namespace._call_thread().call(namespace.purge(self.queue, SubQueue.MAIN)) == count
        return count


HIT = 3


def key_for(index: int) -> str:
    return next(key for key in map(str, range(1000)) if fragment_of_key(key) == index)


STAGES = ("sync-plain", "async-plain", "sync-partitioned", "async-partitioned")
SCOPES = ("entity", "fragment", "broker", "store")

# How a client is written makes no difference to where a fault is: one kind meets all of them, the other two.
on_all_scopes = pytest.mark.parametrize(
    ("stage", "scope"),
    [(stage, scope) for stage in STAGES for scope in SCOPES if "sync-" in stage[:5] or scope in ("entity", "store")],
    indirect=["stage"],
    scope="module",
)


@pytest.fixture(scope="module", params=STAGES)
def stage(
    request: pytest.FixtureRequest, namespace: EmbeddedNamespace, own_closer: Closer, loop_thread: LoopThread
) -> Iterator[Stage]:
    client, _, shape = request.param.partition("-")
    is_partitioned = shape == "partitioned"
    queue = f"{request.param}-{uuid.uuid4().hex[:8]}"  # the same stage may be set more than once
    namespace.create_queue(queue, enable_partitioning=is_partitioned)
    sdk: PythonSdk
    if client == "sync":
        sdk = SyncSdk(namespace.connection_string, own_closer, retry_total=0)
    else:
        sdk = AsyncSdk(namespace.connection_string, own_closer, loop_thread, retry_total=0)
    yield Stage(namespace, sdk, queue, is_partitioned, sdk.sender(queue))
    sdk.close()


@contextmanager
def refused(kind: str) -> Iterator[None]:
    with pytest.raises(ERRORS[kind]) as refusal:
        yield
    # An outage must never look like throttling: senders of a pair would not fail over.
    assert isinstance(refusal.value, ServiceBusServerBusyError) == (kind == "throttled")


@covers("B3", "P3", "P13", "P14", "P20")
@pytest.mark.parametrize("kind", ["unavailable", "throttled", "disk-full"])
@on_all_scopes
def test_sends_fail_as_far_as_they_are_hit_and_go_on_when_healed(stage: Stage, scope: str, kind: Kind) -> None:
    sent = 0
    with stage.namespace.fault(stage.target(scope), kind):
        with refused(kind):
            stage.sender.send_messages(stage.pinned())
        if stage.is_partitioned and scope != "entity":
            stage.sender.send_messages(stage.elsewhere(scope))
            for number in range(17):
                stage.sender.send_messages(ServiceBusMessage(str(number)))
            sent = 18
        elif stage.is_partitioned:
            with refused(kind):
                stage.sender.send_messages(ServiceBusMessage("without a key"))
    stage.sender.send_messages(stage.pinned())
    assert stage.take_count() == sent + 1


@covers("B3", "P3", "P19")
@on_all_scopes
def test_receivers_stay_attached_and_get_what_was_out_of_reach_when_healed(stage: Stage, scope: str) -> None:
    stage, receiver = stage.fresh()
    stage.sender.send_messages(stage.pinned())
    with stage.namespace.fault(stage.target(scope), "unavailable"):
        assert receiver.receive_messages(max_wait_time=0.5) == []
        assert stage.namespace.availability(stage.queue) == "Limited"
    (message,) = receive(receiver, 1)
    assert body_of(message) == b"pinned"
    receiver.complete_message(message)
    assert stage.namespace.availability(stage.queue) == "Available"
    assert stage.namespace.counts(stage.queue).active == 0


@covers("B3")
def test_what_was_received_before_an_outage_is_settled_after_it(stage: Stage) -> None:
    stage, receiver = stage.fresh()
    stage.sender.send_messages(stage.pinned())
    (message,) = receive(receiver, 1)
    with stage.namespace.fault(stage.target("entity"), "unavailable"):
        assert receiver.receive_messages(max_wait_time=0.2) == []
    receiver.renew_message_lock(message)
    receiver.complete_message(message)
    assert receiver.peek_messages() == []
    assert stage.take_count() == 0


@covers("B3")
def test_requests_to_what_is_unavailable_fail(stage: Stage) -> None:
    stage, receiver = stage.fresh()
    with stage.namespace.fault(stage.target("entity"), "unavailable"):
        with pytest.raises(ServiceBusError):
            receiver.peek_messages()
        with pytest.raises(ServiceBusError):
            stage.sender.schedule_messages(stage.pinned(), datetime.now(UTC) + timedelta(hours=1))


@covers("B3")
@pytest.mark.parametrize("kind", ["throttled", "disk-full"])
def test_receiving_and_settling_go_on_where_sends_are_turned_away(stage: Stage, kind: Kind) -> None:
    stage, receiver = stage.fresh()
    stage.sender.send_messages(stage.pinned())
    with stage.namespace.fault(stage.target("entity"), kind):
        (message,) = receive(receiver, 1)
        receiver.complete_message(message)
        assert stage.namespace.availability(stage.queue) == "Available"
    assert stage.take_count() == 0


@covers("B3", "P15")
@on_all_scopes
def test_what_is_slow_takes_longer_and_loses_nothing(stage: Stage, scope: str) -> None:
    with stage.namespace.fault(stage.target(scope), "slow", latency=0.4):
        began_at = time.monotonic()
        stage.sender.send_messages(stage.pinned())
        assert time.monotonic() - began_at >= 0.4
    assert stage.take_count() == 1


@covers("B3")
def test_a_namespace_that_is_out_answers_nobody_until_it_is_healed_over_http(stage: Stage, http: Http) -> None:
    stage, receiver = stage.fresh()
    stage.namespace.inject_fault("namespace", "unavailable", id="drill")
    for _ in range(2):
        with refused("unavailable"):
            stage.sender.send_messages(stage.pinned())
    with pytest.raises(ServiceBusError):
        receiver.receive_messages(max_wait_time=1)
    with pytest.raises(ServiceBusError):
        stage.sdk.sender(stage.queue)
    for method, path in (("GET", stage.queue), ("POST", f"{stage.queue}/messages"), ("GET", "$Resources/queues")):
        assert http.ask(method, path, b"" if method == "POST" else None) == 500
    assert http.ask("GET", "$faults/drill") == 200
    assert http.ask("DELETE", "$faults/drill") == 200
    stage.sender.send_messages(stage.pinned())
    assert [body_of(message) for message in receive(receiver, 1)] == [b"pinned"]


# What does not show in how a client is written.


@covers("B3", "B1")
@pytest.mark.parametrize(
    ("kind", "send", "take"), [("unavailable", 500, 500), ("throttled", 503, 204), ("disk-full", 500, 204)]
)
@pytest.mark.parametrize("is_partitioned", [False, True], ids=["plain", "partitioned"])
def test_http_says_so_too(
    namespace: EmbeddedNamespace, http: Http, is_partitioned: bool, kind: Kind, send: int, take: int
) -> None:
    queue = namespace.create_queue(f"http-{kind}-{is_partitioned}", enable_partitioning=is_partitioned)
    with namespace.fault(f"entity/{queue}", kind):
        assert http.ask("POST", f"{queue}/messages", b"x") == send
        assert http.ask("DELETE", f"{queue}/messages/head?timeout=0") == take
    assert http.ask("POST", f"{queue}/messages", b"x") == 201


@covers("B3", "B1")
@pytest.mark.parametrize("is_partitioned", [False, True], ids=["plain", "partitioned"])
def test_settling_over_http_fails_during_an_outage_and_works_after_it(
    namespace: EmbeddedNamespace, http: Http, is_partitioned: bool
) -> None:
    queue = namespace.create_queue(f"http-locked-{is_partitioned}", enable_partitioning=is_partitioned)
    http.ask("POST", f"{queue}/messages", b"x")
    status, locked = http.answer("POST", f"{queue}/messages/head?timeout=5")
    assert status == 201
    with namespace.fault(f"entity/{queue}", "unavailable"):
        for method in ("POST", "PUT", "DELETE"):
            assert http.ask(method, locked) == 500
    kinds: tuple[Kind, ...] = ("throttled", "disk-full")
    for kind in kinds:
        with namespace.fault(f"entity/{queue}", kind):
            assert http.ask("POST", locked) == 200
    assert http.ask("DELETE", locked) == 200
    assert namespace.counts(queue).active == 0


COUNTS = (
    "total_message_count",
    "active_message_count",
    "dead_letter_message_count",
    "scheduled_message_count",
    "transfer_message_count",
    "transfer_dead_letter_message_count",
    "size_in_bytes",
)


@covers("B3", "P18", "P19")
@pytest.mark.parametrize("target", ["entity/{}", "fragment/{}/0", "broker/0", "broker/1", "store/0", "store/1"])
@pytest.mark.parametrize("is_partitioned", [False, True], ids=["plain", "partitioned"])
def test_get_says_limited_and_nothing_is_changed_while_a_part_is_out(
    namespace: EmbeddedNamespace, admin: ServiceBusAdministrationClient, is_partitioned: bool, target: str
) -> None:
    name = f"limited-{target.format('one')}-{is_partitioned}".replace("/", "-")
    while True:  # a plain one on the store that is hit
        namespace.create_queue(name, enable_partitioning=is_partitioned)
        entry = namespace._inner.namespace.catalog.find(name)
        assert entry is not None
        if "{}" in target or int(target[-1]) in entry.stores:
            break
        name += "x"
    before = admin.get_queue(name)
    is_out_as_a_whole = not is_partitioned or target.startswith("entity")
    with namespace.fault(target.format(name), "unavailable"):
        listed = {queue.name: queue for queue in admin.list_queues()}[name]
        assert (str(listed.availability_status), listed.max_delivery_count) == ("Limited", 10)
        counts = {queue.name: queue for queue in admin.list_queues_runtime_properties()}[name]
        unknown_or_empty = -1 if is_out_as_a_whole else 0
        assert {getattr(counts, field) for field in COUNTS} == {unknown_or_empty}
        if is_out_as_a_whole:
            with pytest.raises(HttpResponseError) as look:
                admin.get_queue_runtime_properties(name)
            assert look.value.status_code == 503, "retryable, and no count"
        else:
            assert str(admin.get_queue(name).availability_status) == "Limited"
        before.max_delivery_count = 3
        with pytest.raises(HttpResponseError) as update:
            admin.update_queue(before)
        with pytest.raises(HttpResponseError) as deletion:
            admin.delete_queue(name)
        assert (update.value.status_code, deletion.value.status_code) == (500, 500)
    after = admin.get_queue(name)
    assert (str(after.availability_status), after.max_delivery_count) == ("Available", 10)
    admin.delete_queue(name)


@covers("B3", "P18")
@pytest.mark.parametrize("target", ["broker/0", "broker/1", "store/0", "store/1"])
def test_a_partitioned_entity_is_not_half_made(
    namespace: EmbeddedNamespace, admin: ServiceBusAdministrationClient, target: str
) -> None:
    name = target.replace("/", "-")
    with namespace.fault(target, "unavailable"):
        with pytest.raises(HttpResponseError) as refusal:
            admin.create_queue(name, enable_partitioning=True)
        assert refusal.value.status_code == 500
        assert name not in [queue.name for queue in admin.list_queues()]
    admin.create_queue(name, enable_partitioning=True)


@covers("B3", "P20")
@pytest.mark.parametrize("is_partitioned", [False, True], ids=["plain", "partitioned"])
def test_only_the_sessions_that_are_hit_are_lost(
    namespace: EmbeddedNamespace, own_closer: Closer, is_partitioned: bool
) -> None:
    queue = namespace.create_queue(
        f"sessions-{is_partitioned}", enable_partitioning=is_partitioned, requires_session=True
    )
    sdk = SyncSdk(namespace.connection_string, own_closer, retry_total=0)
    hit, other = key_for(HIT), key_for(HIT + 1)
    sender = sdk.sender(queue)
    for session in (hit, other):
        sender.send_messages(ServiceBusMessage(session, session_id=session))
    lost, kept = (sdk.receiver(queue, session_id=session) for session in (hit, other))
    with namespace.fault(f"fragment/{queue}/{HIT if is_partitioned else 0}", "unavailable"):
        with pytest.raises((SessionLockLostError, ServiceBusError)):
            lost.receive_messages(max_wait_time=5)
        if is_partitioned:
            assert [body_of(message) for message in receive(kept, 1)] == [other.encode()]
        with pytest.raises(ServiceBusError):
            sdk.receiver(queue, session_id=hit)
    again = sdk.receiver(queue, session_id=hit)
    assert [body_of(message) for message in receive(again, 1)] == [hit.encode()]
    sdk.close()


@covers("B3")
@pytest.mark.parametrize("is_partitioned", [False, True], ids=["plain", "partitioned"])
def test_a_topic_is_out_with_its_subscriptions_and_a_subscription_alone(
    namespace: EmbeddedNamespace, own_closer: Closer, is_partitioned: bool
) -> None:
    topic = namespace.create_topic(f"news-{is_partitioned}", enable_partitioning=is_partitioned)
    for name in ("one", "two"):
        namespace.create_subscription(topic, name)
    sdk = SyncSdk(namespace.connection_string, own_closer, retry_total=0)
    sender = sdk.topic_sender(topic)
    one, two = (sdk.subscription_receiver(topic, name) for name in ("one", "two"))
    with namespace.fault(f"entity/{topic}/Subscriptions/one", "unavailable"):
        sender.send_messages(ServiceBusMessage("first"))
        assert [body_of(message) for message in receive(two, 1)] == [b"first"]
        assert one.receive_messages(max_wait_time=0.2) == []
    assert [body_of(message) for message in receive(one, 1)] == [b"first"]
    with namespace.fault(f"entity/{topic}", "unavailable"):
        with refused("unavailable"):
            sender.send_messages(ServiceBusMessage("second"))
        assert two.receive_messages(max_wait_time=0.2) == []
        assert namespace.availability(f"{topic}/subscriptions/two") == "Limited"
    sdk.close()


@covers("B3")
def test_what_would_be_forwarded_to_an_entity_that_is_out_waits(namespace: EmbeddedNamespace, http: Http) -> None:
    namespace.create_queue("home", enable_partitioning=True)
    namespace.create_queue("via", forward_to="home")
    with namespace.fault("entity/home", "unavailable"):
        assert http.ask("POST", "via/messages", b"x") == 201
        assert namespace.counts("via").active == 1
    assert http.ask("DELETE", "home/messages/head?timeout=20") == 200


@covers("B3")
def test_a_fault_with_a_probability_hits_some_and_not_others(namespace: EmbeddedNamespace, http: Http) -> None:
    namespace.create_queue("chance")
    with namespace.fault("entity/chance", "unavailable", probability=0.5):
        statuses = {http.ask("POST", "chance/messages", b"x") for _ in range(40)}
        assert namespace.availability("chance") == "Available"
    assert statuses == {201, 500}


@covers("B3", "B6")
def test_a_fault_ends_by_itself_on_the_namespaces_clock(namespace: EmbeddedNamespace, http: Http) -> None:
    namespace.create_queue("timed")
    namespace.inject_fault("entity/timed", "throttled", duration=timedelta(minutes=5))
    namespace.clock.advance(299)
    assert http.ask("POST", "timed/messages", b"x") == 503
    namespace.clock.advance(1)
    assert http.ask("POST", "timed/messages", b"x") == 201


@covers("B3", "B6")
@pytest.mark.parametrize(
    ("target", "kind", "more"),
    [
        ("store/4", "unavailable", {}),
        ("orders", "unavailable", {}),
        ("entity/orders", "gone", {}),
        ("entity/orders", "slow", {}),
        ("store/0", "slow", {"latency": 0}),
        ("store/0", "slow", {"latency": -1}),
        ("entity/orders", "unavailable", {"latency": 1.0}),
        ("entity/orders", "unavailable", {"probability": 0.0}),
        ("entity/orders", "unavailable", {"duration": -1}),
        ("entity/orders", "unavailable", {"id": "a b"}),
    ],
)
def test_what_is_no_fault_is_refused_in_process_too(
    namespace: EmbeddedNamespace, target: str, kind: str, more: dict[str, float]
) -> None:
    from tandembus.errors import InvalidArgument

    with pytest.raises(InvalidArgument):
        namespace.inject_fault(target, cast(Kind, kind), **more)  # type: ignore[arg-type]
