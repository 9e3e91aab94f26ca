"""Receivers of one session, against a namespace that says what it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tandembus.amqp.encoding.sections import data_section
from tandembus.client import ServiceBus, connect
from tandembus.client.durations import NEVER
from tandembus.descriptions import RuleDescription, TrueFilter
from tandembus.errors import OperationTimeout, SessionCannotBeLocked, SessionLockLost
from tests.covers import covers
from tests.unit.client.fake_namespace import FakeNamespace

UNTIL = 2_000_000_000.0


@pytest.fixture
async def namespace() -> AsyncIterator[FakeNamespace]:
    async with FakeNamespace() as namespace:
        yield namespace


@pytest.fixture
async def bus(namespace: FakeNamespace) -> AsyncIterator[ServiceBus]:
    async with await connect(namespace.connection_string, timeout_s=5.0) as bus:
        yield bus


@covers("M7")
async def test_a_named_session_is_asked_for_by_name_and_its_lock_has_an_end(
    namespace: FakeNamespace, bus: ServiceBus
) -> None:
    receiver = await bus.accept_session("orders", "blue", timeout_s=2.5)
    assert (receiver.session_id, receiver.locked_until) == ("blue", UNTIL)
    assert namespace.session_attaches == [("blue", 2500)]
    namespace.put("orders", data_section(b"in the session"))
    (message,) = await receiver.receive(1, 5.0)
    await receiver.complete(message)


@covers("M7")
async def test_the_next_session_is_whichever_the_service_gives(namespace: FakeNamespace, bus: ServiceBus) -> None:
    assert (await bus.accept_session("orders")).session_id == "next"
    assert namespace.session_attaches == [(None, 5000)]


@covers("M7")
async def test_a_wait_without_end_is_as_long_as_the_protocol_can_say(namespace: FakeNamespace, bus: ServiceBus) -> None:
    await bus.accept_session("orders", timeout_s=NEVER)
    assert namespace.session_attaches == [(None, 4_294_967_000)]


@covers("M7")
async def test_an_empty_text_is_the_name_of_a_session(namespace: FakeNamespace, bus: ServiceBus) -> None:
    assert (await bus.accept_session("orders", "")).session_id == ""
    assert namespace.session_attaches[0][0] == ""


@covers("M7")
async def test_a_session_that_is_taken_and_none_in_time_are_told_apart(
    namespace: FakeNamespace, bus: ServiceBus
) -> None:
    await bus.accept_session("orders", "blue")
    with pytest.raises(SessionCannotBeLocked):
        await bus.accept_session("orders", "blue")
    namespace.next_session = None
    with pytest.raises(OperationTimeout, match="No session"):
        await bus.accept_session("orders", timeout_s=0.0)


@covers("M7")
async def test_everything_fails_the_same_way_once_the_lock_is_lost(namespace: FakeNamespace, bus: ServiceBus) -> None:
    namespace.put("orders", data_section(b"1"))
    receiver = await bus.accept_session("orders", "blue")
    (message,) = await receiver.receive(1, 5.0)
    for peer in namespace.peers:
        peer.lose_sessions()
    with pytest.raises(SessionLockLost):
        await receiver.receive(1, 5.0)
    with pytest.raises(SessionLockLost):
        await receiver.complete(message)
    with pytest.raises(SessionLockLost):
        await receiver.renew()
    with pytest.raises(SessionLockLost):
        await receiver.set_state(b"x")


@covers("M7")
async def test_a_closed_receiver_has_no_lock_any_more(bus: ServiceBus, namespace: FakeNamespace) -> None:
    namespace.put("orders", data_section(b"1"))
    receiver = await bus.accept_session("orders", "blue")
    (message,) = await receiver.receive(1, 5.0)
    await receiver.close()
    with pytest.raises(SessionLockLost, match="closed"):
        await receiver.complete(message)


@covers("M7")
async def test_state_and_lock_are_asked_for_in_the_name_of_the_link(namespace: FakeNamespace, bus: ServiceBus) -> None:
    receiver = await bus.accept_session("orders", "blue")
    assert await receiver.state() is None
    await receiver.set_state(b"half-way")
    assert await receiver.state() == b"half-way"
    await receiver.set_state(None)
    assert await receiver.state() is None
    assert await receiver.renew() == receiver.locked_until == UNTIL + 60
    assert namespace.link_names == [receiver.name] * 6


@covers("M7")
async def test_sessions_are_listed_through_all_pages(namespace: FakeNamespace, bus: ServiceBus) -> None:
    names = [f"s-{number:03}" for number in range(205)]
    namespace.session_states.update(dict.fromkeys(names))
    management = await bus.management("orders")
    assert [each async for each in management.sessions()] == names
    times = [body["last-updated-time"] for _, body in namespace.requests if isinstance(body, dict)]
    assert times == [253_402_300_800_000] * 3


@covers("M7")
async def test_messages_of_one_session_are_peeked_and_deferred_ones_received(
    namespace: FakeNamespace, bus: ServiceBus
) -> None:
    namespace.put("orders", data_section(b"1"))
    management = await bus.management("orders")
    await management.peek(session_id="blue")
    await management.receive_deferred([1], session_id="blue", link_name="mine")
    asked = [body["session-id"] for _, body in namespace.requests if isinstance(body, dict) and "session-id" in body]
    assert asked == ["blue", "blue"]
    assert namespace.link_names == ["mine"]


@covers("M9")
async def test_rules_are_asked_for_until_a_page_is_empty(namespace: FakeNamespace, bus: ServiceBus) -> None:
    management = await bus.management("orders")
    assert [each async for each in management.rules()] == [RuleDescription("all", TrueFilter())]
    assert [body["skip"] for _, body in namespace.requests if isinstance(body, dict)] == [0, 1]
