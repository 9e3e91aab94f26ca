"""Fixtures of the tests with real clients: running namespaces, queues of their own for each test, the SDK's clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from tandembus.testing import EmbeddedNamespace
from tests.integration.bus import Bus
from tests.integration.command_line import Run, command_line
from tests.integration.python_sdk import AsyncSdk, Closer, LoopThread, PythonSdk, SyncSdk
from tests.integration.raw_amqp import RawAmqp
from tests.integration.serving import RunningNamespace, start_namespace
from tests.integration.shapes import PLAIN, Shape, Topology

SENDS_KEY = "c2VuZHMgb25seSwgZm9yIHRlc3Rz"
LISTENS_KEY = "bGlzdGVucyBvbmx5LCBmb3IgdGVzdHM="
SMALL = f"""
[[policies]]
name = "sends"
key = "{SENDS_KEY}"
rights = ["Send"]

[[policies]]
name = "listens"
key = "{LISTENS_KEY}"
rights = ["Listen"]

[limits]
size_choices_megabytes = [1, 1024]
min_lock_duration_s = 1.0
token_check_interval_s = 0.2
transaction_timeout_s = 1.0
max_transaction_messages = 5
"""
"""Short and small, so that a test gets to the end of them."""
MANY_PARTITIONED = "max_partitioned_entities = 10000\n"
"""Tests leave their entities behind."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("shapes")
    if mark is not None and "shape" in metafunc.fixturenames:
        names = [one.name for one in mark.args]
        metafunc.parametrize("shape", mark.args, indirect=True, scope="module", ids=names)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What an entity consists of does not show in how a client is written: on other shapes than the plain one, one kind
    of client is enough."""
    left_out = [one for one in items if isinstance(one, pytest.Function) and _repeats(one)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [one for one in items if one not in set(left_out)]


def _repeats(item: pytest.Function) -> bool:
    callspec = getattr(item, "callspec", None)
    if callspec is None or callspec.params.get("shape", PLAIN) is PLAIN:
        return False
    return callspec.params.get("connect") == "async" and _has_both(item)


def _has_both(item: pytest.Function) -> bool:
    """Whether the same test runs with the other kind, too."""
    return not any(mark.name == "parametrize" and "connect" in mark.args[0] for mark in item.iter_markers())


class Namespaces:
    """The running namespaces of a session, each started when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[tuple[Topology, bool], RunningNamespace | RuntimeError] = {}

    def get(self, topology: Topology, is_small: bool) -> RunningNamespace:
        """Raises what the first attempt raised: hundreds of tests must not wait for it again, one by one."""
        found = self._running.get((topology, is_small))
        if found is None:
            try:
                found = self._start(topology, is_small)
            except RuntimeError as error:
                found = error
            self._running[topology, is_small] = found
        if isinstance(found, RuntimeError):
            raise found
        return found

    def _start(self, topology: Topology, is_small: bool) -> RunningNamespace:
        folder = self._folder / f"{topology.name}{'-small' if is_small else ''}"
        folder.mkdir()
        config = folder / "config.toml"
        config.write_text((SMALL if is_small else "[limits]\n") + MANY_PARTITIONED)
        return start_namespace(folder / "data", "--config", str(config), *topology.options)

    def stop(self) -> None:
        for namespace in self._running.values():
            if isinstance(namespace, RunningNamespace):
                namespace.stop_in_peace()


@pytest.fixture(scope="session")
def namespaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespaces]:
    namespaces = Namespaces(tmp_path_factory.mktemp("namespaces"))
    yield namespaces
    namespaces.stop()


@pytest.fixture(scope="module")
def shape(request: pytest.FixtureRequest) -> Shape:
    """Of what the module's tests make: plain, unless it is marked with `on_shapes`."""
    chosen: Shape = getattr(request, "param", PLAIN)
    return chosen


@pytest.fixture(scope="module")
def running_namespace(namespaces: Namespaces, shape: Shape) -> RunningNamespace:
    return namespaces.get(shape.topology, False)


@pytest.fixture(scope="module")
def small_namespace(namespaces: Namespaces, shape: Shape) -> RunningNamespace:
    return namespaces.get(shape.topology, True)


@pytest.fixture(scope="module")
def bus(running_namespace: RunningNamespace, shape: Shape) -> Iterator[Bus]:
    bus = Bus(running_namespace, shape=shape)
    yield bus
    bus.close()


@pytest.fixture(scope="module")
def small_bus(small_namespace: RunningNamespace, shape: Shape) -> Iterator[Bus]:
    """A namespace whose limits are within a test's reach: see SMALL."""
    bus = Bus(small_namespace, shape=shape)
    yield bus
    bus.close()


@pytest.fixture(scope="module")
def admin(bus: Bus) -> ServiceBusAdministrationClient:
    """The unmodified administration client, over TLS with the namespace's own authority."""
    return bus.admin


QueueMaker = Callable[..., str]


@pytest.fixture
def make_queue(bus: Bus) -> Iterator[QueueMaker]:
    """`make_queue(lock_duration=...)` returns the name of a new queue, deleted after the test."""
    made: list[str] = []

    def make(**settings: Any) -> str:
        made.append(bus.make_queue(**settings))
        return made[-1]

    yield make
    for name in made:
        bus.admin.delete_queue(name)


@pytest.fixture
def queue_name(make_queue: QueueMaker) -> str:
    return make_queue()


@pytest.fixture
def run(running_namespace: RunningNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("queue", "list")` runs a command against the running namespace, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return command_line(running_namespace)


@pytest.fixture
def data_folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(scope="session")
def closer(namespaces: Namespaces) -> Iterator[Closer]:
    """Made after the namespaces, so that it finishes before they stop."""
    closer = Closer()
    yield closer
    closer.finish()


@pytest.fixture(scope="session")
def loop_thread() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.stop()


@pytest.fixture(scope="module")
def primary() -> Iterator[EmbeddedNamespace]:
    """Of a pair, whose secondary is `secondary`."""
    with EmbeddedNamespace(name="contoso") as namespace:
        yield namespace


@pytest.fixture(scope="module")
def secondary() -> Iterator[EmbeddedNamespace]:
    with EmbeddedNamespace(name="fabrikam") as namespace:
        yield namespace


@pytest.fixture(scope="module")
def own_closer(primary: EmbeddedNamespace, secondary: EmbeddedNamespace) -> Iterator[Closer]:
    """Closing a link takes the SDK a second: that is done behind the tests' backs."""
    closer = Closer()
    yield closer
    closer.finish()


Connect = Callable[..., PythonSdk]

# Where the wire shows no difference between them, one of the two kinds of client is enough.
with_sync_client = pytest.mark.parametrize("connect", ["sync"], indirect=True)
with_async_client = pytest.mark.parametrize("connect", ["async"], indirect=True)


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest, loop_thread: LoopThread, closer: Closer) -> Iterator[Connect]:
    """`connect(connection_string)` gives a client of the Python SDK; tests that use it run with both of its kinds."""
    made: list[PythonSdk] = []

    def connect(connection_string: str, **options: object) -> PythonSdk:
        sdk: PythonSdk
        if request.param == "sync":
            sdk = SyncSdk(connection_string, closer, **options)
        else:
            sdk = AsyncSdk(connection_string, closer, loop_thread, **options)
        made.append(sdk)
        return sdk

    yield connect
    for sdk in made:
        sdk.close()


@pytest.fixture
def sdk(connect: Connect, bus: Bus) -> PythonSdk:
    return connect(bus.connection_string)


@pytest.fixture
def impatient_sdk(connect: Connect, bus: Bus) -> PythonSdk:
    """One that tries nothing twice: for errors that the SDK would retry."""
    return connect(bus.connection_string, retry_total=0)


@pytest.fixture
def small_sdk(connect: Connect, small_bus: Bus) -> PythonSdk:
    """Connected to the namespace with small limits."""
    return connect(small_bus.connection_string)


@pytest.fixture
def queue(bus: Bus) -> str:
    """A queue of the test's own, as the service makes it by default."""
    return bus.make_queue()


@pytest.fixture
def raw(bus: Bus) -> Iterator[RawAmqp]:
    """A raw connection that has logged in with the root policy's key and begun a session."""
    with RawAmqp(bus.running.port) as raw:
        raw.log_in()
        yield raw
