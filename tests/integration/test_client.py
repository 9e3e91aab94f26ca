"""The project's own client against a running namespace."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import AsyncIterator

import pytest

from tandembus.amqp.encoding.values import int_, timestamp
from tandembus.client import (
    ConnectionLost,
    Disposition,
    OutgoingMessage,
    ReceivedMessage,
    ReceiveMode,
    ServiceBus,
    SubQueue,
    connect,
)
from tandembus.client.administration import Administration
from tandembus.client.durations import NEVER
from tandembus.client.entities import QueueSettings
from tandembus.client.messages import as_new
from tandembus.clock import SystemClock
from tandembus.errors import (
    EntityAlreadyExists,
    EntityDisabled,
    EntityNotFound,
    InvalidArgument,
    InvalidOperation,
    MessageLockLost,
    MessageNotFound,
    Unauthorized,
)
from tandembus.security.sas import make_token
from tests.covers import covers
from tests.integration.serving import RunningNamespace
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape

PATIENCE_S = 20.0
"""Never waited for in full, unless something is broken."""


def a_name() -> str:
    return f"client-{uuid.uuid4().hex[:12]}"


def bodies(messages: list[ReceivedMessage]) -> list[object]:
    return [message.body for message in messages]


@pytest.fixture
async def administration(running_namespace: RunningNamespace) -> AsyncIterator[Administration]:
    async with Administration(running_namespace.connection_string) as connected:
        yield connected


@pytest.fixture
async def client(running_namespace: RunningNamespace) -> AsyncIterator[ServiceBus]:
    async with await connect(running_namespace.connection_string, timeout_s=PATIENCE_S) as connected:
        yield connected


@pytest.fixture
async def queue(administration: Administration) -> AsyncIterator[str]:
    name = a_name()
    await administration.create_queue(name)
    yield name
    await administration.delete_queue(name)


def tls_string(running: RunningNamespace, key: str | None = None) -> str:
    policy = "SharedAccessKeyName=RootManageSharedAccessKey"
    return f"Endpoint=sb://localhost:{running.port}/;{policy};SharedAccessKey={key or running.key}"


@covers("M15")
class TestConnecting:
    async def test_tls_with_the_namespaces_own_authority(self, running_namespace: RunningNamespace, queue: str) -> None:
        ca_path = str(running_namespace.ca_path)
        async with await connect(tls_string(running_namespace), ca_path=ca_path) as client:
            await (await client.sender(queue)).send(OutgoingMessage("over tls"))
            assert bodies(await (await client.receiver(queue)).receive(1, PATIENCE_S)) == [b"over tls"]
        async with Administration(tls_string(running_namespace), ca_path=ca_path) as administration:
            assert (await administration.get_queue(queue)).name == queue

    async def test_a_certificate_of_an_unknown_authority_is_not_trusted(
        self, running_namespace: RunningNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        with pytest.raises(ConnectionLost, match="certificate verify failed") as failure:
            await connect(tls_string(running_namespace))
        assert isinstance(failure.value.__cause__, ssl.SSLError)

    async def test_sasl_plain(self, running_namespace: RunningNamespace, queue: str) -> None:
        async with await connect(running_namespace.connection_string, sasl_plain=True) as client:
            await (await client.sender(queue)).send(OutgoingMessage("hello"))

    async def test_a_ready_signature_in_the_connection_string(
        self, running_namespace: RunningNamespace, queue: str
    ) -> None:
        uri = f"sb://localhost:{running_namespace.port}/{queue}"
        expires_at = SystemClock().now() + 600
        token = make_token(uri, "RootManageSharedAccessKey", running_namespace.key, expires_at)
        endpoint = f"Endpoint=sb://localhost:{running_namespace.port}/"
        text = f"{endpoint};SharedAccessSignature={token};UseDevelopmentEmulator=true"
        async with await connect(text) as client:
            await (await client.sender(queue)).send(OutgoingMessage("hello"))

    @pytest.mark.parametrize("sasl_plain", [True, False])
    async def test_a_wrong_key_is_refused(
        self, running_namespace: RunningNamespace, queue: str, sasl_plain: bool
    ) -> None:
        wrong = running_namespace.connection_string.replace(running_namespace.key, "wrong")
        with pytest.raises(Unauthorized):
            async with await connect(wrong, sasl_plain=sasl_plain) as client:
                await client.sender(queue)
        with pytest.raises(Unauthorized):
            async with Administration(wrong) as administration:
                await administration.get_queue(queue)

    async def test_a_policy_that_may_only_send_cannot_receive(self, small_namespace: RunningNamespace) -> None:
        async with Administration(small_namespace.connection_string) as administration:
            await administration.create_queue(name := a_name())
        root = f"RootManageSharedAccessKey;SharedAccessKey={small_namespace.key}"
        sends = "sends;SharedAccessKey=c2VuZHMgb25seSwgZm9yIHRlc3Rz"
        async with await connect(small_namespace.connection_string.replace(root, sends)) as client:
            await (await client.sender(name)).send(OutgoingMessage("hello"))
            with pytest.raises(Unauthorized):
                await client.receiver(name)

    async def test_an_unknown_queue_is_not_found_whatever_is_asked_of_it(self, client: ServiceBus) -> None:
        for attempt in (client.sender, client.receiver, client.management):
            with pytest.raises(EntityNotFound):
                await attempt("nowhere")


class TestMessages:
    @covers("M1")
    async def test_everything_about_a_message_arrives(self, client: ServiceBus, queue: str) -> None:
        message = OutgoingMessage(
            b"\x00binary\xff",
            message_id="id-1",
            correlation_id="c-1",
            content_type="application/octet-stream",
            subject="subject",
            to="there",
            reply_to="here",
            reply_to_session_id="s-2",
            partition_key="north",
            time_to_live_s=600.0,
            properties={"n": int_(5), "at": timestamp(1_700_000_000_000), "id": uuid.UUID(int=1), "text": "ü"},
        )
        await (await client.sender(queue)).send(message)
        (received,) = await (await client.receiver(queue)).receive(1, PATIENCE_S)
        assert received.body == message.body
        for name in ("message_id", "correlation_id", "content_type", "subject", "to", "reply_to", "partition_key"):
            assert getattr(received, name) == getattr(message, name)
        assert received.time_to_live_s == 600.0
        assert received.typed_properties == message.properties
        assert received.sequence_number > 0
        assert received.lock_token is not None
        assert received.locked_until is not None
        assert received.enqueued_at is not None
        assert received.locked_until > received.enqueued_at

    @covers("M12")
    async def test_many_messages_in_order_through_a_window(self, client: ServiceBus, queue: str) -> None:
        sender = await client.sender(queue)
        await sender.send_many([OutgoingMessage(str(number)) for number in range(2000)], window=300)
        await sender.send_batches([OutgoingMessage(str(number)) for number in range(2000, 3000)], 100)
        await sender.send_batch([OutgoingMessage("3000"), OutgoingMessage("3001")])
        receiver = await client.receiver(queue, prefetch=500)
        received: list[object] = []
        while len(received) < 3002:
            messages = await receiver.receive(200, PATIENCE_S)
            received += bodies(messages)
            await receiver.complete(*messages)
        assert received == [str(number).encode() for number in range(3002)]

    @covers("M12")
    async def test_a_receive_ends_with_what_is_there_and_leaves_no_credit(self, client: ServiceBus, queue: str) -> None:
        receiver = await client.receiver(queue)
        assert await receiver.receive(10, wait_s=0.05) == []
        await (await client.sender(queue)).send_many([OutgoingMessage("a"), OutgoingMessage("b")])
        other = await client.receiver(queue)
        assert bodies(await other.receive(10, PATIENCE_S)) == [b"a", b"b"]

    @covers("M2")
    async def test_receive_and_delete(self, client: ServiceBus, administration: Administration, queue: str) -> None:
        await (await client.sender(queue)).send(OutgoingMessage("once"))
        receiver = await client.receiver(queue, mode=ReceiveMode.RECEIVE_AND_DELETE)
        assert bodies(await receiver.receive(1, PATIENCE_S)) == [b"once"]
        assert (await administration.get_queue(queue)).counts.active == 0

    async def test_closing_a_receiver_gives_back_what_it_had_fetched(self, client: ServiceBus, queue: str) -> None:
        await (await client.sender(queue)).send_many([OutgoingMessage(str(number)) for number in range(10)])
        greedy = await client.receiver(queue, prefetch=10)
        (first,) = await greedy.receive(1, PATIENCE_S)
        await greedy.complete(first)
        await greedy.close()
        rest = await (await client.receiver(queue)).receive(20, PATIENCE_S)
        assert sorted(str(body) for body in bodies(rest)) == [str(str(number).encode()) for number in range(1, 10)]
        assert {message.delivery_count for message in rest} == {0}


@covers("M2", "M3")
class TestSettling:
    async def test_complete_abandon_release_and_dead_letter(
        self, client: ServiceBus, administration: Administration, queue: str
    ) -> None:
        await (await client.sender(queue)).send_many([OutgoingMessage(name) for name in ("a", "b", "c", "d")])
        receiver = await client.receiver(queue)
        a, b, c, d = await receiver.receive(4, PATIENCE_S)
        await receiver.complete(a)
        await receiver.abandon(b, properties={"tried": "yes"})
        await receiver.release(c)
        await receiver.dead_letter(d, reason="bad", description="very bad")
        again = {message.body: message for message in await receiver.receive(4, PATIENCE_S)}
        assert sorted(map(str, again)) == ["b'b'", "b'c'"]
        assert (again[b"b"].delivery_count, again[b"b"].properties) == (1, {"tried": "yes"})
        assert again[b"c"].delivery_count == 0
        dead = await (await client.receiver(queue, SubQueue.DEAD_LETTER)).receive(1, PATIENCE_S)
        assert (dead[0].dead_letter_reason, dead[0].dead_letter_description) == ("bad", "very bad")
        counts = (await administration.get_queue(queue)).counts
        assert (counts.active, counts.dead_letter) == (2, 1)

    async def test_a_deferred_message_is_received_by_number_and_settled_by_token(
        self, client: ServiceBus, queue: str
    ) -> None:
        await (await client.sender(queue)).send(OutgoingMessage("later"))
        receiver = await client.receiver(queue)
        (message,) = await receiver.receive(1, PATIENCE_S)
        await receiver.defer(message)
        management = await client.management(queue)
        (peeked,) = await management.peek()
        assert (peeked.state, peeked.sequence_number) == ("deferred", message.sequence_number)
        (deferred,) = await management.receive_deferred([message.sequence_number])
        assert deferred.lock_token is not None
        await management.settle(Disposition.COMPLETE, [deferred.lock_token])
        assert await management.peek() == []
        with pytest.raises(MessageNotFound):
            await management.receive_deferred([message.sequence_number])

    async def test_a_lock_is_renewed_and_lost(self, small_namespace: RunningNamespace) -> None:
        name = a_name()
        async with Administration(small_namespace.connection_string) as administration:
            await administration.create_queue(name, QueueSettings(lock_duration_s=1.0))
        async with await connect(small_namespace.connection_string) as client:
            await (await client.sender(name)).send(OutgoingMessage("mine"))
            receiver = await client.receiver(name)
            (message,) = await receiver.receive(1, PATIENCE_S)
            management = await client.management(name)
            assert message.lock_token is not None
            assert message.locked_until is not None
            (until,) = await management.renew_locks([message.lock_token], receiver.name)
            assert until >= message.locked_until
            (again,) = await receiver.receive(1, PATIENCE_S)  # It comes back once the lock has lapsed.
            assert again.delivery_count == 1
            with pytest.raises(MessageLockLost):
                await receiver.complete(message)
            with pytest.raises(MessageLockLost):
                await management.renew_locks([message.lock_token])
            await receiver.complete(again)

    async def test_a_dead_letter_sent_again_is_the_message_it_was(self, client: ServiceBus, queue: str) -> None:
        sender = await client.sender(queue)
        original = OutgoingMessage("body", subject="s", properties={"n": int_(1)})
        await sender.send(original)
        receiver = await client.receiver(queue)
        await receiver.dead_letter(*await receiver.receive(1, PATIENCE_S), reason="r")
        (dead,) = await (await client.receiver(queue, SubQueue.DEAD_LETTER)).receive(1, PATIENCE_S)
        await sender.send(as_new(dead.payload, frozenset(("DeadLetterReason", "DeadLetterErrorDescription"))))
        (again,) = await receiver.receive(1, PATIENCE_S)
        assert (again.message_id, again.subject, again.body) == (original.message_id, "s", b"body")
        assert again.typed_properties == original.properties
        assert again.delivery_count == 0


class TestManagement:
    @covers("M4")
    async def test_peek_goes_through_all_pages(self, client: ServiceBus, queue: str) -> None:
        await (await client.sender(queue)).send_many([OutgoingMessage(str(number)) for number in range(250)])
        management = await client.management(queue)
        found: list[ReceivedMessage] = []
        while page := await management.peek(found[-1].sequence_number + 1 if found else 1, 100):
            found += page
        assert bodies(found) == [str(number).encode() for number in range(250)]
        assert {message.lock_token for message in found} == {None}

    @covers("M5")
    async def test_scheduled_messages_are_listed_and_cancelled(
        self, client: ServiceBus, administration: Administration, queue: str
    ) -> None:
        management = await client.management(queue)
        at = SystemClock().now() + 3600
        numbers = await management.schedule(
            [OutgoingMessage("a", scheduled_at=at), OutgoingMessage("b", scheduled_at=at)]
        )
        assert len(set(numbers)) == 2
        assert (await administration.get_queue(queue)).counts.scheduled == 2
        assert [message.state for message in await management.peek()] == ["scheduled", "scheduled"]
        await management.cancel(numbers)
        assert await management.peek() == []
        with pytest.raises(MessageNotFound):
            await management.cancel(numbers[:1])

    @covers("M5")
    async def test_a_scheduled_message_comes_when_it_is_due(self, client: ServiceBus, queue: str) -> None:
        at = SystemClock().now() + 0.5
        await (await client.sender(queue)).send(OutgoingMessage("later", scheduled_at=at))
        (message,) = await (await client.receiver(queue)).receive(1, PATIENCE_S)
        assert message.enqueued_at is not None
        assert message.enqueued_at >= at - 0.001

    async def test_active_messages_are_deleted_in_bulk(self, client: ServiceBus, queue: str) -> None:
        await (await client.sender(queue)).send_many([OutgoingMessage(str(number)) for number in range(30)])
        management = await client.management(queue)
        assert await management.batch_delete(10, SystemClock().now() + 60) == 10
        assert await management.batch_delete(4000, SystemClock().now() + 60) == 20
        assert await management.batch_delete(4000, SystemClock().now() + 60) == 0


class TestAdministration:
    async def test_a_queue_is_created_as_asked_changed_and_deleted(self, administration: Administration) -> None:
        name = a_name()
        settings = QueueSettings(
            lock_duration_s=30.0,
            max_size_mb=2048,
            default_time_to_live_s=1_209_600.0,
            dead_lettering_on_expiration=True,
            max_delivery_count=3,
            user_metadata="<mine & yours>",
        )
        created = await administration.create_queue(name, settings)
        for field in (
            "lock_duration_s",
            "max_size_mb",
            "default_time_to_live_s",
            "max_delivery_count",
            "user_metadata",
        ):
            assert getattr(created.settings, field) == getattr(settings, field)
        assert created.settings.auto_delete_on_idle_s == NEVER
        changed = await administration.update_queue(name, QueueSettings(max_delivery_count=7, user_metadata=""))
        assert (changed.settings.max_delivery_count, changed.settings.user_metadata) == (7, None)
        assert changed.settings.lock_duration_s == 30.0
        assert await administration.get_queue(name) == changed
        await administration.delete_queue(name)
        with pytest.raises(EntityNotFound):
            await administration.get_queue(name)

    async def test_mistakes_are_told_by_their_kind(self, administration: Administration, queue: str) -> None:
        with pytest.raises(EntityAlreadyExists):
            await administration.create_queue(queue)
        with pytest.raises(InvalidArgument):
            await administration.create_queue(a_name(), QueueSettings(lock_duration_s=3600.0))
        with pytest.raises((InvalidArgument, InvalidOperation)):
            await administration.update_queue(queue, QueueSettings(requires_session=True))
        with pytest.raises(EntityNotFound):
            await administration.delete_queue("nowhere")

    async def test_more_queues_than_a_page_are_listed(self, small_namespace: RunningNamespace) -> None:
        prefix = a_name()
        async with Administration(small_namespace.connection_string) as administration:
            names = [f"{prefix}-{number:03}" for number in range(120)]
            await asyncio.gather(*[administration.create_queue(name) for name in names])
            listed = [queue.name async for queue in administration.queues()]
            assert [name for name in listed if name.startswith(prefix)] == names
            assert listed == sorted(listed)
            await asyncio.gather(*[administration.delete_queue(name) for name in names])

    async def test_a_disabled_queue_refuses_senders_until_it_is_enabled(
        self, client: ServiceBus, administration: Administration, queue: str
    ) -> None:
        await administration.update_queue(queue, QueueSettings(status="SendDisabled"))
        with pytest.raises(EntityDisabled):
            await client.sender(queue)
        await administration.update_queue(queue, QueueSettings(status="Active"))
        await (await client.sender(queue)).send(OutgoingMessage("hello"))

    async def test_links_of_a_deleted_queue_end(self, client: ServiceBus, administration: Administration) -> None:
        name = a_name()
        await administration.create_queue(name)
        receiver = await client.receiver(name)
        waiting = asyncio.ensure_future(receiver.receive(1, PATIENCE_S))
        await asyncio.sleep(0)
        await administration.delete_queue(name)
        with pytest.raises(EntityNotFound):
            await waiting
