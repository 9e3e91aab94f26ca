"""A data folder of an older version (`tests/data`, written by `tests/data/write.py`) opens and serves what it holds."""

from __future__ import annotations

import tarfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from tandembus.client import OutgoingMessage, ServiceBus, connect
from tandembus.client.administration import Administration
from tandembus.clock import ManualClock, SystemClock
from tandembus.config import ServeSettings
from tandembus.namespace.partitioning import fragment_of_key
from tandembus.node.wiring import NamespaceNode
from tests.covers import covers
from tests.integration.serving import RunningNamespace, serving

DATA = Path(__file__).parents[1] / "data"
VERSIONS = sorted(DATA.glob("*.tar.xz"))
KINDS = ("plain", "partitioned")
WAIT_S = 20


def unpack(version: Path, folder: Path) -> Path:
    with tarfile.open(version) as archive:
        # Debian 12 has Python 3.11.2, whose extractall does not know the argument yet.
        archive.extraction_filter = tarfile.data_filter if hasattr(tarfile, "data_filter") else None
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda version: version.name.partition(".")[0])
def older(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with serving(unpack(request.param, tmp_path_factory.mktemp("older")), "--audit") as namespace:
        yield namespace


@pytest.fixture
async def client(older: RunningNamespace) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient.from_connection_string(older.connection_string) as client:
        yield client


async def drained(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        more = await receiver.receive_messages(max_message_count=count - len(found), max_wait_time=WAIT_S)
        assert more, f"{len(found)} of {count} messages came"
        for message in more:
            await receiver.complete_message(message)
        found += more
    return found


@covers("M1", "M3", "M4", "M5", "P19")
@pytest.mark.parametrize("kind", KINDS)
async def test_messages_of_an_older_version_are_as_they_were(
    older: RunningNamespace, client: ServiceBusClient, kind: str
) -> None:
    async with Administration(older.connection_string, ca_path=str(older.ca_path)) as administration:
        counts = (await administration.get_queue(kind)).counts
        assert (counts.active, counts.dead_letter, counts.scheduled) == (27, 2, 1)
    async with client.get_queue_receiver(kind) as receiver:
        peeked = await receiver.peek_messages(max_message_count=100)
        states = {message.message_id: message.state.name for message in peeked}
        (deferred,) = [message for message in peeked if message.state.name == "DEFERRED"]
        assert deferred.sequence_number is not None
        assert states.pop("scheduled") == "SCHEDULED"
        (again,) = await receiver.receive_deferred_messages([deferred.sequence_number])
        assert again.message_id == deferred.message_id
        await receiver.complete_message(again)
        messages = await drained(receiver, 26)
        assert {message.message_id for message in messages} == states.keys() - {deferred.message_id}
        assert all(str(message) == (message.message_id or "")[1:] for message in messages)
        assert all(message.partition_key == f"k{message}" for message in messages)
        assert [message.delivery_count for message in messages if message.delivery_count] == [1]
    async with client.get_queue_receiver(kind, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        dead = await drained(receiver, 2)
        assert {(one.dead_letter_reason, one.dead_letter_error_description) for one in dead} == {
            ("Refused", "by the writer")
        }


@covers("M7")
@pytest.mark.parametrize("kind", KINDS)
async def test_sessions_of_an_older_version_have_their_order_and_state(client: ServiceBusClient, kind: str) -> None:
    found: dict[str, list[str]] = {}
    for _ in range(3):
        async with client.get_queue_receiver(f"{kind}-sessions", session_id=NEXT_AVAILABLE_SESSION) as receiver:
            session = receiver.session.session_id
            state = await receiver.session.get_state()
            assert state == (b"state of s0" if session == "s0" else None)
            messages = await drained(receiver, 3 if session == "s0" else 4)
            found[session] = [str(message) for message in messages]
    assert found == {"s0": ["3", "6", "9"], "s1": ["1", "4", "7", "10"], "s2": ["2", "5", "8", "11"]}


@covers("M9")
@pytest.mark.parametrize("kind", KINDS)
async def test_subscriptions_of_an_older_version_have_their_messages_and_rules(
    client: ServiceBusClient, kind: str
) -> None:
    for name, numbers, label in (("all", range(10), None), ("large", range(6, 10), b"large")):
        async with client.get_subscription_receiver(f"{kind}-topic", name) as receiver:
            messages = await drained(receiver, len(numbers))
            assert {str(message) for message in messages} == {str(number) for number in numbers}
            assert {(message.application_properties or {}).get(b"label") for message in messages} == {label}


@pytest.mark.parametrize("kind", KINDS)
async def test_reservations_of_an_older_version_are_their_owner_s(older: RunningNamespace, kind: str) -> None:
    async with await connect(older.connection_string) as bus:
        reservations = await bus.reservations(f"{kind}-reserved")
        reserved = await reservations.reserved("writer")
        assert sum(last - first + 1 for pairs in reserved.values() for first, last in pairs) == 6
        epoch = await reservations.open_owner("writer")
        assert await reservations.complete_ranges("writer", epoch, reserved) == 6


@covers("M8", "P10")
async def test_message_ids_stored_without_keys_count_for_every_key_until_they_leave_their_window(
    tmp_path: Path,
) -> None:
    """The window is a week, so the test keeps to the time at which the folder was written."""
    version = DATA / "ead7bcb.tar.xz"
    with tarfile.open(version) as archive:
        clock = ManualClock(max(member.mtime for member in archive) + 3600.0)
    settings = ServeSettings(data=unpack(version, tmp_path), amqp_port=0, amqps_port=None, http_port=0)
    node = NamespaceNode(settings, clock, connection_clock=SystemClock())
    await node.start()

    async def taken(bus: ServiceBus, queue: str, key_of: Callable[[str], str]) -> int:
        sender = await bus.sender(queue)
        before = (await node.namespace.counts(queue)).active
        for number in range(20):
            await sender.send(OutgoingMessage("again", f"m{number}", partition_key=key_of(f"k{number}")))
        return (await node.namespace.counts(queue)).active - before

    async with await connect(node.connection_string) as bus:
        for kind in KINDS:
            queue = f"{kind}-duplicates"
            assert await taken(bus, queue, str) == 0
            assert await taken(bus, queue, beside) == 0
            assert await taken(bus, queue, elsewhere) == (0 if kind == "plain" else 20)
        clock.advance(7 * 86_400.0)
        assert [await taken(bus, f"{kind}-duplicates", beside) for kind in KINDS] == [20, 20]
    await node.stop()


def beside(key: str) -> str:
    """Another key of the same fragment."""
    return next(other for n in range(1000) if fragment_of_key(other := f"other-{n}") == fragment_of_key(key))


def elsewhere(key: str) -> str:
    """A key of another fragment."""
    return next(other for n in range(1000) if fragment_of_key(other := f"other-{n}") != fragment_of_key(key))
