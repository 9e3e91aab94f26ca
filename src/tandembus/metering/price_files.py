"""Price lists as TOML files: those that come with the package, and users' own.

Prices change and differ by region and contract, so they stand in files that carry their date, never in the code. A
mistake in one is told with its place, as for any other file of settings.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Final

from tandembus.errors import InvalidArgument
from tandembus.metering.prices import ZERO, Basic, Counting, Premium, PriceList, Standard, Tier

FOLDER: Final = Path(__file__).parent / "price_lists"
DEFAULT_LIST: Final = "us"
MAX_FILE_BYTES: Final = 1024 * 1024
_DAYS: Final = 31


def shipped_lists() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def list_text(name: str) -> str:
    """A list of the package as it stands in its file, to be copied and changed."""
    return (FOLDER / f"{name}.toml").read_text(encoding="utf-8")


def load_prices(name_or_file: str = DEFAULT_LIST) -> PriceList:
    """A list of the package by its name, else a file. Raises `InvalidArgument` with the place of the mistake."""
    path = FOLDER / f"{name_or_file}.toml" if name_or_file in shipped_lists() else Path(name_or_file)
    try:
        raw = path.read_bytes()
    except OSError as error:
        known = ", ".join(shipped_lists())
        raise InvalidArgument(
            f"{name_or_file}: neither one of our price lists ({known}) nor a file that can be read: {error.strerror}"
        ) from None
    if len(raw) > MAX_FILE_BYTES:
        raise InvalidArgument(f"{path}: larger than {MAX_FILE_BYTES} bytes, so hardly a price list")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path}: not a TOML file: {error}") from None
    return parse_prices(text, str(path))


def parse_prices(text: str, where: str) -> PriceList:
    try:
        document = tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidArgument(f"{where}: not a TOML file: {error}") from None
    return read_prices(_Table(document, f"{where}: "))


def read_prices(table: _Table) -> PriceList:
    months = table.table("months")
    prices = PriceList(
        name=table.text("name"),
        as_of=table.day("as_of"),
        currency=table.text("currency"),
        seen=table.text("seen"),
        counting=_counting(table.table("counting")),
        basic=_basic(table.table("basic")),
        standard=_standard(table.table("standard")),
        premium=_premium(table.table("premium")) if "premium" in table.values else None,
        egress_per_gb=table.table("bandwidth").price("egress_per_gb") if "bandwidth" in table.values else ZERO,
        month_hours=months.count("hours", 24 * _DAYS),
        connection_hours=months.count("connection_hours", 24 * _DAYS),
    )
    table.check_all_known()
    return prices


def _counting(table: _Table) -> Counting:
    batch = table.text("batch")
    if batch not in ("per_message", "per_batch"):
        raise table.wrong("batch", "per_message or per_batch is allowed")
    counting = Counting(
        unit_bytes=table.count("unit_bytes"),
        batch="per_batch" if batch == "per_batch" else "per_message",
        forward_hop=table.count("forward_hop"),
    )
    table.check_all_known()
    return counting


def _basic(table: _Table) -> Basic:
    basic = Basic(table.price("per_million"), table.count("connections"))
    table.check_all_known()
    return basic


def _standard(table: _Table) -> Standard:
    standard = Standard(
        base_per_hour=table.price("base_per_hour"),
        base_per_month=table.price("base_per_month") if "base_per_month" in table.values else None,
        operations=table.tiers("operations"),
        connections=table.tiers("connections") if "connections" in table.values else (),
    )
    table.check_all_known()
    return standard


def _premium(table: _Table) -> Premium:
    premium = Premium(
        unit_per_hour=table.price("unit_per_hour"),
        units=tuple(int(each) for each in table.prices("units")),
        replicated_per_gb=table.prices("replicated_per_gb"),
    )
    table.check_all_known()
    return premium


class _Table:
    """One table of the file; knows where it stands, so that every complaint says so, and what was asked of it."""

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        self.values: Final = values
        self._where: Final = where
        self._known: Final[set[str]] = set()

    def wrong(self, name: str, what: str) -> InvalidArgument:
        return InvalidArgument(f"{self._where}{name}: {what}")

    def check_all_known(self) -> None:
        """Call it last: a misspelt price must not count as one that was left out."""
        unknown = sorted(self.values.keys() - self._known)
        if unknown:
            raise self.wrong(unknown[0], "nothing of this name is known here")

    def table(self, name: str) -> _Table:
        value = self._value(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "a table is expected")
        return _Table(value, f"{self._where}{name}.")

    def text(self, name: str) -> str:
        value = self._value(name)
        if not isinstance(value, str) or not value:
            raise self.wrong(name, "a text is expected")
        return value

    def day(self, name: str) -> date:
        value = self._value(name)
        if type(value) is not date:
            raise self.wrong(name, "a date is expected, such as 2026-11-15")
        return value

    def price(self, name: str) -> Decimal:
        return self._decimal(name, self._value(name))

    def prices(self, name: str) -> tuple[Decimal, ...]:
        value = self._value(name)
        if not isinstance(value, list) or not value:
            raise self.wrong(name, "a list of numbers is expected")
        return tuple(self._decimal(name, each) for each in value)

    def count(self, name: str, maximum: int = 2**31) -> int:
        value = self._value(name)
        if type(value) is not int or not 1 <= value <= maximum:
            raise self.wrong(name, f"a whole number of 1 to {maximum} is expected")
        return value

    def tiers(self, name: str) -> tuple[Tier, ...]:
        """From the first unit to the last: each ends above the one before it, and the last does not end."""
        value = self._value(name)
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value) or not value:
            raise self.wrong(name, f"tables are expected, each as [[{name}]]")
        tables = [_Table(each, f"{self._where}{name}[{at}].") for at, each in enumerate(value)]
        tiers = tuple(_tier(each, is_last=each is tables[-1]) for each in tables)
        ends = [tier.up_to for tier in tiers if tier.up_to is not None]
        if any(later <= earlier for earlier, later in pairwise(ends)):
            raise self.wrong(name, "each tier must end above the one before it")
        return tiers

    def _value(self, name: str) -> object:
        self._known.add(name)
        if name not in self.values:
            raise self.wrong(name, "is missing")
        return self.values[name]

    def _decimal(self, name: str, value: object) -> Decimal:
        number = Decimal(value) if type(value) is int else value
        if not isinstance(number, Decimal) or not number.is_finite() or number < 0:
            raise self.wrong(name, "a number of 0 or more is expected")
        return number


def _tier(table: _Table, is_last: bool) -> Tier:
    if is_last == ("up_to" in table.values):
        raise table.wrong(
            "up_to", "the last tier has no end" if is_last else "is missing: only the last tier has no end"
        )
    tier = Tier(None if is_last else table.price("up_to"), table.price("price"))
    table.check_all_known()
    return tier
