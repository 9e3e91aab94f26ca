"""The log: one record is one line, whatever stands in it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus import logs
from tandembus.logs import MAX_ID_CHARACTERS, ConnectionLog, HumanFormatter, JsonFormatter, about, ids
from tests.covers import covers

FORGED = "orders\n2031-01-01 00:00:00,000 CRITICAL tandembus: all is lost\r\x1b[2K\u2028"


def record(
    message: str, *arguments: object, error: BaseException | None = None, extra: dict[str, str] | None = None
) -> logging.LogRecord:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("tandembus.amqp", logging.WARNING, __file__, 1, message, arguments, exc_info)
    made.__dict__.update(extra or {})
    return made


def raised(text: str) -> BaseException:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


@covers("B5")
def test_a_record_is_one_json_object_with_all_that_is_known() -> None:
    made = record("'%s' is refused", "orders", error=raised("why"), extra=ids("amqp-7", "link-1"))
    made.created = 1_936_787_415.25
    entry = json.loads(JsonFormatter("broker-0").format(made))
    trace = entry.pop("exception")
    assert entry == {
        "time": "2031-05-17T12:30:15.250Z",
        "level": "WARNING",
        "logger": "tandembus.amqp",
        "message": "'orders' is refused",
        "process": "broker-0",
        "connection": "amqp-7",
        "link": "link-1",
    }
    assert trace.startswith("Traceback")
    assert trace.endswith("ValueError: why")


@covers("B5")
def test_a_connection_tells_of_itself_and_its_links_to_those_who_ask_for_everything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    quiet_and_loud = logging.getLogger("tandembus.connections")
    told = ConnectionLog(quiet_and_loud, "amqp-7")
    with caplog.at_level(logging.INFO, quiet_and_loud.name):
        told.tell("a link of '%s' is detached", "orders", link="link-1")
    assert caplog.records == []
    with caplog.at_level(logging.DEBUG, quiet_and_loud.name):
        told.tell("a link of '%s' is detached", "orders", link="l" * 1000)
        told.tell("ended")
    entries = [json.loads(JsonFormatter("").format(each)) for each in caplog.records]
    assert [(each["message"], each["connection"], each.get("link")) for each in entries] == [
        ("a link of 'orders' is detached", "amqp-7", "l" * MAX_ID_CHARACTERS),
        ("ended", "amqp-7", None),
    ]


@covers("B5")
def test_what_is_not_known_is_left_out() -> None:
    assert set(json.loads(JsonFormatter("").format(record("ready")))) == {"time", "level", "logger", "message"}


@covers("B5")
def test_people_read_the_same_in_one_line() -> None:
    line = HumanFormatter("broker-0").format(record("'%s' is refused", "orders", extra=ids("amqp-7", "link-1")))
    assert line.endswith(" WARNING tandembus.amqp [broker-0]: 'orders' is refused (connection amqp-7, link link-1)")


@pytest.mark.parametrize("formatter", [HumanFormatter(""), JsonFormatter("")])
@covers("B5")
def test_a_name_with_line_breaks_makes_up_no_record(formatter: logging.Formatter) -> None:
    made = record("'%s' is refused", FORGED, error=raised(FORGED), extra=ids("amqp-7", FORGED))
    lines = formatter.format(made).splitlines()
    assert [line for line in lines[1:] if not line.startswith("    ")] == []
    assert not any("\x1b" in line for line in lines)


@given(st.text(), st.text(), st.text())
@covers("B5")
def test_any_text_stays_in_its_record(message: str, link: str, error: str) -> None:
    made = record("%s", message, error=raised(error), extra=ids("amqp-1", link))
    line = JsonFormatter("").format(made)
    assert line.isascii()
    assert line.isprintable()
    entry = json.loads(line)
    assert (entry["message"], entry["link"]) == (message, link[:MAX_ID_CHARACTERS])
    first, *more = HumanFormatter("").format(made).split("\n")
    assert first.splitlines() == [first]
    assert "\x1b" not in first
    assert all(line.startswith("    ") for line in more)


@covers("B5")
async def test_what_a_task_logs_is_about_what_it_was_started_for() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return JsonFormatter("").format(record("inside"))

    with about(ids("amqp-1", "link-1")):
        task = asyncio.create_task(work())
    outside = JsonFormatter("").format(record("outside"))
    assert json.loads(await task)["link"] == "link-1"
    assert "link" not in json.loads(outside)


@pytest.mark.parametrize(
    ("log_format", "is_terminal", "is_json"),
    [("auto", True, False), ("auto", False, True), ("human", False, False), ("json", True, True)],
)
@covers("B5")
def test_people_get_theirs_on_a_terminal_and_programs_elsewhere(
    monkeypatch: pytest.MonkeyPatch, log_format: str, is_terminal: bool, is_json: bool
) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    stream, root = Stream(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    monkeypatch.setattr(sys, "stderr", stream)
    root.handlers = []
    try:
        logs.set_up("info", log_format, "main")
        logging.getLogger("tandembus.test").info("hello")
    finally:
        root.handlers, root.level = handlers, level
        logging.captureWarnings(False)
    assert stream.getvalue().startswith("{") == is_json
