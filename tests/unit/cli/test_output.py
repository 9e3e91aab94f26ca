"""What commands print: the JSON shapes that programs rely on, and text that cannot be mistaken for markup."""

import json

import pytest

from tandembus.amqp.encoding.sections import data_section
from tandembus.cli.entity_output import entity_fields, entity_record
from tandembus.cli.output import (
    body_text,
    counted,
    message_record,
    preview,
    print_fields,
    print_json,
    print_message,
    print_table,
    say,
)
from tandembus.client import OutgoingMessage, ReceivedMessage
from tandembus.client.durations import NEVER
from tandembus.client.entities import EntityCounts, EntityInfo, QueueSettings

MESSAGE_FIELDS = [
    "sequence_number",
    "message_id",
    "body",
    "body_base64",
    "properties",
    "subject",
    "content_type",
    "correlation_id",
    "session_id",
    "to",
    "reply_to",
    "reply_to_session_id",
    "partition_key",
    "time_to_live_s",
    "state",
    "delivery_count",
    "enqueued_at",
    "scheduled_at",
    "locked_until",
    "lock_token",
    "dead_letter_reason",
    "dead_letter_description",
]


def received(message: OutgoingMessage) -> ReceivedMessage:
    return ReceivedMessage(message.encode(), bytes(16), 0)


def test_a_message_has_the_documented_fields() -> None:
    record = message_record(received(OutgoingMessage("héllo", message_id="1", properties={"n": 1})))
    assert list(record) == MESSAGE_FIELDS
    assert (record["body"], record["body_base64"]) == ("héllo", None)
    assert record["properties"] == {"n": 1}


def test_a_body_that_is_not_text_is_base64() -> None:
    record = message_record(received(OutgoingMessage(b"\xff\x00")))
    assert (record["body"], record["body_base64"]) == (None, "/wA=")


def test_any_property_can_be_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    properties: dict[str, object] = {"bytes": b"\xff", "list": [1, b"x"]}
    print_json(message_record(received(OutgoingMessage("x", properties=properties))))
    record = json.loads(capsys.readouterr().out)
    assert record["properties"] == {"bytes": "/w==", "list": [1, "eA=="]}
    assert record["lock_token"] == "00000000-0000-0000-0000-000000000000"


def test_text_from_outside_is_not_taken_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    message = OutgoingMessage("[red]body[/]", message_id="[bold]id", properties={"[k]": "[/nothing]"})
    print_message(received(message))
    out = capsys.readouterr().out
    assert "[bold]id" in out
    assert "[k]=[/nothing]" in out
    assert "[red]body[/]" in out


def test_a_preview_is_one_short_line() -> None:
    assert preview(ReceivedMessage(data_section(b"a\n  b"))) == "a b"
    assert len(preview(ReceivedMessage(data_section(b"x" * 1000)))) == 60


def test_a_queue_has_the_documented_fields() -> None:
    settings = QueueSettings(lock_duration_s=60.0, default_time_to_live_s=NEVER, max_delivery_count=10)
    queue = EntityInfo("orders", settings, EntityCounts(active=3), "2024-01-01T00:00:00Z")
    record = entity_record(queue)
    assert (record["lock_duration_s"], record["default_time_to_live_s"]) == (60.0, None)
    assert record["counts"] == {
        "active": 3,
        "dead_letter": 0,
        "scheduled": 0,
        "transfer": 0,
        "transfer_dead_letter": 0,
        "size_bytes": 0,
    }
    fields = entity_fields(queue)
    assert (fields["lock duration"], fields["default time to live"]) == ("1m", "never")
    assert fields["active messages"] == 3


def test_counts_are_written_as_people_do() -> None:
    assert [counted(count, "message") for count in (0, 1, 2000)] == ["0 messages", "1 message", "2,000 messages"]


EVIL = "\x1b]0;owned\x07\x9b2J\b\u202e"
ESCAPED = "\\x1b]0;owned\\x07\\x9b2J\\x08\\u202e"


@pytest.mark.parametrize("text", [EVIL, "end\\", ":smile:", "[/]"])
def test_nothing_from_outside_reaches_a_terminal_as_it_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    message = received(OutgoingMessage(text, message_id=text, subject=text, properties={text: text}))
    print_message(message)
    print_table(["message id", "body"], [[message.message_id, preview(message)]])
    print_fields({"name": text})
    say("created ", (text, "bold"))
    out = capsys.readouterr().out
    shown = text.replace(EVIL, ESCAPED)
    assert out.count(shown) == 9
    assert all(character.isprintable() or character == "\n" for character in out)


def test_a_body_keeps_its_lines_and_other_bytes_are_told_in_short() -> None:
    assert body_text(ReceivedMessage(data_section("a\n\té\x1b[2J".encode()))) == "a\n\té\\x1b[2J"
    assert body_text(ReceivedMessage(data_section(b"\xff\x00"))) == "<binary, 2 bytes: ff00>"
    assert body_text(ReceivedMessage(data_section(b"\x00" * 312))) == f"<binary, 312 bytes: {'00' * 16}...>"


def test_json_is_valid_and_harmless_whatever_a_message_holds(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = {"nan": float("nan"), "up": float("inf"), "down": [float("-inf")], "half": 0.5}
    print_json({"text": EVIL + "é\U000e0001", "numbers": numbers, "keys": {1: None, b"\xff": True}})
    out = capsys.readouterr().out
    assert out.strip().isprintable()
    assert json.loads(out) == {
        "text": EVIL + "é\U000e0001",
        "numbers": {"nan": "NaN", "up": "Infinity", "down": ["-Infinity"], "half": 0.5},
        "keys": {"1": None, "/w==": True},
    }


def test_a_piped_table_has_one_line_per_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["message id", "body"], [["i" * 300, "b" * 300]])
    assert len(capsys.readouterr().out.splitlines()) == 2
