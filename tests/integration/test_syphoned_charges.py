"""What the meters of both namespaces say about messages that came through the backlog."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient
from click.testing import CliRunner

from tandembus.cli import main
from tandembus.client.administration import Administration
from tandembus.client.meter import Counted, in_total
from tandembus.metering.paired_costs import diverted, setup_operations
from tandembus.metering.prices import Counting
from tandembus.pairing.sync import SendAvailabilityPairedNamespaceOptions, pair_namespace
from tandembus.pairing.transfer import to_backlog
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers

CHARGED = ("send", "receive", "complete")
BACKLOG = "contoso/x-servicebus-transfer/0"


@pytest.fixture
def pair() -> Iterator[tuple[EmbeddedNamespace, EmbeddedNamespace]]:
    with EmbeddedNamespace(name="contoso") as primary, EmbeddedNamespace(name="backup") as secondary:
        primary.create_queue("orders")
        secondary.create_queue(BACKLOG)
        yield primary, secondary


def divert(secondary: EmbeddedNamespace, *bodies: bytes) -> None:
    with (
        ServiceBusClient.from_connection_string(secondary.connection_string) as client,
        client.get_queue_sender(BACKLOG) as sender,
    ):
        for body in bodies:
            sender.send_messages(to_backlog(ServiceBusMessage(body), "orders"))


def bring_home(primary: EmbeddedNamespace, secondary: EmbeddedNamespace) -> None:
    options = ["--primary", primary.connection_string, "--secondary", secondary.connection_string, "--once"]
    result = CliRunner().invoke(main, ["syphon", *options])
    assert result.exit_code == 0, result.output


def receive(primary: EmbeddedNamespace, count: int) -> None:
    with (
        ServiceBusClient.from_connection_string(primary.connection_string) as client,
        client.get_queue_receiver("orders", max_wait_time=20) as receiver,
    ):
        for _ in range(count):
            receiver.complete_message(next(receiver))


async def ask_meter(namespace: EmbeddedNamespace) -> list[Counted]:
    async with Administration(namespace.connection_string) as administration:
        return await in_total(administration.requests)


def counted(namespace: EmbeddedNamespace) -> dict[tuple[str, str], int]:
    """Without what does not depend on the messages: administration, waiting, and what a syphon looks at first."""
    rows = asyncio.run(ask_meter(namespace))
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row.operation in CHARGED:
            found[row.operation, row.reason] += row.operations
    return dict(found)


@covers("N13")
def test_a_syphoned_message_is_charged_four_times_by_its_size_and_its_settlements_apart(
    pair: tuple[EmbeddedNamespace, EmbeddedNamespace],
) -> None:
    """One of them takes two units of 64 KiB at every stage."""
    primary, secondary = pair
    divert(secondary, b"a", b"b", bytes(100_000))
    bring_home(primary, secondary)
    receive(primary, 3)
    assert counted(secondary) == {("send", "failover"): 4, ("receive", "syphon"): 4, ("complete", "syphon"): 3}
    assert counted(primary) == {("send", "syphon"): 4, ("receive", "normal"): 4, ("complete", "normal"): 3}


@covers("N13")
def test_the_meters_count_what_the_calculator_tells(pair: tuple[EmbeddedNamespace, EmbeddedNamespace]) -> None:
    primary, secondary = pair
    divert(secondary, *[bytes(2048)] * 20)
    bring_home(primary, secondary)
    receive(primary, 20)
    expected = diverted(20, 2048, Counting())
    total = sum(counted(primary).values()) + sum(counted(secondary).values())
    assert total == expected.operations


def pair_once(primary: EmbeddedNamespace, secondary: EmbeddedNamespace, backlog_queues: int) -> None:
    with (
        ServiceBusClient.from_connection_string(primary.connection_string) as primary_client,
        ServiceBusClient.from_connection_string(secondary.connection_string) as secondary_client,
        ServiceBusAdministrationClient.from_connection_string(
            secondary.tls_connection_string, connection_verify=str(secondary.ca_path)
        ) as admin,
    ):
        options = SendAvailabilityPairedNamespaceOptions(admin, secondary_client, backlog_queue_count=backlog_queues)
        pair_namespace(primary_client, options, primary_name="fabrikam").close()


@covers("N2", "N13")
def test_pairing_on_one_machine_takes_a_question_and_a_get_and_a_create_for_each_queue_that_is_not_there(
    pair: tuple[EmbeddedNamespace, EmbeddedNamespace],
) -> None:
    primary, secondary = pair
    pair_once(primary, secondary, 10)
    first = asyncio.run(ask_meter(secondary))
    assert sum(row.operations for row in first) == 21 <= setup_operations(10)
    pair_once(primary, secondary, 10)
    assert sum(row.operations for row in asyncio.run(ask_meter(secondary))) == 32
