"""The report job: an HTML file with the usage, the cost of a failover, its course, and whether all messages arrived.

`report.html.j2` is the page. Entity names are chosen by anybody who may create entities: Jinja2 escapes every text.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tandembus.errors import InvalidArgument
from tandembus.metering.bills import Bill, Group, PriceBook, largest_first
from tandembus.metering.failover_costs import failover_bill
from tandembus.metering.money import money
from tandembus.metering.price_files import load_prices
from tandembus.metering.slot import COMPLETE, DEAD_LETTER, FAILOVER, LONGPOLL, NORMAL, PING, SEND, SYPHON
from tandembus.spark.errors import SparkUnavailable
from tandembus.spark.jobs.files import write_whole
from tandembus.spark.jobs.usage_result import Kept, UsageResult, read_kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TITLE: Final = "Usage and failover report"
TOP_ENTITIES: Final = 12
DAYS: Final = 31
COLOURS: Final = {NORMAL: 1, FAILOVER: 2, SYPHON: 3, PING: 5, LONGPOLL: 6}
"""Of the reasons for traffic, among the colours of `report.css`."""
OUTCOMES: Final = ("settled", "pending", "dead_lettered", "expired", "lost", "unjudged")
"""The possible ends of an accepted message."""
FIGURES: Final = ("accepted", *OUTCOMES, "phantom", "duplicate", "late", "reordered", "unknown_outcome")
VERDICTS: Final = ("well", "failed", "incomplete")
LACKS: Final = {
    "missing_records": "places where audit records are missing",
    "damaged_file": "audit files with lines that could not be read",
    "unreached": "places that could not be browsed",
}
"""Exceptions that keep a reconciliation from being a proof."""
OUTCOME_COLOURS: Final = dict(zip(OUTCOMES, (3, 6, 2, 5, 4, 7), strict=True))
DIVERTED: Final = {(SEND, FAILOVER)}
SETTLED: Final = {(COMPLETE, SYPHON), (DEAD_LETTER, SYPHON)}
"""Operations that make a backlog queue shorter."""
WIDTH, HEIGHT, LEFT, RIGHT, TOP = 1100, 274, 80, 36, 30
BOTTOM: Final = HEIGHT - 54
"""The height of a chart's axis."""
GEOMETRY: Final = {"WIDTH": WIDTH, "HEIGHT": HEIGHT, "LEFT": LEFT, "RIGHT": RIGHT, "TOP": TOP, "BOTTOM": BOTTOM}
TABLE_STEPS: Final = 24
TICKS: Final = 10
TICKS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)
DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """`paths`: metering files, as for the usage job; or `usage`: the result that the job kept, for which Spark is not
    needed. Its prices and other operations then count unless others are given here."""

    output: Path
    paths: tuple[str, ...] = ()
    usage: Path | None = None
    reconciliation: Path | None = None
    book: PriceBook | None = None
    others: int | None = None
    title: str = TITLE

    def __post_init__(self) -> None:
        if bool(self.paths) == (self.usage is not None):
            raise InvalidArgument(
                "a report is made of metering files, or of the result of a usage job: give one of them"
            )


def run_report(spark: SparkSession | None, options: ReportOptions) -> Path:
    """Returns the path of the page."""
    reconciliation = None if options.reconciliation is None else read_reconciliation(options.reconciliation)
    kept = _usage(spark, options)
    book = options.book or kept.book or PriceBook([load_prices()])
    bill = kept.result.bill(book, kept.others if options.others is None else options.others)
    write_whole(options.output, render_report(kept.result, bill, reconciliation, options.title))
    return options.output.resolve()


def _usage(spark: SparkSession | None, options: ReportOptions) -> Kept:
    if options.usage is not None:
        return read_kept(options.usage)
    if spark is None:
        raise InvalidArgument("metering files are read by Spark: give a session")
    from tandembus.spark.jobs.usage import UsageOptions, run_usage

    return Kept(run_usage(spark, UsageOptions(options.paths)))


def render_report(result: UsageResult, bill: Bill, reconciliation: Reconciliation | None, title: str) -> str:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError:
        raise SparkUnavailable("a report needs Jinja2: `pip install 'tandembus[spark]'` installs it") from None
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        n="{:,}".format, counted=counted, words=words, plain=plain, size=size, money=money, moment=moment, bar=bar
    )
    failover = failover_bill(bill)
    page: str = environment.get_template("report.html.j2").render(
        title=title,
        result=result,
        bill=bill,
        failover=failover,
        use=failover.use,
        entities=_entities(bill),
        operations=_operations(bill),
        days=[(*group.key, group) for group in bill.by("day")],
        DAYS=DAYS,
        COLOURS=COLOURS,
        times=timeline(result),
        levels=levels,
        found=reconciliation,
        FIGURES=FIGURES,
        OUTCOME_COLOURS=OUTCOME_COLOURS,
        **GEOMETRY,
    )
    return page


def _entities(bill: Bill) -> list[tuple[str, Group]]:
    chosen, rest = largest_first(bill.by("namespace", "entity"), TOP_ENTITIES)
    several = len({line.used.namespace for line in bill.lines}) > 1
    rows = [(_named(*group.key, several=several), group) for group in chosen]
    return rows if rest is None else [*rows, (rest.key[0], rest)]


def _named(namespace: str, entity: str, *, several: bool) -> str:
    name = entity or "(the namespace itself)"
    return f"{namespace}: {name}" if several else name


def _operations(bill: Bill) -> list[tuple[str, str, Group]]:
    groups = bill.by("operation", "reason")
    ordered, _ = largest_first(groups, len(groups))
    return [(words(group.key[0]), group.key[1], group) for group in ordered]


def bar(parts: Mapping[str, int], largest: int, names: Iterable[str]) -> Iterator[tuple[str, int, float]]:
    """The parts of a bar that are not empty: name, figure, and share of the longest bar in per cent."""
    return ((name, parts[name], 100 * parts[name] / largest) for name in names if parts.get(name, 0) > 0)


# What happened over time, and where a chart of it has its marks.


@dataclass(frozen=True, slots=True)
class Timeline:
    """Messages in each step of time."""

    start: int
    step_s: int
    sent: Sequence[int]
    diverted: Sequence[int]
    home: Sequence[int]
    pings: Sequence[int]
    depth: Sequence[int]
    """In the backlog at the end of each step."""
    held: int
    """In the backlog before the first step."""

    @property
    def has_failover(self) -> bool:
        return any(self.diverted) or any(self.home) or any(self.depth)

    @property
    def home_so_far(self) -> list[int]:
        return list(accumulate(self.home))

    @property
    def diverted_so_far(self) -> list[int]:
        return [self.held + each for each in accumulate(self.diverted)]

    @property
    def step(self) -> str:
        """For headings."""
        units = ((DAY_S, "d"), (3600, "h"), (60, "min"), (1, "s"))
        length, unit = next(each for each in units if self.step_s % each[0] == 0)
        return "per second" if self.step_s == 1 else f"in each {self.step_s // length} {unit}"

    @property
    def end(self) -> int:
        return self.start + self.step_s * len(self.sent)

    def second(self, place: int) -> int:
        return self.start + place * self.step_s

    def x(self, second: float) -> float:
        share = (min(max(second, self.start), self.end) - self.start) / (self.end - self.start)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Round moments on the axis, and no more than fit."""
        span_s = self.end - self.start
        days_s = -(-span_s // (DAY_S * TICKS)) * DAY_S
        step_s = next((each for each in TICKS_S if span_s <= each * TICKS), days_s)
        form = "%b %d" if span_s > 2 * DAY_S else "%H:%M" if span_s >= 1800 else "%H:%M:%S"
        for second in range(-(-self.start // step_s) * step_s, self.end + 1, step_s):
            yield self.x(second), moment(second, form)

    def columns(self, *series: Sequence[int]) -> Iterator[tuple[int, int, int, str]]:
        """The parts of each column from below: step, series, figure, and the attributes of a rectangle."""
        highest = levels(*series)[-1]
        for place, values in enumerate(zip(*series, strict=True)):
            left, width = self.x(self.second(place)), self.x(self.second(place + 1)) - self.x(self.second(place))
            below = 0
            for number, value in enumerate(values):
                if value:
                    below += value
                    top, height = BOTTOM - below / highest * (BOTTOM - TOP), value / highest * (BOTTOM - TOP)
                    where = f'x="{left}" y="{top:.1f}" width="{width * 0.9:.1f}" height="{max(height, 0.5):.1f}"'
                    yield place, number, value, where

    def rows(self, *series: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
        """Rows of a table: the steps in which a figure changes, thinned out to at most `TABLE_STEPS`."""
        found: list[tuple[int, tuple[int, ...]]] = []
        for place, values in enumerate(zip(*series, strict=True)):
            if not found or values != found[-1][1]:
                found.append((self.second(place), values))
        return found[:: max(-(-len(found) // TABLE_STEPS), 1)]


def timeline(result: UsageResult) -> Timeline | None:
    """None if nothing was counted."""
    if result.period is None:
        return None
    step_s = result.step_s
    start = result.period[0] - result.period[0] % step_s
    count = (result.period[1] - start) // step_s + 1

    def messages(kinds: Collection[tuple[str, str]]) -> list[int]:
        values = [0] * count
        for point in result.points:
            if (point.operation, point.reason) in kinds:
                values[(point.second - start) // step_s] += point.messages
        return values

    diverted, settled = messages(DIVERTED), messages(SETTLED)
    changes = [came - went for came, went in zip(diverted, settled, strict=True)]
    # Where more leaves the backlog than came, it held something before the first record.
    held = max(_earlier(result, DIVERTED) - _earlier(result, SETTLED), -min(accumulate(changes)), 0)
    return Timeline(
        start=start,
        step_s=step_s,
        sent=messages({(SEND, NORMAL)}),
        diverted=diverted,
        home=messages({(SEND, SYPHON)}),
        pings=messages({(SEND, PING)}),
        depth=list(accumulate(changes, initial=held))[1:],
        held=held,
    )


def _earlier(result: UsageResult, kinds: Collection[tuple[str, str]]) -> int:
    return sum([each.messages for each in result.earlier if (each.operation, each.reason) in kinds])


def levels(*series: Iterable[int]) -> list[int]:
    """Round figures for the axis of stacked columns, from 0 to at least the highest."""
    largest = max(map(sum, zip(*series, strict=True)), default=0)
    if largest <= 4:
        return list(range(max(largest, 1) + 1))
    power = 10 ** math.floor(math.log10(largest / 4))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= largest / 4)
    return list(range(0, -(-largest // step) * step + 1, step))


def moment(second: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return datetime.fromtimestamp(second, UTC).strftime(form)


# A reconciliation's result, read from its JSON.


@dataclass(frozen=True, slots=True)
class Reconciled:
    namespace: str
    entity: str
    figures: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    verdict: str
    """As the job came to it: its options decide what counts as a failure."""
    entities: tuple[Reconciled, ...]
    exceptions: tuple[Mapping[str, object], ...]
    cut_off: str
    exception_count: int = 0
    """The number of all exceptions; `exceptions` may hold only the first."""
    skipped_lines: int = 0
    skipped_sends: int = 0

    @property
    def worst_first(self) -> list[Reconciled]:
        return sorted(
            self.entities,
            key=lambda each: (
                -each.figures["lost"] - each.figures["phantom"],
                -each.figures["accepted"],
                each.namespace,
                each.entity,
            ),
        )

    @property
    def lacks(self) -> list[str]:
        """Reasons why it is no proof."""
        kinds = Counter([str(each.get("kind")) for each in self.exceptions if "message_id" not in each])
        texts = [f"{LACKS.get(kind, kind)}: {count:,}" for kind, count in kinds.items()]
        unjudged = self.totals["unjudged"]
        return [f"messages that could not be judged: {unjudged:,}", *texts] if unjudged else texts

    @property
    def totals(self) -> Mapping[str, int]:
        return {name: sum([each.figures[name] for each in self.entities]) for name in FIGURES}


def read_reconciliation(path: Path) -> Reconciliation:
    """Raises `InvalidArgument` for a file that is none."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidArgument(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{path}: no JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("entities"), list):
        raise InvalidArgument(f"{path}: no result of `tandembus spark reconcile --json`")
    verdict = document.get("verdict")
    if verdict not in VERDICTS:
        raise InvalidArgument(
            f"{path}: has no verdict ({', '.join(VERDICTS)}): make it again with `tandembus spark reconcile --json`"
        )
    listed = document.get("exceptions")
    exceptions = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    return Reconciliation(
        verdict,
        tuple([_entity(path, row) for row in document["entities"]]),
        tuple(exceptions),
        str(document.get("cut_off") or ""),
        _count(path, "exception_count", document.get("exception_count", len(exceptions))),
        _count(path, "skipped_lines", document.get("skipped_lines", 0)),
        _count(path, "skipped_sends", document.get("skipped_sends", 0)),
    )


def _entity(path: Path, row: object) -> Reconciled:
    if not isinstance(row, dict):
        raise InvalidArgument(f"{path}: entities are expected to be objects, with a figure for each outcome")
    whose = f"of {row.get('entity')!r}"
    figures = {name: _count(path, f"{name} {whose}", row.get(name, 0)) for name in FIGURES}
    return Reconciled(str(row.get("namespace") or ""), str(row.get("entity")), figures)


def _count(path: Path, what: str, value: object) -> int:
    if type(value) is not int or value < 0:
        raise InvalidArgument(f"{path}: {what} is no count")
    return value


# Figures and text for people.


def visible(value: Any) -> Any:
    """Writes out control characters and those that change the direction of text; markup passes as it is."""
    if type(value) is not str:
        return value
    return "".join([f"\\u{ord(each):04x}" if unicodedata.category(each)[0] == "C" else each for each in value])


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def words(name: str) -> str:
    return name.replace("_", " ")


def plain(value: object) -> str:
    """Any value of an exception, as one line."""
    if isinstance(value, Mapping):
        texts = {words(str(name)): plain(each) for name, each in value.items()}
        return ", ".join([f"{name} {text}" for name, text in texts.items() if text])
    if isinstance(value, list):
        return "; ".join([plain(each) for each in value])
    return "" if value is None else str(value)


def size(count: int) -> str:
    for step, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= step:
            return f"{count / step:,.1f} {unit}"
    return f"{count:,} B"
