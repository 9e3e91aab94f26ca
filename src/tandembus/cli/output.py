"""Answers: tables and colours for people, JSON for programs. Both are written from the same plain records."""

from __future__ import annotations

import base64
import json
import math
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

import click

from tandembus.clock import SystemClock
from tandembus.printable import printable, printable_json

if TYPE_CHECKING:
    from tandembus.client.messages import ReceivedMessage

PREVIEW_CHARACTERS: Final = 60
BINARY_BYTES: Final = 16
ID_HEADING: Final = "message id"
ID_CHARACTERS: Final = 24
GAP: Final = "  "
NARROWEST: Final = 20
"""Columns of a terminal below which the last column of a table is not folded."""
REDRAWN_EVERY_S: Final = 0.1
_NUMBER: Final = re.compile(r"(at least )?[-+]?\d[\d,]*(\.\d+)?( ?[A-Za-z]{1,3})?")
_NO_NUMBER: Final = ("-", "unknown", "not priced")
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_SECONDS: Final = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}

Part = str | tuple[str, str]
"""A text, or a text with its style: a colour, `bold`, `dim`, or several of them."""
Cell = list[tuple[str, str]]


class Size(int):
    """A number of bytes: people see it with a unit, programs as a number."""


def say(*parts: Part) -> None:
    """Prints one line. No part is obeyed by the terminal, whoever has written it."""
    click.echo("".join([_styled(*part) for part in _cell(list(parts))]))


def note(text: str, label: str = "Note:  ", colour: str = "yellow") -> None:
    """Prints a line beside the answer: to standard error."""
    click.echo(_styled(label, colour) + printable(text), err=True)


def print_json(record: Mapping[str, object]) -> None:
    click.echo(printable_json(json.dumps(_for_json(record), ensure_ascii=False, allow_nan=False)))


def print_fields(fields: Mapping[str, object]) -> None:
    """One record, one line per field."""
    width = max([_width(name) for name in fields], default=0)
    for name, value in fields.items():
        click.echo(_styled(_padded(name, width), "cyan") + GAP + "".join([_styled(*part) for part in _cell(value)]))


def print_table(headings: Iterable[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns of numbers are aligned to the right. What is piped stays one line per row, for `grep`; on a terminal the
    last column is folded where the line would be too long."""
    heads = list(headings)
    is_terminal = sys.stdout.isatty()
    table = [[_cell(value) for value in row] for row in rows]
    if is_terminal and ID_HEADING in heads:
        for cells in table:
            cells[heads.index(ID_HEADING)] = _cut(cells[heads.index(ID_HEADING)], ID_CHARACTERS)
    columns = [[_plain_text(row[place]) for row in table] for place in range(len(heads))]
    widths = [max(map(_width, [head, *column])) for head, column in zip(heads, columns, strict=True)]
    is_right = [_is_numeric(column) for column in columns]
    room = shutil.get_terminal_size().columns - sum(widths[:-1]) - len(GAP) * (len(heads) - 1)
    for cells in [[[(head, "bold cyan")] for head in heads], *table]:
        lines = _folded(cells[-1], room) if is_terminal and room >= NARROWEST else [cells[-1]]
        for number, last in enumerate(lines):
            shown = [*(cells[:-1] if number == 0 else [[("", "")]] * (len(cells) - 1)), last]
            texts = [_aligned(*each) for each in zip(shown, widths, is_right, strict=True)]
            click.echo(GAP.join(texts).rstrip())


def _cell(value: object) -> Cell:
    """Renders a value for people, with control characters written out."""
    if isinstance(value, list):
        return [part for each in value for part in _cell(each)] or [("", "")]
    text, style = value if isinstance(value, tuple) else (value, "")
    if isinstance(text, bool):
        text = "yes" if text else "no"
    elif isinstance(text, Size):
        text = size_words(text)
    elif isinstance(text, int):
        text = f"{text:,}"
    return [("-" if text is None else printable(str(text)), style)]


def _styled(text: str, style: str) -> str:
    words = style.split()
    if not words or "NO_COLOR" in os.environ:
        return text
    colour = next((word for word in words if word not in ("bold", "dim")), None)
    return click.style(text, fg=colour, bold="bold" in words or None, dim="dim" in words or None)


def _plain_text(cell: Cell) -> str:
    return "".join([text for text, _ in cell])


def _is_numeric(column: Sequence[str]) -> bool:
    given = [text for text in column if text not in _NO_NUMBER]
    return bool(given) and all(_NUMBER.fullmatch(text) for text in given)


def _width(text: str) -> int:
    """Columns of a terminal: some characters take two, marks on others none."""
    if text.isascii():
        return len(text)
    return sum([(unicodedata.east_asian_width(one) in "WF") + (not unicodedata.combining(one)) for one in text])


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _aligned(cell: Cell, width: int, is_right: bool) -> str:
    text = "".join([_styled(*part) for part in cell])
    room = " " * (width - _width(_plain_text(cell)))
    return room + text if is_right else text + room


def _cut(cell: Cell, width: int) -> Cell:
    text, style = cell[0]
    return cell if len(text) <= width else [(text[: width - 1] + "…", style)]


def _folded(cell: Cell, width: int) -> list[Cell]:
    if len(cell) > 1 or _width(cell[0][0]) <= width:
        return [cell]
    text, style = cell[0]
    return [[(text[first : first + width], style)] for first in range(0, len(text), width)]


def write_over(text: str = "") -> None:
    """Replaces the line of progress on standard error, or clears it; prints nothing into a pipe or file."""
    if sys.stderr.isatty():
        columns = shutil.get_terminal_size().columns
        click.echo("\r\x1b[K" + printable(text)[: columns - 1], err=True, nl=False)


class ProgressLine:
    """A line on standard error that is written over while work goes on; nothing where no person watches."""

    def __init__(self, label: str, total: int | None = None, shown: Callable[[int], str] = "{:,}".format) -> None:
        self.total = total
        self.is_shown = sys.stderr.isatty()
        self._label: Final = label
        self._shown: Final = shown
        self._clock: Final = SystemClock()
        self._done = 0
        self._redrawn_at = -math.inf

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def clear(self) -> None:
        """Before something else is printed."""
        if self.is_shown:
            write_over()

    def advance(self, count: int) -> None:
        self.update(self._done + count)

    def update(self, done: int) -> None:
        self._done = done
        now = self._clock.monotonic()
        if self.is_shown and now >= self._redrawn_at + REDRAWN_EVERY_S:
            self._redrawn_at = now
            whole = f" of {self._shown(self.total)} ({100 * done // self.total} %)" if self.total else ""
            write_over(f"{self._label} {self._shown(done)}{whole}")


# Values for people.


def counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def count_words(count: int | None, is_limited: bool) -> int | str:
    """A count of an entity. `is_limited`: a part of the entity is out of reach and not counted."""
    if count is None:
        return "unknown"
    shown = size_words(count) if isinstance(count, Size) else f"{count:,}"
    return f"at least {shown}" if is_limited else count


def size_words(size_bytes: int) -> str:
    """A size to three digits or so, with its unit."""
    power = min(max(size_bytes.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{size_bytes / 1024**power:,.1f} {_UNITS[power]}" if power else f"{size_bytes} B"


def duration_words(seconds: float) -> str:
    """A duration as a person would write it, and as `duration` reads it."""
    if seconds == math.inf:
        return "never"
    for unit, length in _SECONDS.items():
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:g}s"


def moment_text(seconds: float | None) -> str | None:
    """ISO 8601 in UTC, to the millisecond."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def short_moment(seconds: float | None) -> str | None:
    """For tables: to the second, in UTC."""
    text = moment_text(seconds)
    return None if text is None else text[:19].replace("T", " ")


# Messages.


def message_record(message: ReceivedMessage) -> dict[str, object]:
    """A message in JSON. `body` is text where the body is UTF-8 text; `body_base64` holds any other bytes."""
    body = message.body
    text, encoded = text_and_base64(body) if isinstance(body, bytes) else (body, None)
    return {
        "sequence_number": message.sequence_number,
        "message_id": message.message_id,
        "body": text,
        "body_base64": encoded,
        "properties": message.properties,
        "subject": message.subject,
        "content_type": message.content_type,
        "correlation_id": message.correlation_id,
        "session_id": message.session_id,
        "to": message.to,
        "reply_to": message.reply_to,
        "reply_to_session_id": message.reply_to_session_id,
        "partition_key": message.partition_key,
        "time_to_live_s": message.time_to_live_s,
        "state": message.state,
        "delivery_count": message.delivery_count,
        "enqueued_at": moment_text(message.enqueued_at),
        "scheduled_at": moment_text(message.scheduled_at),
        "locked_until": moment_text(message.locked_until),
        "lock_token": message.lock_token,
        "dead_letter_reason": message.dead_letter_reason,
        "dead_letter_description": message.dead_letter_description,
    }


def text_and_base64(content: bytes) -> tuple[str | None, str | None]:
    """Bytes in JSON: as text where they are UTF-8 text, else in base64; the one that does not apply is None."""
    try:
        return content.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(content).decode()


def print_message(message: ReceivedMessage) -> None:
    """One message for people: a line about it, its properties, its body."""
    record = message_record(message)
    line: list[Part] = [(str(record["sequence_number"]), "bold"), GAP, (str(record["message_id"]), "cyan")]
    shown = "enqueued_at", "state", "delivery_count", "subject", "session_id", "content_type", "dead_letter_reason"
    for name in shown:
        if record[name] not in (None, 0, "active"):
            line += [GAP, (name, "dim"), f"={record[name]}"]
    say(*line)
    for name, value in message.properties.items():
        say(GAP, (str(name), "dim"), f"={_plain(value)}")
    click.echo(body_text(message))


def body_text(message: ReceivedMessage) -> str:
    """The body for people: its lines as they are, control characters written out, other bytes in short."""
    body = message.body
    return text_or_binary(body) if isinstance(body, bytes) else printable(repr(body))


def text_or_binary(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text:
        return printable(text, keep="\n\t")
    more = "..." if len(content) > BINARY_BYTES else ""
    return f"<binary, {counted(len(content), 'byte')}: {content[:BINARY_BYTES].hex()}{more}>"


def preview(message: ReceivedMessage) -> str:
    """The beginning of the body, on one line."""
    text = " ".join(body_text(message).split())
    return text if len(text) <= PREVIEW_CHARACTERS else text[: PREVIEW_CHARACTERS - 1] + "…"


def _plain(value: object) -> object:
    """Values of application properties that JSON has no form for."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, UUID) else repr(value) if not isinstance(value, (str, int, float)) else value


def _for_json(value: object) -> object:
    """Any value of a message as JSON knows it: it has neither NaN nor infinities, and only texts as names."""
    if isinstance(value, Mapping):
        return {name if isinstance(name, str) else str(_plain(name)): _for_json(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_for_json(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if value is None else _plain(value)
