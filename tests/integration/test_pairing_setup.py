"""Making a pair: the backlog queues, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import certifi
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError
from azure.servicebus.management import ServiceBusAdministrationClient

from tandembus.pairing import EntityState, PairingFailed
from tandembus.pairing.aliases import backlog_path
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.conftest import LISTENS_KEY, SENDS_KEY
from tests.integration.pairs import Form, Pair
from tests.integration.python_sdk import LoopThread
from tests.integration.unreachable import unreachable_queue

FOREVER = timedelta(days=10675199, seconds=10085, microseconds=477581)
PRIMARY = "Endpoint=sb://contoso.example;SharedAccessKeyName=a;SharedAccessKey=b"
NOT_THERE = "Endpoint=sb://localhost:1;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
both_forms = pytest.mark.parametrize("form", ["async", "sync"], indirect=True)


@pytest.fixture
def form(request: pytest.FixtureRequest, loop_thread: LoopThread) -> Iterator[Form]:
    form = Form(getattr(request, "param", "async"), loop_thread)
    yield form
    form.close()


def pair_with(form: Form, bus: Bus, **options: Any) -> Pair:
    return Pair(
        form,
        form.client(PRIMARY),
        form.client(options.pop("secondary", bus.connection_string)),
        form.admin(options.pop("secondary_admin", bus.connection_string), bus.running.ca_path),
        **options,
    )


@both_forms
@covers("N1", "N2")
def test_backlog_queues_are_made_as_they_must_be(form: Form, small_bus: Bus, bus: Bus) -> None:
    pair = pair_with(form, bus, backlog_queue_count=4)
    assert pair.options.backlog_queue_count == 4
    assert form.call(lambda: pair.client.backlog_queues) == tuple(pair.queues)
    for queue in pair.queues:
        found = bus.admin.get_queue(queue)
        assert found.max_size_in_megabytes == 5120
        assert found.max_delivery_count == 2147483647
        assert found.default_message_time_to_live == FOREVER
        assert found.auto_delete_on_idle == FOREVER
        assert found.lock_duration == timedelta(minutes=1)
        assert found.dead_lettering_on_message_expiration is True
        assert found.enable_batched_operations is True
        assert (found.requires_session, found.requires_duplicate_detection) == (False, False)
        assert found.enable_partitioning is False
    pair.close()


@covers("N3")
def test_an_existing_queue_is_used_as_it_is_and_extra_ones_are_left_alone(form: Form, bus: Bus) -> None:
    first = pair_with(form, bus, backlog_queue_count=1)
    name = first.queues[0].split("/")[0]
    first.close()
    bus.admin.create_queue(f"{name}/x-servicebus-transfer/1", max_delivery_count=7)
    bus.admin.create_queue(f"{name}/x-servicebus-transfer/7", max_delivery_count=8)
    second = pair_with(form, bus, primary_name=name, backlog_queue_count=3)
    assert bus.admin.get_queue(second.queues[1]).max_delivery_count == 7
    assert bus.admin.get_queue(f"{name}/x-servicebus-transfer/7").max_delivery_count == 8
    assert f"{name}/x-servicebus-transfer/7" not in form.call(lambda: second.client.backlog_queues)
    second.close()


@both_forms
@covers("N1")
def test_a_secondary_without_manage_is_a_clear_error(form: Form, small_bus: Bus) -> None:
    listens = small_bus.connection_string_of("listens", LISTENS_KEY)
    with pytest.raises(PairingFailed, match=r"x-servicebus-transfer/0 cannot be made.*the right Manage"):
        pair_with(form, small_bus, secondary_admin=listens)


@both_forms
@covers("N1")
def test_a_certificate_that_is_not_trusted_is_told_at_once_and_what_to_do(
    form: Form, bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    admin = form.admin(bus.connection_string, Path(certifi.where()))
    with pytest.raises(PairingFailed, match=r"give its clients connection_verify"):
        Pair(form, form.client(PRIMARY), form.client(bus.connection_string), admin)
    assert "trying again" not in caplog.text


@both_forms
@covers("N1")
def test_a_namespace_that_calls_itself_as_the_primary_on_this_machine_is_not_its_secondary(
    form: Form, bus: Bus
) -> None:
    name = bus.admin.get_namespace_properties().name
    elsewhere = form.client(bus.connection_string.replace("localhost", "127.0.0.1"))
    admin = form.admin(bus.connection_string, bus.running.ca_path)
    with pytest.raises(ValueError, match="its own secondary"):
        Pair(form, elsewhere, form.client(bus.connection_string), admin, primary_name=name.upper())
    assert not [queue for queue in bus.admin.list_queues() if queue.name.startswith(name.upper())]


def behind_custom_endpoint(form: Form, bus: Bus, connection_string: str) -> Any:
    return form.client(
        connection_string.replace(";UseDevelopmentEmulator=true", ""),
        connection_verify=str(bus.running.ca_path),
        custom_endpoint_address=f"sb://localhost:{bus.running.port}",
    )


@both_forms
@covers("N1")
def test_namespaces_on_one_machine_are_paired_over_tls_by_their_custom_endpoints(
    form: Form, bus: Bus, small_bus: Bus
) -> None:
    primary, secondary = (behind_custom_endpoint(form, each, each.connection_string) for each in (small_bus, bus))
    assert primary.fully_qualified_namespace == secondary.fully_qualified_namespace == "localhost"
    pair = Pair(form, primary, secondary, form.admin(bus.connection_string, bus.running.ca_path))
    assert form.call(lambda: pair.client.backlog_queues) == tuple(pair.queues)
    pair.close()


@covers("N5")
def test_a_refused_key_is_raised_behind_a_custom_endpoint_too(form: Form, bus: Bus, small_bus: Bus) -> None:
    """There the SDK calls it a connection error."""
    wrong = small_bus.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")
    primary = behind_custom_endpoint(form, small_bus, wrong)
    admin = form.admin(bus.connection_string, bus.running.ca_path)
    pair = Pair(form, primary, form.client(bus.connection_string), admin, failover_interval=timedelta(0))
    queue = small_bus.make_queue()
    with pytest.raises(ServiceBusConnectionError):
        pair.sender(queue).send_messages(ServiceBusMessage("raised"))
    assert pair.state(queue) is EntityState.HEALTHY
    pair.close()


@both_forms
@covers("N3", "P19")
def test_a_backlog_queue_that_is_there_and_out_of_reach_does_not_keep_anybody_from_pairing(
    form: Form, bus: Bus
) -> None:
    name = f"outage-{form.kind}"
    with unreachable_queue(bus.connection_string, backlog_path(name, 1)):
        pair = pair_with(form, bus, primary_name=name)
        assert form.call(lambda: pair.client.backlog_queues) == tuple(pair.queues)
        pair.close()


@covers("N1")
def test_clients_that_were_swapped_are_told_by_the_endpoint_that_is_wrong(form: Form, bus: Bus) -> None:
    name = bus.admin.get_namespace_properties().name
    primary, secondary = form.client(bus.connection_string), form.client(NOT_THERE)
    admin = form.admin(bus.connection_string, bus.running.ca_path)
    with pytest.raises(
        ValueError, match=rf"^secondary_admin is of {re.escape(admin.fully_qualified_namespace)}, which"
    ):
        Pair(form, primary, secondary, admin, primary_name=name)


@covers("N1")
def test_a_secondary_client_that_may_not_send_is_found_out_when_pairing(form: Form, bus: Bus, small_bus: Bus) -> None:
    wrong = bus.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")
    with pytest.raises(PairingFailed, match="cannot send to the backlog queue"):
        pair_with(form, bus, secondary=wrong)
    elsewhere = small_bus.connection_string_of("sends", SENDS_KEY)
    with pytest.raises(PairingFailed, match="cannot send to the backlog queue"):
        pair_with(form, bus, secondary=elsewhere)


@both_forms
@covers("N1")
def test_a_namespace_cannot_be_its_own_secondary(form: Form, bus: Bus) -> None:
    client, admin = form.client(bus.connection_string), form.admin(bus.connection_string, bus.running.ca_path)
    for secondary in (client, form.client(bus.connection_string)):
        options = form.pairing.SendAvailabilityPairedNamespaceOptions(admin, secondary)
        with pytest.raises(ValueError, match="its own secondary"):
            form.call(form.pairing.pair_namespace, client, options, primary_name="contoso")


@covers("N1")
def test_a_host_that_does_not_tell_the_name_needs_one(form: Form, bus: Bus) -> None:
    admin = form.admin(bus.connection_string, bus.running.ca_path)
    options = form.pairing.SendAvailabilityPairedNamespaceOptions(admin, form.client(bus.connection_string))
    local = form.client(bus.connection_string.replace(str(bus.running.port), "1"))
    with pytest.raises(ValueError, match="give primary_name"):
        form.call(form.pairing.pair_namespace, local, options)
    with pytest.raises(ValueError, match="cannot be the name of a namespace"):
        form.call(form.pairing.pair_namespace, local, options, primary_name="con/toso")


@covers("N1")
def test_clients_of_the_other_form_are_refused(form: Form, bus: Bus, loop_thread: LoopThread) -> None:
    blocking = Form("sync", loop_thread)
    admin = blocking.admin(bus.connection_string, bus.running.ca_path)
    assert isinstance(admin, ServiceBusAdministrationClient)
    with pytest.raises(TypeError, match=r"tandembus\.pairing\.sync its blocking ones"):
        form.pairing.SendAvailabilityPairedNamespaceOptions(admin, form.client(bus.connection_string))
    options = form.pairing.SendAvailabilityPairedNamespaceOptions(admin, blocking.client(bus.connection_string))
    with pytest.raises(TypeError, match=r"tandembus\.pairing\.sync its blocking ones"):
        form.call(form.pairing.pair_namespace, form.client(bus.connection_string), options)
    blocking.close()
