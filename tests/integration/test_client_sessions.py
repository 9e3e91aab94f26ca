"""Receivers of sessions, by the project's own client, against a running namespace."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tandembus.client import OutgoingMessage, ReceivedMessage, ServiceBus, SubQueue, connect
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tandembus.errors import (
    InvalidOperation,
    MessageNotFound,
    OperationTimeout,
    SessionCannotBeLocked,
    SessionLockLost,
)
from tandembus.namespace.partitioning import fragment_of_key
from tests.covers import covers
from tests.integration.serving import RunningNamespace, start_namespace
from tests.integration.shapes import PARTITIONED, PLAIN, Shape, on_every_shape, on_shapes

pytestmark = on_every_shape

PATIENCE_S = 20.0


def bodies(messages: list[ReceivedMessage]) -> list[object]:
    return [message.body for message in messages]


@pytest.fixture
async def client(running_namespace: RunningNamespace) -> AsyncIterator[ServiceBus]:
    async with await connect(running_namespace.connection_string, timeout_s=PATIENCE_S) as connected:
        yield connected


@pytest.fixture
async def queue(running_namespace: RunningNamespace) -> AsyncIterator[str]:
    """One that requires sessions."""
    name = f"sessions-{uuid.uuid4().hex[:12]}"
    async with Administration(running_namespace.connection_string) as administration:
        await administration.create_queue(name, QueueSettings(requires_session=True))
        yield name
        await administration.delete_queue(name)


async def send(client: ServiceBus, queue: str, *messages: tuple[str, str]) -> None:
    sender = await client.sender(queue)
    await sender.send_many([OutgoingMessage(body, session_id=session) for session, body in messages])


@covers("M7")
class TestSessions:
    async def test_a_session_is_received_in_order_by_one_receiver(self, client: ServiceBus, queue: str) -> None:
        await send(client, queue, ("blue", "1"), ("red", "2"), ("blue", "3"))
        blue = await client.accept_session(queue, "blue")
        assert blue.session_id == "blue"
        with pytest.raises(SessionCannotBeLocked):
            await client.accept_session(queue, "blue")
        messages = await blue.receive(10, PATIENCE_S)
        assert bodies(messages) == [b"1", b"3"]
        await blue.complete(*messages)
        assert await blue.receive(1, 0.05) == []
        await blue.close()
        again = await client.accept_session(queue, "blue")
        assert await again.receive(1, 0.05) == []

    async def test_the_next_session_is_one_that_nobody_has(self, client: ServiceBus, queue: str) -> None:
        await send(client, queue, ("blue", "1"), ("red", "2"))
        found = [await client.accept_session(queue, timeout_s=PATIENCE_S) for _ in range(2)]
        assert sorted(each.session_id for each in found) == ["blue", "red"]
        with pytest.raises(OperationTimeout):
            await client.accept_session(queue, timeout_s=0.2)

    async def test_who_waits_for_a_session_gets_it_when_its_first_message_comes(
        self, client: ServiceBus, queue: str
    ) -> None:
        waiting = asyncio.ensure_future(client.accept_session(queue, timeout_s=PATIENCE_S))
        await send(client, queue, ("late", "x"))
        session = await waiting
        assert session.session_id == "late"
        assert bodies(await session.receive(1, PATIENCE_S)) == [b"x"]

    async def test_the_state_outlives_its_receiver(self, client: ServiceBus, queue: str) -> None:
        first = await client.accept_session(queue, "blue")
        assert await first.state() is None
        await first.set_state(b"half-way")
        await first.close()
        second = await client.accept_session(queue, "blue")
        assert await second.state() == b"half-way"
        await second.set_state(None)
        assert await second.state() is None

    async def test_sessions_are_listed_and_peeked_without_a_lock(self, client: ServiceBus, queue: str) -> None:
        await send(client, queue, ("blue", "1"), ("red", "2"), ("blue", "3"))
        management = await client.management(queue)
        assert sorted([each async for each in management.sessions()]) == ["blue", "red"]
        assert bodies(await management.peek(session_id="blue")) == [b"1", b"3"]
        assert [each async for each in management.sessions(updated_since=0.0)] == []
        holder = await client.accept_session(queue, "red")
        await holder.set_state(b"x")
        assert [each async for each in management.sessions(updated_since=0.0)] == ["red"]
        assert bodies(await holder.peek()) == [b"2"]

    async def test_a_lock_is_renewed(self, client: ServiceBus, queue: str) -> None:
        session = await client.accept_session(queue, "blue")
        before = session.locked_until
        assert await session.renew() >= before > 0

    async def test_a_deferred_message_is_received_in_its_session(self, client: ServiceBus, queue: str) -> None:
        await send(client, queue, ("blue", "1"))
        session = await client.accept_session(queue, "blue")
        (message,) = await session.receive(1, PATIENCE_S)
        await session.defer(message)
        management = await client.management(queue)
        numbers = [message.sequence_number]
        received = await management.receive_deferred(numbers, session_id="blue", link_name=session.name)
        assert bodies(received) == [b"1"]
        with pytest.raises(MessageNotFound):
            await management.receive_deferred([10_000], session_id="blue", link_name=session.name)

    async def test_dead_letters_of_a_session_are_in_no_session(self, client: ServiceBus, queue: str) -> None:
        await send(client, queue, ("blue", "1"))
        session = await client.accept_session(queue, "blue")
        await session.dead_letter(*await session.receive(1, PATIENCE_S), reason="why")
        (dead,) = await (await client.receiver(queue, SubQueue.DEAD_LETTER)).receive(1, PATIENCE_S)
        assert (dead.session_id, dead.dead_letter_reason) == ("blue", "why")

    async def test_the_wrong_kind_of_receiver_or_message_is_refused(
        self, client: ServiceBus, queue: str, running_namespace: RunningNamespace
    ) -> None:
        with pytest.raises(InvalidOperation):
            await client.receiver(queue)
        with pytest.raises(InvalidOperation):
            await (await client.sender(queue)).send(OutgoingMessage("without a session"))
        async with Administration(running_namespace.connection_string) as administration:
            await administration.create_queue(plain := f"plain-{uuid.uuid4().hex[:12]}")
            with pytest.raises(InvalidOperation):
                await client.accept_session(plain, "blue")
            await administration.delete_queue(plain)


@covers("M7")
async def test_a_lock_that_is_not_renewed_is_lost(small_namespace: RunningNamespace) -> None:
    name = f"sessions-{uuid.uuid4().hex[:12]}"
    async with Administration(small_namespace.connection_string) as administration:
        await administration.create_queue(name, QueueSettings(requires_session=True, lock_duration_s=1.0))
    async with await connect(small_namespace.connection_string, timeout_s=PATIENCE_S) as client:
        await send(client, name, ("blue", "1"))
        session = await client.accept_session(name, "blue")
        (message,) = await session.receive(1, PATIENCE_S)
        with pytest.raises(SessionLockLost):
            await session.receive(1, PATIENCE_S)
        with pytest.raises(SessionLockLost):
            await session.complete(message)
        with pytest.raises(SessionLockLost):
            await session.renew()
        again = await client.accept_session(name, "blue")
        assert bodies(await again.receive(1, PATIENCE_S)) == [b"1"]


@covers("M7")
@on_shapes(PLAIN, PARTITIONED)
async def test_after_a_restart_every_receiver_of_many_long_sessions_gets_messages_at_once(
    tmp_path: Path, shape: Shape
) -> None:
    sessions = [name for number in range(1000) if fragment_of_key(name := f"session-{number}") == 3][:16]
    running = start_namespace(tmp_path, *shape.topology.options)
    async with Administration(running.connection_string) as administration:
        settings = QueueSettings(requires_session=True, lock_duration_s=300.0, partitioning=shape.is_partitioned)
        await administration.create_queue("long", settings)
    async with await connect(running.connection_string, timeout_s=PATIENCE_S) as client:
        sender = await client.sender("long")
        for name in sessions:
            await sender.send_batches([OutgoingMessage("x", session_id=name) for _ in range(700)], 350)
    running.stop_in_peace()
    running = start_namespace(tmp_path, *shape.topology.options)

    async def take_some(client: ServiceBus, name: str) -> int:
        session = await client.accept_session("long", name)
        taken = 0
        while taken < 200 and (messages := await session.receive(200 - taken, PATIENCE_S)):
            taken += len(messages)
        return taken

    async with await connect(running.connection_string, timeout_s=PATIENCE_S) as client:
        assert await asyncio.gather(*(take_some(client, name) for name in sessions)) == [200] * 16
    running.stop_in_peace()
