"""Rows of a front end with message brokers as processes of their own, and of partitioned queues over them."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.fragments import spread_of
from benchmarks.load_client import LoadClient, Target
from benchmarks.rows import BROKERS, MANY, ONE_BROKER, PARTITIONED, TANDEMBUS, TWO_BROKERS, WARM_UP, Figures, Sizes
from benchmarks.tandembus_node import Tandembus

Say = Callable[[str], None]

SLOW_MS = 5
SLOW_BATCH = 64
"""Operations in one commit of the slow stores: they are to be the limit, not the processors."""
EVEN_MESSAGES = 1_600
CPU_ROW = "processor time per message"
HOP_ROW = "a hop between front end and broker, per message"
OVER_TWO_ROW = "send+receive, same namespace"
MANY_OVER_TWO_ROW = "8 senders + 8 receivers, same namespace"
SLOW_ROW = f"send+receive, 8 and 8, every store {SLOW_MS} ms slower"
EVEN_ROW = "round robin of one sender: most minus least in 16 fragments"


def topologies(folder: Path) -> dict[str, Tandembus]:
    """One node for each number of brokers."""
    return {
        name: Tandembus(folder / f"brokers-{count}", options=("--brokers", str(count)))
        for name, count in BROKERS.items()
    }


def measure_hop(client: LoadClient, nodes: dict[str, Tandembus], queue: str, sizes: Sizes, figures: Figures) -> None:
    """Processor time of all processes of a namespace per message sent, received and completed, with one process and
    with a broker of its own; the difference is what the way between the two costs."""
    for _ in range(sizes.rounds):
        for name in (TANDEMBUS, ONE_BROKER):
            node = nodes[name]
            before = node.processor_s()
            client.run(node.target(queue), mode="both", count=sizes.messages)
            figures.cost(CPU_ROW, name, (node.processor_s() - before) / sizes.messages * 1e6)
    alone, hop = figures.get(CPU_ROW, TANDEMBUS), figures.get(CPU_ROW, ONE_BROKER)
    if alone is not None and hop is not None:
        figures.cost(HOP_ROW, TANDEMBUS, hop - alone)


def measure_partitioned(client: LoadClient, node: Tandembus, sizes: Sizes, figures: Figures, say: Say) -> None:
    """A partitioned queue against a conventional one of the same namespace, in turn."""
    node.create("queue", "conventional")
    node.create("queue", "partitioned", "--enable-partitioning")
    targets = {TWO_BROKERS: node.target("conventional"), PARTITIONED: node.target("partitioned")}
    _warm_up(client, targets)
    for number in range(1, sizes.rounds + 1):
        say(f"round {number} of {sizes.rounds}: partitioned and conventional over 2 brokers")
        for name, target in targets.items():
            for row, options in _LOADS.items():
                load = client.run(target, mode="both", **options(sizes))
                figures.rate(row, name, load.receive_rate)
    figures.cost(EVEN_ROW, PARTITIONED, float(spread_of(client, node, EVEN_MESSAGES)))


def measure_slow_stores(client: LoadClient, node: Tandembus, sizes: Sizes, figures: Figures, say: Say) -> None:
    """The same where the stores are the limit: one store of two takes twice as long as both together."""
    node.create("queue", "conventional")
    node.create("queue", "partitioned", "--enable-partitioning")
    for store in range(2):
        node.run("fault", "add", f"store/{store}", "slow", "--latency", f"{SLOW_MS}ms")
    targets = {TWO_BROKERS: node.target("conventional"), PARTITIONED: node.target("partitioned")}
    count = max(sizes.messages // 10 // MANY, 100)
    for number in range(1, sizes.rounds + 1):
        say(f"round {number} of {sizes.rounds}: the same with slow stores")
        for name, target in targets.items():
            load = client.run(target, mode="both", senders=MANY, receivers=MANY, window=500, credit=500, count=count)
            figures.rate(SLOW_ROW, name, load.receive_rate)


def slow_node(folder: Path) -> Tandembus:
    return Tandembus(folder / "slow", options=("--brokers", "2"), limits={"commit_operations": SLOW_BATCH})


def _one_and_one(sizes: Sizes) -> dict[str, int]:
    return {"count": sizes.messages}


def _eight_and_eight(sizes: Sizes) -> dict[str, int]:
    return {"senders": MANY, "receivers": MANY, "window": 50, "credit": 50, "count": sizes.messages // MANY}


_LOADS = {OVER_TWO_ROW: _one_and_one, MANY_OVER_TWO_ROW: _eight_and_eight}


def _warm_up(client: LoadClient, targets: dict[str, Target]) -> None:
    for target in targets.values():
        client.run(target, mode="both", count=WARM_UP, verify=1)
