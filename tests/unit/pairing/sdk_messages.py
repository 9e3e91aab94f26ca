"""Messages of the SDK in all shapes, and what it makes of them on the wire."""

from __future__ import annotations

import copy
import datetime
import uuid
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

AT = datetime.datetime(2031, 5, 17, 12, 30, 15, 250_000, tzinfo=datetime.UTC)
AT_MS = 1_936_787_415_250

PROPERTIES: dict[str | bytes, Any] = {
    "text": "grüße",
    "empty": "",
    "long text": "x" * 300,
    "nothing": None,
    "yes": True,
    "no": False,
    "int": -7,
    "widest int": 2**31 - 1,
    "float": 0.1,
    "id": uuid.UUID(int=77),
    "time": AT,
    "ubyte": {"TYPE": "UBYTE", "VALUE": 200},
    "ushort": {"TYPE": "USHORT", "VALUE": 60_000},
    "uint": {"TYPE": "UINT", "VALUE": 4_000_000_000},
    "ulong": {"TYPE": "ULONG", "VALUE": 2**64 - 1},
    "byte": {"TYPE": "BYTE", "VALUE": -100},
    "short": {"TYPE": "SHORT", "VALUE": -30_000},
    "long": {"TYPE": "LONG", "VALUE": 5},
    "single": {"TYPE": "FLOAT", "VALUE": 0.5},
    "binary": {"TYPE": "BINARY", "VALUE": b"\x00\xff"},
    "symbol": {"TYPE": "SYMBOL", "VALUE": b"sym"},
}

BODIES: dict[str, AmqpAnnotatedMessage] = {
    "data": AmqpAnnotatedMessage(data_body=b"\x00\xff hello"),
    "several data": AmqpAnnotatedMessage(data_body=[b"one", b"", b"three"]),
    "large data": AmqpAnnotatedMessage(data_body=b"z" * 200_000),
    "empty data": AmqpAnnotatedMessage(data_body=b""),
    "text value": AmqpAnnotatedMessage(value_body="hello"),
    "null value": AmqpAnnotatedMessage(value_body=None),
    "map value": AmqpAnnotatedMessage(value_body={"a": [1, 2.5, None, b"x"], "t": AT}),
    "sequence": AmqpAnnotatedMessage(sequence_body=[["a", 1, True], [uuid.UUID(int=3)]]),
}


def full_message(body: bytes | str = b"hello") -> ServiceBusMessage:
    """Every property that the SDK has."""
    message = ServiceBusMessage(
        body,
        application_properties=dict(PROPERTIES),
        session_id="session-1",
        message_id="message-1",
        scheduled_enqueue_time_utc=AT,
        time_to_live=datetime.timedelta(hours=3),
        content_type="text/plain",
        correlation_id="correlation-1",
        subject="greeting",
        partition_key="session-1",
        to="there",
        reply_to="here",
        reply_to_session_id="session-2",
    )
    raw = message.raw_amqp_message
    assert raw.header is not None
    assert raw.properties is not None
    raw.header.priority = 7
    raw.properties.user_id = b"someone"
    raw.properties.content_encoding = "gzip"
    raw.properties.group_sequence = 4
    raw.annotations = {**(raw.annotations or {}), b"x-opt-mine": "kept"}
    raw.footer = {b"x-checksum": 12}
    return message


def annotated(raw: AmqpAnnotatedMessage) -> ServiceBusMessage:
    """A message of its own: what a test gives it, the next one does not find in `BODIES`."""
    return ServiceBusMessage(None, message=None, raw_amqp_message=copy.deepcopy(raw))


def wire(message: ServiceBusMessage) -> bytes:
    """What the SDK would send."""
    batch = ServiceBusMessageBatch(max_size_in_bytes=1 << 30)
    batch.add_message(message)
    return bytes(batch._message[5][0])
