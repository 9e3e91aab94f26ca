"""Who may do what, as the Python SDK sees it: keys, rights, tokens, disabled queues, TLS."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
)
from azure.servicebus.management import EntityStatus

from tandembus.clock import SystemClock
from tandembus.security.sas import ROOT_POLICY, make_token
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import LISTENS_KEY, SENDS_KEY, Connect, with_async_client, with_sync_client
from tests.integration.python_sdk import ARRIVES_WITHIN_S, PythonSdk, bodies_of, receive
from tests.integration.serving import KEY, start_namespace


@covers("M15", "B1")
def test_an_unknown_queue_is_an_authentication_error_as_at_the_service(impatient_sdk: PythonSdk) -> None:
    with pytest.raises(ServiceBusAuthenticationError):
        impatient_sdk.sender("nobody-made-this")
    with pytest.raises(ServiceBusAuthenticationError):
        impatient_sdk.receiver("nobody-made-this")


@covers("M15")
@with_async_client
@pytest.mark.parametrize(
    ("policy", "key"), [(ROOT_POLICY, "d3Jvbmc="), ("nobody", KEY), (ROOT_POLICY.lower(), KEY)], ids=str
)
def test_wrong_credentials_are_refused(connect: Connect, bus: Bus, policy: str, key: str) -> None:
    stranger = connect(bus.connection_string_of(policy, key), retry_total=0)
    with pytest.raises(ServiceBusAuthenticationError):
        stranger.sender(bus.make_queue())


@covers("M15")
def test_who_may_only_send_cannot_receive(connect: Connect, small_bus: Bus) -> None:
    queue = small_bus.make_queue()
    sdk = connect(small_bus.connection_string_of("sends", SENDS_KEY), retry_total=0)
    sdk.sender(queue).send_messages(ServiceBusMessage("allowed"))
    with pytest.raises(ServiceBusAuthorizationError, match="Listen"):
        sdk.receiver(queue)
    assert small_bus.counts(queue) == Counts(1)


@covers("M15")
def test_who_may_only_listen_cannot_send(connect: Connect, small_bus: Bus, small_sdk: PythonSdk) -> None:
    queue = small_bus.make_queue()
    small_sdk.sender(queue).send_messages(ServiceBusMessage("for the listener"))
    sdk = connect(small_bus.connection_string_of("listens", LISTENS_KEY), retry_total=0)
    receiver = sdk.receiver(queue)
    assert len(receiver.peek_messages()) == 1
    receiver.complete_message(receive(receiver, 1)[0])
    with pytest.raises(ServiceBusAuthorizationError, match="Send"):
        sdk.sender(queue)
    assert small_bus.counts(queue) == Counts(0)


def with_token(bus: Bus, path: str, lifetime_s: float) -> str:
    """A connection string with a token instead of a key."""
    endpoint = f"sb://localhost:{bus.running.port}"
    token = make_token(f"{endpoint}/{path}", ROOT_POLICY, KEY, SystemClock().now() + lifetime_s)
    return f"Endpoint={endpoint}/;SharedAccessSignature={token};UseDevelopmentEmulator=true"


@covers("M15")
@with_async_client
def test_a_token_opens_the_queue_it_was_made_for_and_no_other(connect: Connect, bus: Bus) -> None:
    mine, other = bus.make_queue(), bus.make_queue()
    sdk = connect(with_token(bus, mine, 60), retry_total=0)
    sdk.sender(mine).send_messages(ServiceBusMessage("mine"))
    with pytest.raises(ServiceBusAuthenticationError):
        sdk.sender(other)
    assert (bus.counts(mine), bus.counts(other)) == (Counts(1), Counts(0))


@covers("M15")
@with_async_client
def test_an_expired_token_is_refused(connect: Connect, bus: Bus) -> None:
    with pytest.raises(ServiceBusAuthenticationError):
        connect(with_token(bus, "", -1), retry_total=0).sender(bus.make_queue())


@covers("M15")
def test_a_token_that_expires_ends_the_links_it_opened(connect: Connect, small_bus: Bus) -> None:
    queue = small_bus.make_queue()
    sdk = connect(with_token(small_bus, "", 2), retry_total=0)
    sender, receiver = sdk.pair(queue)
    sender.send_messages(ServiceBusMessage("in time"))
    assert bodies_of(receive(receiver, 1)) == [b"in time"]
    with pytest.raises(ServiceBusError):
        receiver.receive_messages(max_wait_time=ARRIVES_WITHIN_S)
    with pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("too late"))
    assert small_bus.counts(queue) == Counts(1)


def set_status(bus: Bus, queue: str, status: EntityStatus) -> None:
    description = bus.admin.get_queue(queue)
    description.status = status
    bus.admin.update_queue(description)


def send_one(sender: ServiceBusSender) -> None:
    sender.send_messages(ServiceBusMessage("x"))


def receive_one(receiver: ServiceBusReceiver) -> None:
    assert receive(receiver, 1)


@covers("M13")
@with_sync_client
def test_a_disabled_queue_cuts_its_links_until_it_is_active_again(impatient_sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = impatient_sdk.pair(queue)
    set_status(bus, queue, EntityStatus.DISABLED)
    with pytest.raises(MessagingEntityDisabledError):
        receive_one(receiver)
    with pytest.raises(ServiceBusError):  # the SDK may have sent before it reads why its link is gone
        send_one(sender)
    with pytest.raises(MessagingEntityDisabledError):
        impatient_sdk.sender(queue)
    set_status(bus, queue, EntityStatus.ACTIVE)
    send_one(sender)
    receive_one(receiver)


@covers("M13")
@with_sync_client
def test_a_queue_may_be_disabled_for_sending_alone(impatient_sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = impatient_sdk.pair(queue)
    send_one(sender)
    set_status(bus, queue, EntityStatus.SEND_DISABLED)
    receive_one(receiver)
    with pytest.raises(MessagingEntityDisabledError):
        impatient_sdk.sender(queue)


@covers("M13")
@with_sync_client
def test_a_queue_may_be_disabled_for_receiving_alone(impatient_sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender = impatient_sdk.sender(queue)
    set_status(bus, queue, EntityStatus.RECEIVE_DISABLED)
    send_one(sender)
    with pytest.raises(MessagingEntityDisabledError):
        impatient_sdk.receiver(queue)


@pytest.fixture(scope="module")
def tls_bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    """Without the emulator's flag the SDK knows no port but 5671: an address of our own keeps it from being taken."""
    number = os.getpid()
    address = f"127.{number >> 16 & 0x7F | 0x40}.{number >> 8 & 0xFF}.{number & 0xFF}"
    data = tmp_path_factory.mktemp("tls") / "data"
    namespace = start_namespace(data, "--host", address, "--amqps-port", "5671")
    yield Bus(namespace, f"Endpoint=sb://{address}:5671/;SharedAccessKeyName={ROOT_POLICY};SharedAccessKey={KEY}")
    namespace.stop_in_peace()


@covers("M15", "B1")
def test_a_connection_string_without_the_emulator_s_flag_works_in_tls(connect: Connect, tls_bus: Bus) -> None:
    queue = tls_bus.make_queue()
    sdk = connect(tls_bus.connection_string, connection_verify=str(tls_bus.running.ca_path))
    sender, receiver = sdk.pair(queue)
    sender.send_messages([ServiceBusMessage(b"x" * 100_000), ServiceBusMessage("in TLS")])
    large, small = receive(receiver, 2)
    assert [len(body) for body in bodies_of([large, small])] == [100_000, 6]
    receiver.complete_message(large)


@covers("M15")
@with_sync_client
def test_a_client_that_does_not_trust_the_authority_goes_no_further(connect: Connect, tls_bus: Bus, bus: Bus) -> None:
    """The other namespace's authority is another one."""
    other: Path = bus.running.ca_path
    sdk = connect(tls_bus.connection_string, connection_verify=str(other), retry_total=0)
    with pytest.raises(ServiceBusConnectionError):
        sdk.sender("any")
