"""F8, close and fault: a client of a pair whose partner is gone is closed after five seconds, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from demo.hold_ups import HoldUps
from tandembus.client import connect
from tandembus.client.messages import payload_of
from tandembus.clock import SystemClock
from tandembus.pairing import (
    ClientFaulted,
    PairedServiceBusClient,
    PairFaulted,
    PairingEvent,
    SendAvailabilityPairedNamespaceOptions,
    pair_namespace,
)
from tandembus.pairing.closing import PARTNER, PARTNER_PATIENCE_S, Side
from tandembus.pairing.payloads import to_backlog
from tandembus.testing import AsyncEmbeddedNamespace
from tests.covers import covers
from tests.integration.syphons import everything, numbered

TOLERANCE_S = 0.5
"""Beside how late the machine itself was."""
COMES_WITHIN_S = 30.0
BACKLOG = 600
CLOCK = SystemClock()


class Application:
    """Sends while a syphon in its process moves a backlog home, and closes one of its clients in the middle of it."""

    def __init__(self, primary: AsyncEmbeddedNamespace, secondary: AsyncEmbeddedNamespace, first: Side) -> None:
        self._namespaces = primary, secondary
        self._first = first
        self._queue = f"home-{first}"
        self._faulted = asyncio.Event()
        self._closed_at = self._faulted_at = 0.0
        self._expected: set[str] = set()

    async def run(self) -> tuple[float, float]:
        """From when to when the partner was left open."""
        primary, secondary = self._namespaces
        await primary.create_queue(self._queue)
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(ServiceBusClient.from_connection_string(one.connection_string))
                for one in self._namespaces
            ]
            admin = await stack.enter_async_context(
                ServiceBusAdministrationClient.from_connection_string(
                    secondary.tls_connection_string, connection_verify=str(secondary.ca_path)
                )
            )
            options = SendAvailabilityPairedNamespaceOptions(admin, clients[1], 1, enable_syphon=True)
            options.on_event(self._hear)
            paired = await stack.enter_async_context(
                await pair_namespace(clients[0], options, primary_name=f"contoso-{self._first}")
            )
            (backlog,) = paired.backlog_queues
            await self._work(paired, backlog)
            await self._close(clients[self._first == "secondary"])
            with pytest.raises(PairFaulted, match=self._first):
                paired.get_queue_sender(self._queue)
            await self._check(backlog)
        return self._closed_at, self._faulted_at

    async def _work(self, paired: PairedServiceBusClient, backlog: str) -> None:
        messages = numbered(BACKLOG)
        async with await connect(self._namespaces[1].connection_string) as bus:
            sender = await bus.sender(backlog)
            await sender.send_many([to_backlog(payload_of(one), self._queue) for one in messages])
        self._expected = {str(one.message_id) for one in messages} | {"sent"}
        async with paired.get_queue_sender(self._queue) as link:
            await link.send_messages(ServiceBusMessage("sent", message_id="sent"))

    async def _close(self, client: ServiceBusClient) -> None:
        self._closed_at = CLOCK.monotonic()
        await client.close()
        await asyncio.wait_for(self._faulted.wait(), COMES_WITHIN_S)

    def _hear(self, event: PairingEvent) -> None:
        if isinstance(event, ClientFaulted):
            assert (event.first, event.side) == (self._first, PARTNER[self._first])
            self._faulted_at = CLOCK.monotonic()
            self._faulted.set()

    async def _check(self, backlog: str) -> None:
        """Home, or still in the backlog, where what was in flight is locked."""
        primary, secondary = self._namespaces
        home = {str(one.message_id) for one in await everything(primary, self._queue)}
        async with await connect(secondary.connection_string) as bus:
            management = await bus.management(backlog)
            found: list[str] = []
            after = 0
            while page := await management.peek(after + 1, 200):
                after = page[-1].sequence_number
                found += [str(one.message_id) for one in page]
        assert home | set(found) == self._expected


@pytest.mark.chaos
@covers("F8", "N14")
async def test_the_partner_of_a_closed_client_is_faulted_after_five_seconds(tell: Callable[[str], None]) -> None:
    sides: Sequence[Side] = ("primary", "secondary")
    async with (
        AsyncEmbeddedNamespace(name="contoso") as primary,
        AsyncEmbeddedNamespace(name="fabrikam") as secondary,
    ):
        hold_ups = HoldUps(CLOCK)
        watch = asyncio.create_task(hold_ups.run())
        times = await asyncio.gather(*[Application(primary, secondary, side).run() for side in sides])
        watch.cancel()
    told = ", ".join(f"{side} first: {end - start:.3f} s" for side, (start, end) in zip(sides, times, strict=True))
    for start, end in times:
        too_late_s = TOLERANCE_S + hold_ups.held_up_s(start, end)
        assert PARTNER_PATIENCE_S - TOLERANCE_S <= end - start <= PARTNER_PATIENCE_S + too_late_s, told
    tell(f"partner faulted, {told}")
