"""Pairing that fails: nothing of it is left."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient

from tandembus.pairing import PairingFailed
from tandembus.pairing.sync import SendAvailabilityPairedNamespaceOptions, pair_namespace
from tests.covers import covers

PRIMARY = "Endpoint=sb://contoso.example;SharedAccessKeyName=a;SharedAccessKey=YQ=="
NOWHERE = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=YQ=="
TLS_ON_THIS_MACHINE = "Endpoint=sb://localhost:5671;SharedAccessKeyName=a;SharedAccessKey=YQ=="
ENDS_WITHIN_S = 20.0


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> Iterator[SendAvailabilityPairedNamespaceOptions]:
    monkeypatch.setattr("tandembus.pairing.backlog_queues.PAUSE_S", 0.0)
    with (
        ServiceBusClient.from_connection_string(NOWHERE) as secondary,
        ServiceBusAdministrationClient.from_connection_string(NOWHERE, retry_total=0) as admin,
    ):
        yield SendAvailabilityPairedNamespaceOptions(admin, secondary)


def tls_client(custom_endpoint_address: str | None = None) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(TLS_ON_THIS_MACHINE, custom_endpoint_address=custom_endpoint_address)


@covers("N1")
def test_a_pair_on_one_machine_over_tls_is_told_apart_by_its_custom_endpoints(
    options: SendAvailabilityPairedNamespaceOptions,
) -> None:
    admin = options.secondary_admin
    with (
        tls_client(custom_endpoint_address="sb://localhost:2") as primary,
        tls_client(custom_endpoint_address="sb://localhost:3") as secondary,
        tls_client(custom_endpoint_address="sb://LOCALHOST:2") as same,
        tls_client() as without,
        tls_client() as same_without,
    ):
        with pytest.raises(PairingFailed, match="the secondary cannot be asked"):
            pair_namespace(primary, SendAvailabilityPairedNamespaceOptions(admin, secondary), primary_name="primary")
        for one, other in ((primary, same), (without, same_without)):
            with pytest.raises(ValueError, match=r"its own secondary.* custom_endpoint_address"):
                pair_namespace(one, SendAvailabilityPairedNamespaceOptions(admin, other), primary_name="primary")


@covers("N1")
def test_pairings_that_failed_leave_one_thread_at_most_and_the_clients_as_they_were(
    options: SendAvailabilityPairedNamespaceOptions,
) -> None:
    before = set(threading.enumerate())
    with ServiceBusClient.from_connection_string(PRIMARY) as primary:
        for _ in range(3):
            with pytest.raises(PairingFailed):
                pair_namespace(primary, options)
        assert "close" not in vars(primary)
    for thread in set(threading.enumerate()) - before:
        if thread.name != "tandembus-pairing":
            thread.join(ENDS_WITHIN_S)
            assert not thread.is_alive(), thread.name
    assert [thread.name for thread in threading.enumerate()].count("tandembus-pairing") == 1
