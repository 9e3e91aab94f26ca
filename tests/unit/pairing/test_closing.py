"""The end of clients, of the paired client and of its senders."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import cast

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusServerBusyError

from tandembus.pairing import EntityState, PairClosed, PairFaulted, PairingError
from tandembus.pairing.closing import PARTNER_PATIENCE_S, Partners, observe
from tandembus.pairing.events import Listeners
from tandembus.pairing.syphon_host import HostedSyphon
from tests.covers import covers
from tests.unit.pairing.conftest import ScriptedPair
from tests.unit.pairing.scripted import ManualRuntime, ScriptedClient, ScriptedNamespace

NOWHERE = "Endpoint=sb://localhost:1/;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"


class Late:
    """A receiver whose end makes somebody ask the client for another."""

    def __init__(self, client: ServiceBusClient) -> None:
        self.close_count = 0
        self._client = client
        self.others: list[ServiceBusReceiver] = []

    async def close(self) -> None:
        self.close_count += 1
        if self.close_count == 1:
            self.others = [self._client.get_queue_receiver(f"other-{number}") for number in range(20)]


@covers("N14")
async def test_a_client_is_closed_although_somebody_still_asks_it_for_receivers() -> None:
    client = ServiceBusClient.from_connection_string(NOWHERE)
    late, told = Late(client), list[str]()
    client._handlers.add(late)

    async def tell() -> None:
        told.append("closed")

    observe(client, tell)
    await client.close()
    assert told == ["closed"]
    assert late.close_count == 2, "the SDK went over its receivers once more"


@covers("N14")
async def test_a_syphon_ends_before_the_client_it_works_on_and_the_partners_time_runs_meanwhile() -> None:
    runtime, over = ManualRuntime(), asyncio.get_running_loop().create_future()
    primary, secondary = ScriptedClient(ScriptedNamespace()), ScriptedClient(ScriptedNamespace())
    ended: list[float] = []

    async def end_syphon() -> None:
        ended.append(runtime.clock.monotonic())
        await over

    clients = cast(ServiceBusClient, primary), cast(ServiceBusClient, secondary)
    partners = Partners(*clients, True, runtime, Listeners(), lambda: partners.stop(), end_syphon)
    closing = asyncio.ensure_future(secondary.close())
    await runtime.advance(4.99)
    assert (len(ended), primary.is_closed, secondary.is_closed) == (1, False, False)
    await runtime.advance(0.01)
    assert (primary.is_closed, secondary.is_closed) == (True, False)
    over.set_result(None)
    await closing
    assert secondary.is_closed


@covers("N14")
async def test_waiting_for_a_syphon_is_over_before_its_partners_time_is() -> None:
    pair = ScriptedPair(enable_syphon=True)
    syphon = pair.client._syphon = cast(HostedSyphon, Unending())
    await pair.primary_client.close()
    assert cast(Unending, syphon).patience_s < PARTNER_PATIENCE_S


class Unending:
    """A syphon; how long it was waited for."""

    patience_s = 0.0

    async def stop(self, patience_s: float) -> None:
        self.patience_s = patience_s


@covers("N14")
async def test_a_syphon_ends_as_soon_as_a_key_is_refused_for_good() -> None:
    runtime, ended = ManualRuntime(), list[str]()
    primary, secondary = ScriptedClient(ScriptedNamespace()), ScriptedClient(ScriptedNamespace())

    async def end_syphon() -> None:
        ended.append("ended")

    clients = cast(ServiceBusClient, primary), cast(ServiceBusClient, secondary)
    partners = Partners(*clients, True, runtime, Listeners(), lambda: partners.stop(), end_syphon)
    partners.client_faulted("primary", REFUSED)
    await runtime.settle()
    assert (ended, secondary.is_closed) == (["ended"], False)
    await runtime.advance(5.0)
    assert secondary.is_closed


async def raises_when_over(sending: asyncio.Future[None], kind: type[PairingError]) -> None:
    with pytest.raises(kind):
        await sending


@covers("N14")
@pytest.mark.parametrize("closes_the_pair", [True, False])
async def test_a_send_that_is_under_way_ends_with_its_sender_and_starts_nothing(closes_the_pair: bool) -> None:
    pair = ScriptedPair(failover_interval=timedelta(seconds=20))
    sender = pair.client.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("0"))
    pair.primary.hangs.add("orders")
    under_way = [asyncio.ensure_future(sender.send_messages(ServiceBusMessage(str(number)))) for number in range(1, 4)]
    await pair.runtime.settle()
    await (pair.client if closes_the_pair else sender).close()
    for sending in under_way:
        await raises_when_over(sending, PairClosed)
    pair.primary.down.add("orders")
    await pair.runtime.advance(600.0)
    assert pair.events == []
    assert pair.primary.pings == {}
    assert (pair.primary.connections, pair.runtime.timer_count) == (0, 0)
    with pytest.raises(PairClosed):
        await sender.send_messages(ServiceBusMessage("late"))


@covers("N14")
async def test_a_send_that_fails_after_the_pair_was_closed_starts_no_timer_and_no_pings() -> None:
    pair = ScriptedPair(failover_interval=timedelta(seconds=20))
    sender = pair.client.get_queue_sender("orders")
    pair.primary.down.add("orders")
    sending = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("0")))
    closing = asyncio.ensure_future(pair.client.close())
    await asyncio.wait((sending, closing))
    assert sending.exception() is not None
    await pair.runtime.advance(600.0)
    assert pair.events == []
    assert pair.primary.pings == {}


@covers("N14")
async def test_a_sender_that_is_closed_while_its_send_succeeds_stays_closed() -> None:
    pair = ScriptedPair()
    sender = pair.client.get_queue_sender("orders")
    sending = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("0")))
    await asyncio.sleep(0)
    await sender.close()
    await asyncio.wait((sending,))
    for _ in range(2):
        with pytest.raises(PairClosed):
            await sender.send_messages(ServiceBusMessage("1"))


@covers("N14")
async def test_what_is_under_way_on_the_primary_when_the_pair_faults_raises_that_it_has() -> None:
    pair = ScriptedPair(enable_syphon=True, failover_interval=timedelta(0))
    pair.primary.down.add("bills")
    pair.primary.hangs.add("orders")
    pair.secondary.hangs |= set(pair.queues)
    under_way = [
        asyncio.ensure_future(pair.client.get_queue_sender("orders").send_messages(ServiceBusMessage("0"))),
        asyncio.ensure_future(pair.client.get_queue_sender("bills").send_messages(ServiceBusMessage("0"))),
    ]
    await pair.runtime.settle()
    assert pair.client.entity_state("bills") is EntityState.FAILED_OVER
    await pair.primary_client.close()
    await pair.runtime.advance(5.0)
    for sending in under_way:
        await raises_when_over(sending, PairFaulted)
    sent = len(pair.primary.pings["bills"])
    await pair.runtime.advance(600.0)
    assert len(pair.primary.pings["bills"]) == sent


@covers("N14")
async def test_every_call_on_a_faulted_pair_raises_that_it_has() -> None:
    pair = ScriptedPair(enable_syphon=True)
    sender = pair.client.get_queue_sender("orders")
    await pair.primary_client.close()
    await pair.runtime.advance(5.0)
    calls = (
        lambda: pair.client.entity_state("orders"),
        lambda: pair.client.backlog_queues,
        lambda: pair.client.mark_path_healthy("orders"),
        pair.client.clear,
        lambda: pair.client.get_topic_sender("orders"),
        lambda: pair.client.get_subscription_receiver("orders", "all"),
    )
    for call in calls:
        with pytest.raises(PairFaulted):
            call()
    await sender.close()
    with pytest.raises(PairFaulted):
        await sender.send_messages(ServiceBusMessage("0"))


class Refusal(Exception):
    """As the SDK has it inside of its error, when it is not given a token."""

    def __init__(self, status_code: int) -> None:
        super().__init__(status_code)
        self.status_code = status_code


REFUSED = ServiceBusAuthenticationError(message="no", error=Refusal(401))


async def is_refused(pair: ScriptedPair, path: str) -> None:
    pair.primary.refused["refused"] = REFUSED
    with pytest.raises(ServiceBusAuthenticationError):
        await pair.client.get_queue_sender(path).send_messages(ServiceBusMessage("refused"))


@covers("N14")
async def test_a_primary_that_refuses_its_key_again_and_again_has_faulted_and_takes_its_partner_along() -> None:
    pair = ScriptedPair(enable_syphon=True)
    for wait_s in (1.0, 58.0, 1.0):
        await is_refused(pair, "orders")
        await pair.runtime.advance(wait_s)
    assert pair.runtime.timer_count == 0, "for a minute a key may be refused: somebody may be replacing it"
    await is_refused(pair, "orders")
    await pair.runtime.advance(4.5)
    assert not pair.options.secondary_client.is_closed
    await pair.runtime.advance(0.5)
    assert pair.options.secondary_client.is_closed
    with pytest.raises(PairFaulted, match="the primary client has faulted"):
        pair.client.entity_state("orders")


@covers("N14")
async def test_a_key_that_is_good_for_some_entities_or_refused_once_to_many_senders_is_not_refused_for_good() -> None:
    pair = ScriptedPair(enable_syphon=True)
    for _ in range(5):
        for _ in range(2):
            await asyncio.gather(*(is_refused(pair, "orders") for _ in range(10)))
            await pair.runtime.advance(60.0)
        await pair.client.get_queue_sender("bills").send_messages(ServiceBusMessage("taken"))
    for _ in range(5):
        await is_refused(pair, "orders")
        pair.primary.refused["refused"] = ServiceBusServerBusyError(message="later")
        with pytest.raises(ServiceBusServerBusyError):
            await pair.client.get_queue_sender("orders").send_messages(ServiceBusMessage("refused"))
        await pair.runtime.advance(60.0)
    pair.primary.refused["refused"] = ServiceBusAuthenticationError(message="no", error=Refusal(404))
    for _ in range(5):
        with pytest.raises(ServiceBusAuthenticationError):
            await pair.client.get_queue_sender("nowhere").send_messages(ServiceBusMessage("refused"))
        await pair.runtime.advance(60.0)
    assert pair.client.entity_state("orders") is EntityState.HEALTHY
    assert not pair.options.secondary_client.is_closed
