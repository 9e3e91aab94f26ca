"""A connection whose first bytes were read by somebody else, on either loop, plain and inside TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import uvloop
from azure.core.exceptions import ClientAuthenticationError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus.management import ServiceBusAdministrationClient

from tandembus.clock import SystemClock
from tandembus.security.tls import ensure_certificate, server_context
from tests.covers import covers
from tests.unit.front_end.http.harness import KEY, ROOT, running_front_end

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoop:
    name: str = request.param
    return LOOPS[name]()


async def ask(port: int, token: str, tls: ssl.SSLContext | None, pieces: int) -> bytes:
    """Two requests on one connection, the first in pieces: the listener sees only the first of them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    request = f"GET /$namespaceinfo HTTP/1.1\r\nHost: h\r\nAuthorization: {token}\r\n".encode()
    first = request + b"\r\n"
    for start in range(0, len(first), len(first) // pieces + 1):
        writer.write(first[start : start + len(first) // pieces + 1])
        await writer.drain()
        for _ in range(20):  # so that it is read before the next one comes
            await asyncio.sleep(0)
    writer.write(request + b"Connection: close\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 10.0)
    writer.close()
    return answer


@pytest.mark.parametrize("pieces", [1, 5])
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
def test_requests_work_on_a_connection_that_was_handed_over(
    loop: asyncio.AbstractEventLoop, tmp_path: Path, is_tls: bool, pieces: int
) -> None:
    files = ensure_certificate(tmp_path / "tls", ("localhost", "127.0.0.1"), SystemClock().now())
    server = server_context(files) if is_tls else None
    client = ssl.create_default_context(cafile=str(files.ca_path)) if is_tls else None

    async def main() -> None:
        async with running_front_end(tmp_path, tls=server) as running:
            answer = await ask(running.port, running.token(), client, pieces)
            assert answer.count(b"HTTP/1.1 200 OK") == 2
            assert answer.count(b"https://h/" if is_tls else b"http://h/") == 4

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


@covers("B1")
def test_the_python_sdk_administers_over_a_connection_that_was_handed_over(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    files = ensure_certificate(tmp_path / "tls", ("localhost", "127.0.0.1"), SystemClock().now())

    async def main() -> None:
        async with running_front_end(tmp_path, tls=server_context(files)) as running:
            await asyncio.to_thread(administer, running.port, str(files.ca_path))

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def administer(port: int, ca_path: str) -> None:
    endpoint = f"Endpoint=sb://localhost:{port}/;SharedAccessKeyName={ROOT};SharedAccessKey="
    with ServiceBusAdministrationClient.from_connection_string(endpoint + KEY, connection_verify=ca_path) as client:
        created = client.create_queue("orders/eu", max_delivery_count=3)
        assert (created.name, created.max_delivery_count) == ("orders/eu", 3)
        created.lock_duration = "PT20S"
        client.update_queue(created)
        assert client.get_queue("ORDERS/eu").lock_duration == timedelta(seconds=20)
        assert client.get_queue_runtime_properties("orders/eu").total_message_count == 0
        assert [queue.name for queue in client.list_queues()] == ["orders/eu"]
        assert list(client.list_topics()) == []
        with pytest.raises(ResourceExistsError):
            client.create_queue("orders/eu")
        client.delete_queue("orders/eu")
        with pytest.raises(ResourceNotFoundError):
            client.get_queue("orders/eu")
    with (
        ServiceBusAdministrationClient.from_connection_string(endpoint + "d3Jvbmc=", connection_verify=ca_path) as bad,
        pytest.raises(ClientAuthenticationError),
    ):
        bad.get_namespace_properties()
