"""A failover as both namespaces see it: real clients, real faults, a primary that is killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from click.testing import CliRunner, Result

from tandembus.cli import main
from tandembus.pair_view.timeline import BACK_FOR_S
from tandembus.pairing import EntityHealthy, FailoverEngaged, PingFailed
from tandembus.pairing.transfer import to_backlog
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.pair_views import AnyNamespace, alone, entity, get, is_in, is_told, states, together, until
from tests.integration.pairs import Form, Pair
from tests.integration.python_sdk import LoopThread
from tests.integration.serving import RunningNamespace, serving, start_namespace

BACKLOG = "contoso/x-servicebus-transfer/0"


@pytest.fixture
def form(loop_thread: LoopThread) -> Iterator[Form]:
    form = Form("async", loop_thread)
    yield form
    form.close()


@pytest.fixture
def backup() -> Iterator[EmbeddedNamespace]:
    with EmbeddedNamespace(name="backup") as namespace:
        yield namespace


def paired(form: Form, primary: str, backup: EmbeddedNamespace) -> Pair:
    pair = Pair(
        form,
        form.client(primary),
        form.client(backup.connection_string),
        form.admin(backup.tls_connection_string, backup.ca_path),
        primary_name="contoso",
        operation_timeout=timedelta(seconds=3),
    )
    form.closing_first(pair.close)
    return pair


def send_until_diverted(sender: Any, count: int) -> None:
    """So many messages end in the backlog; what fails before that does not count."""
    diverted = 0
    while diverted < count:
        try:
            sender.send_messages(ServiceBusMessage("x"))
            diverted += 1
        except ServiceBusError:
            continue


def both(primary: AnyNamespace, backup: EmbeddedNamespace, is_so: Callable[[Any], bool]) -> list[Any]:
    """The pictures that each of them makes, as soon as they tell of `orders` what they should."""

    def tells(found: Any) -> bool:
        orders = entity(found, "orders")
        return orders is not None and is_so(orders)

    return [until(lambda: together(primary, backup), tells), until(lambda: together(backup, primary), tells)]


def bring_home(primary: str, backup: EmbeddedNamespace) -> None:
    result = syphon_once(primary, backup)
    assert result.exit_code == 0, result.output


def syphon_once(primary: str, backup: EmbeddedNamespace) -> Result:
    options = ["--primary", primary, "--secondary", backup.connection_string, "--primary-name", "contoso", "--once"]
    return CliRunner().invoke(main, ["syphon", *options])


@covers("B4", "N16", "N10", "N11")
def test_a_failover_of_one_entity_is_seen_from_its_first_failure_to_health(
    form: Form, backup: EmbeddedNamespace
) -> None:
    with EmbeddedNamespace(name="contoso") as primary:
        for queue in ("orders", "bills"):
            primary.create_queue(queue)
        pair = paired(form, primary.connection_string, backup)
        sender, beside = pair.sender("orders"), pair.sender("bills")
        sender.send_messages(ServiceBusMessage("before"))
        beside.send_messages(ServiceBusMessage("before"))
        assert together(primary, backup)["entities"] == []

        primary.inject_fault("entity/orders", "unavailable")
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("fails"))
        until(lambda: together(primary, backup), is_told("orders", "failing"))

        pair.events.wait_for(FailoverEngaged)
        send_until_diverted(sender, 5)
        pair.events.wait_for(PingFailed)
        beside.send_messages(ServiceBusMessage("as ever"))
        for found in both(primary, backup, lambda orders: orders["waiting"] == 5 and orders["state"] == "pinging"):
            orders = entity(found, "orders")
            assert (orders["diverted"], orders["moved"], orders["waiting"]) == (5, 0, 5)
            assert orders["pings"]["refused"] >= 1
            assert entity(found, "bills") is None
            assert (found["backlog"]["active"], found["syphon"]["eta_s"]) == (5, None)
            assert found["backlog"]["oldest_at"] is not None
        assert together(primary, backup)["role"] == "primary"
        assert together(backup, primary)["role"] == "secondary"

        primary.heal()
        pair.events.wait_for(EntityHealthy)
        for found in both(primary, backup, lambda orders: orders["state"] == "back"):
            orders = entity(found, "orders")
            assert (orders["waiting"], orders["pings"]["accepted"]) == (5, 1)

        bring_home(primary.connection_string, backup)
        for found in both(primary, backup, lambda orders: orders["waiting"] == 0):
            orders = entity(found, "orders")
            assert (orders["state"], orders["moved"]) == ("back", 5)
            assert found["syphon"]["moved"] == 5
            assert found["syphon"]["rate_per_s"] > 0.0
            assert found["backlog"]["active"] == 0
            assert not found["is_partial"]

        for namespace in (primary, backup):
            namespace.clock.advance(BACK_FOR_S + 1.0)
        whole = ["failing", "failed-over", "pinging", "back", "syphoning", "back", "healthy"]
        for found in both(primary, backup, lambda orders: orders["state"] == "healthy"):
            # Whether the first ping or the first message comes first is chance.
            told = states(entity(found, "orders"))
            assert [state for state in told if state != "failed-over"] == [one for one in whole if one != "failed-over"]


@covers("B4", "N16", "N5")
def test_while_the_primary_is_dead_the_secondary_tells_the_story_alone(
    form: Form, backup: EmbeddedNamespace, tmp_path: Path
) -> None:
    primary = start_namespace(tmp_path / "data", "--name", "contoso")
    bus = Bus(primary)
    bus.admin.create_queue("orders")
    bus.close()
    pair = paired(form, primary.connection_string, backup)
    sender = pair.sender("orders")
    sender.send_messages(ServiceBusMessage("before"))
    primary.kill()
    send_until_diverted(sender, 7)
    found = until(lambda: alone(backup), lambda found: found["backlog"]["active"] == 7)
    orders = entity(found, "orders")
    assert (orders["state"], orders["diverted"], orders["waiting"]) == ("failed-over", 7, 7)
    assert (found["role"], found["is_partial"], found["backlog"]["active"]) == ("secondary", True, 7)

    returned = start_namespace(primary.data, "--name", "contoso", port=primary.port)
    try:
        pair.events.wait_for(EntityHealthy)
        until(lambda: together(backup, returned), is_in("orders", "back"))
        bring_home(returned.connection_string, backup)
        for found in both(returned, backup, lambda orders: orders["waiting"] == 0):
            orders = entity(found, "orders")
            assert (orders["diverted"], orders["moved"]) == (7, 7)
            assert states(orders) == ["failed-over", "back", "syphoning", "back"]
    finally:
        returned.kill()
    assert states(entity(alone(backup), "orders")) == ["failed-over", "syphoning", "back"], "without a word of pings"


@covers("B4", "N12")
def test_messages_that_the_syphon_has_put_aside_and_taken_up_again_are_counted(backup: EmbeddedNamespace) -> None:
    """Their destination is out for a while: they are deferred, and settled by their tokens later."""
    with EmbeddedNamespace(name="contoso") as primary:
        primary.create_queue("orders")
        backup.create_queue(BACKLOG)
        with (
            ServiceBusClient.from_connection_string(backup.connection_string) as client,
            client.get_queue_sender(BACKLOG) as sender,
        ):
            for _ in range(3):
                sender.send_messages(to_backlog(ServiceBusMessage("x"), "orders"))
            sender.send_messages(to_backlog(ServiceBusMessage("x"), "nowhere"))
        with primary.fault("entity/orders", "unavailable"):
            syphon_once(primary.connection_string, backup)
        bring_home(primary.connection_string, backup)
        assert "receive_deferred" in [row["operation"] for row in get(backup, "/tandembus/meter")["cumulative"]]
        found = until(lambda: together(backup, primary), lambda found: found["backlog"]["active"] == 0)
        orders, nowhere = entity(found, "orders"), entity(found, "nowhere")
        assert (orders["diverted"], orders["moved"], orders["waiting"]) == (3, 3, 0)
        assert (nowhere["diverted"], nowhere["moved"], nowhere["waiting"]) == (1, 0, 0), "it is a dead letter"
        assert found["backlog"]["dead_letter"] == 1


@covers("B4")
def test_with_several_front_ends_any_of_them_tells_what_all_have_seen(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--name", "backup", "--brokers", "1", "--front-ends", "2") as namespace:
        divert_through_many(namespace, 12)
        for _ in range(6):
            found = until(lambda: alone(namespace), is_in("orders", "failed-over"))
            assert entity(found, "orders")["diverted"] == entity(found, "orders")["waiting"] == 12
            assert not [line for line in namespace.log if "does not tell" in line]


def divert_through_many(namespace: RunningNamespace, connections: int) -> None:
    bus = Bus(namespace)
    bus.admin.create_queue(BACKLOG)
    bus.close()
    for _ in range(connections):
        with (
            ServiceBusClient.from_connection_string(namespace.connection_string) as client,
            client.get_queue_sender(BACKLOG) as sender,
        ):
            sender.send_messages(to_backlog(ServiceBusMessage("x"), "orders"))
