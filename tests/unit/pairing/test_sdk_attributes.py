"""What pairing reads of the SDK that the SDK does not promise: this is the test that says which one is gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusMessageBatch, aio
from azure.servicebus.exceptions import ServiceBusError

import tandembus.pairing
from tandembus.pairing.sdk import ClientSettings, UnknownSdk, outgoing, settings_of
from tests.covers import covers

CONNECTION_STRING = "Endpoint=sb://contoso.example;SharedAccessKeyName=a;SharedAccessKey=YQ=="
FOLDER = Path(tandembus.pairing.__file__).parent


@covers("N17")
@pytest.mark.parametrize("kind", [ServiceBusClient, aio.ServiceBusClient])
@pytest.mark.parametrize("name", ClientSettings.__dataclass_fields__)
def test_clients_show_how_they_were_made(kind: type[ServiceBusClient | aio.ServiceBusClient], name: str) -> None:
    client = kind.from_connection_string(CONNECTION_STRING)
    assert hasattr(client, f"_{name}"), f"azure-servicebus has no {kind.__name__}._{name} any more: see pairing/sdk.py"


@covers("N17")
def test_batches_show_their_encoded_messages() -> None:
    batch = ServiceBusMessageBatch(max_size_in_bytes=1000)
    batch.add_message(ServiceBusMessage("text", message_id="1"))
    (one,) = outgoing(batch)
    assert one.read().message_id == "1", "azure-servicebus encodes batches in another way: see pairing/sdk.py"


@covers("N5")
def test_errors_show_their_condition() -> None:
    assert hasattr(ServiceBusError("x"), "_condition"), "conditions are gone: see pairing/sdk.py"


@covers("N17")
def test_a_version_without_them_is_named_in_the_error() -> None:
    with pytest.raises(UnknownSdk, match="this version of azure-servicebus"):
        settings_of(object())


@covers("N17")
def test_no_other_module_of_pairing_reads_private_attributes() -> None:
    private = re.compile(r"(?<!self)(?<!cls)\._[a-z]")
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted(FOLDER.rglob("*.py"))
        if path.name != "sdk.py"
        for line in path.read_text().splitlines()
        if private.search(line)
    ]
    assert found == []
