"""Requests and answers on a node such as `$cbs` or `ENTITY/$management`: two links in an AMQP session."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import Final

from tandembus.amqp.encoding.delivery_states import ACCEPTED_STATE
from tandembus.amqp.encoding.sections import (
    amqp_value_section,
    application_properties_section,
    decode_message,
    properties_section,
)
from tandembus.amqp.engine import DeliveryReceived, IncomingLink
from tandembus.client.connection import Connection, LinkOwner
from tandembus.client.errors import ConnectionLost
from tandembus.client.sender import Sender

CREDIT: Final = 100
CORRELATION_ID: Final = 5


@dataclass(frozen=True, slots=True)
class StatusNames:
    """How a node calls the parts of its answer's status: `$cbs` and management nodes differ."""

    code: str
    description: str
    condition: str


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    description: str
    condition: str | None
    body: object

    @property
    def fields(self) -> dict[object, object]:
        """The body as a map; empty if it is none."""
        return self.body if isinstance(self.body, dict) else {}


class _Answers(LinkOwner):
    """The receiving half: brings each answer to the request that waits for it."""

    def __init__(self, connection: Connection, node: str, names: StatusNames) -> None:
        super().__init__(connection)
        self._names: Final = names
        self._waiting: Final[dict[str, asyncio.Future[Answer]]] = {}
        self._link: Final[IncomingLink] = self.session.attach_receiver(
            self.name, node, target=self.name, snd_settle_mode=1, rcv_settle_mode=0
        )
        self._link.context = self

    def expect(self, request_id: str) -> asyncio.Future[Answer]:
        self.raise_if_lost()
        self._waiting[request_id] = self.connection.loop.create_future()
        return self._waiting[request_id]

    def give_up(self, request_id: str) -> None:
        self._waiting.pop(request_id, None)

    def on_attached(self) -> None:
        self._link.grant(CREDIT)
        super().on_attached()

    def on_delivery(self, event: DeliveryReceived) -> None:
        if not event.settled:
            self.session.settle(int(event.delivery_id), int(event.delivery_id), ACCEPTED_STATE)
        if self._link.credit <= CREDIT // 2:
            self._link.grant(CREDIT)
        message = decode_message(event.payload)
        waiter = self._waiting.pop(str(message.property_at(CORRELATION_ID)), None)
        if waiter is not None and not waiter.done():
            waiter.set_result(self._answer(message.application_properties or {}, message.body))

    def _answer(self, properties: dict[object, object], body: object) -> Answer:
        status, condition = properties.get(self._names.code), properties.get(self._names.condition)
        return Answer(
            status=status if isinstance(status, int) else 500,
            description=str(properties.get(self._names.description) or ""),
            condition=None if condition is None else str(condition),
            body=body,
        )

    def on_lost(self, failure: Exception) -> None:
        super().on_lost(failure)
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(failure)
        self._waiting.clear()


class RequestLink:
    """Asks a node. Several requests may be under way at once."""

    def __init__(self, connection: Connection, node: str, names: StatusNames) -> None:
        self._connection: Final = connection
        self._answers: Final = _Answers(connection, node, names)
        self._requests: Final = Sender(connection, node, session=self._answers.session)

    async def open(self) -> None:
        await asyncio.gather(self._connection.attach(self._answers), self._connection.attach(self._requests))

    async def close(self) -> None:
        await self._requests.close()
        self._answers.on_lost(ConnectionLost("the node's links were closed"))

    @property
    def is_lost(self) -> bool:
        return self._answers.failure is not None or self._requests.failure is not None

    async def request(self, body: object, properties: dict[str, object]) -> Answer:
        """The node's answer, whatever its status says."""
        request_id = uuid.uuid4().hex
        payload = (
            properties_section(message_id=request_id, reply_to=self._answers.name)
            + application_properties_section(properties)
            + amqp_value_section(body)
        )
        answer = self._answers.expect(request_id)
        # When the request cannot even be sent, nobody waits for its answer, and asyncio would complain of its failure.
        answer.add_done_callback(_hear)
        try:
            await self._requests.send(payload)
            return await self._connection.in_time(answer, "the node did not answer")
        finally:
            self._answers.give_up(request_id)


def _hear(answer: asyncio.Future[Answer]) -> None:
    if not answer.cancelled():
        answer.exception()
