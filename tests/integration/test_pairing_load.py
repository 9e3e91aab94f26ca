"""Many senders at work while an entity comes and goes: nothing that was accepted is lost."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tandembus.pairing import EntityHealthy, FailoverEngaged
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.integration.pairs import Form, Pair
from tests.integration.python_sdk import LoopThread

SENDERS = 6
OUTAGES = 2
SENDS_IN_OUTAGE = 40


@pytest.fixture(params=["async", "sync"])
def form(request: pytest.FixtureRequest, loop_thread: LoopThread) -> Iterator[Form]:
    form = Form(request.param, loop_thread)
    yield form
    form.close()


class Load:
    """Senders that do not stop; a send that is raised is theirs, and is not sent again."""

    def __init__(self, pair: Pair, path: str) -> None:
        self._pair = pair
        self._path = path
        self.accepted: list[str] = []
        self.raised_while_failed_over: list[BaseException] = []
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(pair.sender(path),)) for _ in range(SENDERS)]
        self._changed = threading.Condition()

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60.0)
            assert not thread.is_alive(), "a sender hangs"

    def wait_for(self, count: int) -> None:
        """Until so many more were accepted."""
        with self._changed:
            until = len(self.accepted) + count
            assert self._changed.wait_for(lambda: len(self.accepted) >= until, 60.0)

    def _send(self, sender: Any) -> None:
        while not self._is_over.is_set():
            text = uuid.uuid4().hex
            is_failed_over = self._pair.client.entity_state(self._path).name == "FAILED_OVER"
            try:
                sender.send_messages(ServiceBusMessage(text))
            except ServiceBusError as error:
                if is_failed_over:
                    self.raised_while_failed_over.append(error)
                continue
            with self._changed:
                self.accepted.append(text)
                self._changed.notify_all()


@covers("N5", "N6", "N10")
def test_what_was_accepted_is_in_one_of_the_namespaces(form: Form) -> None:
    """Once; but what was under way at the failover, and was given up there, may have been accepted all the same."""
    with EmbeddedNamespace(name="contoso") as primary, EmbeddedNamespace(name="fabrikam") as secondary:
        orders = primary.create_queue("orders")
        pair = Pair(
            form,
            form.client(primary.connection_string),
            form.client(secondary.connection_string),
            form.admin(secondary.tls_connection_string, secondary.ca_path),
            failover_interval=timedelta(milliseconds=200),
        )
        with Load(pair, orders) as load:
            for number in range(1, OUTAGES + 1):
                load.wait_for(SENDS_IN_OUTAGE)
                primary.inject_fault(f"entity/{orders}", "unavailable")
                pair.events.wait_for(FailoverEngaged, number)
                load.wait_for(SENDS_IN_OUTAGE)
                primary.heal()
                pair.events.wait_for(EntityHealthy, number)
            load.wait_for(SENDS_IN_OUTAGE)
        found = Counter(_all_in(primary, orders))
        at_home = len(found)
        for queue in pair.queues:
            found.update(_all_in(secondary, queue))
        pair.close()
    assert not load.raised_while_failed_over
    assert set(found) == set(load.accepted)
    twice = [text for text, count in found.items() if count > 1]
    assert len(twice) <= SENDERS * OUTAGES
    assert max(found.values()) <= 2
    assert at_home < len(load.accepted), "some went through the backlog"
    assert len(pair.events.of(FailoverEngaged)) == OUTAGES


def _all_in(namespace: EmbeddedNamespace, queue: str) -> list[str]:
    client = ServiceBusClient.from_connection_string(namespace.connection_string)
    found: list[str] = []
    with client, client.get_queue_receiver(queue) as receiver:
        following = 1
        while messages := receiver.peek_messages(250, sequence_number=following):
            found += [str(message) for message in messages]
            following = (messages[-1].sequence_number or 0) + 1
    assert len(found) == namespace.counts(queue).active
    return found
