"""Links that a client gives up before they are answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tandembus.amqp.engine import AmqpSession, Connection
from tandembus.descriptions import QueueDescription
from tandembus.front_end.amqp.driver import AmqpConnection
from tandembus.front_end.amqp.front_end import AmqpFrontEnd
from tandembus.metering.meter import Meter
from tandembus.security.claims import Authorizer, Policy, Right
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.amqp.engine.peers import client_settings
from tests.unit.namespace.entity_fragment import fragment_of
from tests.unit.namespace.namespace_lives import Life, Machine

KEY = "for-tests-only"


class Wire(asyncio.Transport):
    """Keeps what the server writes until the client reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    def is_closing(self) -> bool:
        return False


class Client:
    """A client at the other end of a connection without a socket."""

    def __init__(self, life: Life, folder: Path) -> None:
        policy = Policy("root", KEY, "", frozenset(Right))
        meter = Meter(life.clock, folder, "bus")
        self._server = AmqpConnection(
            AmqpFrontEnd(life.namespace, Authorizer([policy]), meter, life.clock), lambda: None
        )
        self._wire = Wire()
        self._server.connection_made(self._wire)
        self.engine = Connection(client_settings(), 0.0)

    def exchange(self) -> None:
        """Carry bytes both ways; what the client has written arrives in one piece."""
        while data := self.engine.data_to_send():
            self._server.data_received(data)
            self.engine.receive_data(self._wire.written)
            self._wire.written = b""

    def begin(self) -> AmqpSession:
        self.engine.start("PLAIN", f"\0root\0{KEY}".encode())
        self.exchange()
        session = self.engine.begin()
        self.exchange()
        return session

    async def finish(self) -> None:
        """Until the server has opened what it was asked for."""
        await asyncio.gather(*self._server._tasks)
        self.exchange()


@covers("M2", "M12")
async def test_a_receiver_given_up_before_it_is_answered_leaves_no_consumer_behind(tmp_path: Path) -> None:
    async with Machine().life() as life:
        await life.namespace.create_queue(QueueDescription("orders"))
        client = Client(life, tmp_path)
        session = client.begin()
        link = session.attach_receiver("in", "orders")
        link.grant(10)
        link.detach()
        client.exchange()
        await client.finish()
        entity = await life.namespace.entity("orders")
        assert not entity.links
        assert fragment_of(entity).consumers(MAIN).is_empty()


@covers("M12")
async def test_a_session_ended_before_its_links_are_answered_leaves_none_behind(tmp_path: Path) -> None:
    async with Machine().life() as life:
        await life.namespace.create_queue(QueueDescription("orders"))
        client = Client(life, tmp_path)
        session = client.begin()
        session.attach_receiver("in", "orders")
        session.attach_sender("out", "orders")
        session.end()
        client.exchange()
        await client.finish()
        assert not (await life.namespace.entity("orders")).links


@covers("M12")
async def test_a_receiver_that_stays_is_a_consumer(tmp_path: Path) -> None:
    async with Machine().life() as life:
        await life.namespace.create_queue(QueueDescription("orders"))
        client = Client(life, tmp_path)
        client.begin().attach_receiver("in", "orders")
        client.exchange()
        await client.finish()
        entity = await life.namespace.entity("orders")
        assert len(entity.links) == 1
        assert not fragment_of(entity).consumers(MAIN).is_empty()
