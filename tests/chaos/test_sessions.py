"""Sessions over time and through crashes: an idle receiver keeps its session, and kills change no order."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import AutoLockRenewer, ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from tandembus.client import OutgoingMessage, ServiceBus, connect
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tandembus.client.errors import ClientFailure
from tandembus.errors import BusError
from tests.covers import covers
from tests.integration.serving import RunningNamespace, start_namespace
from tests.scale import scaled

QUEUE = "sessions"
PATIENCE_S = 60.0
SESSIONS = 12
SENDERS = 3
RECEIVERS = 4
MODES = ("loop", "thread")


@pytest.mark.chaos
@covers("M7")
def test_an_idle_session_receiver_keeps_its_session_and_gets_what_comes(tmp_path: Path) -> None:
    """Half an hour at night. Its lock is renewed all the while, and its connection says nothing else."""
    idle_s = scaled(7, 1800, 1800)
    namespace = start_namespace(tmp_path / "data")
    with ServiceBusAdministrationClient.from_connection_string(
        namespace.connection_string, connection_verify=str(namespace.ca_path)
    ) as admin:
        admin.create_queue(QUEUE, requires_session=True, lock_duration=timedelta(seconds=5))
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client,
        client.get_queue_receiver(QUEUE, session_id="mine", max_wait_time=PATIENCE_S) as receiver,
        AutoLockRenewer() as renewer,
    ):
        lost = threading.Event()
        renewer.register(
            receiver,
            receiver.session,
            max_lock_renewal_duration=idle_s + 600,
            on_lock_renew_failure=lambda *_: lost.set(),
        )
        assert not lost.wait(idle_s), f"the session was lost: {receiver.session.auto_renew_error}"
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage(b"after a long time", session_id="mine"))
        (message,) = receiver.receive_messages(max_message_count=1)
        assert b"".join(message.body) == b"after a long time"
        receiver.complete_message(message)
    assert namespace.stop() == 0


class SessionHistory:
    """What was accepted in each session, in order, and what was received of it."""

    def __init__(self) -> None:
        self.accepted: dict[str, list[int]] = {}
        self.completed: set[tuple[str, int]] = set()
        self.unsure: set[tuple[str, int]] = set()
        self.held: set[str] = set()
        self._next = 0

    def new_message(self, session_id: str) -> tuple[int, OutgoingMessage]:
        self._next += 1
        return self._next, OutgoingMessage(b"", session_id=session_id, subject=str(self._next))

    def received(self, session_id: str, numbers: list[int], already: list[int]) -> None:
        """In one holding of the session: strictly upwards, and nothing in between left out that was accepted."""
        seen = already + numbers
        assert seen == sorted(set(seen)), f"session {session_id} came as {seen}"
        for number in numbers:
            assert (session_id, number) not in self.completed, f"{number} of {session_id} came again"
        first, last = seen[0], seen[-1]
        for number in self.accepted.get(session_id, []):
            is_left = (session_id, number) not in self.completed and (session_id, number) not in self.unsure
            is_passed_over = first < number < last and is_left and number not in seen
            assert not is_passed_over, f"{number} of {session_id} was passed over"


async def _keep_sending(target: str, history: SessionHistory, session_ids: list[str], told: asyncio.Event) -> None:
    """One after the other: only so it is known in which order they were accepted."""
    chance = random.Random(session_ids[0])
    try:
        async with await connect(target, timeout_s=PATIENCE_S) as client:
            sender = await client.sender(QUEUE)
            while True:
                session_id = chance.choice(session_ids)
                number, message = history.new_message(session_id)
                await sender.send(message)
                history.accepted.setdefault(session_id, []).append(number)
                told.set()
    except ClientFailure:
        return


async def _keep_receiving(target: str, history: SessionHistory) -> None:
    try:
        async with await connect(target, timeout_s=PATIENCE_S) as client:
            while True:
                await _receive_a_session(client, history, 10.0)
    except ClientFailure:
        return


async def _receive_a_session(client: ServiceBus, history: SessionHistory, wait_s: float) -> None:
    receiver = await client.accept_session(QUEUE, None, wait_s)
    session_id = receiver.session_id
    assert session_id not in history.held, "two have the same session"
    history.held.add(session_id)
    already: list[int] = []
    try:
        while len(already) < 30 and (messages := await receiver.receive(10, 0.05)):
            numbers = [int(message.subject or "") for message in messages]
            history.received(session_id, numbers, already)
            already += numbers
            keys = {(session_id, number) for number in numbers}
            history.unsure |= keys
            await receiver.complete(*messages)
            history.completed |= keys
            history.unsure -= keys
    finally:
        history.held.discard(session_id)
    await receiver.close()


@pytest.mark.chaos
@covers("M7", "F2")
async def test_sessions_stay_exclusive_and_in_order_through_kills(tmp_path: Path, tell: Callable[[str], None]) -> None:
    history = SessionHistory()
    moments = random.Random(40)
    ids = [f"s{number}" for number in range(SESSIONS)]
    for number in range(scaled(6, 200, 2000)):
        mode = MODES[number % len(MODES)]
        namespace = start_namespace(tmp_path / "data", environment={"TANDEMBUS_LIMITS_COMMIT_MODE": mode})
        if number == 0:
            async with Administration(namespace.connection_string) as administration:
                await administration.create_queue(QUEUE, QueueSettings(requires_session=True))
        await _load_until_killed(namespace, history, ids, moments.randint(1, 400))
    namespace = start_namespace(tmp_path / "data")
    async with await connect(namespace.connection_string, timeout_s=PATIENCE_S) as client:
        try:
            while True:
                await _receive_a_session(client, history, 2.0)
        except BusError:
            pass  # nothing is left
    async with Administration(namespace.connection_string) as administration:
        counts = (await administration.get_queue(QUEUE)).counts
    assert namespace.stop() == 0
    assert (counts.active, counts.dead_letter) == (0, 0)
    accepted = {(one, number) for one, numbers in history.accepted.items() for number in numbers}
    assert accepted <= history.completed | history.unsure, "accepted messages are lost"
    tell(f"sessions: {len(accepted)} accepted, {len(history.completed)} completed")


async def _load_until_killed(namespace: RunningNamespace, history: SessionHistory, ids: list[str], after: int) -> None:
    target = namespace.connection_string
    told = asyncio.Event()
    parts = [ids[at::SENDERS] for at in range(SENDERS)]
    clients = [asyncio.create_task(_keep_sending(target, history, part, told)) for part in parts]
    clients += [asyncio.create_task(_keep_receiving(target, history)) for _ in range(RECEIVERS)]
    before = sum(len(numbers) for numbers in history.accepted.values())
    while sum(len(numbers) for numbers in history.accepted.values()) - before < after:
        told.clear()
        await asyncio.wait_for(told.wait(), PATIENCE_S)
    await asyncio.to_thread(namespace.kill)
    await asyncio.wait_for(asyncio.gather(*clients), PATIENCE_S)
    history.held.clear()
