"""A reconciliation's part of the report: its verdict, what became of accepted messages, and the exceptions."""

from __future__ import annotations

from typing import Final

from tandembus.spark.jobs.report_charts import WIDTH, Bar, bars
from tandembus.spark.jobs.report_parts import counted, figure, section, table_of, words
from tandembus.spark.jobs.report_reconciliation import BAD, FIGURES, Reconciled, Reconciliation
from tandembus.spark.jobs.report_text import escaped

TITLE: Final = "Reconciliation"
SHOWN_ENTITIES: Final = 12
SHOWN_EXCEPTIONS: Final = 100
OUTCOMES: Final = (
    ("settled", 3),
    ("pending", 6),
    ("dead_lettered", 2),
    ("expired", 5),
    ("lost", 4),
    ("unjudged", 7),
)
"""What becomes of an accepted message, with its colour."""
COLUMNS: Final = ("kind", "namespace", "entity", "message_id")
"""Of an exception; whatever else it tells stands in the last one."""


def reconciliation_section(found: Reconciliation | None) -> str:
    if found is None:
        told = (
            "<p>Not given. <code>tandembus spark reconcile --json</code> makes one, of the audit records of both "
            "namespaces.</p>"
        )
        return section("reconciliation", TITLE, told)
    ordered = sorted(
        found.entities,
        key=lambda each: (-sum(each.figures[bad] for bad in BAD), -each.figures["accepted"], each.name),
    )
    return section(
        "reconciliation",
        TITLE,
        _verdict(found),
        _extent(found),
        _chart(ordered[:SHOWN_ENTITIES]),
        f"<p class='dim'>The chart shows {SHOWN_ENTITIES} of {len(ordered):,} entities.</p>"
        if len(ordered) > SHOWN_ENTITIES
        else "",
        _entities(found, ordered),
        _exceptions(found),
    )


def _verdict(found: Reconciliation) -> str:
    match found.verdict:
        case "well":
            kind, first = "good", "Nothing was lost,"
            rest = "and nothing was received that nobody sent."
            if duplicates := found.total("duplicate"):
                rest += f" Settled more than once: {duplicates:,}."
        case "failed":
            kind, first = "bad", f"{found.total('lost'):,} lost, {counted(found.total('phantom'), 'phantom')}."
            rest = "Look at the exceptions below."
            if not any(found.total(each) for each in BAD):
                first = f"{counted(found.total('duplicate'), 'duplicate')},"
                rest = f"where each message was to be settled exactly once. {rest}"
        case _:
            kind, first = "bad", "Nothing is proven:"
            rest = (
                f"{'; '.join(_lacking(found)) or 'not all could be judged'}. Of what could be judged, nothing is lost."
            )
    return f'<div class="note {kind}"><strong>{first}</strong> {escaped(rest)}</div>'


def _lacking(found: Reconciliation) -> list[str]:
    """What keeps it from being a proof."""
    told = []
    if unjudged := found.total("unjudged"):
        told.append(f"{counted(unjudged, 'message')} could not be judged")
    for kind, count in found.lacking.items():
        match kind:
            case "missing_records":
                told.append("audit records are missing")
            case "damaged_file":
                told.append(f"{counted(count, 'audit file')} with lines that could not be read")
            case "unreached":
                told.append(f"{counted(count, 'place')} could not be browsed")
            case _:
                told.append(words(kind))
    return told


def _extent(found: Reconciliation) -> str:
    told = f"<p class='dim'>Accepted until {escaped(found.cut_off)}.</p>" if found.cut_off else ""
    if found.skipped_lines:
        told += f"<p>Lines of audit files that could not be read: {found.skipped_lines:,}</p>"
    if found.skipped_sends:
        told += f"<p>Lines of the sender's record that could not be compared: {found.skipped_sends:,}</p>"
    return told


def _chart(shown: list[Reconciled]) -> str:
    if not shown:
        return "<p>There was nothing to reconcile.</p>"
    legend = [(words(name), colour) for name, colour in OUTCOMES]
    rows = [
        Bar(each.name, tuple([each.figures[name] for name, _ in OUTCOMES]), f"{each.figures['accepted']:,} accepted")
        for each in shown
    ]
    title = "What became of accepted messages"
    return figure(title, bars("reconciliation-chart", title, rows, legend, WIDTH))


def _entities(found: Reconciliation, ordered: list[Reconciled]) -> str:
    rows = [(each.namespace, each.entity, *[f"{each.figures[name]:,}" for name in FIGURES]) for each in ordered]
    totals = ("in all", "", *[f"{found.total(name):,}" for name in FIGURES])
    headings = ("namespace", "entity", *[words(name) for name in FIGURES])
    return table_of("By entity", headings, rows, totals, figures_from=2)


def _exceptions(found: Reconciliation) -> str:
    if not found.exceptions:
        return ""
    shown = found.exceptions[:SHOWN_EXCEPTIONS]
    rows = [
        (
            words(_plain(each.get("kind"))),
            *[_plain(each.get(name)) for name in COLUMNS[1:]],
            _plain({name: value for name, value in each.items() if name not in COLUMNS}),
        )
        for each in shown
    ]
    count = max(found.exception_count, len(found.exceptions))
    caption = "Exceptions" if len(shown) == count else f"The first {len(shown):,} of {count:,} exceptions"
    headings = (*[words(name) for name in COLUMNS], "more")
    return table_of(caption, headings, rows, figures_from=len(headings))


def _plain(value: object) -> str:
    """Whatever an exception tells, for people."""
    if isinstance(value, dict):
        told = {name: _plain(each) for name, each in value.items()}
        return ", ".join([f"{words(str(name))} {text}" for name, text in told.items() if text])
    if isinstance(value, list):
        return "; ".join([_plain(each) for each in value])
    return "" if value is None else str(value)
