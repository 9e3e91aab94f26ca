"""The syphon's ports on real namespaces, `tandembus.client` and the SDK alike: what their callers rely on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from decimal import Decimal
from functools import partial
from typing import TypeAlias

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient

from tandembus.client import Disposition, OutgoingMessage, ReceivedMessage, ReceiveMode, connect
from tandembus.client.access_policies import AccessPolicy
from tandembus.client.administration import Administration
from tandembus.client.errors import TokenRefused
from tandembus.client.policies import EntityPolicies
from tandembus.errors import OperationTimeout, Unauthorized
from tandembus.pairing.client_ports import ClientBacklog, ClientPrimary, SharedConnection
from tandembus.pairing.payloads import browsed, from_backlog
from tandembus.pairing.sdk_connection import connect as connect_as_sdk
from tandembus.pairing.syphon_messages import Delivery, LocksLost
from tandembus.pairing.syphon_ports import BacklogPort, PrimaryPort
from tandembus.pairing.syphon_rules import Verdict, verdict_on
from tandembus.testing.asynchronous import AsyncEmbeddedNamespace
from tests.covers import covers
from tests.integration.syphons import Pair, bodies, numbered, pair, until
from tests.unit.pairing.sdk_messages import wire

WAIT_S = 10.0
MAX_SENDERS = 2


@asynccontextmanager
async def client_backlog(both: Pair) -> AsyncIterator[BacklogPort]:
    connection = SharedConnection(partial(connect, both.secondary.connection_string, timeout_s=5.0))
    backlog = ClientBacklog(connection, both.queues[0])
    try:
        yield backlog
    finally:
        await backlog.close()
        await connection.close()


def over_web_sockets(namespace: AsyncEmbeddedNamespace) -> SharedConnection:
    """As a client of the SDK connects that may use no other protocol."""
    client = ServiceBusClient.from_connection_string(
        namespace.tls_connection_string,
        connection_verify=str(namespace.ca_path),
        transport_type=TransportType.AmqpOverWebsocket,
        custom_endpoint_address=f"sb://localhost:{namespace.port}",
    )
    return SharedConnection(partial(connect_as_sdk, client, 5.0))


@asynccontextmanager
async def sdk_backlog(both: Pair) -> AsyncIterator[BacklogPort]:
    connection = over_web_sockets(both.secondary)
    backlog = ClientBacklog(connection, both.queues[0])
    try:
        yield backlog
    finally:
        await backlog.close()
        await connection.close()


@asynccontextmanager
async def client_primary(both: Pair) -> AsyncIterator[PrimaryPort]:
    connection = SharedConnection(partial(connect, both.primary.connection_string, timeout_s=5.0))
    primary = ClientPrimary(connection, MAX_SENDERS)
    yield primary
    await primary.close()


@asynccontextmanager
async def sdk_primary(both: Pair) -> AsyncIterator[PrimaryPort]:
    primary = ClientPrimary(over_web_sockets(both.primary), MAX_SENDERS)
    yield primary
    await primary.close()


Backlog: TypeAlias = Callable[[Pair], AbstractAsyncContextManager[BacklogPort]]
Primary: TypeAlias = Callable[[Pair], AbstractAsyncContextManager[PrimaryPort]]
on_every_backlog_port = pytest.mark.parametrize("backlog_of", [client_backlog, sdk_backlog], ids=["client", "sdk"])
on_every_primary_port = pytest.mark.parametrize("primary_of", [client_primary, sdk_primary], ids=["client", "sdk"])


async def take(backlog: BacklogPort, count: int) -> list[Delivery]:
    taken: list[Delivery] = []
    while len(taken) < count:
        some = await backlog.receive(count - len(taken), WAIT_S)
        assert some, "nothing came"
        taken += some
    return taken


async def complete_behind_its_back(both: Pair, delivery: Delivery) -> None:
    """As somebody does who got the message after its lock had lapsed."""
    async with await connect(both.secondary.connection_string) as bus:
        management = await bus.management(both.queues[0])
        await management.settle(Disposition.COMPLETE, [delivery.origin.lock_token])


async def make_anew(both: Pair) -> None:
    """The queue is another one then, and all links to the old one are gone."""
    async with Administration(both.secondary.connection_string) as administration:
        await administration.delete_queue(both.queues[0])
    await both.secondary.create_queue(both.queues[0], max_delivery_count=2147483647)


def empty_receives(both: Pair) -> int:
    totals = both.secondary.node.meter.totals().since_start
    return sum([total.count.operations for total in totals if total.operation == "empty_receive"])


@covers("N11", "N12")
@on_every_backlog_port
async def test_messages_of_a_lost_link_are_never_taken_for_those_of_the_next(backlog_of: Backlog) -> None:
    async with pair("orders") as both, backlog_of(both) as backlog:
        await both.divert("orders", numbered(2))
        lead, other = await take(backlog, 2)
        await make_anew(both)
        await both.divert("orders", numbered(2, 10))
        with pytest.raises(backlog.failures):
            await backlog.receive(2, WAIT_S)
        await take(backlog, 2)
        for settle in (backlog.complete, backlog.defer, backlog.release, backlog.renew):
            with pytest.raises(LocksLost) as raised:
                await settle([lead, other])
            assert raised.value.deliveries == (lead, other)
        await backlog.close()
        assert await both.left() == 2


@covers("N11", "N12")
@on_every_backlog_port
async def test_that_the_secondary_is_gone_is_known_of_what_is_in_hand_without_a_call(backlog_of: Backlog) -> None:
    async with pair("orders") as both, backlog_of(both) as backlog:
        await both.divert("orders", numbered(2))
        lead, other = await take(backlog, 2)
        await backlog.defer([other])
        (follower,) = await backlog.receive_deferred([2])
        assert not backlog.has_lost([lead, follower])
        await both.secondary.stop()

        async def are_both_lost() -> bool:
            return backlog.has_lost([lead]) and backlog.has_lost([follower])

        await until(are_both_lost, WAIT_S)
        with pytest.raises(backlog.failures):
            await backlog.renew([lead])


@covers("N11", "N12")
@on_every_backlog_port
async def test_one_lost_lock_costs_no_other_message_its_settlement(backlog_of: Backlog) -> None:
    async with pair("orders") as both, backlog_of(both) as backlog:
        await both.divert("orders", numbered(6))
        deliveries = await take(backlog, 6)
        await complete_behind_its_back(both, deliveries[1])
        with pytest.raises(LocksLost) as raised:
            await backlog.renew(deliveries)
        assert raised.value.deliveries == (deliveries[1],)
        with pytest.raises(LocksLost) as raised:
            await backlog.defer(deliveries[:3])
        assert raised.value.deliveries == (deliveries[1],)
        await backlog.complete(deliveries[3:])
        left = [browsed(each) for each in await backlog.browse(1, 10)]
        assert [(each.sequence_number, each.is_deferred) for each in left] == [(1, True), (3, True)]


@covers("N12")
@on_every_backlog_port
async def test_the_same_is_so_for_messages_that_were_received_by_their_numbers(backlog_of: Backlog) -> None:
    async with pair("orders") as both, backlog_of(both) as backlog:
        await both.divert("orders", numbered(4))
        await backlog.defer(await take(backlog, 4))
        deliveries = await backlog.receive_deferred([1, 2, 3, 4])
        await complete_behind_its_back(both, deliveries[2])
        for settle in (backlog.renew, backlog.complete):
            with pytest.raises(LocksLost) as raised:
                await settle(deliveries)
            assert raised.value.deliveries == (deliveries[2],)
        assert await both.left() == 0


@covers("N12")
@on_every_backlog_port
async def test_dead_letters_say_why_however_their_messages_were_received(backlog_of: Backlog) -> None:
    async with pair("orders") as both, backlog_of(both) as backlog:
        await both.divert("orders", numbered(2))
        first, second = await take(backlog, 2)
        await backlog.defer([second])
        await backlog.dead_letter([first, *await backlog.receive_deferred([2])], "NotWanted", "by nobody")
        letters = await both.dead_letters()
        assert [(letter.dead_letter_reason, letter.dead_letter_description) for letter in letters] == [
            ("NotWanted", "by nobody")
        ] * 2


@covers("N12")
@on_every_backlog_port
async def test_what_is_given_back_in_vain_is_counted_and_can_be_noted_as_home(backlog_of: Backlog) -> None:
    async with pair("orders") as both, backlog_of(both) as backlog:
        await both.divert("orders", numbered(2))
        first, second = await take(backlog, 2)
        await backlog.abandon([first], are_home=True)
        await backlog.abandon([second], are_home=False)
        read = [from_backlog(each.payload) for each in await take(backlog, 2)]
        assert [(each.is_home, each.delivery_count) for each in read] == [(True, 1), (False, 1)]


@covers("N8", "N12")
@on_every_backlog_port
async def test_a_message_that_the_sdk_cannot_read_is_in_nobodys_way(backlog_of: Backlog) -> None:
    """It writes decimals that it does not read back."""
    message = ServiceBusMessage("x")
    message.application_properties = {"price": Decimal("12.5")}
    async with pair("orders") as both, backlog_of(both) as backlog:
        await both.divert("orders", [wire(message)])
        deliveries = await take(backlog, 1)
        await backlog.defer(deliveries)
        browsed_payloads = await backlog.browse(1, 10)
        (again,) = await backlog.receive_deferred([1])
        await backlog.complete([again])
        assert len(browsed_payloads) == 1
        assert from_backlog(again.payload)[:2] == from_backlog(deliveries[0].payload)[:2]
        assert await both.left() == 0


@covers("N11")
@on_every_backlog_port
async def test_a_poll_in_vain_is_metered_as_one_operation_and_leaves_no_credit_behind(backlog_of: Backlog) -> None:
    async with pair("orders") as both, backlog_of(both) as backlog:
        for count in range(1, 4):
            assert await backlog.receive(32, 0.05) == []
            assert empty_receives(both) == count
        await both.divert("orders", numbered(40))
        async with await connect(both.secondary.connection_string) as bus:
            other = await bus.receiver(both.queues[0], mode=ReceiveMode.RECEIVE_AND_DELETE)
            assert bodies(await other.receive(1, WAIT_S)) == [0]
        assert [browsed(each.payload).sequence_number for each in await take(backlog, 39)] == list(range(2, 41))
        assert empty_receives(both) == 3


@covers("N11")
@on_every_backlog_port
async def test_a_long_poll_ends_when_it_is_interrupted(backlog_of: Backlog) -> None:
    async with pair("orders") as both, backlog_of(both) as backlog:
        polling = asyncio.ensure_future(backlog.receive(32, 900.0))
        await asyncio.sleep(0)
        await backlog.interrupt()
        assert await asyncio.wait_for(polling, WAIT_S) == []
        assert await backlog.receive(32, 900.0) == []


@covers("N12")
@on_every_backlog_port
async def test_a_long_poll_that_is_woken_ends_with_nothing_and_the_next_one_works(backlog_of: Backlog) -> None:
    """Whenever that is: before its link is open, while it waits, or between two."""
    async with pair("orders") as both, backlog_of(both) as backlog:
        for count in range(1, 4):
            polling = asyncio.ensure_future(backlog.receive(10, 900.0))
            for _ in range(count * count):
                await asyncio.sleep(0)
            await backlog.wake()
            assert await asyncio.wait_for(polling, WAIT_S) == []
        await both.divert("orders", numbered(5))
        assert len(await take(backlog, 5)) == 5
        await backlog.wake()
        assert await asyncio.wait_for(backlog.receive(10, 900.0), WAIT_S) == []


@covers("N11", "N12")
@on_every_backlog_port
async def test_locks_are_renewed_while_messages_of_many_frames_come(backlog_of: Backlog) -> None:
    async with pair("orders") as both, backlog_of(both) as backlog:
        await both.divert("orders", numbered(1))
        (lead,) = await take(backlog, 1)
        large = [OutgoingMessage(bytes([number]) * 200_000) for number in range(20)]
        sending = asyncio.ensure_future(both.divert("orders", large))
        taken = asyncio.ensure_future(take(backlog, len(large)))
        renewed = 0
        while not taken.done():
            await backlog.renew([lead])
            renewed += 1
        await sending
        assert renewed > 0
        payloads = [ReceivedMessage(from_backlog(each.payload)[1]).body for each in await taken]
        assert payloads == [bytes([number]) * 200_000 for number in range(20)]
        await backlog.complete([lead, *await taken])
        assert await both.left() == 0


@covers("N12")
@on_every_primary_port
async def test_many_destinations_at_once_all_get_their_messages_once(primary_of: Primary) -> None:
    paths = [f"d{number}" for number in range(3 * MAX_SENDERS)]
    async with pair(*paths) as both, primary_of(both) as primary:
        payloads = [message.encode() for message in numbered(2)]
        await asyncio.gather(*[primary.send(path, payloads) for path in paths * 2])
        for path in paths:
            assert bodies(await both.at_home(path)) == [0, 1, 0, 1]


@covers("N12")
@on_every_primary_port
async def test_a_destination_that_does_not_exist_is_told_from_one_that_does_not_answer(primary_of: Primary) -> None:
    async with pair("orders") as both, primary_of(both) as primary:
        payloads = [message.encode() for message in numbered(2)]
        with pytest.raises(Exception, match="could not be found") as raised:
            await primary.send("nobody", payloads)
        assert verdict_on(raised.value) is Verdict.GONE
        async with both.primary.fault("entity/orders", "unavailable"):
            with pytest.raises(Exception, match="unavailable") as raised:
                await primary.send("orders", payloads)
            assert verdict_on(raised.value) is Verdict.LATER
        await primary.send("orders", payloads)
        assert bodies(await both.at_home("orders")) == [0, 1]


@covers("N13")
@on_every_primary_port
async def test_what_is_brought_home_is_metered_as_the_syphons(primary_of: Primary) -> None:
    async with pair("orders") as both, primary_of(both) as primary:
        await primary.send("orders", [message.encode() for message in numbered(3)])
        totals = both.primary.node.meter.totals().since_start
        assert [(total.reason, total.count.operations) for total in totals if total.operation == "send"] == [
            ("syphon", 3)
        ]


@covers("N12", "N14")
async def test_a_key_that_was_replaced_is_told_as_refused_and_the_new_one_is_used_by_the_next_link() -> None:
    async with pair("orders") as both, Administration(both.primary.connection_string) as administration:
        policies = EntityPolicies(administration, "orders")
        key = AzureNamedKeyCredential("sends", (await policies.create(AccessPolicy("sends", ("Send",)))).primary_key)
        client = ServiceBusClient(f"localhost:{both.primary.port}", key, use_tls=False)
        async with await connect_as_sdk(client, 5.0) as bus:
            await (await bus.sender("orders")).send(OutgoingMessage("with the old key"))
            renewed = await policies.regenerate("sends", secondary=False)

            async def is_refused() -> bool:
                try:
                    await (await bus.sender("orders")).send(OutgoingMessage("with the old key"))
                except Unauthorized as error:
                    return isinstance(error, TokenRefused)
                return False

            await until(is_refused)
            key.update("sends", renewed.primary_key)
            await (await bus.sender("orders")).send(OutgoingMessage("with the new key"))
            assert bus.connection.failure is None


@covers("N14")
async def test_a_web_socket_that_nobody_answers_is_given_up_in_time() -> None:
    async with await asyncio.start_server(lambda reader, writer: None, "localhost", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        client = ServiceBusClient.from_connection_string(
            "Endpoint=sb://localhost;SharedAccessKeyName=any;SharedAccessKey=any",
            custom_endpoint_address=f"sb://localhost:{port}",
        )
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(OperationTimeout, match=r"did not answer within 0\.2 s"):
                await connect_as_sdk(client, 0.2)
