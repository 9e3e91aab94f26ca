"""More ports, each of which speaks everything: AMQP, HTTP and WebSockets, plain and in TLS, over IPv4 and IPv6."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.management import ServiceBusAdministrationClient

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.frames import SASL_HEADER
from tests.covers import covers
from tests.integration.python_sdk import receive
from tests.integration.raw_amqp import ANSWERS_WITHIN_S, MESSAGE, RawAmqp
from tests.integration.raw_websocket import request
from tests.integration.serving import RunningNamespace, serving, start_namespace
from tests.integration.test_http_messages import Http
from tests.sdk.foreign import OWN_ADDRESS
from tests.unit.front_end.websocket.masking import masked

SENDER = 1
LISTENERS = "0,127.0.0.2:0,[::1]:0"
PROCESSES = {"one-process": (), "front-ends": ("--brokers", "1", "--front-ends", "2")}


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as one:
        try:
            one.bind(("::1", 0))
        except OSError:
            return False
    return True


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@pytest.fixture(scope="module", params=PROCESSES)
def namespace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNamespace]:
    data = tmp_path_factory.mktemp("listeners") / "data"
    with serving(data, "--listeners", LISTENERS, *PROCESSES[request.param]) as namespace:
        with administration(namespace, namespace.connection_string) as admin:
            admin.create_queue("orders")
        yield namespace


def addresses(namespace: RunningNamespace) -> list[tuple[str, int]]:
    """The ports of old and all further ones."""
    facts = json.loads((namespace.data / "namespace.json").read_text())
    further = [(host, port) for host, port in facts["listeners"]]
    assert [host for host, _ in further] == ["127.0.0.1", "127.0.0.2", "::1"]
    return [("127.0.0.1", facts["amqp_port"]), ("127.0.0.1", facts["http_port"]), *further]


def administration(namespace: RunningNamespace, connection_string: str) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        connection_string, connection_verify=str(namespace.ca_path)
    )


def connected(namespace: RunningNamespace, address: tuple[str, int], is_tls: bool) -> socket.socket:
    plain = socket.create_connection(address, ANSWERS_WITHIN_S)
    if not is_tls:
        return plain
    return ssl.create_default_context(cafile=namespace.ca_path).wrap_socket(plain, server_hostname=address[0])


@covers("M15", "B1")
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
def test_every_port_speaks_amqp(namespace: RunningNamespace, is_tls: bool) -> None:
    for address in addresses(namespace):
        raw = object.__new__(RawAmqp)
        raw.use(connected(namespace, address, is_tls))
        with raw:
            raw.log_in()
            raw.attach_sender(SENDER, "orders")
            assert raw.send_message(SENDER, 0, MESSAGE).described(4)[0] == codes.ACCEPTED


@covers("B1")
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
def test_every_port_speaks_http(namespace: RunningNamespace, is_tls: bool) -> None:
    for address in addresses(namespace):
        connection = http.client.HTTPConnection(*address)
        connection.sock = connected(namespace, address, is_tls)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()


@covers("B1")
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(
    ("offered", "chosen"),
    [("AMQPWSB10", "AMQPWSB10"), ("amqp", "amqp"), ("other, amqp, AMQPWSB10", "amqp")],
)
def test_every_port_speaks_amqp_over_websockets_under_both_names(
    namespace: RunningNamespace, is_tls: bool, offered: str, chosen: str
) -> None:
    for address in addresses(namespace):
        with connected(namespace, address, is_tls) as one:
            one.sendall(request(Sec_WebSocket_Protocol=offered) + masked(SASL_HEADER))
            answer = b""
            while SASL_HEADER not in answer:
                part = one.recv(65_536)
                assert part, answer
                answer += part
            head = answer.partition(b"\r\n\r\n")[0].decode()
            assert head.startswith("HTTP/1.1 101 ")
            assert f"Sec-WebSocket-Protocol: {chosen}\r\n" in head + "\r\n"


@covers("B1")
@pytest.mark.parametrize("queue", ["plain", "partitioned"])
def test_the_sdk_sends_receives_and_administers_over_a_further_port(namespace: RunningNamespace, queue: str) -> None:
    host, port = addresses(namespace)[-2]
    here = namespace.connection_string.replace(f"localhost:{namespace.port}", f"{host}:{port}")
    assert here != namespace.connection_string
    with administration(namespace, here) as admin:
        admin.create_queue(queue, enable_partitioning=queue == "partitioned")
    with ServiceBusClient.from_connection_string(here) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("hello"))
        with client.get_queue_receiver(queue, max_wait_time=ANSWERS_WITHIN_S) as receiver:
            (message,) = receive(receiver, 1)
            receiver.complete_message(message)


def may_listen(host: str, *ports: int) -> bool:
    try:
        for port in ports:
            with socket.socket() as one:
                one.bind((host, port))
    except OSError:
        return False
    return True


@covers("B1")
@pytest.mark.skipif(not may_listen(OWN_ADDRESS, 443, 80), reason="may not listen on the ports 443 and 80 of an address")
@pytest.mark.parametrize("queue", ["plain", "partitioned"])
def test_clients_that_drop_their_port_find_the_usual_ones(tmp_path: Path, queue: str) -> None:
    """Administration in HTTPS and WebSockets go to 443, administration of .NET in the emulator's mode to 80."""
    usual = f"{OWN_ADDRESS}:443,{OWN_ADDRESS}:80"
    with serving(tmp_path / "data", "--stores", "2", "--listeners", usual) as namespace:
        here = namespace.connection_string.replace(f"localhost:{namespace.port}", OWN_ADDRESS)
        with administration(namespace, here) as admin:
            admin.create_queue(queue, enable_partitioning=queue == "partitioned")
        with ServiceBusClient.from_connection_string(
            here.replace(";UseDevelopmentEmulator=true", ""),
            transport_type=TransportType.AmqpOverWebsocket,
            connection_verify=str(namespace.ca_path),
        ) as client:
            with client.get_queue_sender(queue) as sender:
                sender.send_messages(ServiceBusMessage("hello"))
            with client.get_queue_receiver(queue, max_wait_time=ANSWERS_WITHIN_S) as receiver:
                (message,) = receive(receiver, 1)
                receiver.complete_message(message)
        answer = Http(namespace, uses_tls=False).ask("GET", f"http://{OWN_ADDRESS}/{queue}?api-version=2021-05")
        assert (answer.status, b"<QueueDescription" in answer.body) == (200, True)


@covers("M15")
def test_what_is_allowed_on_loopback_only_counts_further_addresses(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('accept_any_jwt = true\nlisteners = ["0.0.0.0:0"]\n')
    with pytest.raises(RuntimeError, match=r"accept_any_jwt: .*0\.0\.0\.0; it is allowed on a loopback address only"):
        start_namespace(tmp_path / "data", "--config", str(config))
