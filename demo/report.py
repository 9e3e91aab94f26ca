"""The account at the end: what became of every message, how long it took to react, and what it would have cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from rich.console import Console
from rich.table import Table

from demo.tally import Balance
from tandembus.client.meter import Counted
from tandembus.metering.prices import PriceList
from tandembus.metering.slot import (
    COMPLETE,
    DEFER,
    EMPTY_RECEIVE,
    FAILOVER,
    LONGPOLL,
    NORMAL,
    PEEK,
    PING,
    RECEIVE,
    RECEIVE_DEFERRED,
    RENEW_LOCK,
    SEND,
    SYPHON,
)

LONGEST_S: Final = 90.0
NOTEWORTHY_S: Final = 0.02
OUTAGE_WORDS: Final = {
    (SEND, FAILOVER): "sends to the backlog",
    (RECEIVE, SYPHON): "receives from it",
    (COMPLETE, SYPHON): "completed there",
    (SEND, SYPHON): "sends home",
    (SEND, PING): "pings accepted",
    (PEEK, SYPHON): "looked at there",
    (RENEW_LOCK, SYPHON): "locks renewed there",
    (DEFER, SYPHON): "put aside there",
    (RECEIVE_DEFERRED, SYPHON): "taken up again there",
    (EMPTY_RECEIVE, LONGPOLL): "empty long polls",
}


@dataclass(frozen=True, slots=True)
class Measured:
    seconds: float
    held_up_s: float = 0.0
    """How long this program itself was late at that time: on a busy machine nothing can be measured more exactly."""

    def is_within(self, earliest_s: float, latest_s: float) -> bool:
        return earliest_s <= self.seconds <= latest_s + self.held_up_s

    def __str__(self) -> str:
        return f"{self.seconds:.3f} s"


@dataclass(frozen=True, slots=True)
class Reaction:
    """How the senders reacted, measured by the application's clock, of the queue that did worst; None for what did not
    happen."""

    failover_interval_s: float
    tolerance_s: float
    failover: Measured | None
    """From the first refused send until failover engaged."""
    returned: Measured | None
    """From the accepted ping until a send began on the primary, and none began in the backlog any more."""
    accepted_s: float | None
    """From the accepted ping until the primary had accepted that; connections are made on the way."""
    drained_s: float | None
    """From the accepted ping until the backlog was empty."""

    @property
    def promised_failover(self) -> str:
        return f"{self.failover_interval_s:g} s +- {self.tolerance_s:g} s"

    @property
    def promised_return(self) -> str:
        return f"within {self.tolerance_s:g} s"

    def complaints(self) -> list[str]:
        return [*self._about_failover(), *self._about_return()]

    def _about_failover(self) -> list[str]:
        interval_s, tolerance_s = self.failover_interval_s, self.tolerance_s
        if self.failover is None:
            return ["failover was never engaged"]
        if self.failover.is_within(interval_s - tolerance_s, interval_s + tolerance_s):
            return []
        return [f"failover was engaged {self.failover} after the first refused send, not {self.promised_failover}"]

    def _about_return(self) -> list[str]:
        if self.returned is None:
            return ["the senders never returned to the primary"]
        if self.returned.is_within(0.0, self.tolerance_s):
            return []
        return [f"the senders were back {self.returned} after the ping was accepted, not {self.promised_return}"]


@dataclass(frozen=True, slots=True)
class Operations:
    """What was metered in both namespaces."""

    total: int
    of_outage: Mapping[str, int]
    """By what they were, for other reasons than everyday traffic."""

    @classmethod
    def of(cls, counted: Sequence[Counted]) -> Operations:
        outage: Counter[str] = Counter()
        for one in counted:
            if one.reason != NORMAL:
                outage[_words(one)] += one.operations
        in_order = [word for word in OUTAGE_WORDS.values() if word in outage]
        in_order += [word for word in sorted(outage) if word not in in_order]
        return cls(sum(one.operations for one in counted), {word: outage[word] for word in in_order})


@dataclass(frozen=True, slots=True)
class Account:
    balance: Balance
    reaction: Reaction
    operations: Operations
    backlog_left: int
    seconds: float

    def complaints(self) -> list[str]:
        """What did not go as promised; empty if all did."""
        balance = self.balance
        found = {
            f"{balance.lost} accepted messages were not delivered": balance.lost > 0,
            f"{balance.duplicates} messages were delivered twice": balance.duplicates > 0,
            "nothing was sent": balance.accepted == 0,
            "nothing went to the backlog": balance.diverted == 0,
            f"{self.backlog_left} messages are left in the backlog": self.backlog_left > 0,
            f"it took longer than {LONGEST_S:.0f} s": self.seconds > LONGEST_S,
        }
        return [*self.reaction.complaints(), *[complaint for complaint, is_so in found.items() if is_so]]


def _words(one: Counted) -> str:
    return OUTAGE_WORDS.get((one.operation, one.reason), f"{one.operation} for {one.reason}".replace("_", " "))


def print_account(account: Account, prices: PriceList, console: Console) -> None:
    table = Table(title="The balance", title_justify="left", header_style="bold cyan")
    table.add_column("what")
    table.add_column("figure", justify="right")
    table.add_column("meaning", style="dim")
    for what, figure, meaning in _rows(account, prices):
        table.add_row(what, figure, meaning)
    console.print(table)
    complaints = account.complaints()
    for complaint in complaints:
        console.print(f"[bold red]Not as promised:[/] {complaint}", soft_wrap=True)
    if not complaints:
        console.print(f"[bold green]Nothing was lost.[/] {_timeliness(account.reaction)}")


GROSS: Final = "; the report's figure is less: without an outage, too, each message would have been sent once"


def _rows(account: Account, prices: PriceList) -> list[tuple[str, str, str]]:
    balance, reaction, operations = account.balance, account.reaction, account.operations
    outage = sum(operations.of_outage.values())
    interval = f"{reaction.failover_interval_s:g} s"
    return [
        ("accepted", f"{balance.accepted:,}", f"{balance.diverted:,} of them by the backlog"),
        ("delivered", f"{balance.delivered:,}", "each counted once"),
        ("lost", f"{balance.lost:,}", "accepted, and not delivered"),
        ("duplicates", f"{balance.duplicates:,}", "delivered again after they were completed"),
        ("redelivered", f"{balance.redelivered:,}", "their completion was cut short by the kill"),
        ("order changes", f"{balance.order_changes:,}", "delivered after a later one of their sender"),
        ("refused sends", f"{balance.refused_sends:,}", f"within the failover interval of {interval}; tried again"),
        ("time without service", f"{balance.without_service_s:.2f} s", "the longest that a sender had to try"),
        (
            "failover engaged",
            _measured(reaction.failover),
            f"after the first refused send; promised: {reaction.promised_failover}"
            + _excuse(reaction.failover, reaction.failover_interval_s + reaction.tolerance_s),
        ),
        (
            "back on the primary",
            _measured(reaction.returned),
            f"after the ping was accepted; promised: {reaction.promised_return}"
            + _excuse(reaction.returned, reaction.tolerance_s),
        ),
        ("accepted there", _seconds(reaction.accepted_s), "after the ping, on a new connection"),
        ("backlog empty", _seconds(reaction.drained_s), "after the ping was accepted"),
        ("operations", f"{operations.total:,}", _priced(operations.total, prices)),
        ("of these, the outage", f"{outage:,}", _priced(outage, prices) + GROSS),
        *[(f"  {what}", f"{count:,}", "") for what, count in operations.of_outage.items()],
        ("seconds", f"{account.seconds:.0f}", "all of this together"),
    ]


def _timeliness(reaction: Reaction) -> str:
    excuses = _excuse(reaction.failover, reaction.failover_interval_s + reaction.tolerance_s)
    excuses += _excuse(reaction.returned, reaction.tolerance_s)
    if not excuses:
        return "Failover and return were on time."
    return "Failover and return were late only by what the busy machine kept this program waiting."


def _measured(value: Measured | None) -> str:
    return "never" if value is None else str(value)


def _excuse(value: Measured | None, latest_s: float) -> str:
    if value is None or value.seconds <= latest_s or value.held_up_s < NOTEWORTHY_S:
        return ""
    return f", and {value.held_up_s:.2f} s for which the machine kept this program waiting"


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.3f} s"


def _priced(operations: int, prices: PriceList) -> str:
    cost: Decimal = prices.further_operations_cost(prices.included_operations, operations)
    return f"{cost:.4f} {prices.currency} on Azure, beyond what is included (prices of {prices.as_of})"
