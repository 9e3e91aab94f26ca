"""What the log looks like: for people on a terminal, else one JSON object per line.

Names and texts in it come from strangers. A line is one line whatever they hold, so nobody can make up another; what
must not stand in a log at all (keys, tokens, bodies) is never given to it.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, final

from tandembus.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

AUTO: Final = "auto"
HUMAN: Final = "human"
JSON: Final = "json"
FORMATS: Final = (AUTO, HUMAN, JSON)
MAX_ID_CHARACTERS: Final = 128
"""Clients choose the names of their links."""

_NO_IDS: Final[dict[str, str]] = {}
_IDS: Final[ContextVar[dict[str, str]]] = ContextVar("ids", default=_NO_IDS)


def ids(connection: str, link: str | None = None) -> dict[str, str]:
    """What a record is about, for `extra=`."""
    found = {"connection": connection}
    if link is not None:
        found["link"] = link[:MAX_ID_CHARACTERS]
    return found


@final
class ConnectionLog:
    """What is told of one connection, for those who ask for everything. While nobody does, a line costs one call: links
    come and go by the ten thousand."""

    def __init__(self, log: logging.Logger, connection: str) -> None:
        self._log = log
        self.connection: Final = connection

    def tell(self, text: str, *details: object, link: str | None = None) -> None:
        if self._log.isEnabledFor(logging.DEBUG):
            self._log.debug(text, *details, extra=ids(self.connection, link))


@contextmanager
def about(found: dict[str, str]) -> Iterator[None]:
    """Whatever is logged meanwhile, and in tasks that are started meanwhile, is about these."""
    token = _IDS.set(found)
    try:
        yield
    finally:
        _IDS.reset(token)


def begin_about(found: dict[str, str]) -> None:
    """The same until the task ends that calls this."""
    _IDS.set(found)


def set_up(level: str, log_format: str, process: str = "") -> None:
    """For the whole process, which may be one of several (`process`)."""
    handler = logging.StreamHandler(sys.stderr)
    is_human = sys.stderr.isatty() if log_format == AUTO else log_format == HUMAN
    handler.setFormatter(HumanFormatter(process) if is_human else JsonFormatter(process))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)


def _ids_of(record: logging.LogRecord) -> dict[str, str]:
    found = {name: getattr(record, name) for name in ("connection", "link") if hasattr(record, name)}
    return {**_IDS.get(), **found}


class HumanFormatter(logging.Formatter):
    """What follows the first line of a record is indented: whatever it says, it does not look like a record."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._who = f" [{process}]" if process else ""

    def format(self, record: logging.LogRecord) -> str:
        found = _ids_of(record)
        about_what = f" ({', '.join(f'{name} {one}' for name, one in found.items())})" if found else ""
        text = f"{record.getMessage()}{about_what}"
        head = f"{self.formatTime(record)} {record.levelname} {record.name}{self._who}: {printable(text)}"
        return "\n".join([head, *[f"    {printable(line)}" for line in _trace(record).splitlines()]])


class JsonFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        entry: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._process:
            entry["process"] = self._process
        entry.update(_ids_of(record))
        trace = _trace(record)
        if trace:
            entry["exception"] = trace
        return json.dumps(entry)


def _trace(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[1] is None:
        return ""
    return "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
