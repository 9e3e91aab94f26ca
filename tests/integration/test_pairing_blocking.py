"""What is different where blocking code pairs: the thread that pairing runs in."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, cast

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusClient, ServiceBusMessage, parse_connection_string
from azure.servicebus.management import ServiceBusAdministrationClient

from tandembus.pairing.sync import (
    ClientFaulted,
    EntityState,
    FailoverEngaged,
    PairedServiceBusClient,
    SendAvailabilityPairedNamespaceOptions,
    pair_namespace,
)
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers

INTERRUPTED_AFTER_S = 0.5
WAIT_S = 30.0


@pytest.fixture
def orders(primary: EmbeddedNamespace) -> Iterator[str]:
    yield primary.create_queue(f"orders-{uuid.uuid4().hex[:8]}")
    primary.heal()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def paired(
    stack: ExitStack, primary: ServiceBusClient, secondary: EmbeddedNamespace, **options: Any
) -> tuple[PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions]:
    client = stack.enter_context(ServiceBusClient.from_connection_string(secondary.connection_string))
    admin = ServiceBusAdministrationClient.from_connection_string(
        secondary.tls_connection_string, connection_verify=str(secondary.ca_path)
    )
    stack.enter_context(admin)
    chosen = SendAvailabilityPairedNamespaceOptions(admin, client, backlog_queue_count=1, **options)
    return pair_namespace(primary, chosen, primary_name="contoso"), chosen


@covers("N14", "N17")
def test_pairs_that_share_a_client_end_one_by_one_and_leave_it_as_it_was(
    stack: ExitStack, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    client = stack.enter_context(ServiceBusClient.from_connection_string(primary.connection_string))
    first, _ = paired(stack, client, secondary)
    second, _ = paired(stack, client, secondary)
    first.close()
    with second, second.get_queue_sender(orders) as sender:
        sender.send_messages(ServiceBusMessage("one"))
    assert "close" not in vars(client)
    assert primary.counts(orders).active == 1


class HeldUp(ServiceBusAdministrationClient):
    """Looks for a backlog queue when it may."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    def get_queue(self, *args: Any, **kwargs: Any) -> Any:
        self.is_asked.set()
        assert self.may_answer.wait(WAIT_S)
        return super().get_queue(*args, **kwargs)


@covers("N14", "N17")
def test_a_pair_that_ends_while_another_of_its_client_is_made_leaves_that_one_its_client(
    stack: ExitStack, primary: EmbeddedNamespace, secondary: EmbeddedNamespace
) -> None:
    client = stack.enter_context(ServiceBusClient.from_connection_string(primary.connection_string))
    first, _ = paired(stack, client, secondary)
    other = stack.enter_context(ServiceBusClient.from_connection_string(secondary.connection_string))
    made = HeldUp.from_connection_string(secondary.tls_connection_string, connection_verify=str(secondary.ca_path))
    admin = cast(HeldUp, made)
    stack.enter_context(admin)
    options = SendAvailabilityPairedNamespaceOptions(admin, other, backlog_queue_count=1, enable_syphon=True)
    faulted = threading.Event()
    options.on_event(lambda event: faulted.set() if isinstance(event, ClientFaulted) else None)
    with ThreadPoolExecutor(1) as beside:
        pairing = beside.submit(pair_namespace, client, options, primary_name="contoso")
        assert admin.is_asked.wait(WAIT_S)
        first.close()
        first.close()
        admin.may_answer.set()
        second = stack.enter_context(pairing.result(WAIT_S))
    client.close()
    assert faulted.wait(WAIT_S), "the pair did not notice that its primary's client was closed"
    second.close()
    assert "close" not in vars(client)


@covers("N1", "N17")
def test_an_interrupted_call_is_given_up_and_the_sender_can_be_used_again(
    stack: ExitStack, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    client = stack.enter_context(ServiceBusClient.from_connection_string(primary.connection_string))
    pair, _ = paired(stack, client, secondary)
    sender = stack.enter_context(stack.enter_context(pair).get_queue_sender(orders))
    sender.send_messages(ServiceBusMessage("before"))
    primary.inject_fault("store/0", "slow", latency=30.0)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, INTERRUPTED_AFTER_S)
        with pytest.raises(InterruptedError):
            sender.send_messages(ServiceBusMessage("interrupted"))
    finally:
        signal.signal(signal.SIGALRM, before)
    primary.heal()
    sender.send_messages(ServiceBusMessage("after"))
    assert primary.counts(orders).active >= 2


def interrupt(number: int, frame: object) -> None:
    raise InterruptedError


@covers("N16")
def test_a_listener_may_ask_for_states_but_a_send_would_wait_for_itself(
    stack: ExitStack, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    client = stack.enter_context(ServiceBusClient.from_connection_string(primary.connection_string, retry_total=0))
    pair, options = paired(stack, client, secondary, failover_interval=timedelta(0))
    sender = stack.enter_context(stack.enter_context(pair).get_queue_sender(orders))
    found: list[object] = []

    @options.on_event
    def ask(event: object) -> None:
        if isinstance(event, FailoverEngaged):
            found.append(pair.entity_state(orders))
            try:
                sender.send_messages(ServiceBusMessage("never"))
            except RuntimeError as error:
                found.append(str(error))

    primary.inject_fault(f"entity/{orders}", "unavailable")
    sender.send_messages(ServiceBusMessage("diverted"))
    assert found == [EntityState.FAILED_OVER, "a blocking call in the thread 'tandembus-pairing' would wait for itself"]


@covers("N17")
def test_a_client_with_a_named_key_is_paired(
    stack: ExitStack, primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    parts = parse_connection_string(primary.connection_string)
    key = AzureNamedKeyCredential(str(parts.shared_access_key_name), str(parts.shared_access_key))
    client = stack.enter_context(ServiceBusClient(parts.fully_qualified_namespace, key, use_tls=False))
    pair, _ = paired(stack, client, secondary)
    sender = stack.enter_context(stack.enter_context(pair).get_queue_sender(orders))
    sender.send_messages(ServiceBusMessage("one"))
    assert primary.counts(orders).active == 1


FORKS = """
import os, sys
from contextlib import ExitStack
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from tests.integration.test_pairing_blocking import paired

class Secondary:
    connection_string, tls_connection_string, ca_path = sys.argv[2:5]

def send(text):
    with ExitStack() as stack:
        client = stack.enter_context(ServiceBusClient.from_connection_string(sys.argv[1]))
        pair, _ = paired(stack, client, Secondary)
        stack.enter_context(pair).get_queue_sender(sys.argv[5]).send_messages(ServiceBusMessage(text))

send("before the fork")
child = os.fork()
if child == 0:
    send("in the child")
    os._exit(0)
send("in the parent")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@covers("N17")
def test_a_process_that_has_forked_pairs_as_before(
    primary: EmbeddedNamespace, secondary: EmbeddedNamespace, orders: str
) -> None:
    ways = [primary.connection_string, secondary.connection_string, secondary.tls_connection_string]
    command = [sys.executable, "-c", FORKS, *ways, str(secondary.ca_path), orders]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert primary.counts(orders).active == 3
