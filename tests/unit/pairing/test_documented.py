"""What callers must know is told where they look, and every name that is public is explained there."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import azure.servicebus
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.management import QueueRuntimeProperties, ServiceBusAdministrationClient

from tandembus import pairing
from tandembus.pairing import sync
from tests.covers import covers

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "pairing.md").read_text()
PAGE = " ".join(TEXT.split())


@covers("N15")
@pytest.mark.parametrize(
    "truth",
    [
        "Messages are received from the primary only",
        "Order may change, also within a session",
        "the primary may take new messages before the backlog is empty",
        "Session state lives on the primary",
        "Time to live starts anew there",
        "the message exists twice, with the same `message_id`",
    ],
)
def test_callers_are_told_the_truth(truth: str) -> None:
    assert truth in PAGE


@covers("P15")
def test_clients_are_told_which_operation_timeout_they_need() -> None:
    page = (DOCS / "partitioning.md").read_text()
    assert "operation timeout above 15 s, better 60 s" in " ".join(page.split())


@covers("N16", "N17")
@pytest.mark.parametrize("name", [name for name in pairing.__all__ if not name.startswith("Paired")])
def test_every_public_name_is_explained(name: str) -> None:
    assert name == "PairingEvent" or f"`{name}" in PAGE


NAMES_HERE = {
    *pairing.__all__,
    *inspect.signature(pairing.SendAvailabilityPairedNamespaceOptions.__init__).parameters,
    *inspect.signature(ServiceBusAdministrationClient.create_queue).parameters,
    *dir(pairing.PairedServiceBusClient),
    *dir(azure.servicebus),
    *dir(azure.servicebus.exceptions),
    *dir(azure.servicebus.management),
    *dir(ServiceBusAdministrationClient),
    *dir(ServiceBusMessage),
    *dir(ServiceBusReceiver),
    *dir(QueueRuntimeProperties),
    "azure-servicebus",
    "timeout",
    "timedelta",
}


@covers("N1")
def test_the_names_of_the_articles_lead_to_names_that_exist() -> None:
    table = TEXT.partition("## Names in the .NET articles")[2]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| ")]
    there = {name for row in rows for name in re.findall(r"`([\w.]+)`", row[0])}
    assert {
        "MessagingFactory",
        "MessagingFactory.PairNamespaceAsync",
        "SendAvailabilityPairedNamespaceOptions",
        "MessageSender",
        "FailoverInterval",
        "PingPrimaryInterval",
        "BacklogQueueCount",
        "BrokeredMessage",
        "QueueDescription",
        "QueueClient",
        "TopicClient",
        "MessagingException",
        "TimeoutException",
        "NamespaceManager",
        "EnablePartitioning",
        "MessagingFactorySettings.OperationTimeout",
        "InvalidOperationException",
        "PeekBatch",
    } <= there
    here = {name for row in rows for name in re.findall(r"`([\w-]+)`", row[1])}
    assert here <= NAMES_HERE


def test_the_blocking_twin_has_the_same_names() -> None:
    assert sorted(sync.__all__) == sorted(pairing.__all__)
    for name in pairing.__all__:
        assert getattr(sync, name).__name__ == getattr(pairing, name).__name__


@covers("N17")
def test_without_the_sdk_it_is_said_what_to_install() -> None:
    lines = ["import sys", "sys.modules['azure'] = None", "import tandembus.pairing.aliases"]
    lines.append("from tandembus.pairing import pair_namespace")
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install tandembus[pairing]" in done.stderr
