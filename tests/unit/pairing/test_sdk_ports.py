"""The syphon's primary port on the SDK: what a failed send says about one destination, and what about all of them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp.error import AMQPConnectionError, AMQPException, AMQPLinkError, ErrorCondition
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.aio import ServiceBusClient

from tandembus.pairing.sdk_ports import SdkPrimary
from tandembus.pairing.syphon_rules import Verdict
from tests.covers import covers
from tests.unit.pairing.scripted import ManualRuntime
from tests.unit.pairing.sdk_messages import wire

MOVED = AMQPLinkError(condition=ErrorCondition.LinkDetachForced, description="The link is force detached.")
NO_WORD = AMQPLinkError(condition=ErrorCondition.UnknownError, description="Link detached unexpectedly.")
AWAY = AMQPConnectionError(condition=ErrorCondition.SocketError, description="Connection refused.")


def told(error: AMQPException) -> Exception:
    """As the SDK tells its callers."""
    return PyamqpTransport.create_servicebus_exception(logging.getLogger("sdk"), error)


class Entities:
    """Sends to the paths in `failing` end as told, once the gate is open; all others are taken."""

    def __init__(self) -> None:
        self.failing: dict[str, AMQPException] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def port(self) -> SdkPrimary:
        return SdkPrimary(cast(ServiceBusClient, self), 20.0, ManualRuntime())

    def get_queue_sender(self, path: str) -> Any:
        return Sender(self, path)


class Sender:
    def __init__(self, entities: Entities, path: str) -> None:
        self.entity_name = path
        self._entities = entities

    async def create_message_batch(self) -> ServiceBusMessageBatch:
        return ServiceBusMessageBatch(262_144)

    async def send_messages(self, batch: ServiceBusMessageBatch) -> None:
        if self.entity_name in self._entities.failing:
            await self._entities.gate.wait()
            raise told(self._entities.failing[self.entity_name])

    async def close(self) -> None: ...


PAYLOADS = [wire(ServiceBusMessage("x"))]


async def verdict_of(port: SdkPrimary, path: str) -> Verdict:
    with pytest.raises(Exception, match=r"detached|refused") as raised:
        await port.send(path, PAYLOADS)
    return port.verdict_on(raised.value)


@covers("N12")
@pytest.mark.parametrize(
    ("error", "verdict"), [(MOVED, Verdict.LATER), (NO_WORD, Verdict.LATER), (AWAY, Verdict.UNREACHABLE)]
)
async def test_an_entity_whose_link_is_detached_is_told_from_a_primary_that_is_away(
    error: AMQPException, verdict: Verdict
) -> None:
    entities = Entities()
    entities.failing["moving"] = error
    assert await verdict_of(entities.port, "moving") is verdict


@covers("N12")
async def test_a_primary_that_takes_messages_elsewhere_meanwhile_is_not_away() -> None:
    entities = Entities()
    entities.failing["cut"] = AWAY
    entities.gate.clear()
    port = entities.port
    failing = asyncio.ensure_future(verdict_of(port, "cut"))
    await asyncio.sleep(0)
    await port.send("healthy", PAYLOADS)
    entities.gate.set()
    assert await failing is Verdict.LATER
    assert await verdict_of(port, "cut") is Verdict.UNREACHABLE
