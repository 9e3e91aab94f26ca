"""The result as a table for people and as JSON for programs, with everything needed to repeat it."""

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.broker_rows import CPU_ROW, EVEN_ROW, HOP_ROW, OVER_TWO_ROW, SLOW_ROW
from benchmarks.filters import MANY_SQL_FILTERS, ONE_SQL_FILTER
from benchmarks.paired_send import PAIRED_ROW, TARGET_PERCENT
from benchmarks.rows import BROKERS, CLASSIC, INTERPRETED, PARTITIONED, QUORUM, TANDEMBUS, TWO_BROKERS, Figures, Sizes
from benchmarks.syphon_rows import BEHIND_MEMORY_ROW, BEHIND_ROW, GROWTH_ROW, SDK_LOOP_ROW, SYPHON_ROW

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
INTRODUCTION = """\
Durable messages of 1 KiB over authenticated AMQP 1.0 on loopback; brokers in turn, best of {rounds}.
One sender and one receiver with a window of 500, unless the row says otherwise; eight of each have a window
of 50. Latency is from send to accept, with a window of 1. A full queue holds {big:,} messages.
Absolute figures belong to this machine; ratios of one run travel better.
"""


@dataclass(frozen=True)
class RatioTarget:
    """One row of the table: a figure of ours against another one of the same run."""

    row: str
    unit: str
    limit: float
    is_at_most: bool = False
    ours: str = TANDEMBUS
    other: str = QUORUM
    other_row: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class FixedTarget:
    """One row of the table: a figure of ours against a fixed limit."""

    row: str
    unit: str
    limit: float
    ours: str = TANDEMBUS
    is_at_least: bool = False


RATIOS = (
    RatioTarget("send", "messages/s", 3.0),
    RatioTarget("drain", "messages/s", 3.0),
    RatioTarget("send+receive", "messages/s", 4.0),
    RatioTarget("8 senders + 8 receivers", "messages/s", 3.0),
    RatioTarget("latency p50", "ms", 1.0, is_at_most=True),
    RatioTarget("latency p99", "ms", 1.0, is_at_most=True),
    RatioTarget(
        "settle random",
        "messages/s",
        0.7,
        other=TANDEMBUS,
        other_row="settle in-order",
        name="settle at random within 5,000 locked, against in order",
    ),
    RatioTarget(
        "topic deliveries",
        "messages/s",
        0.6,
        other=TANDEMBUS,
        other_row="drain a new queue",
        name="deliveries of a topic with 10 subscriptions, against a queue's drain",
    ),
    RatioTarget(
        "drain sessions by 8 receivers",
        "messages/s",
        0.5,
        other=TANDEMBUS,
        other_row="drain by 8 receivers",
        name="10,000 sessions of 10 messages drained by 8 receivers, against a plain queue",
    ),
    RatioTarget(
        "send with duplicate detection",
        "messages/s",
        0.7,
        other=TANDEMBUS,
        other_row="send to a new queue",
        name="send with duplicate detection on, against off",
    ),
    RatioTarget(
        "send+receive, full queue",
        "messages/s",
        0.8,
        other=TANDEMBUS,
        other_row="send+receive, empty queue",
        name="send+receive, full queue, against an empty one",
    ),
    RatioTarget(
        SYPHON_ROW,
        "messages/s",
        5.0,
        other=TANDEMBUS,
        other_row=SDK_LOOP_ROW,
        name="syphon, against the same loop with the plain SDK",
    ),
    *(
        RatioTarget(row, "messages/s", 1.0, ours=INTERPRETED, other=CLASSIC, name=f"{row}, interpreted")
        for row in ("send", "drain", "send+receive")
    ),
    *(
        RatioTarget(row, "messages/s", 2.0, ours=TWO_BROKERS, name=f"{row}, front end + 2 brokers")
        for row in ("send", "drain", "send+receive")
    ),
    RatioTarget(
        OVER_TWO_ROW,
        "messages/s",
        1.0,
        ours=PARTITIONED,
        other=TWO_BROKERS,
        name="send+receive, partitioned against conventional, 2 brokers",
    ),
    RatioTarget(
        SLOW_ROW,
        "messages/s",
        1.6,
        ours=PARTITIONED,
        other=TWO_BROKERS,
        name=f"{SLOW_ROW}, partitioned against conventional",
    ),
)
FIXED = (
    FixedTarget(EVEN_ROW, "messages", 1.0, PARTITIONED),
    *(FixedTarget(f"filter: {row}", "us", 5.0) for row in (ONE_SQL_FILTER, MANY_SQL_FILTERS)),
    FixedTarget(SYPHON_ROW, "messages/s", 20_000.0, is_at_least=True),
    FixedTarget(GROWTH_ROW, "MB", 20.0),
    FixedTarget(BEHIND_ROW, "s", 10.0),
    FixedTarget(BEHIND_MEMORY_ROW, "MB", 64.0),
    FixedTarget(PAIRED_ROW, "%", TARGET_PERCENT),
    FixedTarget("start until ready", "s", 2.0),
    FixedTarget("memory per idle connection", "KiB", 40.0),
    FixedTarget("memory with a full queue", "MB", 300.0),
    FixedTarget("restart with a full queue until the first accept", "s", 2.0),
)


def shown(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "messages/s":
        return f"{value:,.0f}"
    if unit == "messages":
        return f"{value:.0f}"
    return f"{value:.2f} {unit}" if unit != "ms" else f"{value:.3f} ms"


def ratio_line(target: RatioTarget, figures: Figures) -> str | None:
    ours = figures.get(target.row, target.ours)
    other = figures.get(target.other_row or target.row, target.other)
    if ours is None or not other:
        return None
    ratio = ours / other
    is_met = ratio <= target.limit if target.is_at_most else ratio >= target.limit
    sign = "≤" if target.is_at_most else "≥"
    against = f"{shown(other, target.unit)} ({target.other})"
    name = target.name or target.row
    verdict = "yes" if is_met else "no"
    cells = (name, shown(ours, target.unit), against, f"{ratio:.2f}", f"{sign} {target.limit}", verdict)
    return f"| {' | '.join(cells)} |"


def fixed_line(target: FixedTarget, figures: Figures) -> str | None:
    ours = figures.get(target.row, target.ours)
    if ours is None:
        return None
    is_met = ours >= target.limit if target.is_at_least else ours <= target.limit
    verdict = "yes" if is_met else "no"
    limit = f"{'≥' if target.is_at_least else '≤'} {target.limit:g} {target.unit}"
    return f"| {target.row} | {shown(ours, target.unit)} | | | {limit} | {verdict} |"


def targets_table(figures: Figures) -> str:
    head = "| what | tandembus | against | ratio | target | met |\n|---|---|---|---|---|---|\n"
    lines = [ratio_line(target, figures) for target in RATIOS] + [fixed_line(target, figures) for target in FIXED]
    return head + "".join(f"{line}\n" for line in lines if line is not None)


def figures_table(figures: Figures) -> str:
    columns = [TANDEMBUS, QUORUM, CLASSIC, INTERPRETED, *BROKERS, PARTITIONED]
    brokers = [one for one in columns if any(one in known for known in figures.values.values())]
    units = {target.row: target.unit for target in RATIOS} | {target.row: target.unit for target in FIXED}
    units |= {CPU_ROW: "us", HOP_ROW: "us"}
    lines = [f"| what | {' | '.join(brokers)} |", "|---" * (len(brokers) + 1) + "|"]
    for row in figures.values:
        unit = units.get(row, "us" if row.startswith("filter: ") else "messages/s")
        cells = [shown(figures.get(row, broker), unit) for broker in brokers]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def describe_machine() -> dict[str, str]:
    memory_kib = next(
        int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal:")
    )
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": models[0].partition(":")[2].strip() if models else platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory_kib / 2**20:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unversioned"


@dataclass(frozen=True)
class Result:
    """All of one run."""

    figures: Figures
    versions: dict[str, str]
    commands: list[str]
    arguments: str
    sizes: Sizes

    def write(self) -> Path:
        """Leaves the table and the figures in `results/`; returns the table's path."""
        RESULTS.mkdir(exist_ok=True)
        name = f"{datetime.now(UTC):%Y-%m-%d}-{commit()}"
        (RESULTS / f"{name}.json").write_text(json.dumps(self._as_json(), indent=2) + "\n")
        path = RESULTS / f"{name}.md"
        path.write_text(self.as_text())
        return path

    def as_text(self) -> str:
        machine = "".join(f"- {name}: {value}\n" for name, value in describe_machine().items())
        versions = "".join(f"- {name} {value}\n" for name, value in self.versions.items())
        introduction = INTRODUCTION.format(rounds=self.sizes.rounds, big=self.sizes.big_messages)
        return (
            f"# tandembus and RabbitMQ side by side\n\n{introduction}\n"
            f"    make bench{f' BENCH_ARGS={self.arguments!r}' if self.arguments else ''}\n\n"
            f"## Targets\n\n{targets_table(self.figures)}\n"
            f"## Figures\n\n{figures_table(self.figures)}\n"
            f"## Machine\n\n{machine}{versions}\n"
            "## Commands\n\n" + "".join(f"    {command}\n" for command in self.commands)
        )

    def _as_json(self) -> dict[str, object]:
        return {
            "commit": commit(),
            "machine": describe_machine(),
            "versions": self.versions,
            "sizes": asdict(self.sizes),
            "figures": self.figures.values,
            "commands": self.commands,
        }
