"""Fixtures of the tests with real clients: a running namespace, and queues of their own for each test."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.integration.serving import RunningNamespace, start_namespace


@pytest.fixture(scope="session")
def running_namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNamespace]:
    namespace = start_namespace(tmp_path_factory.mktemp("namespace") / "data")
    yield namespace
    assert namespace.stop() == 0, "".join(namespace.log)


@pytest.fixture(scope="session")
def admin(running_namespace: RunningNamespace) -> Iterator[ServiceBusAdministrationClient]:
    """The unmodified administration client, over TLS with the namespace's own authority."""
    with ServiceBusAdministrationClient.from_connection_string(
        running_namespace.connection_string, connection_verify=str(running_namespace.ca_path)
    ) as client:
        yield client


QueueMaker = Callable[..., str]


@pytest.fixture
def make_queue(admin: ServiceBusAdministrationClient) -> Iterator[QueueMaker]:
    """`make_queue(lock_duration=...)` returns the name of a new queue, deleted after the test."""
    made: list[str] = []

    def make(**settings: object) -> str:
        name = f"queue-{uuid.uuid4().hex[:12]}"
        admin.create_queue(name, **settings)
        made.append(name)
        return name

    yield make
    for name in made:
        admin.delete_queue(name)


@pytest.fixture
def queue_name(make_queue: QueueMaker) -> str:
    return make_queue()


@pytest.fixture
def data_folder(tmp_path: Path) -> Path:
    return tmp_path / "data"
