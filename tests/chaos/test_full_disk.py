"""F4: the disk is full for real. Sends are refused by name; receiving and settling go on; room brings service back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tandembus.client import OutgoingMessage, Receiver, Sender, ServiceBus, SubQueue, connect
from tandembus.client.administration import Administration
from tandembus.clock import SystemClock
from tandembus.errors import MessageLockLost, StoreUnavailable
from tests.chaos.tally import Tally
from tests.chaos.tally_load import drain
from tests.covers import covers
from tests.integration.serving import RunningNamespace, start_namespace
from tests.scale import scaled
from tests.volumes import mounted

QUEUE = "full"
VOLUME_MB = 64
PATIENCE_S = 30.0
REFUSED_WITHIN_S = 1.0
RESUMES_WITHIN_S = 5.0
MOST_MESSAGES = 200_000
"""More than any volume of this size takes: the loop ends by refusal, not here."""


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "volume", VOLUME_MB) as volume:
        yield volume


@pytest.fixture
def namespace_on_small_volume(small_volume: Path) -> Iterator[RunningNamespace]:
    namespace = start_namespace(small_volume / "data")
    yield namespace
    assert namespace.stop() == 0, "".join(namespace.log)


async def _fill(sender: Sender, tally: Tally) -> None:
    """Until the first refusal, which must be the store's and nobody else's."""
    for _ in range(MOST_MESSAGES):
        message_id, message = tally.new_message(largest=60_000)
        try:
            await asyncio.wait_for(sender.send(message), PATIENCE_S)
        except StoreUnavailable:
            return
        tally.accepted.add(message_id)
    raise AssertionError("the volume never filled up")


async def _settle_half(receiver: Receiver, tally: Tally) -> None:
    half = len(tally.accepted - tally.completed) // 2
    while half > 0:
        messages = await receiver.receive(min(half, 200), PATIENCE_S)
        assert messages, "receiving must go on while the disk is full"
        await receiver.complete(*messages)
        tally.completed.update([tally.received(message) for message in messages])
        half -= len(messages)


async def _send_until_accepted(sender: Sender, tally: Tally) -> None:
    """Service comes back by itself once there is room; every refusal until then is the store's."""
    while True:
        message_id, message = tally.new_message(largest=1000)
        try:
            await sender.send(message)
        except StoreUnavailable:
            continue
        tally.accepted.add(message_id)
        return


@pytest.mark.chaos
@covers("F4", "M13")
async def test_a_full_volume_refuses_sends_and_nothing_else(namespace_on_small_volume: RunningNamespace) -> None:
    target = namespace_on_small_volume.connection_string
    tally = Tally(seed=4)
    async with Administration(target) as administration:
        await administration.create_queue(QUEUE)
    async with await connect(target, timeout_s=PATIENCE_S) as client:
        sender, receiver = await client.sender(QUEUE), await client.receiver(QUEUE)
        for _ in range(scaled(1, 20, 50)):
            await _fill(sender, tally)
            await _settle_half(receiver, tally)
            await asyncio.wait_for(_send_until_accepted(sender, tally), PATIENCE_S)
    tally.check(await drain(target, QUEUE, tally))


@pytest.mark.chaos
@covers("F4", "M13")
async def test_a_full_map_refuses_sends_and_nothing_else(tmp_path: Path) -> None:
    """The same without a volume of its own: the store may not grow beyond its address space."""
    namespace = start_namespace(tmp_path / "data", environment={"TANDEMBUS_LIMITS_STORE_MAP_SIZE_BYTES": str(64 << 20)})
    target = namespace.connection_string
    tally = Tally(seed=6)
    async with Administration(target) as administration:
        await administration.create_queue(QUEUE)
    async with await connect(target, timeout_s=PATIENCE_S) as client:
        sender, receiver = await client.sender(QUEUE), await client.receiver(QUEUE)
        await _fill(sender, tally)
        assert await _refused_after_s(sender, tally) < REFUSED_WITHIN_S
        await _settle_half(receiver, tally)
        await asyncio.wait_for(_send_until_accepted(sender, tally), PATIENCE_S)
    tally.check(await drain(target, QUEUE, tally))
    assert namespace.stop() == 0, "".join(namespace.log)


async def _refused_after_s(sender: Sender, tally: Tally) -> float:
    """How long a refusal takes: the shortest of a few, since this machine may have other things to do."""
    clock = SystemClock()
    times: list[float] = []
    for _ in range(5):
        _, message = tally.new_message(largest=60_000)
        began_at = clock.monotonic()
        with pytest.raises(StoreUnavailable):
            await sender.send(message)
        times.append(clock.monotonic() - began_at)
    return min(times)


@pytest.mark.chaos
@covers("F4", "M13")
async def test_the_sdk_is_told_of_a_full_disk_as_an_outage(namespace_on_small_volume: RunningNamespace) -> None:
    target = namespace_on_small_volume.connection_string
    async with Administration(target) as administration:
        await administration.create_queue(QUEUE)
    async with await connect(target, timeout_s=PATIENCE_S) as client:
        await _fill(await client.sender(QUEUE), Tally(seed=7))
    with pytest.raises(ServiceBusError, match="amqp:internal-error"):
        await asyncio.to_thread(_send_with_the_sdk, target)


def _send_with_the_sdk(target: str) -> None:
    with (
        ServiceBusClient.from_connection_string(target, retry_total=0) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        sender.send_messages(ServiceBusMessage(bytes(60_000)))


@pytest.mark.chaos
@covers("F4", "M3", "M5")
async def test_a_volume_that_others_filled_to_the_last_byte_costs_nobody_a_message(small_volume: Path) -> None:
    """Not even moving a message fits: receiving and completing go on, dead-lettering and schedules wait for room."""
    namespace = start_namespace(small_volume / "data")
    target = namespace.connection_string
    async with Administration(target) as administration:
        await administration.create_queue(QUEUE)
    async with await connect(target, timeout_s=PATIENCE_S) as client:
        sender, receiver = await client.sender(QUEUE), await client.receiver(QUEUE)
        management = await client.management(QUEUE)
        for number in range(30):
            await sender.send(OutgoingMessage(bytes(40_000), message_id=f"m{number}"))
        soon = SystemClock().now() + 1.0
        await management.schedule([OutgoingMessage(bytes(40_000), message_id="later", scheduled_at=soon)])
        held = await receiver.receive(10, PATIENCE_S)
        others = _take_all_room(small_volume)
        with pytest.raises(StoreUnavailable):
            await _send_until_refused(sender)
        await receiver.complete(*held[:5])
        done = {message.message_id for message in held[:5]}
        for message in held[5:]:
            with suppress(StoreUnavailable, MessageLockLost):
                await receiver.dead_letter(message, reason="full")
        others.unlink()
        await asyncio.wait_for(_send_until_accepted(sender, Tally(seed=8)), RESUMES_WITHIN_S)
        await receiver.close()
        left = await _ids_in(client, None, "later") | await _ids_in(client, SubQueue.DEAD_LETTER, None)
    assert {f"m{number}" for number in range(30)} | {"later"} <= done | left
    assert namespace.stop() == 0, "".join(namespace.log)


def _take_all_room(volume: Path) -> Path:
    """Somebody else's file, as large as fits."""
    path = volume / "somebody-elses"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return path


async def _send_until_refused(sender: Sender) -> None:
    for _ in range(MOST_MESSAGES):
        await sender.send(OutgoingMessage(bytes(60_000)))


async def _ids_in(client: ServiceBus, sub_queue: SubQueue | None, awaited: str | None) -> set[str]:
    """What can be received, until none comes any more and the one that is waited for has come."""
    found: set[str] = set()
    receiver = await client.receiver(QUEUE, sub_queue)
    while messages := await receiver.receive(100, PATIENCE_S if awaited and awaited not in found else 1.0):
        found.update(message.message_id or "" for message in messages)
        await receiver.complete(*messages)
    return found


@pytest.mark.chaos
@covers("F4")
async def test_what_was_accepted_before_the_disk_filled_up_survives_a_kill(small_volume: Path) -> None:
    tally = Tally(seed=5)
    namespace = start_namespace(small_volume / "data")
    async with Administration(namespace.connection_string) as administration:
        await administration.create_queue(QUEUE)
    async with await connect(namespace.connection_string, timeout_s=PATIENCE_S) as client:
        await _fill(await client.sender(QUEUE), tally)
        namespace.kill()
    namespace = start_namespace(small_volume / "data")
    try:
        tally.check(await drain(namespace.connection_string, QUEUE, tally))
    finally:
        assert namespace.stop() == 0
