"""What every part of a report is made of: sections, figures, tables. Text is escaped here, and nowhere twice."""

from __future__ import annotations

from collections.abc import Sequence

from tandembus.spark.jobs.report_text import escaped


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def words(name: str) -> str:
    return name.replace("_", " ")


def section(identity: str, title: str, *parts: str) -> str:
    return f'<section aria-labelledby="{identity}-h"><h2 id="{identity}-h">{title}</h2>{"".join(parts)}</section>'


def figure(title: str, chart: str) -> str:
    return f"<figure><figcaption>{escaped(title)}</figcaption>{chart}</figure>"


def with_table(chart: str, table: str) -> str:
    return f'<div class="beside">{chart}{table}</div>'


def folded(summary: str, table: str) -> str:
    return f"<details><summary>{escaped(summary)}</summary>{table}</details>"


def table_of(
    caption: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    total: Sequence[str] | None = None,
    figures_from: int = 1,
) -> str:
    """The first column names the row; figures are set right, from the given column on."""
    head = "".join([_cell("th", text, place >= figures_from, ' scope="col"') for place, text in enumerate(headings)])
    body = [_row(row, figures_from) for row in rows]
    if total is not None:
        body.append(_row(total, figures_from, ' class="total"'))
    told = f"<caption>{escaped(caption)}</caption>" if caption else ""
    return f'<div class="table"><table>{told}<thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def _row(row: Sequence[str], figures_from: int, attributes: str = "") -> str:
    cells = [
        _cell("td" if place else "th", text, place >= figures_from, "" if place else ' scope="row"')
        for place, text in enumerate(row)
    ]
    return f"<tr{attributes}>{''.join(cells)}</tr>"


def _cell(tag: str, text: str, is_figure: bool, attributes: str) -> str:
    kind = ' class="n"' if is_figure else ""
    return f"<{tag}{kind}{attributes}>{escaped(text)}</{tag}>"
