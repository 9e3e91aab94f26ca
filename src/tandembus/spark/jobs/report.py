"""The report job: what was used, what a failover cost, what happened when and whether all arrived, as an HTML file.

`report.html.j2` is the page. Names of entities are chosen by whoever may create them: Jinja2 escapes every text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tandembus.errors import InvalidArgument
from tandembus.metering.bills import Bill, Group, PriceBook, largest_first
from tandembus.metering.failover_costs import failover_bill
from tandembus.metering.money import money
from tandembus.metering.price_files import load_prices
from tandembus.metering.slot import FAILOVER, LONGPOLL, NORMAL, PING, SYPHON
from tandembus.spark.errors import SparkUnavailable
from tandembus.spark.jobs.local_files import write_whole
from tandembus.spark.jobs.report_reconciliation import FIGURES, OUTCOMES, Reconciliation, read_reconciliation
from tandembus.spark.jobs.report_timeline import GEOMETRY, levels, moment, timeline
from tandembus.spark.jobs.usage_result import Kept, UsageResult, read_kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TITLE: Final = "Usage and failover report"
TOP_ENTITIES: Final = 12
DAYS: Final = 31
COLOURS: Final = {NORMAL: 1, FAILOVER: 2, SYPHON: 3, PING: 5, LONGPOLL: 6}
"""Of the reasons for traffic, among the colours of `report.css`."""
OUTCOME_COLOURS: Final = dict(zip(OUTCOMES, (3, 6, 2, 5, 4, 7), strict=True))


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """`paths`: metering files, as for the usage job; or `usage`: what that job kept, and Spark is not needed. Its
    prices and other operations then count where none are given here."""

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
    """Returns where the file is."""
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
    """Whatever an exception of a reconciliation holds, as one line."""
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
