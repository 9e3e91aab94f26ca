"""What is measured. Each row is a small program against brokers that are already running.

Absolute figures do not travel between machines, and other work on the machine disturbs them: brokers take
turns, round by round, and the best of each counts.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from benchmarks.load_client import LoadClient, Target
from benchmarks.processes import accepts_connections, wait_until
from benchmarks.tandembus_node import BIG_QUEUE_MEGABYTES, Tandembus

TANDEMBUS = "tandembus"
INTERPRETED = "tandembus interpreted"
QUORUM = "RabbitMQ quorum"
CLASSIC = "RabbitMQ classic v2"
ONE_BROKER = "front end + 1 broker"
TWO_BROKERS = "front end + 2 brokers"
FOUR_BROKERS = "front end + 4 brokers"
PARTITIONED = "partitioned, 2 brokers"
BROKERS = {ONE_BROKER: 1, TWO_BROKERS: 2, FOUR_BROKERS: 4}

WARM_UP = 5_000
MESSAGES = 100_000
LATENCY_MESSAGES = 3_000
MANY = 8
HELD = 5_000
IDLE_CONNECTIONS = 2_000
BIG_MESSAGES = 10_000_000
BIG_SLICE = 200_000


@dataclass(frozen=True)
class Sizes:
    """How many messages a run moves; a quick run only shows that everything works."""

    rounds: int = 3
    messages: int = MESSAGES
    latency_messages: int = LATENCY_MESSAGES
    idle_connections: int = IDLE_CONNECTIONS
    big_messages: int = BIG_MESSAGES


@dataclass
class Figures:
    """Best value of each row and broker."""

    values: dict[str, dict[str, float]] = field(default_factory=dict)

    def rate(self, row: str, broker: str, value: float) -> None:
        known = self.values.setdefault(row, {})
        known[broker] = max(known.get(broker, 0.0), value)

    def cost(self, row: str, broker: str, value: float) -> None:
        """Less is better: times, memory."""
        known = self.values.setdefault(row, {})
        known[broker] = min(known.get(broker, float("inf")), value)

    def get(self, row: str, broker: str) -> float | None:
        return self.values.get(row, {}).get(broker)


def measure_throughput(client: LoadClient, target: Target, broker: str, sizes: Sizes, figures: Figures) -> None:
    """Send, then drain what was sent, then both at once; one sender, one receiver, window 500."""
    count = sizes.messages
    figures.rate("send", broker, client.run(target, mode="send", count=count).send_rate)
    figures.rate("drain", broker, client.run(target, mode="recv", count=count).receive_rate)
    figures.rate("send+receive", broker, client.run(target, mode="both", count=count).receive_rate)


def measure_many_clients(client: LoadClient, target: Target, broker: str, sizes: Sizes, figures: Figures) -> None:
    load = client.run(
        target,
        mode="both",
        senders=MANY,
        receivers=MANY,
        window=50,
        credit=50,
        count=sizes.messages // MANY,
    )
    figures.rate("8 senders + 8 receivers", broker, load.receive_rate)


def measure_latency(client: LoadClient, target: Target, broker: str, sizes: Sizes, figures: Figures) -> None:
    load = client.run(target, mode="send", window=1, count=sizes.latency_messages)
    figures.cost("latency p50", broker, load.p50_ms)
    figures.cost("latency p99", broker, load.p99_ms)
    client.run(target, mode="recv", count=sizes.latency_messages)


def measure_settle_order(client: LoadClient, target: Target, broker: str, sizes: Sizes, figures: Figures) -> None:
    """Receivers that keep 5,000 messages locked, and settle the oldest of them or any of them."""
    for order in ("in-order", "random"):
        client.run(target, mode="send", count=sizes.messages)
        load = client.run(target, mode="recv", count=sizes.messages, hold=HELD, settle_order=order)
        figures.rate(f"settle {order}", broker, load.receive_rate)


Measurement = Callable[[LoadClient, Target, str, Sizes, Figures], None]

SIDE_BY_SIDE: tuple[Measurement, ...] = (measure_throughput, measure_many_clients, measure_latency)


def run_rounds(
    client: LoadClient,
    targets: dict[str, Target],
    measurements: Iterable[Measurement],
    sizes: Sizes,
    figures: Figures,
    say: Callable[[str], None],
) -> None:
    """All measurements on all brokers, in turn, so that a disturbance does not meet one broker only."""
    steps = tuple(measurements)
    for target in targets.values():
        client.run(target, mode="both", count=WARM_UP, verify=1)
    for number in range(1, sizes.rounds + 1):
        for broker, target in targets.items():
            say(f"round {number} of {sizes.rounds}: {broker}")
            for measure in steps:
                measure(client, target, broker, sizes, figures)


def measure_idle_connections(client: LoadClient, node: Tandembus, queue: str, sizes: Sizes, figures: Figures) -> None:
    """Memory by which a fresh process grows per idle connection, each with a session and a link."""
    node.stop()
    node.start()
    before = node.anonymous_memory_bytes()
    holder = client.hold_connections(node.target(queue), sizes.idle_connections)
    grown = node.anonymous_memory_bytes() - before
    client.release(holder)
    figures.cost("memory per idle connection", TANDEMBUS, grown / sizes.idle_connections / 1024)


def measure_big_queue(
    client: LoadClient, node: Tandembus, sizes: Sizes, figures: Figures, say: Callable[[str], None]
) -> None:
    """A queue larger than memory should hold: its memory, its speed against an empty one, its restart."""
    for name in ("empty", "big"):
        node.create_queue(name, BIG_QUEUE_MEGABYTES)
    big, empty = node.target("big"), node.target("empty")
    say(f"filling a queue with {sizes.big_messages:,} messages")
    for _ in range(sizes.big_messages // BIG_SLICE):
        client.run(big, mode="send", count=BIG_SLICE)
    say("send+receive on the full and on an empty queue, in turn")
    for _ in range(sizes.rounds):
        for row, target in (("send+receive, full queue", big), ("send+receive, empty queue", empty)):
            load = client.run(target, mode="both", count=sizes.messages)
            figures.rate(row, TANDEMBUS, load.receive_rate)
    figures.cost("memory with a full queue", TANDEMBUS, node.anonymous_memory_bytes() / 1e6)
    say("restart with the full queue")
    node.kill()
    figures.cost("restart with a full queue until the first accept", TANDEMBUS, _restart(client, node, big))


def _restart(client: LoadClient, node: Tandembus, target: Target) -> float:
    began_at = time.monotonic()
    node.start()
    wait_until(lambda: accepts_connections(target.port), "tandembus", timeout_s=60.0)
    client.run(target, mode="send", count=1)
    return time.monotonic() - began_at
