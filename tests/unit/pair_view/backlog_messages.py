"""Messages as the broker holds them."""

from __future__ import annotations

from tandembus.amqp.encoding.sections import application_properties_section, data_section, properties_section
from tandembus.message import Message, parse_message


def plain_message(properties: dict[str, object] | None = None) -> Message:
    named = b"" if properties is None else application_properties_section(properties)
    return parse_message(properties_section(message_id="1") + named + data_section(b"x"))


def backlog_message(path: str) -> Message:
    return plain_message({"x-ms-path": path})
