"""A client that knows AMQP and nothing of Service Bus: Qpid Proton."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tandembus.clock import SystemClock
from tandembus.security.sas import ROOT_POLICY, make_token
from tandembus.store.messaging_store import NUMBER_BITS
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import LISTENS_KEY, SENDS_KEY
from tests.integration.serving import KEY
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape

proton = pytest.importorskip("proton", reason="python-qpid-proton is not installed: it needs a C compiler")
utils = pytest.importorskip("proton.utils")
reactor = pytest.importorskip("proton.reactor")

WITHIN_S = 20.0


class Connections:
    """Blocking connections of Proton, closed at the end of the test."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def _connect(self, url: str, **options: Any) -> Any:
        connection = utils.BlockingConnection(url, timeout=WITHIN_S, **options)
        self._open.append(connection)
        return connection

    def plain(self, bus: Bus, policy: str = ROOT_POLICY, key: str = KEY, **options: Any) -> Any:
        """With name and key, over SASL PLAIN."""
        url = f"amqp://localhost:{bus.running.port}"
        return self._connect(
            url, user=policy, password=key, allowed_mechs="PLAIN", allow_insecure_mechs=True, **options
        )

    def anonymous(self, bus: Bus) -> Any:
        return self._connect(f"amqp://localhost:{bus.running.port}", allowed_mechs="ANONYMOUS")

    def in_tls(self, bus: Bus) -> Any:
        if not proton.SSL.present():
            pytest.skip("python-qpid-proton was built without the headers of OpenSSL")
        domain = proton.SSLDomain(proton.SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(str(bus.running.ca_path))
        domain.set_peer_authentication(proton.SSLDomain.VERIFY_PEER_NAME)
        url = f"amqps://localhost:{bus.running.port}"
        return self._connect(url, user=ROOT_POLICY, password=KEY, allowed_mechs="PLAIN", ssl_domain=domain)

    def close(self) -> None:
        for connection in self._open:
            connection.close()


@pytest.fixture
def connections() -> Iterator[Connections]:
    connections = Connections()
    yield connections
    connections.close()


@pytest.fixture
def connection(connections: Connections, bus: Bus) -> Any:
    return connections.plain(bus)


def send(connection: Any, queue: str, *bodies: object) -> None:
    """All with one partition key: so they stay in order on every kind of queue."""
    sender = connection.create_sender(queue)
    for body in bodies:
        sender.send(proton.Message(body=body, annotations={proton.symbol("x-opt-partition-key"): "together"}))
    sender.close()


def put_token(connection: Any, path: str) -> tuple[int, str]:
    """Service Bus's own way to show a claim, by hand."""
    audience = f"sb://localhost/{path}"
    replies = connection.create_receiver("$cbs", credit=1)
    request = proton.Message(
        body=make_token(audience, ROOT_POLICY, KEY, SystemClock().now() + 60.0),
        id=uuid.uuid4(),
        properties={"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": audience},
    )
    requests = connection.create_sender("$cbs")
    requests.send(request)
    reply = replies.receive()
    requests.close()
    replies.close()
    assert reply.correlation_id == request.id
    return reply.properties["status-code"], reply.properties["status-description"]


@covers("M15", "B1")
@pytest.mark.parametrize("way", ["plain", "anonymous", "in_tls"])
def test_a_message_goes_to_a_queue_and_back(connections: Connections, bus: Bus, queue: str, way: str) -> None:
    connection = getattr(connections, way)(bus)
    if way == "anonymous":
        assert put_token(connection, queue)[0] == 202
    send(connection, queue, "hello", b"\x00\xff" * 100_000)
    receiver = connection.create_receiver(queue, credit=2)
    assert receiver.receive().body == "hello"
    receiver.accept()
    assert bytes(receiver.receive().body) == b"\x00\xff" * 100_000
    receiver.accept()
    receiver.close()
    assert bus.comes_to(queue, Counts(0))


@covers("M15")
@pytest.mark.parametrize(
    ("policy", "key"), [(ROOT_POLICY, "wrong"), ("nobody", KEY), ("", ""), (ROOT_POLICY, "")], ids=str
)
def test_wrong_credentials_do_not_get_in(connections: Connections, bus: Bus, policy: str, key: str) -> None:
    with pytest.raises(proton.ConnectionException):
        connections.plain(bus, policy or "x", key or "x")


def refusal_of(connection: Any, make: str, address: str) -> str:
    with pytest.raises(utils.LinkDetached) as refused:
        getattr(connection, make)(address)
    return str(refused.value.condition)


@covers("M15")
@pytest.mark.parametrize("make", ["create_sender", "create_receiver"])
def test_without_a_claim_every_link_is_refused(connections: Connections, bus: Bus, queue: str, make: str) -> None:
    connection = connections.anonymous(bus)
    for address in (queue, f"{queue}/$management", "nobody-made-this", f"{queue}/$DeadLetterQueue"):
        assert refusal_of(connection, make, address) == "amqp:unauthorized-access"


@covers("M15")
def test_a_token_opens_its_own_queue_only(connections: Connections, bus: Bus, queue: str) -> None:
    other = bus.make_queue()
    connection = connections.anonymous(bus)
    put_token(connection, queue)
    send(connection, queue, "mine")
    assert refusal_of(connection, "create_sender", other) == "amqp:unauthorized-access"
    assert put_token(connection, "nobody-made-this")[0] == 404
    assert bus.counts(queue) == Counts(1)


@covers("M15")
def test_a_policy_gives_the_rights_that_it_has(connections: Connections, small_bus: Bus) -> None:
    queue = small_bus.make_queue()
    sends = connections.plain(small_bus, "sends", SENDS_KEY)
    listens = connections.plain(small_bus, "listens", LISTENS_KEY)
    send(sends, queue, "x")
    assert listens.create_receiver(queue, credit=1).receive().body == "x"
    assert refusal_of(sends, "create_receiver", queue) == "amqp:unauthorized-access"
    assert refusal_of(listens, "create_sender", queue) == "amqp:unauthorized-access"


@covers("B1")
@pytest.mark.parametrize("make", ["create_sender", "create_receiver"])
def test_an_unknown_queue_is_not_found_and_the_connection_lives_on(connection: Any, queue: str, make: str) -> None:
    assert refusal_of(connection, make, "nobody-made-this") == "amqp:not-found"
    send(connection, queue, "still here")


@covers("M12")
def test_credit_is_what_a_receiver_gets_and_no_more(connection: Any, bus: Bus, queue: str) -> None:
    send(connection, queue, *range(10))
    receiver = connection.create_receiver(queue, credit=0)
    for first, credit in ((0, 3), (3, 2)):
        receiver.flow(credit)
        connection.wait(lambda credit=credit: receiver.fetcher.has_message == credit, timeout=WITHIN_S)
        assert [receiver.fetcher.pop().body for _ in range(credit)] == list(range(first, first + credit))
    assert receiver.link.credit == 0
    assert bus.counts(queue) == Counts(10)


@covers("M12")
@pytest.mark.parametrize("waiting", [0, 2])
def test_a_drain_is_answered_whatever_is_there(connection: Any, queue: str, waiting: int) -> None:
    send(connection, queue, *range(waiting))
    receiver = connection.create_receiver(queue, credit=0)
    receiver.link.drain(5)
    connection.wait(lambda: receiver.fetcher.has_message == waiting and not receiver.link.draining(), timeout=WITHIN_S)
    assert receiver.link.drained() == 5 - waiting


@covers("B1")
def test_many_links_share_a_connection(connection: Any, bus: Bus) -> None:
    queues = [bus.make_queue() for _ in range(3)]
    receivers = [connection.create_receiver(queue, credit=10) for queue in queues]
    senders = [connection.create_sender(queue) for queue in queues]
    for number in range(4):
        for queue, sender in zip(queues, senders, strict=True):
            sender.send(proton.Message(body=f"{queue} {number}"))
    for queue, receiver in zip(queues, receivers, strict=True):
        assert [receiver.receive().body for _ in range(4)] == [f"{queue} {number}" for number in range(4)]


def modify(receiver: Any, failed: bool, undeliverable: bool) -> None:
    delivery = receiver.fetcher.unsettled.popleft()
    delivery.local.failed = failed
    delivery.local.undeliverable = undeliverable
    delivery.local.annotations = {proton.symbol("changed"): proton.int32(7)}
    delivery.update(proton.Delivery.MODIFIED)
    delivery.settle()


SETTLEMENTS: dict[str, tuple[Callable[[Any], None], Counts, int | None]] = {
    "accepted": (lambda receiver: receiver.accept(), Counts(0), None),
    "rejected": (lambda receiver: receiver.reject(), Counts(0, dead=1), None),
    "released": (lambda receiver: receiver.release(delivered=False), Counts(1), 0),
    "modified": (lambda receiver: receiver.release(delivered=True), Counts(1), 1),
    "modified with changes": (lambda receiver: modify(receiver, True, False), Counts(1), 1),
    "undeliverable here": (lambda receiver: modify(receiver, False, True), Counts(1), None),
}


@covers("M2", "M3")
@pytest.mark.parametrize("outcome", SETTLEMENTS)
def test_each_outcome_does_what_it_stands_for(connection: Any, bus: Bus, queue: str, outcome: str) -> None:
    settle, counts, delivery_count = SETTLEMENTS[outcome]
    send(connection, queue, "x")
    receiver = connection.create_receiver(queue, credit=1)
    receiver.receive()
    settle(receiver)
    if delivery_count is not None:
        receiver.flow(1)
        again = receiver.receive()
        assert (again.delivery_count, again.body) == (delivery_count, "x")
        if "changes" in outcome:
            assert again.properties == {"changed": 7}
            assert isinstance(again.properties["changed"], proton.int32)
    receiver.close()
    assert bus.comes_to(queue, counts)


@covers("M2")
def test_a_receiver_may_take_messages_for_good(connection: Any, bus: Bus, queue: str) -> None:
    send(connection, queue, "one", "two")
    receiver = connection.create_receiver(queue, credit=0, options=reactor.AtMostOnce())
    assert receiver.receive().body == "one"
    receiver.close()
    assert bus.counts(queue) == Counts(1)


@covers("M2")
def test_what_was_delivered_and_not_settled_when_the_link_ends_stays_locked(connection: Any, queue: str) -> None:
    send(connection, queue, "held", "free")
    bodies = set()
    for _ in range(2):
        receiver = connection.create_receiver(queue, credit=0)
        bodies.add(receiver.receive().body)
        receiver.close()
    assert bodies == {"held", "free"}


@covers("M12", "M13")
def test_a_message_too_large_is_rejected(connection: Any, queue: str) -> None:
    sender = connection.create_sender(queue)
    assert sender.link.remote_max_message_size == 262_144
    with pytest.raises(utils.SendException):
        sender.send(proton.Message(body=b"x" * 300_000))
    sender.send(proton.Message(body=b"fits"))


@covers("B1")
def test_every_type_of_amqp_comes_back_as_itself(connection: Any, queue: str) -> None:
    properties = {
        "boolean": True,
        "ubyte": proton.ubyte(255),
        "ushort": proton.ushort(65535),
        "uint": proton.uint(2**32 - 1),
        "ulong": proton.ulong(2**64 - 1),
        "byte": proton.byte(-128),
        "short": proton.short(-32768),
        "int": proton.int32(-(2**31)),
        "long": 2**63 - 1,
        "float": proton.float32(1.5),
        "double": 2.5,
        "char": proton.char("\u00e9"),
        "timestamp": proton.timestamp(1_700_000_000_123),
        "uuid": uuid.UUID(int=7),
        "binary": b"\x00\xff",
        "string": "\U0001f600",
        "symbol": proton.symbol("symbolic"),
        "decimal": proton.decimal64(7),
        "null": None,
    }
    message = proton.Message(
        id=proton.ulong(7),
        user_id=b"user",
        address="to",
        subject="subject",
        reply_to="reply",
        correlation_id=uuid.UUID(int=8),
        content_type=proton.symbol("application/x"),
        content_encoding=proton.symbol("gzip"),
        reply_to_group_id="group",
        group_sequence=9,
        priority=7,
        durable=True,
        properties=properties,
        annotations={proton.symbol("x-mine"): proton.ushort(3)},
        body={"list": [1, "two", None], "nested": {"deep": proton.uint(4)}},
    )
    connection.create_sender(queue).send(message)
    found = connection.create_receiver(queue, credit=1).receive()
    found.properties["binary"] = bytes(found.properties["binary"])
    assert found.properties == properties
    kinds = {name: type(value) for name, value in properties.items()}
    assert {name: type(value) for name, value in found.properties.items()} == kinds
    fields = ("id", "user_id", "address", "subject", "reply_to", "correlation_id", "content_type", "content_encoding")
    for name in (*fields, "reply_to_group_id", "group_sequence", "priority", "durable", "body"):
        assert getattr(found, name) == getattr(message, name), name
    assert found.annotations[proton.symbol("x-mine")] == 3
    number = found.annotations[proton.symbol("x-opt-sequence-number")]
    assert number % (1 << NUMBER_BITS) == 1, "the first of its fragment"
