"""What the document says of messages and rules as JSON is what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tandembus.front_end.http.api import acting, browsing, message_json, rules, sending
from tandembus.front_end.http.api.typed_values import TYPES
from tandembus.limits import Limits
from tandembus.message import parse_message

DOCUMENT = (Path(__file__).parents[5] / "docs" / "http.md").read_text()


def test_every_type_is_documented() -> None:
    assert [kind for kind in TYPES if f"`{kind}`" not in DOCUMENT] == []


def test_every_key_of_a_message_is_documented() -> None:
    (example,) = re.findall(r'```json\n(\{"sequence_number".*?)```', DOCUMENT, re.DOTALL)
    shown = message_json.message_json(parse_message(b"\x00\x53\x75\xa0\x00"), 1, 0, message_json.WHOLE)
    assert json.loads(example).keys() == shown.keys()


def test_the_bounds_are_documented() -> None:
    assert f"at most {browsing.MAX_TOP})" in DOCUMENT
    assert f"{browsing.SCAN_MESSAGES:,} messages or {browsing.SCAN_BYTES >> 20} MiB" in DOCUMENT
    assert f"cut at {message_json.LISTED_BODY_BYTES >> 10} KiB" in DOCUMENT
    assert f"up to {message_json.SHOWN_BODY_BYTES >> 20} MiB" in DOCUMENT
    assert f"up to {browsing.REASON_MESSAGES:,} messages" in DOCUMENT
    assert f"at most {browsing.MAX_SESSIONS:,})" in DOCUMENT
    assert f"up to {Limits().max_management_messages:,} numbers" in DOCUMENT
    assert f"the first {acting.MAX_FAILURES} failures" in DOCUMENT
    assert f"{sending.AROUND_BYTES >> 10} KiB more" in DOCUMENT
    assert f"`top=M` (at most {rules.MAX_TOP:,})" in DOCUMENT
