"""After a long pause the SDKs' next calls work: whether the link, the connection or the line to the broker has gone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiver, ServiceBusSender

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.values import uint
from tandembus.config import Limits
from tests.covers import covers
from tests.integration.conftest import Connect
from tests.integration.python_sdk import bodies_of, receive
from tests.integration.raw_amqp import RECEIVER, RawAmqp, assert_has_three_fields
from tests.integration.shapes import PARTITIONED, PLAIN, Shape, on_shapes
from tests.integration.test_sdk_js import JS, NODE
from tests.sdk.aging import AgingNamespace, aging_namespace

pytestmark = on_shapes(PLAIN, PARTITIONED)

IDLE_S = 601.0
LINKS_GO = Limits(idle_timeout_s=3600.0, link_idle_timeout_s=600.0)
CONNECTIONS_GO = Limits()


class Paused:
    """A queue, how clients reach it, and what happens in a pause."""

    def __init__(self, namespace: AgingNamespace, queue: str, goes: str) -> None:
        self.namespace = namespace
        self.queue = queue
        self.is_cut = goes == "line"
        self._line = namespace.line() if self.is_cut else None
        port = namespace.port if self._line is None else self._line.port
        self.connection_string = namespace.connection_string.replace(f":{namespace.port}", f":{port}")

    def pause(self) -> None:
        if self._line is not None:
            self._line.go_dead()
        self.namespace.let_pass(IDLE_S)

    def end(self) -> None:
        if self._line is not None:
            self._line.close()


@pytest.fixture(params=["link", "connection", "line"])
def paused(request: pytest.FixtureRequest, tmp_path: Path, shape: Shape) -> Iterator[Paused]:
    with aging_namespace(tmp_path, LINKS_GO if request.param == "link" else CONNECTIONS_GO) as namespace:
        paused = Paused(namespace, namespace.make_queue("q", shape.is_partitioned), request.param)
        yield paused
        paused.end()


def send(sender: ServiceBusSender, receiver: ServiceBusReceiver) -> None:
    sender.send_messages(ServiceBusMessage("x"))


def complete(sender: ServiceBusSender, receiver: ServiceBusReceiver) -> None:
    (message,) = receive(receiver, 1)
    assert bodies_of([message]) == [b"x"]
    receiver.complete_message(message)


def peek(sender: ServiceBusSender, receiver: ServiceBusReceiver) -> None:
    assert receiver.peek_messages() == []


STEPS: tuple[Callable[[ServiceBusSender, ServiceBusReceiver], None], ...] = (send, complete, peek)


@covers("M12", "B1")
def test_the_next_calls_of_python_work_after_a_pause(connect: Connect, paused: Paused) -> None:
    sdk = connect(paused.connection_string)
    links = sdk.pair(paused.queue)
    for step in STEPS:
        step(*links)
    for step in STEPS:
        paused.pause()
        step(*links)


@covers("M12", "B1")
@pytest.mark.skipif(
    NODE is None or not (JS / "node_modules" / "@azure" / "service-bus").exists(),
    reason="needs node and @azure/service-bus: `make install` brings them where npm is",
)
def test_the_next_calls_of_javascript_work_after_a_pause(paused: Paused) -> None:
    environment = {**os.environ, "CONNECTION_STRING": paused.connection_string, "QUEUE": paused.queue}
    assert NODE is not None
    with subprocess.Popen(
        [NODE, "idle.mjs"], cwd=JS, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stdout.readline() == "open\n"
        for step in STEPS:
            if step is send or not paused.is_cut:  # a request on a connection that is reset waits for the SDK's minute
                paused.pause()
            print("go on", file=client.stdin, flush=True)
            assert client.stdout.readline() == "done\n", step.__name__


@covers("M12")
def test_an_idle_link_is_detached_by_force(tmp_path: Path) -> None:
    with aging_namespace(tmp_path, LINKS_GO) as namespace, RawAmqp(namespace.port) as raw:
        raw.log_in(key=namespace.node.key)
        raw.attach_receiver(RECEIVER, namespace.make_queue("q", is_partitioned=False))
        namespace.let_pass(IDLE_S)
        detached = raw.expect(codes.DETACH)
        assert detached.plain(0) == RECEIVER
        assert_has_three_fields(detached.error(2), "amqp:link:detach-forced")
        raw.perform(codes.DETACH, [uint(RECEIVER), True])
        raw.attach_receiver(RECEIVER, "q")
