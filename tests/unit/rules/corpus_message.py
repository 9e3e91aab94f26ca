"""The message that the corpus of filters speaks of, and the parameters that its filters may use."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, datetime, timedelta

from tandembus.amqp.encoding import Described, Encoded, Typed, byte_, char, float_, int_, symbol, timestamp, ulong
from tandembus.amqp.encoding.sections import (
    application_properties_section,
    data_section,
    header_section,
    message_annotations_section,
    properties_section,
)
from tandembus.message import Message, parse_message
from tandembus.rules import MessageView

MOMENT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
MOMENT_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
HOUR_TICKS = HOUR_MS * 10_000
NET_EPOCH_TICKS = 621_355_968_000_000_000
GUID = uuid.UUID("0f0e0d0c-0b0a-0908-0706-050403020100")
SEQUENCE_NUMBER = 41

PROPERTIES: dict[str, object] = {
    "color": "blue",
    "name": "O'Reilly",
    "empty": "",
    "unicode": "Ωmega",
    "symbol": symbol("text/plain"),
    "letter": char("x"),
    "address": Described("com.microsoft:uri", "http://example.com/a"),
    "path": "a/b_c%d",
    "escaped": "a/b!_%",
    "mark": "!",
    "repeats": "abababc",
    "lines": "first\nsecond",
    "long": "%" * 1_025,
    "size": 12,
    "small": int_(7),
    "tiny": byte_(-3),
    "ten": ulong(10),
    "zero": 0,
    "big": 2**63 - 1,
    "least": -(2**63),
    "unsigned": ulong(2**63 + 5),
    "price": 9.5,
    "single": float_(0.5),
    # 125 times ten to the power of -2, as a decimal64 in its binary integer form
    "decimal": Typed(0x84, ((398 - 2) << 53 | 125).to_bytes(8, "big")),
    "nan": math.nan,
    "infinite": math.inf,
    "urgent": True,
    "calm": False,
    "nothing": None,
    "guid": GUID,
    "blob": b"\x00\x01",
    "moment": timestamp(MOMENT_MS),
    "later": timestamp(MOMENT_MS + HOUR_MS),
    "hour": Described("com.microsoft:timespan", HOUR_TICKS),
    "offset": Described("com.microsoft:datetime-offset", NET_EPOCH_TICKS + MOMENT_MS * 10_000),
    "list": [1, 2],
    "map": {"a": 1},
    "strange": Described("example:thing", 1),
    "broken": Encoded(b"\xa1\x02\xff\xfe"),
    "my prop": "spaced",
    "a]b": "bracket",
    'say "hi"': "quoted",
    "with.dot": "dotted",
    "http://schemas.example.com/claim": "account",
    "like": "keyword",
    "sys": "a user's own",
    "p": "color",
    "property": "of that name",
    "Größe": 5,
    "with_underscore1": 1,
    "twin": "first",
    "TWIN": "second",
    "true_color": "navy",
    "android": "no AND in it",
}

PARAMETERS: tuple[tuple[str, object], ...] = (
    ("@twelve", 12),
    ("text", "blue"),
    ("@Pattern", "b%"),
    ("yes", True),
    ("double", 9.5),
    ("moment", MOMENT),
    ("hour", timedelta(hours=1)),
    ("guid", GUID),
    ("blob", b"\x00\x01"),
    ("nil", None),
)


def a_message(properties: dict[str, object] | None = None) -> Message:
    """The message of the corpus, or one with these application properties."""
    payload = (
        header_section(ttl_ms=HOUR_MS)
        + message_annotations_section(
            {
                "x-opt-partition-key": "session-1",
                "x-opt-via-partition-key": "via-1",
                "x-opt-scheduled-enqueue-time": timestamp(MOMENT_MS + HOUR_MS),
                "x-opt-own": 5,
            }
        )
        + properties_section(
            "m-1",
            to="warehouse",
            subject="order",
            reply_to="replies",
            correlation_id="c-77",
            content_type="application/json",
            group_id="session-1",
            reply_to_group_id="answers-1",
        )
        + application_properties_section(PROPERTIES if properties is None else properties)
        + data_section(b"body")
    )
    return parse_message(payload)


def a_view(properties: dict[str, object] | None = None) -> MessageView:
    return MessageView(a_message(properties), SEQUENCE_NUMBER, MOMENT_MS)
