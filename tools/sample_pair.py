"""A pair with something to look at: a shop with orders, dead letters, rules, and two entities that have failed over."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleAction, SqlRuleFilter

from tandembus.pairing import EntityState
from tandembus.pairing.sync import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions, pair_namespace

CITIES = ("Bergen", "Leiden", "Porto", "Turin", "Graz", "Lyon")
GOODS = ("boots", "sandals", "trainers", "laces", "insoles")
REASONS = (
    ("AddressUnknown", "no such street"),
    ("PaymentRefused", "the card has expired"),
    ("OutOfStock", "none left"),
)
SYPHON = (sys.executable, "-m", "tandembus", "syphon", "--once", "--primary-name", "contoso")
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Side:
    connection_string: str
    data: Path

    @property
    def http_address(self) -> str:
        return f"http://localhost:{json.loads((self.data / 'namespace.json').read_text())['http_port']}/"

    def client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.connection_string, retry_total=0)

    def administration(self) -> ServiceBusAdministrationClient:
        ca = str(self.data / "tls" / "ca.pem")
        return ServiceBusAdministrationClient.from_connection_string(self.connection_string, connection_verify=ca)

    def command(self, *words: str) -> None:
        self.start(*words).wait()

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tandembus", *words, "--connection-string", self.connection_string]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def running_pair(folder: Path) -> Iterator[tuple[Side, Side]]:
    """`tandembus up`, on any free ports."""
    command = [sys.executable, "-m", "tandembus", "up", "--json", "--show-key", "--primary-name", "contoso"]
    command += ["--secondary-name", "contoso-backup"]
    for side in ("primary", "secondary"):
        command += [f"--{side}-data", str(folder / side), f"--{side}-amqp-port", "0", f"--{side}-http-port", "0"]
        command += [f"--{side}-amqps-port", "off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            told: dict[str, dict[str, Any]] = json.loads(process.stdout.readline())
            primary, secondary = (
                Side(told[side]["connection_string"], folder / side) for side in ("primary", "secondary")
            )
            yield primary, secondary
        finally:
            process.terminate()


def fill(primary: Side) -> None:
    """Entities, and what a busy morning leaves in them."""
    with primary.administration() as administration, primary.client() as client:
        administration.create_queue("orders", enable_partitioning=True, max_delivery_count=5)
        for name in ("invoices", "payments", "shipments"):
            administration.create_queue(name, dead_lettering_on_message_expiration=True)
        administration.create_queue("returns", requires_session=True)
        administration.create_topic("events")
        for name in ("warehouse", "large", "audit"):
            administration.create_subscription("events", name)
        administration.delete_rule("events", "large", "$Default")
        administration.create_rule("events", "large", "above-500", filter=SqlRuleFilter("total > 500"))
        administration.create_rule(
            "events",
            "large",
            "abroad",
            filter=SqlRuleFilter("country <> 'NL' AND total > 200"),
            action=SqlRuleAction("SET priority = 'high'"),
        )
        _send(client, "orders", 400)
        _send(client, "invoices", 60)
        with client.get_topic_sender("events") as sender:
            sender.send_messages([order(number) for number in range(80)])
        with client.get_queue_sender("orders") as sender:
            sender.schedule_messages(order(500), datetime.now(UTC) + timedelta(days=1))
        _bury(client, "invoices", 14)


def order(number: int) -> ServiceBusMessage:
    chance = random.Random(number)
    total = chance.randrange(20, 900)
    body = {"order": 20_000 + number, "city": chance.choice(CITIES), "goods": chance.choice(GOODS), "total": total}
    return ServiceBusMessage(
        json.dumps(body),
        message_id=f"order-{20_000 + number}",
        subject="order",
        content_type="application/json",
        application_properties={"total": total, "country": chance.choice(("NL", "NO", "PT"))},
    )


def _send(client: ServiceBusClient, queue: str, count: int) -> None:
    with client.get_queue_sender(queue) as sender:
        for number in range(count):
            sender.send_messages(order(number))


def _bury(client: ServiceBusClient, queue: str, count: int) -> None:
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        for number, message in enumerate(receiver.receive_messages(max_message_count=count)):
            reason, description = REASONS[number % 7 % 3]
            receiver.dead_letter_message(message, reason=reason, error_description=description)


@contextlib.contextmanager
def traffic(primary: Side) -> Iterator[None]:
    """Somebody sends and somebody receives, so that charts have lines."""
    over = threading.Event()
    threads = [threading.Thread(target=act, args=(primary, over)) for act in (_keep_sending, _keep_receiving)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _keep_sending(primary: Side, over: threading.Event) -> None:
    with primary.client() as client, client.get_queue_sender("orders") as sender:
        number = 1000
        while not over.wait(0.03 + 0.03 * random.random()):
            number += 1
            with contextlib.suppress(ServiceBusError):
                sender.send_messages(order(number))


def _keep_receiving(primary: Side, over: threading.Event) -> None:
    with (
        primary.client() as client,
        client.get_queue_receiver("orders", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver,
    ):
        while not over.wait(0.12):
            with contextlib.suppress(ServiceBusError):
                receiver.receive_messages(max_message_count=2, max_wait_time=1)


def fail_over(primary: Side, secondary: Side) -> None:
    """Payments fail over and come back; shipments are still away. A syphon is bringing messages home."""
    with primary.client() as client, secondary.client() as backlog, secondary.administration() as administration:
        options = SendAvailabilityPairedNamespaceOptions(
            administration,
            backlog,
            backlog_queue_count=4,
            failover_interval=timedelta(seconds=2),
            ping_primary_interval=timedelta(seconds=1),
        )
        with pair_namespace(client, options, primary_name="contoso") as paired:
            for entity in ("payments", "shipments"):
                primary.command("fault", "add", f"entity/{entity}", "unavailable", "--id", f"{entity}-drill")
            for entity in ("payments", "shipments"):
                _send_to_the_backlog(paired, entity)
            primary.command("fault", "clear", "payments-drill")
            _wait(lambda: paired.entity_state("payments") is EntityState.HEALTHY)
            subprocess.run(
                [*SYPHON, "--primary", primary.connection_string, "--secondary", secondary.connection_string],
                stdout=subprocess.DEVNULL,
                check=False,
            )
            with paired.get_queue_sender("shipments") as sender:
                for number in range(30):
                    sender.send_messages(order(number))


def _send_to_the_backlog(paired: PairedServiceBusClient, entity: str) -> None:
    with paired.get_queue_sender(entity) as sender:
        sent = 0
        while sent < 60:
            with contextlib.suppress(ServiceBusError):
                sender.send_messages(order(sent))
                sent += 1


def _wait(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(PATIENCE_S * 10)):
        if condition():
            return
        pause.wait(0.1)
    raise TimeoutError("the pair did not come to this point")
