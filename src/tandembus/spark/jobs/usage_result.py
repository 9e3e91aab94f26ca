"""What the usage job found out, as plain data; and as JSON, from which a report can be made without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

from tandembus.errors import InvalidArgument
from tandembus.metering.bills import Bill, PriceBook, Used
from tandembus.metering.failover_costs import FailoverBill, failover_bill
from tandembus.metering.price_files import parse_prices
from tandembus.metering.price_texts import prices_text
from tandembus.spark.jobs.local_files import write_whole

FORMAT: Final = 1
FILE_NAME: Final = "usage.json"


@dataclass(frozen=True, slots=True)
class Point:
    """What was counted in one step of time; `second` is its first."""

    second: int
    namespace: str
    operation: str
    reason: str
    messages: int
    operations: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A process was killed: what it counted between these seconds is missing."""

    namespace: str
    from_second: int
    to_second: int


@dataclass(frozen=True, slots=True)
class SkippedLine:
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Earlier:
    """Counted in files that are not here: no entity and no day is known, so it is in no bill."""

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
    """Everything of it, in the names of its fields."""
    document = asdict(result)
    document["used"] = [{**row, "day": row["day"].isoformat()} for row in document["used"]]
    return {"format": FORMAT, **document}


def from_document(document: object) -> UsageResult:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidArgument(f"not the result of a usage job: {FILE_NAME} of its output folder is expected")
    try:
        return UsageResult(
            files=_whole(document["files"]),
            records=_whole(document["records"]),
            period=None if document["period"] is None else _two(document["period"]),
            used=tuple([Used(**{**row, "day": date.fromisoformat(row["day"])}) for row in document["used"]]),
            step_s=_whole(document["step_s"]),
            points=tuple([Point(**row) for row in document["points"]]),
            gaps=tuple([Gap(**row) for row in document["gaps"]]),
            skipped=_whole(document["skipped"]),
            skipped_files=tuple([(str(name), _whole(count)) for name, count in document["skipped_files"]]),
            skipped_lines=tuple([SkippedLine(**row) for row in document["skipped_lines"]]),
            earlier=tuple([Earlier(**row) for row in document["earlier"]]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(f"a damaged result of a usage job ({error}): run it again") from None


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


def _two(value: Any) -> tuple[int, int]:
    first, last = value
    return _whole(first), _whole(last)


@dataclass(frozen=True, slots=True)
class Kept:
    """A result, and how it was billed: whoever reads it makes the same bill of it, unless other prices are given."""

    result: UsageResult
    book: PriceBook | None = None
    others: int | None = None


def write_result(result: UsageResult, folder: Path, bill: Bill | None = None) -> Path:
    path = folder / FILE_NAME
    write_whole(path, result_text(result, bill))
    return path


def result_text(result: UsageResult, bill: Bill | None = None) -> str:
    billed = {}
    if bill is not None:
        billed = {"prices": [prices_text(each) for each in bill.book.lists], "other_operations": bill.others}
    return json.dumps({**to_document(result), **billed}, separators=(",", ":"))


def read_result(path: Path) -> UsageResult:
    return read_kept(path).result


def read_kept(path: Path) -> Kept:
    """Of the file, or of the output folder that it is in."""
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
    """The bill for programs. Money stands in texts: a JSON number would not keep its digits."""
    failover = failover_bill(bill)
    return {
        "prices": [
            {"name": each.name, "as_of": each.as_of.isoformat(), "currency": each.currency, "seen": each.seen}
            for each in bill.book.lists
        ],
        "files": result.files,
        "records": result.records,
        "period": None if result.period is None else list(result.period),
        "total": {
            "operations": bill.operations,
            "charged": bill.charged,
            "operations_cost": f"{bill.operations_cost:f}",
            "base_hours": bill.base_hours,
            "base_cost": f"{bill.base_cost:f}",
            "cost": f"{bill.cost:f}",
        },
        "months": [
            {
                "month": f"{each.month:%Y-%m}",
                "prices": each.prices.name,
                "other_operations": each.others,
                "charged": each.charged,
                "cost": f"{each.cost:f}",
                "base_hours": each.base_hours,
                "base_cost": f"{each.base_cost:f}",
            }
            for each in bill.stretches
        ],
        "namespaces": _groups(bill, "namespace"),
        "entities": _groups(bill, "namespace", "entity"),
        "operations": _groups(bill, "namespace", "operation", "reason"),
        "days": _groups(bill, "namespace", "day"),
        "lines": [
            {
                **asdict(line.used),
                "day": line.used.day.isoformat(),
                "charged": line.charged,
                "cost": f"{line.cost:f}",
            }
            for line in bill.lines
        ],
        "failover": _failover_document(failover),
        "gaps": [asdict(each) for each in result.gaps],
        "skipped": {
            "count": result.skipped,
            "files": [{"file": name, "count": count} for name, count in result.skipped_files],
            "lines": [asdict(each) for each in result.skipped_lines],
        },
        "earlier": [asdict(each) for each in result.earlier],
    }


def _groups(bill: Bill, *names: str) -> list[Mapping[str, object]]:
    return [
        {
            **dict(zip(names, group.key, strict=True)),
            "calls": group.calls,
            "messages": group.messages,
            "operations": group.operations,
            "size_bytes": group.size_bytes,
            "cost": f"{group.cost:f}",
        }
        for group in bill.by(*names)
    ]


def _failover_document(made: FailoverBill) -> dict[str, object]:
    use = made.use
    return {
        "messages_diverted": use.to_backlog.messages,
        "messages_home": use.to_primary.messages,
        "messages_waiting": use.waiting,
        "missing": use.missing,
        "lines": [
            {
                "what": line.what,
                "messages": line.count.messages,
                "operations": line.count.operations,
                "size_bytes": line.count.size_bytes,
                "cost": f"{line.cost:f}",
            }
            for line in made.lines
        ],
        "further_operations": use.further_operations,
        "cost": f"{made.cost:f}",
        "bandwidth": {
            "size_bytes": use.left_secondary_bytes,
            "cost": None if made.bandwidth_cost is None else f"{made.bandwidth_cost:f}",
        },
    }
