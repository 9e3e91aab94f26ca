"""Paired namespaces while the processes of the primary are killed, stopped and started again."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from tandembus.node.waiting import comes_true
from tandembus.pairing import EntityHealthy, EntityState, FailoverEngaged, PairingFailed, PingFailed
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.pairs import INTERVAL, Form, Pair
from tests.integration.processes import is_stopped
from tests.integration.python_sdk import LoopThread
from tests.integration.serving import RunningNamespace, start_namespace

both_forms = pytest.mark.parametrize("form", ["async", "sync"], indirect=True)


@pytest.fixture
def form(request: pytest.FixtureRequest, loop_thread: LoopThread) -> Iterator[Form]:
    form = Form(getattr(request, "param", "async"), loop_thread)
    yield form
    form.close()


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[RunningNamespace]:
    namespace = start_namespace(tmp_path / "data")
    bus = Bus(namespace)
    bus.admin.create_queue("orders", requires_duplicate_detection=True)
    bus.close()
    yield namespace
    if namespace.process.poll() is None:
        namespace.kill()


@pytest.fixture
def pair(form: Form, primary: RunningNamespace, secondary: EmbeddedNamespace) -> Iterator[Pair]:
    pair = Pair(
        form,
        form.client(primary.connection_string),
        form.client(secondary.connection_string),
        form.admin(secondary.tls_connection_string, secondary.ca_path),
        operation_timeout=timedelta(seconds=3),
    )
    yield pair
    pair.close()


@both_forms
@covers("N5", "N6", "N10")
def test_a_primary_that_is_killed_is_left_and_returned_to(
    pair: Pair, primary: RunningNamespace, secondary: EmbeddedNamespace
) -> None:
    sender = pair.sender("orders")
    sender.send_messages(ServiceBusMessage("0"))
    primary.kill()
    accepted = ["0"]
    failed_since: list[float] = []
    for number in range(1, 400):
        began = time.monotonic()
        try:
            sender.send_messages(ServiceBusMessage(str(number)))
            accepted.append(str(number))
        except ServiceBusError:
            failed_since.append(began)
        if len(accepted) == 20:
            break
    pair.events.wait_for(PingFailed)
    engaged_at = pair.events.time_of(FailoverEngaged)
    assert all(began < engaged_at for began in failed_since), "after failover no send fails"
    diverted = len(accepted) - 1
    assert sum(secondary.counts(queue).active for queue in pair.queues) == diverted
    returned = start_namespace(primary.data, port=primary.port)
    try:
        pair.events.wait_for(EntityHealthy)
        sender.send_messages(ServiceBusMessage("home"))
        bus = Bus(returned)
        assert bus.counts("orders").active == 2
        bus.close()
    finally:
        returned.kill()


@both_forms
@covers("N1", "N5")
def test_a_primary_that_is_stopped_lets_no_call_hang(
    pair: Pair, primary: RunningNamespace, secondary: EmbeddedNamespace
) -> None:
    """Its sockets are open and nobody answers: the SDK by itself would wait for ever."""
    first, second = pair.sender("orders"), pair.sender("orders")
    first.send_messages(ServiceBusMessage("0", message_id="0"))
    second.send_messages(ServiceBusMessage("1", message_id="1"))
    os.kill(primary.process.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        ended: list[float] = []

        def send_beside() -> None:
            second.send_messages(ServiceBusMessage("running", message_id="running"))
            ended.append(time.monotonic())

        beside = threading.Thread(target=send_beside)
        with pytest.raises(OperationTimeoutError):
            first.send_messages(ServiceBusMessage("raised", message_id="raised"), timeout=0.5)
        assert time.monotonic() - began < 10.0
        beside.start()
        pair.events.wait_for(FailoverEngaged)
        beside.join(10.0)
        assert ended, "the send that was running when failover engaged has ended in the backlog"
        first.send_messages(ServiceBusMessage("diverted"))
        assert sum(secondary.counts(queue).active for queue in pair.queues) == 2
    finally:
        os.kill(primary.process.pid, signal.SIGCONT)
    pair.events.wait_for(EntityHealthy)
    first.send_messages(ServiceBusMessage("home", message_id="home"))
    assert pair.state("orders") is EntityState.HEALTHY


@covers("N5")
async def test_cancellation_by_the_caller_is_prompt_and_does_not_count(
    primary: RunningNamespace, secondary: EmbeddedNamespace, loop_thread: LoopThread
) -> None:
    form = Form("async", loop_thread)
    pair = await asyncio.to_thread(
        Pair,
        form,
        form.client(primary.connection_string),
        form.client(secondary.connection_string),
        form.admin(secondary.tls_connection_string, secondary.ca_path),
        failover_interval=timedelta(0),
    )

    async def cancelled() -> float:
        sender = pair.client.get_queue_sender("orders")
        await sender.send_messages(ServiceBusMessage("0"))
        os.kill(primary.process.pid, signal.SIGSTOP)
        assert await comes_true(lambda: is_stopped(primary.process.pid), 10)
        task = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("1")))
        for _ in range(200):  # it is sent, and waits for its answer
            await asyncio.sleep(0)
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - began

    try:
        took_s = await asyncio.to_thread(loop_thread.call, cancelled)
        assert took_s < 5.0
        assert pair.state("orders") is EntityState.HEALTHY
    finally:
        os.kill(primary.process.pid, signal.SIGCONT)
        await asyncio.to_thread(pair.close)
        await asyncio.to_thread(form.close)


@covers("N1", "N5")
def test_an_application_can_start_while_its_primary_is_away(
    form: Form, primary: RunningNamespace, secondary: EmbeddedNamespace
) -> None:
    primary.kill()
    pair = Pair(
        form,
        form.client(primary.connection_string),
        form.client(secondary.connection_string),
        form.admin(secondary.tls_connection_string, secondary.ca_path),
    )
    sender = pair.sender("orders")
    with sender:
        pair.events.wait_for(FailoverEngaged)
        sender.send_messages(ServiceBusMessage("diverted"))
    assert sum(secondary.counts(queue).active for queue in pair.queues) == 1
    engaged = pair.events.of(FailoverEngaged)[0]
    assert engaged.failing_for_s >= INTERVAL.total_seconds()
    pair.close()


@both_forms
@covers("N1")
def test_a_secondary_that_is_away_cannot_be_paired_with(form: Form, tmp_path: Path) -> None:
    gone = start_namespace(tmp_path / "gone")
    gone.kill()
    with pytest.raises(PairingFailed, match="cannot be made on the secondary"):
        Pair(
            form,
            form.client("Endpoint=sb://contoso.example;SharedAccessKeyName=a;SharedAccessKey=b"),
            form.client(gone.connection_string),
            form.admin(gone.admin_connection_string, gone.ca_path),
        )
