"""`make bench`: measures tandembus side by side with RabbitMQ; the table goes to `benchmarks/results/`."""

import argparse
import resource
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.broker_rows import measure_hop, measure_partitioned, measure_slow_stores, slow_node, topologies
from benchmarks.entity_rows import measure_entities
from benchmarks.filters import measure_in_process
from benchmarks.load_client import LoadClient
from benchmarks.paired_send import measure_paired_send
from benchmarks.rabbitmq import RabbitMq, find_installation
from benchmarks.report import Result
from benchmarks.rows import (
    BROKERS,
    CLASSIC,
    INTERPRETED,
    QUORUM,
    SIDE_BY_SIDE,
    TANDEMBUS,
    TWO_BROKERS,
    Figures,
    Sizes,
    measure_big_queue,
    measure_idle_connections,
    measure_settle_order,
    run_rounds,
)
from benchmarks.syphon_rows import measure_syphon
from benchmarks.tandembus_node import Tandembus
from tandembus import __version__, build

QUEUE = "bench"
QUICK = Sizes(rounds=1, messages=10_000, latency_messages=300, idle_connections=100, big_messages=400_000)
DISK_FOR_BIG_BYTES = 40 * 10**9


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def raise_file_limit() -> None:
    """Thousands of connections need as many descriptors; what we start inherits the limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench BENCH_ARGS=...", description=__doc__)
    parser.add_argument("--big", action="store_true", help="add the queue of 10 million messages (minutes, 40 GB)")
    parser.add_argument("--quick", action="store_true", help="few messages, once: shows that it works, not how fast")
    parser.add_argument("--no-rabbitmq", action="store_true", help="measure tandembus alone")
    parser.add_argument("--no-interpreted", action="store_true", help="leave out the interpreted build")
    parser.add_argument("--folder", type=Path, help="where the brokers keep their data (default: a temporary folder)")
    return parser.parse_args()


class Bench:
    """One run: starts the brokers it needs, measures, and stops them whatever happens."""

    def __init__(self, arguments: argparse.Namespace, folder: Path, stack: ExitStack) -> None:
        self._arguments = arguments
        self._folder = folder
        self._stack = stack
        self._client = LoadClient.build(folder)
        self.sizes = QUICK if arguments.quick else Sizes()
        self.figures = Figures()
        self.versions = {"tandembus": f"{__version__} ({build.describe()})"}

    def run(self) -> None:
        node = self._start_tandembus(TANDEMBUS)
        targets = {TANDEMBUS: node.target(QUEUE)}
        rabbit = self._start_rabbitmq()
        if rabbit is not None:
            targets |= {QUORUM: rabbit.target("quorum"), CLASSIC: rabbit.target("classic")}
        if not self._arguments.no_interpreted:
            targets[INTERPRETED] = self._start_tandembus(INTERPRETED).target(QUEUE)
        nodes = {TANDEMBUS: node}
        for name, started in topologies(self._folder).items():
            nodes[name] = self._start(name, started)
            targets[name] = started.target(QUEUE)
        run_rounds(self._client, targets, SIDE_BY_SIDE, self.sizes, self.figures, say)
        say("front end and brokers")
        measure_hop(self._client, nodes, QUEUE, self.sizes, self.figures)
        measure_partitioned(self._client, nodes[TWO_BROKERS], self.sizes, self.figures, say)
        slow = self._start("slow", slow_node(self._folder))
        measure_slow_stores(self._client, slow, self.sizes, self.figures, say)
        for one in (*BROKERS, "slow"):
            nodes.get(one, slow).stop()
        run_rounds(
            self._client,
            {TANDEMBUS: node.target(QUEUE)},
            [measure_settle_order],
            self.sizes,
            self.figures,
            say,
        )
        measure_entities(self._client, node, self.sizes, self.figures, say)
        secondary = self._start("secondary", Tandembus(self._folder / "secondary"))
        measure_syphon(node, secondary, self.sizes, self.figures, say)
        say("a send through a pair")
        measure_paired_send(node, secondary, self.sizes, self.figures)
        secondary.stop()
        self._measure_filters()
        measure_idle_connections(self._client, node, QUEUE, self.sizes, self.figures)
        if self._arguments.big:
            measure_big_queue(self._client, node, self.sizes, self.figures, say)

    def _measure_filters(self) -> None:
        say("filters")
        names = [TANDEMBUS] if self._arguments.no_interpreted else [TANDEMBUS, INTERPRETED]
        for name in names:
            for row, microseconds in measure_in_process(is_interpreted=name == INTERPRETED).items():
                self.figures.cost(f"filter: {row}", name, microseconds)

    def result(self) -> Result:
        arguments = " ".join(argument for argument in sys.argv[1:] if not argument.startswith("--folder"))
        return Result(self.figures, self.versions, self._client.commands, arguments, self.sizes)

    def _start_tandembus(self, name: str) -> Tandembus:
        folder = self._folder / name.replace(" ", "-")
        return self._start(name, Tandembus(folder, is_interpreted=name == INTERPRETED))

    def _start(self, name: str, node: Tandembus) -> Tandembus:
        self._stack.callback(node.stop)
        self.figures.cost("start until ready", name, node.start())
        node.create_queue(QUEUE)
        # The first start made keys and certificates; from now on an installation has them.
        node.stop()
        self.figures.cost("start until ready", name, node.start())
        return node

    def _start_rabbitmq(self) -> RabbitMq | None:
        scripts = find_installation()
        if self._arguments.no_rabbitmq or scripts is None:
            say("RabbitMQ is left out" + ("" if scripts else ": Debian's rabbitmq-server is not installed"))
            return None
        rabbit = RabbitMq(scripts, self._folder / "rabbitmq")
        self._stack.callback(rabbit.stop)
        say(f"starting RabbitMQ {rabbit.version}")
        self.figures.cost("start until ready", QUORUM, rabbit.start())
        self.versions["RabbitMQ"] = f"{rabbit.version} (Debian's package, AMQP 1.0 plugin)"
        return rabbit


def main() -> None:
    arguments = parse_arguments()
    if shutil.which("gcc") is None:
        sys.exit("the load client is written in C: gcc is needed")
    raise_file_limit()
    began_at = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="tandembus-bench-", dir=arguments.folder) as name,
        ExitStack() as stack,
    ):
        folder = Path(name)
        if arguments.big and shutil.disk_usage(folder).free < DISK_FOR_BIG_BYTES:
            sys.exit(f"--big needs {DISK_FOR_BIG_BYTES / 1e9:.0f} GB of free disk for {folder}")
        bench = Bench(arguments, folder, stack)
        bench.run()
    result = bench.result()
    print(result.as_text())
    if not arguments.quick:
        say(f"written to {result.write()}")
    say(f"took {time.monotonic() - began_at:.0f} s")


if __name__ == "__main__":
    main()
