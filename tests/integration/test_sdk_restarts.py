"""Namespaces that stop, die and come back while the Python SDK is using them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusReceivedMessage, ServiceBusSender
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import Connect
from tests.integration.python_sdk import bodies_of, body_of, receive
from tests.integration.serving import RunningNamespace, start_namespace
from tests.integration.shapes import Shape, on_every_shape

pytestmark = on_every_shape


class Restartable:
    """A namespace that comes back on the port and with the data it had."""

    def __init__(self, data: Path, shape: Shape) -> None:
        self._data = data
        self._shape = shape
        self.running = start_namespace(data, *shape.topology.options)
        self.bus = Bus(self.running, shape=shape)

    @property
    def connection_string(self) -> str:
        return self.running.connection_string

    def restart(self, end: Callable[[RunningNamespace], object]) -> None:
        end(self.running)
        self.bus.close()
        self.running = start_namespace(self._data, *self._shape.topology.options, port=self.running.port)
        self.bus = Bus(self.running, shape=self._shape)

    def close(self) -> None:
        self.bus.close()
        self.running.stop_in_peace()


@pytest.fixture
def namespace(tmp_path: Path, shape: Shape) -> Iterator[Restartable]:
    namespace = Restartable(tmp_path / "data", shape)
    yield namespace
    namespace.close()


@covers("M1", "M2", "M5")
def test_clients_go_on_after_a_crash_and_nothing_is_lost(connect: Connect, namespace: Restartable) -> None:
    queue = namespace.bus.make_queue(lock_duration=timedelta(minutes=5))
    sender, receiver = connect(namespace.connection_string).pair(queue)
    sender.send_messages([ServiceBusMessage(str(number)) for number in range(10)])
    sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
    sender.schedule_messages(ServiceBusMessage("due"), datetime.now(UTC) + timedelta(seconds=2))
    completed, deferred, abandoned, held = receive(receiver, 4)
    number = deferred.sequence_number or 0
    receiver.complete_message(completed)
    receiver.defer_message(deferred)
    receiver.abandon_message(abandoned)

    namespace.restart(RunningNamespace.kill)

    sender.send_messages(ServiceBusMessage("afterwards"))
    messages = receive(receiver, 10)
    assert sorted(bodies_of(messages)) == sorted(
        [b"2", *(str(n).encode() for n in range(3, 10)), b"due", b"afterwards"]
    )
    counts = {body_of(message): message.delivery_count for message in messages}
    assert counts[b"2"] == 1
    assert {body_of(message) for message in messages if message.state == ServiceBusMessageState.SCHEDULED} == {b"due"}
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(held)
    (fetched,) = receiver.receive_deferred_messages(number)
    assert (body_of(fetched), fetched.delivery_count) == (b"1", 1)
    assert namespace.bus.counts(queue) == Counts(11, scheduled=1)


@covers("M1")
def test_what_was_accepted_before_a_graceful_stop_is_there_afterwards(connect: Connect, namespace: Restartable) -> None:
    queue = namespace.bus.make_queue()
    sdk = connect(namespace.connection_string, retry_total=0)
    senders = [sdk.sender(queue) for _ in range(3)]
    with ThreadPoolExecutor(len(senders)) as threads:
        sending = [threads.submit(_send_until_it_fails, sender, f"{at}-") for at, sender in enumerate(senders)]
        while namespace.bus.counts(queue).active < 50:
            pass
        namespace.restart(RunningNamespace.stop_in_peace)
        accepted = [name for future in sending for name in future.result()]
    assert len(accepted) >= 50
    receiver = connect(namespace.connection_string).receiver(queue)
    stored: list[ServiceBusReceivedMessage] = []
    while part := receiver.peek_messages(max_message_count=1000):
        stored += part
    names = [message.message_id for message in stored]
    assert set(accepted) <= set(names)
    assert len(set(names)) == len(names)
    assert len(names) - len(accepted) <= len(senders)  # at most one each whose answer was lost


def _send_until_it_fails(sender: ServiceBusSender, prefix: str) -> list[str]:
    """The ids of what was accepted."""
    accepted: list[str] = []
    while True:
        name = prefix + str(len(accepted))
        try:
            sender.send_messages(ServiceBusMessage(b"x" * 500, message_id=name))
        except ServiceBusError:
            return accepted
        accepted.append(name)
