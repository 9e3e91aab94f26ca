"""The client against a namespace on a loopback socket: send, receive, settle, ask, and lose it all."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from uuid import UUID

import pytest

from tandembus.amqp.encoding.delivery_states import Outcome
from tandembus.amqp.encoding.sections import data_section
from tandembus.amqp.engine import AmqpError
from tandembus.client import (
    ConnectionLost,
    Disposition,
    OutgoingMessage,
    ReceivedMessage,
    ReceiveMode,
    ServiceBus,
    connect,
)
from tandembus.client.groups import Group
from tandembus.client.tokens import LIFETIME_S
from tandembus.clock import ManualClock
from tandembus.errors import (
    EntityNotFound,
    InvalidOperation,
    MessageLockLost,
    MessageNotFound,
    MessageTooLarge,
    OperationTimeout,
    QuotaExceeded,
    ServerBusy,
    Unauthorized,
)
from tandembus.security.sas import parse_token
from tests.covers import covers
from tests.unit.client.fake_namespace import KEY, MAX_MESSAGE_SIZE, FakeNamespace

QUEUE = "orders"


@pytest.fixture
async def namespace() -> AsyncIterator[FakeNamespace]:
    async with FakeNamespace() as fake:
        yield fake


@pytest.fixture
async def bus(namespace: FakeNamespace) -> AsyncIterator[ServiceBus]:
    async with await connect(namespace.connection_string, timeout_s=10.0) as connected:
        yield connected


async def until(condition: Callable[[], object]) -> None:
    """Let the loop turn until the condition holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never came true")


def bodies(messages: list[ReceivedMessage]) -> list[object]:
    return [message.body for message in messages]


async def ask_and_be_cut_off(complaints: list[object]) -> None:
    """Keeps nothing: neither the connection nor its failure, which knows everything that was under way."""
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    async with FakeNamespace() as namespace:
        bus = await connect(namespace.connection_string)
        management = await bus.management(QUEUE)
        namespace.is_silent = True
        asking = asyncio.ensure_future(management.peek())
        await asyncio.sleep(0)
        namespace.peers[0].cut()
        with suppress(ConnectionLost):
            await asking
        await bus.close()


class TestConnecting:
    async def test_a_token_is_put_once_for_each_entity(self, namespace: FakeNamespace, bus: ServiceBus) -> None:
        namespace.queues["bills"] = []
        await bus.sender(QUEUE)
        await bus.receiver(QUEUE)
        await bus.sender("bills")
        assert [audience.rsplit("/", 1)[1] for audience, _ in namespace.tokens] == [QUEUE, "bills"]
        audience, token = namespace.tokens[0]
        assert parse_token(token).uri == audience
        assert parse_token(token).is_signed_with(KEY)

    async def test_tokens_are_renewed_before_they_expire(self, namespace: FakeNamespace) -> None:
        clock = ManualClock()
        async with await connect(namespace.connection_string, clock=clock) as bus:
            await bus.sender(QUEUE)
            clock.shift_wall(LIFETIME_S * 0.7)
            bus.connection.tick()
            await bus.management(QUEUE)
            assert len(namespace.tokens) == 1
            clock.shift_wall(LIFETIME_S * 0.1)
            bus.connection.tick()
            await until(lambda: len(namespace.tokens) == 2)
            renewed = parse_token(namespace.tokens[1][1]).expires_at
            assert renewed > parse_token(namespace.tokens[0][1]).expires_at

    async def test_a_refused_token_is_raised(self, namespace: FakeNamespace, bus: ServiceBus) -> None:
        namespace.token_status = 401
        with pytest.raises(Unauthorized):
            await bus.sender(QUEUE)

    async def test_sasl_plain_needs_no_tokens(self, namespace: FakeNamespace) -> None:
        async with await connect(namespace.connection_string, sasl_plain=True) as bus:
            await (await bus.sender(QUEUE)).send(OutgoingMessage("hello"))
        assert namespace.tokens == []

    async def test_a_wrong_key_is_refused_by_sasl(self, namespace: FakeNamespace) -> None:
        with pytest.raises(Unauthorized):
            await connect(namespace.connection_string.replace(KEY, "wrong"), sasl_plain=True)

    async def test_an_unknown_entity_is_refused_and_the_connection_goes_on(self, bus: ServiceBus) -> None:
        with pytest.raises(EntityNotFound, match="nowhere"):
            await bus.sender("nowhere")
        await (await bus.sender(QUEUE)).send(OutgoingMessage("hello"))

    async def test_nobody_listening_is_a_lost_connection(self) -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        text = f"Endpoint=sb://127.0.0.1:{port}/;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
        with pytest.raises(ConnectionLost, match="cannot connect"):
            await connect(text)


class TestSending:
    async def test_what_is_sent_arrives_as_it_is(self, namespace: FakeNamespace, bus: ServiceBus) -> None:
        message = OutgoingMessage("hello", subject="greeting", properties={"n": 1})
        sender = await bus.sender(QUEUE)
        await sender.send(message)
        await sender.send(data_section(b"raw"))
        assert namespace.queues[QUEUE] == [message.encode(), data_section(b"raw")]

    async def test_more_sends_than_window_and_credit_go_out_in_their_order(
        self, namespace: FakeNamespace, bus: ServiceBus
    ) -> None:
        sender = await bus.sender(QUEUE, window=7)
        payloads = [data_section(b"%d" % number) for number in range(500)]
        await asyncio.gather(*[sender.send(payload) for payload in payloads])
        assert namespace.queues[QUEUE] == payloads

    async def test_many_messages_are_sent_in_a_window_and_counted(
        self, namespace: FakeNamespace, bus: ServiceBus
    ) -> None:
        payloads = [data_section(b"%d" % number) for number in range(1000)]
        counts: list[int] = []
        sender = await bus.sender(QUEUE)
        assert await sender.send_many(payloads, 30, counts.append) == 1000
        assert sum(counts) == 1000
        assert namespace.queues[QUEUE] == payloads

    async def test_a_refusal_stops_a_run_and_is_raised_after_what_was_under_way(
        self, namespace: FakeNamespace, bus: ServiceBus
    ) -> None:
        namespace.refusals[b"bad"] = AmqpError("amqp:resource-limit-exceeded", "full")
        counts: list[int] = []
        sender = await bus.sender(QUEUE)
        payloads = [data_section(b"bad" if number == 50 else b"good") for number in range(1000)]
        with pytest.raises(QuotaExceeded, match="full"):
            await sender.send_many(payloads, 20, counts.append)
        assert 50 <= len(namespace.queues[QUEUE]) == sum(counts) < 100
        await sender.send(data_section(b"good"))

    async def test_a_refused_send_is_raised_to_its_own_caller_only(
        self, namespace: FakeNamespace, bus: ServiceBus
    ) -> None:
        namespace.refusals[b"bad"] = AmqpError("amqp:not-allowed", "no session id")
        sender = await bus.sender(QUEUE)
        sends = [sender.send(data_section(text)) for text in (b"one", b"bad", b"two")]
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None), InvalidOperation, type(None)]

    @covers("M12")
    async def test_batches_are_sent_as_one_transfer_and_counted_by_message(
        self, namespace: FakeNamespace, bus: ServiceBus
    ) -> None:
        payloads = [data_section(b"%d" % number) for number in range(250)]
        counts: list[int] = []
        sender = await bus.sender(QUEUE)
        assert await sender.send_batches(payloads, 100, 2, counts.append) == 250
        await sender.send_batch(payloads[:3])
        assert counts == [100, 100, 50]
        assert namespace.queues[QUEUE] == payloads + payloads[:3]

    async def test_a_batch_of_a_group_waits_for_the_one_before_it(
        self, namespace: FakeNamespace, bus: ServiceBus
    ) -> None:
        payloads = {name: [data_section(b"%s%d;" % (name, number)) for number in range(30)] for name in (b"a", b"b")}
        groups = [Group(each) for each in payloads.values()]
        namespace.refusals[b"a12;"] = AmqpError("com.microsoft:server-busy", "later")
        sender = await bus.sender(QUEUE)
        with pytest.raises(ServerBusy, match="later"):
            await sender.send_groups(groups, 5)
        assert [each for each in namespace.queues[QUEUE] if b"a" in each[3:]] == payloads[b"a"][:10]
        del namespace.refusals[b"a12;"]
        before = len(namespace.queues[QUEUE])
        assert await sender.send_groups(groups, 5) == 60 - before
        assert await sender.send_groups(groups, 5) == 0
        for name, sent in payloads.items():
            assert [each for each in namespace.queues[QUEUE] if name in each[3:]] == sent

    async def test_a_message_above_the_limit_is_not_even_sent(self, bus: ServiceBus) -> None:
        sender = await bus.sender(QUEUE)
        assert sender.max_message_size == MAX_MESSAGE_SIZE
        with pytest.raises(MessageTooLarge):
            await sender.send(OutgoingMessage(b"x" * MAX_MESSAGE_SIZE))
        with pytest.raises(MessageTooLarge):
            await sender.send_many([OutgoingMessage(b"x" * MAX_MESSAGE_SIZE)])
        await sender.send(OutgoingMessage("small"))

    async def test_a_large_message_travels_in_many_frames(self, namespace: FakeNamespace, bus: ServiceBus) -> None:
        await (await bus.sender(QUEUE)).send(data_section(b"x" * 200_000))
        (message,) = await (await bus.receiver(QUEUE)).receive()
        assert message.body == b"x" * 200_000

    async def test_a_run_that_begins_without_credit_may_wait_for_it(self, namespace: FakeNamespace) -> None:
        clock = ManualClock()
        async with await connect(namespace.connection_string, clock=clock, timeout_s=30.0) as bus:
            sender = await bus.sender(QUEUE)
            await sender.send(b"")
            credit, sender._link.credit = sender._link.credit, 0
            clock.advance(3600.0)
            run = asyncio.ensure_future(sender.send_many([b""] * 10))
            await asyncio.sleep(0)
            sender.on_tick(clock.monotonic() + 29.0)
            assert sender.failure is None
            sender._link.credit = credit
            sender.on_flow()
            assert await run == 10

    async def test_silence_beyond_the_time_out_fails_what_waits(self, namespace: FakeNamespace) -> None:
        clock = ManualClock()
        async with await connect(namespace.connection_string, clock=clock, timeout_s=30.0) as bus:
            sender = await bus.sender(QUEUE)
            namespace.is_silent = True
            run = asyncio.ensure_future(sender.send_many([b""] * 10))
            single = asyncio.ensure_future(sender.send(b""))
            await asyncio.sleep(0)
            clock.advance(29.0)
            bus.connection.tick()
            assert not run.done()
            clock.advance(2.0)
            bus.connection.tick()
            for waiting in (run, single):
                with pytest.raises(OperationTimeout):
                    await waiting


class TestReceiving:
    async def test_messages_that_are_there_come_at_once_and_no_credit_is_left(
        self, namespace: FakeNamespace, bus: ServiceBus
    ) -> None:
        namespace.put(QUEUE, data_section(b"a"), data_section(b"b"), data_section(b"c"))
        receiver = await bus.receiver(QUEUE)
        assert bodies(await receiver.receive(2)) == [b"a", b"b"]
        assert bodies(await receiver.receive(10)) == [b"c"]
        namespace.put(QUEUE, data_section(b"later"))
        assert namespace.queues[QUEUE] == [data_section(b"later")]

    async def test_a_message_that_comes_later_is_waited_for(self, namespace: FakeNamespace, bus: ServiceBus) -> None:
        receiver = await bus.receiver(QUEUE)
        waiting = asyncio.ensure_future(receiver.receive(10))
        await until(lambda: namespace.peers[0].receivers[0].credit == 10)
        namespace.put(QUEUE, data_section(b"late"))
        assert bodies(await waiting) == [b"late"]

    async def test_an_empty_queue_gives_nothing_after_the_wait(self, bus: ServiceBus) -> None:
        assert await (await bus.receiver(QUEUE)).receive(10, wait_s=0.01) == []

    async def test_a_receive_that_is_given_up_leaves_no_credit_behind(
        self, namespace: FakeNamespace, bus: ServiceBus
    ) -> None:
        receiver = await bus.receiver(QUEUE)
        waiting = asyncio.ensure_future(receiver.receive(10))
        link = namespace.peers[0].receivers[0]
        await until(lambda: link.credit == 10)
        waiting.cancel()
        await until(lambda: link.credit == 0)

    async def test_iteration_with_prefetch_keeps_the_buffer_bounded(
        self, namespace: FakeNamespace, bus: ServiceBus
    ) -> None:
        payloads = [data_section(b"%d" % number) for number in range(100)]
        namespace.put(QUEUE, *payloads)
        receiver = await bus.receiver(QUEUE, prefetch=10)
        await until(lambda: len(namespace.queues[QUEUE]) == 90)
        received = []
        async for message in receiver:
            received.append(message.payload)
            if len(received) == 100:
                break
        assert received == payloads

    @covers("M2")
    async def test_receive_and_delete_needs_no_settlement(self, namespace: FakeNamespace, bus: ServiceBus) -> None:
        namespace.put(QUEUE, data_section(b"a"))
        receiver = await bus.receiver(QUEUE, mode=ReceiveMode.RECEIVE_AND_DELETE)
        (message,) = await receiver.receive()
        with pytest.raises(InvalidOperation):
            await receiver.complete(message)

    async def test_closing_gives_back_what_was_not_handed_out(self, namespace: FakeNamespace, bus: ServiceBus) -> None:
        namespace.put(QUEUE, *[b""] * 5)
        receiver = await bus.receiver(QUEUE, prefetch=5)
        await receiver.receive(1)
        await until(lambda: not namespace.queues[QUEUE])
        await receiver.close()
        await until(lambda: namespace.settled)
        first, last, outcome = namespace.settled[0]
        assert (first, last) == (1, 4)
        assert isinstance(outcome, Outcome)
        assert outcome.code == 0x26


@covers("M3")
class TestSettling:
    async def test_each_way_to_settle_says_what_it_means(self, namespace: FakeNamespace, bus: ServiceBus) -> None:
        namespace.put(QUEUE, *[b""] * 5)
        receiver = await bus.receiver(QUEUE)
        messages = await receiver.receive(5)
        await receiver.complete(messages[0])
        await receiver.abandon(messages[1], properties={"tries": 1})
        await receiver.defer(messages[2])
        await receiver.dead_letter(messages[3], reason="bad", description="very bad")
        await receiver.release(messages[4])
        outcomes = [outcome for _, _, outcome in namespace.settled if isinstance(outcome, Outcome)]
        assert [outcome.code for outcome in outcomes] == [0x24, 0x27, 0x27, 0x25, 0x26]
        assert outcomes[1].message_annotations == {"tries": 1}
        assert [outcome.undeliverable_here for outcome in outcomes[1:3]] == [False, True]
        error = outcomes[3].error
        assert error is not None
        assert error.info == {"DeadLetterReason": "bad", "DeadLetterErrorDescription": "very bad"}

    async def test_neighbours_are_settled_with_one_disposition(self, namespace: FakeNamespace, bus: ServiceBus) -> None:
        namespace.put(QUEUE, *[b""] * 6)
        receiver = await bus.receiver(QUEUE)
        messages = await receiver.receive(6)
        await receiver.complete(messages[2], messages[0], messages[1], messages[5])
        assert [(first, last) for first, last, _ in namespace.settled] == [(0, 2), (5, 5)]

    async def test_a_lost_lock_is_raised_and_the_link_goes_on(self, namespace: FakeNamespace, bus: ServiceBus) -> None:
        namespace.put(QUEUE, b"", b"")
        receiver = await bus.receiver(QUEUE)
        first, second = await receiver.receive(2)
        namespace.lost_locks.add(first.tag)
        with pytest.raises(MessageLockLost, match="lost"):
            await receiver.complete(first)
        await receiver.complete(second)

    async def test_a_settlement_that_is_never_confirmed_times_out(self, namespace: FakeNamespace) -> None:
        clock = ManualClock()
        async with await connect(namespace.connection_string, clock=clock, timeout_s=30.0) as bus:
            namespace.put(QUEUE, b"")
            receiver = await bus.receiver(QUEUE)
            messages = await receiver.receive(1)
            namespace.is_silent = True
            settling = asyncio.ensure_future(receiver.complete(*messages))
            await asyncio.sleep(0)
            clock.advance(31.0)
            bus.connection.tick()
            with pytest.raises(OperationTimeout):
                await settling


class TestManagement:
    @covers("M4")
    async def test_peek_reads_page_after_page(self, namespace: FakeNamespace, bus: ServiceBus) -> None:
        namespace.put(QUEUE, *[data_section(b"%d" % number) for number in range(5)])
        management = await bus.management(QUEUE)
        first = await management.peek(1, 3)
        assert [message.sequence_number for message in first] == [1, 2, 3]
        assert bodies(await management.peek(4, 3)) == [b"3", b"4"]
        assert await management.peek(6, 3) == []

    @covers("M5")
    async def test_scheduling_returns_sequence_numbers(self, namespace: FakeNamespace, bus: ServiceBus) -> None:
        management = await bus.management(QUEUE)
        messages = [
            OutgoingMessage("a", scheduled_at=2e9),
            OutgoingMessage("b", scheduled_at=2e9, session_id="s"),
        ]
        assert await management.schedule(messages) == [7, 8]
        operation, body = namespace.requests[-1]
        assert operation == "com.microsoft:schedule-message"
        assert isinstance(body, dict)
        assert [sorted(entry) for entry in body["messages"]] == [
            ["message", "message-id"],
            ["message", "message-id", "session-id"],
        ]

    @covers("M3")
    async def test_deferred_messages_are_received_and_settled_by_token(
        self, namespace: FakeNamespace, bus: ServiceBus
    ) -> None:
        namespace.put(QUEUE, data_section(b"deferred"))
        management = await bus.management(QUEUE)
        (message,) = await management.receive_deferred([1])
        assert message.body == b"deferred"
        assert message.lock_token == UUID(int=9)
        await management.settle(Disposition.DEAD_LETTER, [UUID(int=9)], reason="old")
        assert namespace.requests[-1][1] == {
            "disposition-status": "suspended",
            "lock-tokens": [UUID(int=9)],
            "deadletter-reason": "old",
        }
        receiver = await bus.receiver(QUEUE)
        with pytest.raises(InvalidOperation, match="management"):
            await receiver.complete(message)

    async def test_a_refusal_is_raised_by_its_condition(self, bus: ServiceBus) -> None:
        management = await bus.management(QUEUE)
        with pytest.raises(MessageNotFound, match=r"Gone\."):
            await management.cancel([99])

    async def test_requests_under_way_at_once_get_their_own_answers(
        self, namespace: FakeNamespace, bus: ServiceBus
    ) -> None:
        namespace.put(QUEUE, *[data_section(b"%d" % number) for number in range(150)])
        management = await bus.management(QUEUE)
        answers = await asyncio.gather(*[management.peek(number, 1) for number in range(1, 151)])
        assert [answer[0].sequence_number for answer in answers] == list(range(1, 151))


class TestLosingIt:
    def test_a_question_that_was_cut_off_leaves_nothing_behind_to_complain_of(self) -> None:
        complaints: list[object] = []
        asyncio.run(ask_and_be_cut_off(complaints))
        gc.collect()
        assert complaints == []

    async def test_a_cut_connection_fails_everything_under_way(self, namespace: FakeNamespace, bus: ServiceBus) -> None:
        sender, receiver = await bus.sender(QUEUE), await bus.receiver(QUEUE)
        management = await bus.management(QUEUE)
        namespace.put(QUEUE, b"")
        messages = await receiver.receive()
        namespace.is_silent = True
        waiting = [
            asyncio.ensure_future(sender.send(b"")),
            asyncio.ensure_future(sender.send_many([b""] * 5)),
            asyncio.ensure_future(receiver.complete(*messages)),
            asyncio.ensure_future(receiver.receive()),
            asyncio.ensure_future(management.peek()),
        ]
        await asyncio.sleep(0)
        namespace.peers[0].cut()
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, ConnectionLost)
        with pytest.raises(ConnectionLost):
            await bus.sender(QUEUE)
        with pytest.raises(MessageLockLost):
            await receiver.complete(*messages)

    async def test_a_detached_link_says_why_and_the_others_go_on(
        self, namespace: FakeNamespace, bus: ServiceBus
    ) -> None:
        sender, receiver = await bus.sender(QUEUE), await bus.receiver(QUEUE)
        waiting = asyncio.ensure_future(receiver.receive())
        await until(lambda: namespace.peers[0].receivers[0].credit)
        namespace.peers[0].receivers[0].detach(AmqpError("amqp:not-found", "deleted"))
        namespace.peers[0].flush()
        with pytest.raises(EntityNotFound, match="deleted"):
            await waiting
        await sender.send(b"")

    async def test_a_closed_client_does_not_wait_for_a_silent_peer_to_answer_its_links(
        self, namespace: FakeNamespace
    ) -> None:
        bus = await connect(namespace.connection_string)
        sender = await bus.sender(QUEUE)
        await bus.close()
        with pytest.raises(ConnectionLost):
            await sender.send(b"")
