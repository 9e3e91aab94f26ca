"""A failover as both namespaces see it: real clients, real faults, a primary that is killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from click.testing import CliRunner, Result

from tandembus.cli import main
from tandembus.metering.paired_costs import diverted
from tandembus.metering.prices import Counting
from tandembus.pairing import EntityHealthy, FailoverEngaged, PingFailed
from tandembus.pairing.transfer import to_backlog
from tandembus.security.sas import ROOT_POLICY, make_connection_string
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.pair_views import ask, entity, pair_of, states, until, until_told
from tests.integration.pairs import Form, Pair
from tests.integration.python_sdk import LoopThread
from tests.integration.serving import KEY, RunningNamespace, serving, start_namespace
from tests.ports import free_port

BACKLOG = "contoso/x-servicebus-transfer/0"
PARTNER = "TANDEMBUS_PARTNER"


@pytest.fixture
def form(loop_thread: LoopThread) -> Iterator[Form]:
    form = Form("async", loop_thread)
    yield form
    form.close()


@dataclass
class Namespaces:
    """A primary `contoso` with the queues `orders` and `bills`, and its secondary: processes that know each other."""

    primary: RunningNamespace
    backup: RunningNamespace

    def restart_primary(self) -> None:
        partner = {PARTNER: self.backup.connection_string}
        data, port = self.primary.data, self.primary.port
        self.primary = start_namespace(data, "--name", "contoso", port=port, environment=partner)

    def pictures(self, is_so: Callable[[Any], bool]) -> list[Any]:
        """Those that each of them makes, as soon as they tell of `orders` what they should."""
        return [until_told(namespace, "orders", is_so) for namespace in (self.primary, self.backup)]

    def bring_home(self) -> None:
        result = syphon_once(self.primary.connection_string, self.backup.connection_string)
        assert result.exit_code == 0, result.output


@pytest.fixture
def namespaces_of_a_pair(tmp_path: Path) -> Iterator[Namespaces]:
    port = free_port()
    partner = {PARTNER: make_connection_string("localhost", port, ROOT_POLICY, KEY, use_emulator=True)}
    backup = start_namespace(tmp_path / "backup", "--name", "backup", environment=partner)
    partner = {PARTNER: backup.connection_string}
    primary = start_namespace(tmp_path / "contoso", "--name", "contoso", port=port, environment=partner)
    bus = Bus(primary)
    for queue in ("orders", "bills"):
        bus.admin.create_queue(queue)
    bus.close()
    both = Namespaces(primary, backup)
    yield both
    for namespace in (both.primary, both.backup):
        if namespace.process.poll() is None:
            namespace.kill()


def paired(form: Form, both: Namespaces) -> Pair:
    pair = Pair(
        form,
        form.client(both.primary.connection_string),
        form.client(both.backup.connection_string),
        form.admin(both.backup.admin_connection_string, both.backup.ca_path),
        primary_name="contoso",
        operation_timeout=timedelta(seconds=3),
    )
    form.closing_first(pair.close)
    return pair


def divert(sender: Any, count: int) -> None:
    """So many messages end in the backlog; what fails before that does not count."""
    sent = 0
    while sent < count:
        try:
            sender.send_messages(ServiceBusMessage("x"))
            sent += 1
        except ServiceBusError:
            continue


def syphon_once(primary: str, secondary: str) -> Result:
    options = ["--primary", primary, "--secondary", secondary, "--primary-name", "contoso", "--once"]
    return CliRunner().invoke(main, ["syphon", *options])


@covers("B4", "N16", "N10", "N11")
def test_a_failover_of_one_entity_is_seen_from_its_first_failure_to_health(
    form: Form, namespaces_of_a_pair: Namespaces
) -> None:
    both = namespaces_of_a_pair
    pair = paired(form, both)
    sender, beside = pair.sender("orders"), pair.sender("bills")
    sender.send_messages(ServiceBusMessage("before"))
    beside.send_messages(ServiceBusMessage("before"))
    found = pair_of(both.primary)
    assert (found["role"], found["entities"], found["partner"]["state"]) == ("primary", [], "available")

    ask(both.primary, "/$faults/drill", "PUT", {"target": "entity/orders", "kind": "unavailable"})
    with pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("fails"))
    both.pictures(lambda orders: "failing" in states(orders))

    pair.events.wait_for(FailoverEngaged)
    divert(sender, 5)
    pair.events.wait_for(PingFailed)
    beside.send_messages(ServiceBusMessage("as ever"))
    for found in both.pictures(lambda orders: orders["waiting"] == 5 and orders["state"] == "pinging"):
        orders = entity(found, "orders")
        assert (orders["diverted"], orders["moved"]) == (5, 0)
        assert orders["pings"]["refused"] >= 1
        assert entity(found, "bills") is None
        assert (found["backlog"]["active"], found["syphon"]["eta_s"]) == (5, None)
        assert found["backlog"]["oldest_at"] is not None
    assert (pair_of(both.primary)["role"], pair_of(both.backup)["role"]) == ("primary", "secondary")

    ask(both.primary, "/$faults", "DELETE")
    pair.events.wait_for(EntityHealthy)
    for found in both.pictures(lambda orders: orders["state"] == "back"):
        orders = entity(found, "orders")
        assert (orders["waiting"], orders["pings"]["accepted"]) == (5, 1)

    both.bring_home()
    for found in both.pictures(lambda orders: orders["waiting"] == 0):
        orders = entity(found, "orders")
        assert orders["moved"] == found["syphon"]["moved"] == 5
        assert found["syphon"]["rate_per_s"] > 0.0
        assert found["backlog"]["active"] == 0
        assert not found["is_partial"]
    # Whether the first ping or the first message comes first is chance.
    whole = ["failing", "pinging", "back", "syphoning", "back", "healthy"]
    for found in both.pictures(lambda orders: orders["state"] == "healthy"):
        assert [state for state in states(entity(found, "orders")) if state != "failed-over"] == whole


@covers("B4", "N13", "D4")
def test_both_namespaces_tell_the_same_cost_of_a_failover(form: Form, namespaces_of_a_pair: Namespaces) -> None:
    both = namespaces_of_a_pair
    pair = paired(form, both)
    sender = pair.sender("orders")
    ask(both.primary, "/$faults/drill", "PUT", {"target": "entity/orders", "kind": "unavailable"})
    divert(sender, 10)
    ask(both.primary, "/$faults", "DELETE")
    pair.events.wait_for(EntityHealthy)
    both.bring_home()
    expected = diverted(10, 100, Counting())
    bills = [
        until(partial(ask, namespace, "/$api/cost"), lambda found: charges(found) == expected.charges)
        for namespace in (both.primary, both.backup)
    ]
    for bill in bills:
        failover = bill["failover"]
        assert Decimal(failover["total"]) == Decimal(failover["without"]) + Decimal(failover["extra"])
        assert Decimal(failover["extra"]) > 0
        assert not failover["is_partial"]
    assert bills[0]["failover"]["lines"] == bills[1]["failover"]["lines"]
    at_home = {(row["operation"], row["reason"]): row["messages"] for row in bills[0]["counters"]}
    assert at_home["send", "syphon"] == 10
    assert ("send (failover)", 10) in [(line["what"], line["quantity"]) for line in bills[1]["today"]["lines"]]


def charges(bill: Any) -> tuple[int, ...] | None:
    """How often each of the four was."""
    return None if bill["failover"] is None else tuple([line["quantity"] for line in bill["failover"]["lines"]][:4])


@covers("B4", "N16", "N5")
def test_while_the_primary_is_dead_the_secondary_tells_the_story_alone(
    form: Form, namespaces_of_a_pair: Namespaces
) -> None:
    both = namespaces_of_a_pair
    pair = paired(form, both)
    sender = pair.sender("orders")
    sender.send_messages(ServiceBusMessage("before"))
    both.primary.kill()
    divert(sender, 7)
    found = until_told(both.backup, "orders", lambda orders: orders["waiting"] == 7)
    orders = entity(found, "orders")
    assert (orders["state"], orders["diverted"]) == ("failed-over", 7)
    assert (found["role"], found["is_partial"], found["backlog"]["active"]) == ("secondary", True, 7)
    assert found["partner"]["state"] == "unreachable"
    assert found["partner"]["reason"]

    both.restart_primary()
    pair.events.wait_for(EntityHealthy)
    both.pictures(lambda orders: orders["state"] == "back")
    both.bring_home()
    for found in both.pictures(lambda orders: orders["waiting"] == 0):
        orders = entity(found, "orders")
        assert (orders["diverted"], orders["moved"]) == (7, 7)
        assert states(orders)[:4] == ["failed-over", "back", "syphoning", "back"]

    both.primary.kill()
    alone = until(lambda: pair_of(both.backup), lambda found: found["partner"]["state"] == "unreachable")
    assert states(entity(alone, "orders"))[:3] == ["failed-over", "syphoning", "back"], "nobody tells of pings"


@covers("B4", "N12")
def test_messages_that_the_syphon_has_put_aside_and_taken_up_again_are_counted() -> None:
    """Their destination is out for a while: they are deferred, and settled by their tokens later."""
    with EmbeddedNamespace(name="contoso") as primary, EmbeddedNamespace(name="backup") as backup:
        primary.create_queue("orders")
        backup.create_queue(BACKLOG)
        send_to_backlog(backup.connection_string, "orders", "orders", "orders", "nowhere")
        with primary.fault("entity/orders", "unavailable"):
            syphon_once(primary.connection_string, backup.connection_string)
        assert syphon_once(primary.connection_string, backup.connection_string).exit_code == 0
        assert "receive_deferred" in [row["operation"] for row in ask(backup, "/tandembus/meter")["cumulative"]]
        found = until(lambda: pair_of(backup), lambda found: found["backlog"]["active"] == 0)
        orders, nowhere = entity(found, "orders"), entity(found, "nowhere")
        assert (orders["diverted"], orders["moved"], orders["waiting"]) == (3, 3, 0)
        assert (nowhere["diverted"], nowhere["moved"], nowhere["waiting"]) == (1, 0, 0), "it is a dead letter"
        assert found["backlog"]["dead_letter"] == 1


@covers("B4")
def test_with_several_front_ends_any_of_them_tells_what_all_have_seen(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--name", "backup", "--brokers", "1", "--front-ends", "2") as namespace:
        bus = Bus(namespace)
        bus.admin.create_queue(BACKLOG)
        bus.close()
        for _ in range(12):
            send_to_backlog(namespace.connection_string, "orders")
        for _ in range(6):
            found = entity(until_told(namespace, "orders", lambda orders: orders["waiting"] == 12), "orders")
            assert (found["state"], found["diverted"]) == ("failed-over", 12)
        assert not [line for line in namespace.log if "does not tell" in line]


def send_to_backlog(connection_string: str, *destinations: str) -> None:
    """As a client does that has failed over, on a connection of its own."""
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender(BACKLOG) as sender,
    ):
        for path in destinations:
            sender.send_messages(to_backlog(ServiceBusMessage("x"), path))
