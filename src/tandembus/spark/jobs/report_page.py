"""The report: one HTML file that needs no network and no script, of bills, a timeline and a reconciliation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tandembus.metering.bills import Bill, Group, largest_first
from tandembus.metering.failover_costs import FailoverBill, failover_bill
from tandembus.metering.money import money
from tandembus.metering.slot import FAILOVER, LONGPOLL, NORMAL, PING, SYPHON
from tandembus.spark.jobs.report_charts import Bar, Series, bars, columns, lines
from tandembus.spark.jobs.report_parts import counted, figure, folded, section, table_of, with_table, words
from tandembus.spark.jobs.report_reconciliation import Reconciliation
from tandembus.spark.jobs.report_reconciliation_section import reconciliation_section
from tandembus.spark.jobs.report_series import Timeline, timeline
from tandembus.spark.jobs.report_text import duration, entity_name, escaped, moment, short, size
from tandembus.spark.jobs.usage_result import UsageResult

STYLE: Final = Path(__file__).with_name("report.css")
TOP_ENTITIES: Final = 12
DAYS: Final = 31
NAMED_LINES: Final = 20
TABLE_STEPS: Final = 24
# Nothing may be loaded and nothing may run, whatever a name holds.
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
FIGURES_OF_GROUPS: Final = ("messages", "billable", "size")
REASONS: Final = ((NORMAL, 1), (FAILOVER, 2), (SYPHON, 3), (PING, 5), (LONGPOLL, 6))
"""Of traffic, each with its colour."""


def render_report(result: UsageResult, bill: Bill, reconciliation: Reconciliation | None, title: str) -> str:
    failover = failover_bill(bill)
    times = timeline(result)
    style = STYLE.read_text(encoding="utf-8")
    parts = [
        _header(result, bill, title),
        _tiles(result, bill, failover, reconciliation),
        _missing(result, failover),
        _bill_section(bill),
        _failover_section(bill, failover),
        _timeline_section(result, times),
        _backlog_section(times),
        _syphon_section(times),
        reconciliation_section(reconciliation),
        _footer(bill),
    ]
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escaped(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style}</style></head>\n<body>{''.join(parts)}</body></html>\n"
    )


# The beginning.


def _header(result: UsageResult, bill: Bill, title: str) -> str:
    names = ", ".join([escaped(name) for name in result.namespaces]) or "no namespace"
    when = "nothing was counted"
    if result.period is not None:
        when = f"{moment(result.period[0])} to {moment(result.period[1])} UTC"
    prices = ", ".join([f"{each.name} of {each.as_of}" for each in bill.book.lists])
    return (
        f"<header><h1>{escaped(title)}</h1><p class='dim'>{names}<br>{when}<br>"
        f"{counted(result.records, 'record')} in {counted(result.files, 'file')}; "
        f"prices: {escaped(prices)}, in {escaped(bill.book.currency)}</p></header><main>"
    )


def _tiles(result: UsageResult, bill: Bill, failover: FailoverBill, reconciliation: Reconciliation | None) -> str:
    currency = bill.book.currency
    tiles = [
        ("Bill", f"{money(bill.cost)} {currency}", f"{money(bill.base_cost)} of it base charge"),
        ("Operations", f"{bill.operations:,}", f"{money(bill.operations_cost)} {currency}"),
        ("The failover added", f"{money(failover.cost)} {currency}", f"{failover.use.further_operations:,} operations"),
        (
            "Through the backlog",
            f"{failover.use.to_backlog.messages:,}",
            f"messages; {failover.use.waiting:,} not home yet",
        ),
    ]
    if reconciliation is not None:
        tiles.append(_lost(reconciliation))
    drawn = [
        f'<li><span class="what">{escaped(what)}</span><span class="figure">{escaped(figure)}</span>'
        f'<span class="more">{escaped(more)}</span></li>'
        for what, figure, more in tiles
    ]
    return f'<ul class="tiles">{"".join(drawn)}</ul>'


def _lost(found: Reconciliation) -> tuple[str, str, str]:
    rest = counted(found.total("phantom"), "phantom")
    if found.verdict == "incomplete":
        rest = "nothing is proven"
    elif found.verdict == "failed" and found.total("duplicate"):
        rest += f", {counted(found.total('duplicate'), 'duplicate')}"
    return "Lost", f"{found.total('lost'):,}", f"of {found.total('accepted'):,} accepted; {rest}"


def _missing(result: UsageResult, failover: FailoverBill) -> str:
    notes = []
    if failover.use.missing is not None:
        notes.append(f'<div class="note"><strong>{escaped(failover.use.missing)}.</strong></div>')
    if result.gaps:
        items = [
            f"{escaped(gap.namespace)}: what was counted between {moment(gap.from_second)} and "
            f"{moment(gap.to_second)} UTC may be missing, since a process was killed"
            for gap in result.gaps
        ]
        notes.append(f'<div class="note"><strong>Gaps</strong><ul>{_items(items)}</ul></div>')
    if result.skipped:
        items = [f"{escaped(line.file)}, line {line.line:,}" for line in result.skipped_lines[:NAMED_LINES]]
        if result.skipped > len(items):
            items += [f"{escaped(name)}: {count:,} in all" for name, count in result.skipped_files[:NAMED_LINES]]
        told = f"Lines that could not be read and are not in the bill: {result.skipped:,}"
        notes.append(f'<div class="note"><strong>{told}</strong><ul>{_items(items)}</ul></div>')
    earlier = sum([each.operations for each in result.earlier])
    if earlier:
        told = f"Counted in files that are not here, and not in the bill: {counted(earlier, 'operation')}."
        notes.append(f'<div class="note">{told}</div>')
    return "".join(notes)


def _items(texts: Iterable[str]) -> str:
    return "".join([f"<li>{text}</li>" for text in texts])


# The bill.


def _bill_section(bill: Bill) -> str:
    if not bill.lines:
        return section("bill", "The bill", "<p>Nothing was counted, so nothing is charged for.</p>")
    several = len({line.used.namespace for line in bill.lines}) > 1
    chosen, rest = largest_first(bill.by("namespace", "entity"), TOP_ENTITIES)
    entities = [*chosen, *([rest] if rest else [])]
    months = [
        (
            f"{each.month:%B %Y}, {each.prices.name}" + (f", beside {each.others:,} others" if each.others else ""),
            f"{each.charged:,}",
            money(each.cost),
        )
        for each in bill.stretches_in_use
    ]
    months.append((f"base charge, {bill.base_hours:,} h, once for all namespaces", "", money(bill.base_cost)))
    currency = bill.book.currency
    return section(
        "bill",
        "The bill",
        table_of("In all", ("", "operations", currency), months, ("total", f"{bill.charged:,}", money(bill.cost))),
        _beside("entities", "Billable operations by entity", entities, currency, several),
        _operations(bill),
        _days(bill),
    )


def _beside(identity: str, title: str, groups: Sequence[Group], currency: str, several: bool) -> str:
    rows = [Bar(_named(group, several), (group.operations,), f"{group.operations:,}") for group in groups]
    figures = [(_named(group, several), *_figures(group)) for group in groups]
    table = table_of("", ("entity", *FIGURES_OF_GROUPS, currency), figures)
    return with_table(figure(title, bars(identity, title, rows)), table)


def _operations(bill: Bill) -> str:
    """By what they are; the chart also by reason."""
    groups = bill.by("operation", "reason")
    by_reason = {group.key: group.operations for group in groups}
    ordered, _ = largest_first(bill.by("operation"), len(groups))
    rows = [
        Bar(
            words(group.key[0]),
            tuple([by_reason.get((group.key[0], reason), 0) for reason, _ in REASONS]),
            f"{group.operations:,}",
        )
        for group in ordered
    ]
    title = "Billable operations by kind and reason"
    chart = bars("operations", title, rows, REASONS)
    by_size, _ = largest_first(groups, len(groups))
    figures = [(words(group.key[0]), group.key[1], *_figures(group)) for group in by_size]
    table = table_of("", ("operation", "reason", *FIGURES_OF_GROUPS, bill.book.currency), figures, figures_from=2)
    return with_table(figure(title, chart), table)


def _figures(group: Group) -> tuple[str, str, str, str]:
    return f"{group.messages:,}", f"{group.operations:,}", size(group.size_bytes), money(group.cost)


def _named(group: Group, several: bool) -> str:
    if len(group.key) == 1:
        return group.key[0]
    namespace, entity = group.key
    return f"{namespace}: {entity_name(entity)}" if several else entity_name(entity)


def _days(bill: Bill) -> str:
    days = bill.by("day")
    if len(days) < 2:
        return ""
    last = days[-DAYS:]
    title = "Billable operations by day" + ("" if len(days) <= DAYS else f", the last {DAYS} of {len(days):,} days")
    rows = [Bar(group.key[0], (group.operations,), f"{short(group.operations)}") for group in last]
    figures = [(group.key[0], f"{group.operations:,}", money(group.cost)) for group in last]
    table = table_of("", ("day (UTC)", "billable", bill.book.currency), figures)
    return with_table(figure(title, bars("days", title, rows)), table)


# The failover.


def _failover_section(bill: Bill, failover: FailoverBill) -> str:
    title = "What the failover cost"
    use = failover.use
    if use.is_nothing:
        return section(
            "failover", title, "<p>No message went through a backlog in this time, and nobody waited for one.</p>"
        )
    rows = [
        (
            line.what,
            f"{line.count.messages:,}" if line.count.messages else "",
            f"{line.count.operations:,}",
            size(line.count.size_bytes) if line.count.size_bytes else "",
            money(line.cost),
        )
        for line in failover.shown_lines
    ]
    rows.append(
        (
            "bytes out of the secondary's region",
            "",
            "",
            size(use.left_secondary_bytes),
            money(failover.bandwidth_cost),
        )
    )
    total = ("what the failover adds in all", "", f"{use.further_operations:,}", "", money(failover.cost))
    normal = use.diverted.normal_operations
    notes = [
        "<p>A message that goes through the backlog is sent, read and settled there before it is sent home; without "
        "the failover it would have been sent home at once. So the total is what the failover added, less what the "
        "same messages would have taken anyway; the plain sum of its traffic, as in the demo's table, is more.</p>"
    ]
    if use.is_looked_at:
        notes.append(
            "<p>The syphon on Spark looks at messages and receives none: what line 2 would be stands under peeks.</p>"
        )
    if not failover.do_lines_add_up:
        notes.append(
            "<p class='dim'>Each row is priced as if it came alone; all together reach other tiers, and the total "
            "counts.</p>"
        )
    compared = [
        Bar("with the failover", (normal + use.further_operations,), f"{normal + use.further_operations:,}"),
        Bar("without", (normal,), f"{normal:,}"),
    ]
    chart = figure(
        "Operations of the same messages", bars("compared", "Operations with and without the failover", compared)
    )
    table = table_of("", ("", "messages", "operations", "size", bill.book.currency), rows, total)
    return section("failover", title, *notes, with_table(chart, table))


def _timeline_section(result: UsageResult, times: Timeline | None) -> str:
    title = "Timeline"
    if times is None:
        return section("timeline", title, "<p>Nothing was counted.</p>")
    axis = times.axis
    step = duration(axis.step_s)
    per_step = "per second" if axis.step_s == 1 else f"in each {step}"
    series = [
        Series("sent to the entity itself", 1, times.ordinary),
        Series("sent to the backlog", 2, times.to_backlog),
        Series("brought home by the syphon", 3, times.home),
    ]
    gaps = [(gap.from_second, gap.to_second, f"gap: counts of {gap.namespace} may be missing") for gap in result.gaps]
    pings = [
        (axis.start + place * axis.step_s, f"{counted(count, 'ping')} accepted")
        for place, count in enumerate(times.pings)
        if count
    ]
    chart = columns("timeline", f"Messages sent {per_step}", "messages", axis, series, gaps, pings)
    explained = ["<p class='dim'>Times are in UTC."]
    explained += [" Shaded: a process was killed, and counts may be missing."] if gaps else []
    explained += [" Triangles below the axis: pings that were accepted."] if pings else []
    rows = _over_time(times, ("ordinary", "to_backlog", "home", "pings"))
    table = table_of("", ("from (UTC)", "sent", "to the backlog", "brought home", "pings"), rows)
    return section(
        "timeline",
        title,
        f"{figure(f'Messages sent {per_step}', chart)}{''.join(explained)}</p>",
        folded("The same as a table", table),
    )


def _backlog_section(times: Timeline | None) -> str:
    title = "Backlog depth"
    if times is None or not times.has_failover:
        return section("backlog", title, "<p>The backlog was empty all the time.</p>")
    chart = lines(
        "depth", title, "messages", times.axis, [Series("waiting in the backlog", 2, times.depth)], is_filled=True
    )
    told = f"<p>At most {counted(max(times.depth), 'message')} waited; {times.depth[-1]:,} at the end.</p>"
    table = table_of("", ("from (UTC)", "waiting at the end of the step"), _over_time(times, ("depth",)))
    return section("backlog", title, told, figure("Messages waiting", chart), folded("The same as a table", table))


def _syphon_section(times: Timeline | None) -> str:
    title = "Syphon progress"
    if times is None or not times.has_failover:
        return section("syphon", title, "<p>There was nothing to bring home.</p>")
    diverted, home = times.diverted_so_far[-1], times.home_so_far[-1]
    share = f" ({100 * min(home, diverted) // diverted} %)" if diverted else ""
    series = [Series("sent to the backlog", 2, times.diverted_so_far), Series("brought home", 3, times.home_so_far)]
    chart = lines("syphon", title, "messages so far", times.axis, series)
    told = f"<p>{home:,} of {diverted:,} messages were brought home{share}.</p>"
    rows = _over_time(times, ("diverted_so_far", "home_so_far"))
    table = table_of("", ("from (UTC)", "sent to the backlog so far", "brought home so far"), rows)
    return section("syphon", title, told, figure("Messages so far", chart), folded("The same as a table", table))


def _over_time(times: Timeline, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Steps in which something happens, or changes; and not more of them than can be read."""
    values: list[tuple[int, ...]] = [getattr(times, name) for name in names]
    rows = []
    before: tuple[int, ...] | None = None
    for place, now in enumerate(zip(*values, strict=True)):
        if now != before:
            rows.append((moment(times.axis.start + place * times.axis.step_s), *[f"{each:,}" for each in now]))
        before = now
    every = -(-len(rows) // TABLE_STEPS)
    return rows[:: max(every, 1)]


def _footer(bill: Bill) -> str:
    seen = "; ".join([f"{each.name}: list prices of {each.as_of}, seen {each.seen}" for each in bill.book.lists])
    others = "as many other operations as are included" if bill.others is None else f"{bill.others:,} other operations"
    return (
        f"</main><footer><p>{escaped(seen)}. Each month is priced beside {others}; tiers are applied to a whole month. "
        "Without connections and, where the list has no price for it, bandwidth. Made by tandembus from what the meter "
        "counted; days and times are in UTC.</p></footer>"
    )
