"""Answers: tables and colours for people, JSON for programs. Both are written from the same plain records."""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from tandembus.cli.parameters import moment_text
from tandembus.cli.printable import printable, printable_json
from tandembus.client.messages import ReceivedMessage

PREVIEW_CHARACTERS: Final = 60
BINARY_BYTES: Final = 16
ID_HEADING: Final = "message id"
ID_CHARACTERS: Final = 24
PIPED_WIDTH: Final = 100_000


def console() -> Console:
    """For people. What is piped is not wrapped: a line of a table stays a line for `grep`."""
    return Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)


def say(*parts: str | tuple[str, str]) -> None:
    """One line, from texts and (text, style); none of them is taken for markup or obeyed by the terminal."""
    safe = [printable(part) if isinstance(part, str) else (printable(part[0]), part[1]) for part in parts]
    console().print(Text.assemble(*safe), soft_wrap=True)


def progress_bar() -> Progress:
    """For work of any length; on standard error, so that the answer itself can be piped, and for people only."""
    errors = Console(stderr=True)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )


def print_json(record: Mapping[str, object]) -> None:
    click.echo(printable_json(json.dumps(_for_json(record), ensure_ascii=False, allow_nan=False)))


def print_fields(fields: Mapping[str, object]) -> None:
    """One record, one line per field."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(name, _shown(value))
    console().print(table)


def print_table(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    table = Table(box=None, header_style="bold cyan", pad_edge=False)
    for heading in headings:
        if heading == ID_HEADING and sys.stdout.isatty():
            table.add_column(heading, overflow="ellipsis", no_wrap=True, max_width=ID_CHARACTERS)
        else:
            table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*[_shown(value) for value in row])
    console().print(table)


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
    line: list[str | tuple[str, str]] = [(str(record["sequence_number"]), "bold")]
    line += ["  ", (str(record["message_id"]), "cyan")]
    shown = (
        "enqueued_at",
        "state",
        "delivery_count",
        "subject",
        "session_id",
        "content_type",
        "dead_letter_reason",
    )
    for name in shown:
        if record[name] not in (None, 0, "active"):
            line += ["  ", (name, "dim"), f"={record[name]}"]
    say(*line)
    for name, value in message.properties.items():
        say("  ", (str(name), "dim"), f"={_plain(value)}")
    click.echo(body_text(message))


def body_text(message: ReceivedMessage) -> str:
    """The body for people: its lines as they are, control characters written out, other bytes in short."""
    body = message.body
    return text_or_binary(body) if isinstance(body, bytes) else printable(repr(body))


def text_or_binary(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return _binary(content)
    return _binary(content) if "\0" in text else printable(text, keep="\n\t")


def _binary(body: bytes) -> str:
    more = "..." if len(body) > BINARY_BYTES else ""
    return f"<binary, {counted(len(body), 'byte')}: {body[:BINARY_BYTES].hex()}{more}>"


def preview(message: ReceivedMessage) -> str:
    """The beginning of the body, on one line."""
    text = " ".join(body_text(message).split())
    return text if len(text) <= PREVIEW_CHARACTERS else text[: PREVIEW_CHARACTERS - 1] + "…"


def short_moment(seconds: float | None) -> str | None:
    """For tables: to the second, in UTC."""
    text = moment_text(seconds)
    return None if text is None else text[:19].replace("T", " ")


def counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


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


def _shown(value: object) -> Text:
    if isinstance(value, Text):
        return value
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    return Text("-" if value is None else printable(f"{value:,}" if isinstance(value, int) else str(value)))
