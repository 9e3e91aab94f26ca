"""The usage job's result as plain data, and as it is kept: JSON, from which a report can be made without Spark, and
Parquet for queries of one's own."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from datetime import date
from decimal import Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tandembus.errors import InvalidArgument
from tandembus.metering.bills import Bill, PriceBook, Used
from tandembus.metering.failover_costs import failover_bill
from tandembus.metering.price_files import parse_prices
from tandembus.metering.price_texts import prices_text
from tandembus.spark.jobs.files import Folder, is_local, write_whole

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FORMAT: Final = 1
FILE_NAME: Final = "usage.json"
COUNTS: Final = ("messages", "operations", "size_bytes")
LINES: Final = "lines"
LINES_FILE: Final = "part-0.parquet"
COST_DIGITS: Final = 38
COST_SCALE: Final = 18
_ROUNDING: Final = Context(prec=COST_DIGITS)
_LAST_DIGIT: Final = Decimal(1).scaleb(-COST_SCALE)


@dataclass(frozen=True, slots=True)
class Point:
    """The traffic of one step of time; `second` is its first."""

    second: int
    namespace: str
    operation: str
    reason: str
    messages: int
    operations: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A process was killed: its counts between these seconds are missing."""

    namespace: str
    from_second: int
    to_second: int


@dataclass(frozen=True, slots=True)
class SkippedLine:
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Earlier:
    """Traffic counted in files that are not here: neither entity nor day is known, so it is in no bill."""

    namespace: str
    operation: str
    reason: str
    calls: int
    messages: int
    operations: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class UsageResult:
    files: int
    records: int
    period: tuple[int, int] | None
    """The first and the last second that any record names."""
    used: tuple[Used, ...]
    step_s: int
    """How much time each of the points is for."""
    points: tuple[Point, ...]
    gaps: tuple[Gap, ...] = ()
    skipped: int = 0
    """Lines that could not be read."""
    skipped_files: tuple[tuple[str, int], ...] = ()
    """In which files, and how many in each."""
    skipped_lines: tuple[SkippedLine, ...] = ()
    """The first of them, by number."""
    earlier: tuple[Earlier, ...] = ()

    @property
    def namespaces(self) -> list[str]:
        return sorted({each.namespace for each in self.used})

    def bill(self, book: PriceBook, others: int | None = None) -> Bill:
        return Bill(self.used, book, others, self.period)


def to_document(result: UsageResult) -> dict[str, Any]:
    """The result under the names of its fields."""
    document = asdict(result)
    document["used"] = [{**row, "day": row["day"].isoformat()} for row in document["used"]]
    return {"format": FORMAT, **document}


def from_document(document: object) -> UsageResult:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidArgument(f"not the result of a usage job: {FILE_NAME} of its output folder is expected")
    try:
        figures = {name: document[name] for name in ("files", "records", "step_s", "skipped")}
        period = document["period"] and tuple(document["period"])
        if {type(each) for each in (*figures.values(), *(period or ()))} != {int} or len(period or (0, 0)) != 2:
            raise TypeError("figures are whole numbers")
        return UsageResult(
            **figures,
            period=period,
            used=tuple([Used(**{**row, "day": date.fromisoformat(row["day"])}) for row in document["used"]]),
            points=tuple([Point(**row) for row in document["points"]]),
            gaps=tuple([Gap(**row) for row in document["gaps"]]),
            skipped_files=tuple([(name, count) for name, count in document["skipped_files"]]),
            skipped_lines=tuple([SkippedLine(**row) for row in document["skipped_lines"]]),
            earlier=tuple([Earlier(**row) for row in document["earlier"]]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(f"a damaged result of a usage job ({error}): run it again") from None


@dataclass(frozen=True, slots=True)
class Kept:
    """A result and how it was billed, so that a reader can make the same bill again."""

    result: UsageResult
    book: PriceBook | None = None
    others: int | None = None


def keep_result(spark: SparkSession, result: UsageResult, bill: Bill, output: str) -> str:
    """Replaces what an earlier run left at `output`, and returns where the file for `report` is.

    A plain path is a folder of the machine on which the command runs, whatever cluster does the work: the result is
    small, and made there. An address (`hdfs://`, `s3a://`, `file:`) is written by Spark.
    """
    lines = _table(bill)
    if is_local(output):
        _write_lines(lines, Path(output) / LINES)
        return str(write_result(result, Path(output), bill))
    folder = Folder(spark, output)
    spark.createDataFrame(lines).coalesce(1).write.mode("overwrite").parquet(f"{folder.address}/{LINES}")
    folder.write(FILE_NAME, _text(result, bill))
    return f"{folder.address}/{FILE_NAME}"


def write_result(result: UsageResult, folder: Path, bill: Bill | None = None) -> Path:
    path = folder / FILE_NAME
    write_whole(path, _text(result, bill))
    return path


def _text(result: UsageResult, bill: Bill | None) -> str:
    billed = {}
    if bill is not None:
        billed = {"prices": [prices_text(each) for each in bill.book.lists], "other_operations": bill.others}
    return json.dumps({**to_document(result), **billed}, separators=(",", ":"))


def _table(bill: Bill) -> pa.Table:
    import pyarrow as pa

    schema = pa.schema(
        [
            *[(name, pa.string()) for name in ("namespace", "entity", "operation", "reason")],
            ("day", pa.date32()),
            *[(name, pa.int64()) for name in ("calls", "messages", "operations", "size_bytes", "charged")],
            ("cost", pa.decimal128(COST_DIGITS, COST_SCALE)),
        ]
    )
    rows = [
        {
            **asdict(line.used),
            "charged": line.charged,
            "cost": line.cost.quantize(_LAST_DIGIT, context=_ROUNDING),
        }
        for line in bill.lines
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def _write_lines(lines: pa.Table, folder: Path) -> None:
    import pyarrow.parquet as pq

    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    draft.mkdir(parents=True)
    try:
        pq.write_table(lines, draft / LINES_FILE)
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def read_result(path: Path) -> UsageResult:
    return read_kept(path).result


def read_kept(path: Path) -> Kept:
    """Reads the file, or the file in this output folder."""
    file = path / FILE_NAME if path.is_dir() else path
    try:
        document = json.loads(file.read_bytes())
    except OSError as error:
        raise InvalidArgument(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InvalidArgument(f"{file}: no JSON: {error}") from None
    result = from_document(document)
    texts, others = document.get("prices", []), document.get("other_operations")
    if not isinstance(texts, list) or not (others is None or isinstance(others, int)):
        raise InvalidArgument(f"{file}: a damaged result of a usage job (its prices): run it again")
    return Kept(result, PriceBook([parse_prices(str(each), str(file)) for each in texts]) if texts else None, others)


def bill_document(result: UsageResult, bill: Bill) -> dict[str, object]:
    """The bill as JSON. Money is written as text: a JSON number would not keep its digits."""
    made = failover_bill(bill)
    use = made.use
    return {
        "prices": [_picked(each, "name", "as_of", "currency", "seen") for each in bill.book.lists],
        **_picked(result, "files", "records"),
        "period": None if result.period is None else list(result.period),
        "total": _picked(bill, "operations", "charged", "operations_cost", "base_hours", "base_cost", "cost"),
        "months": [
            {
                "month": f"{each.month:%Y-%m}",
                "prices": each.prices.name,
                "other_operations": each.others,
                **_picked(each, "charged", "cost", "base_hours", "base_cost"),
            }
            for each in bill.stretches
        ],
        "namespaces": _groups(bill, "namespace"),
        "entities": _groups(bill, "namespace", "entity"),
        "operations": _groups(bill, "namespace", "operation", "reason"),
        "days": _groups(bill, "namespace", "day"),
        "lines": [
            {**asdict(line.used), **_picked(line.used, "day"), **_picked(line, "charged", "cost")}
            for line in bill.lines
        ],
        "failover": {
            "messages_diverted": use.to_backlog.messages,
            "messages_home": use.to_primary.messages,
            "messages_waiting": use.waiting,
            "missing": use.missing,
            "lines": [
                {"what": line.what, **_picked(line.count, *COUNTS), **_picked(line, "cost")} for line in made.lines
            ],
            "further_operations": use.further_operations,
            **_picked(made, "cost"),
            "bandwidth": {"size_bytes": use.left_secondary_bytes, "cost": _plain(made.bandwidth_cost)},
        },
        "gaps": [asdict(each) for each in result.gaps],
        "skipped": {
            "count": result.skipped,
            "files": [{"file": name, "count": count} for name, count in result.skipped_files],
            "lines": [asdict(each) for each in result.skipped_lines],
        },
        "earlier": [asdict(each) for each in result.earlier],
    }


def _groups(bill: Bill, *names: str) -> list[dict[str, object]]:
    return [
        {**dict(zip(names, group.key, strict=True)), **_picked(group, "calls", *COUNTS, "cost")}
        for group in bill.by(*names)
    ]


def _picked(one: object, *names: str) -> dict[str, object]:
    """These attributes, for JSON."""
    return {name: _plain(getattr(one, name)) for name in names}


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value.isoformat() if isinstance(value, date) else value
