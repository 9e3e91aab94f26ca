"""What clients have closed is freed at once: the garbage collector looks for cycles too rarely to count on it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import MessageNotFoundError, OperationTimeoutError, SessionCannotBeLockedError

from tandembus.client import connect
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tandembus.node.waiting import comes_true
from tandembus.security.sas import make_token, parse_connection_string
from tandembus.testing.asynchronous import AsyncEmbeddedNamespace
from tests.covers import covers
from tests.integration.serving import RunningNamespace, start_namespace
from tests.integration.shapes import PARTITIONED_ON_BROKERS, PLAIN, Shape, on_shapes

PER_CONNECTION = {
    *("AmqpConnection", "Doorway", "LinkHost", "ClaimsHeld", "HttpConnection", "WebSocketTransport"),
    *("EntityLink", "SenderLink", "ReceiverLink", "ReplyLink", "ManagementNode", "CoordinatorLink"),
    *("SessionWish", "ReceiveCache", "Feeder"),
}
"""Classes of which each connection, each link or all receivers of an entity have their own."""
MOST_MORE_BYTES = 2 * 1024 * 1024


def alive() -> Counter[str]:
    own = (type(one) for one in gc.get_objects() if type(one).__name__ in PER_CONNECTION)
    return Counter(kind.__name__ for kind in own if kind.__module__.startswith("tandembus."))


@pytest.fixture
def alive_before() -> Iterator[Counter[str]]:
    """What earlier tests of this process have left. From here on nothing is collected."""
    gc.collect()
    gc.disable()
    yield alive()
    gc.enable()


async def use_everything(namespace: AsyncEmbeddedNamespace, transport: TransportType, is_in_tls: bool) -> None:
    """Senders, receivers, a session that a second receiver is refused and a third waits for in vain, requests to
    management nodes, also for what is not there: all closed before the connection is."""
    connection_string = namespace.tls_connection_string if is_in_tls else namespace.connection_string
    client = ServiceBusClient.from_connection_string(
        connection_string,
        transport_type=transport,
        custom_endpoint_address=f"sb://localhost:{namespace.port}",
        connection_verify=str(namespace.ca_path) if is_in_tls else None,
        retry_total=0,
    )
    async with client:
        for name, session in (("plain", None), ("partitioned", None), ("sessions", "s")):
            async with client.get_queue_sender(name) as sender:
                await sender.send_messages([ServiceBusMessage("x", session_id=session) for _ in range(3)])
            async with client.get_queue_receiver(name, session_id=session) as receiver:
                await receiver.peek_messages(1)
                with pytest.raises(MessageNotFoundError):
                    await receiver.receive_deferred_messages([1 << 40])
                for message in await receiver.receive_messages(1, max_wait_time=20):
                    await receiver.complete_message(message)
                if session is not None:
                    with pytest.raises(SessionCannotBeLockedError):
                        await client.get_queue_receiver(name, session_id=session).peek_messages(1)
                    with pytest.raises(OperationTimeoutError):
                        await client.get_queue_receiver(
                            name, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.1
                        ).peek_messages(1)
                assert {"AmqpConnection", "EntityLink", "ReceiverLink", "ManagementNode"} <= alive().keys()


@covers("B1", "M7")
@pytest.mark.parametrize(
    ("transport", "is_in_tls"), [(TransportType.Amqp, False), (TransportType.AmqpOverWebsocket, True)]
)
async def test_closed_links_and_connections_are_freed_without_the_collector(
    alive_before: Counter[str], transport: TransportType, is_in_tls: bool
) -> None:
    async with AsyncEmbeddedNamespace() as namespace:
        await namespace.create_queue("plain")
        await namespace.create_queue("partitioned", enable_partitioning=True, lock_duration=timedelta(seconds=5))
        await namespace.create_queue("sessions", requires_session=True)
        await use_everything(namespace, transport, is_in_tls)
        assert await comes_true(lambda: not alive() - alive_before, 10.0), alive() - alive_before


def request(head: str, body: bytes = b"") -> bytes:
    return f"{head} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


COME_TO_NOTHING = (
    request("GET /orders"),
    request("POST /orders/messages", b"x"),
    request("POST /orders/messages", bytes(300_000)),
    request("POST /$api/session", b"no document"),
    b"GET / HTTP/1.1\r\nHost: localhost\r\nLarge: " + b"x" * 100_000,
    b"GET /" + b"x" * 100_000,
    b"no HTTP\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n",
    b"AMQP\x00\x01\x00\x00" + bytes(100),
    b"\x16\x03\x01\x00\x05no TLS",
)
"""What strangers send, each on a connection of its own, before they go."""


async def ask(namespace: AsyncEmbeddedNamespace, data: bytes) -> None:
    """On a connection of its own, which ends at the first byte of an answer."""
    reader, writer = await asyncio.open_connection("localhost", namespace.port)
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        await reader.read(1)
    writer.close()


@covers("F13", "F18")
async def test_connections_of_strangers_are_freed_without_the_collector(alive_before: Counter[str]) -> None:
    async with AsyncEmbeddedNamespace() as namespace:
        for data in COME_TO_NOTHING:
            await ask(namespace, data)
        assert await comes_true(lambda: not alive() - alive_before, 10.0), alive() - alive_before


@covers("B4")
async def test_a_connection_whose_request_fails_in_an_outage_is_freed_without_the_collector(
    alive_before: Counter[str],
) -> None:
    async with AsyncEmbeddedNamespace() as namespace:
        await namespace.create_queue("orders")
        policy = parse_connection_string(namespace.connection_string)
        assert policy.key_name is not None
        assert policy.key is not None
        token = make_token("sb://localhost/", policy.key_name, policy.key, time.time() + 600)
        head = f"GET /$api/messages?path=orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n\r\n"
        async with namespace.fault("entity/orders", "unavailable"):
            await ask(namespace, head.encode())
        assert await comes_true(lambda: not alive() - alive_before, 10.0), alive() - alive_before


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def processes_of(running: RunningNamespace) -> list[int]:
    """The namespace's, and those that it has started and that serve."""
    own = running.process.pid
    children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
    return [own, *(int(child) for child in children if b"spare" not in Path(f"/proc/{child}/cmdline").read_bytes())]


@covers("M7")
@on_shapes(PLAIN, PARTITIONED_ON_BROKERS)
async def test_two_thousand_session_accepts_take_no_memory(tmp_path: Path, shape: Shape) -> None:
    running = start_namespace(tmp_path, *shape.topology.options)
    async with Administration(running.connection_string) as administration:
        await administration.create_queue(
            "sessions", QueueSettings(requires_session=True, partitioning=shape.is_partitioned)
        )
    async with await connect(running.connection_string) as client:

        async def accept(count: int) -> None:
            for _ in range(count // 25):
                receivers = [client.accept_session("sessions", f"{number}") for number in range(25)]
                await asyncio.gather(*[receiver.close() for receiver in await asyncio.gather(*receivers)])

        await accept(500)
        before = {pid: resident_bytes(pid) for pid in processes_of(running)}
        await accept(2000)
        assert max(resident_bytes(pid) - before[pid] for pid in before) < MOST_MORE_BYTES
    running.stop_in_peace()
