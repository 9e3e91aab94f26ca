"""The `BrokerProperties` header: a message's own properties as JSON, read from senders and written for receivers.

Whatever a sender writes there is checked before anything is stored: its type, its range, and that it has one meaning
only. What the broker alone may say (sequence number, lock, times) is skipped, since clients send back what they got.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tandembus.errors import InvalidArgument, MalformedData
from tandembus.front_end.http.values import parse_http_time
from tandembus.message import MAX_TTL_MS

HEADER: Final = "BrokerProperties"
MAX_SHOWN: Final = 64

_TEXTS: Final[Mapping[str, str]] = {
    "MessageId": "message_id",
    "CorrelationId": "correlation_id",
    "SessionId": "session_id",
    "Label": "label",
    "To": "to",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
    "PartitionKey": "partition_key",
    "ViaPartitionKey": "via_partition_key",
}
_TIME_TO_LIVE: Final = "TimeToLive"
_SCHEDULED: Final = "ScheduledEnqueueTimeUtc"
_FORCE_PERSISTENCE: Final = "ForcePersistence"
_BROKERS_OWN: Final = (
    "SequenceNumber",
    "EnqueuedSequenceNumber",
    "EnqueuedTimeUtc",
    "DeliveryCount",
    "LockToken",
    "LockedUntilUtc",
    "State",
    "DeadLetterSource",
)
KEYS: Final = (*_TEXTS, _TIME_TO_LIVE, _SCHEDULED, _FORCE_PERSISTENCE, *_BROKERS_OWN)
_BY_FOLDED: Final = {key.lower(): key for key in KEYS}


@dataclass(frozen=True, slots=True)
class BrokerProperties:
    """What a sender says of its message beside the body and its application properties."""

    message_id: str | None = None
    correlation_id: str | None = None
    session_id: str | None = None
    label: str | None = None
    to: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    partition_key: str | None = None
    via_partition_key: str | None = None
    time_to_live_ms: int | None = None
    scheduled_at_ms: int | None = None
    content_encoding: str | None = None
    user_id: bytes | None = None


def read_json(text: str | bytes, name: str) -> object:
    """JSON with one reading only: no NaN, no key twice, no depth that Python cannot follow."""
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_object)
    except RecursionError:
        raise MalformedData(f"{name} is nested too deeply.") from None
    except (ValueError, UnicodeError) as error:
        raise MalformedData(f"{name} is not JSON: {str(error)[:200]}.") from None


def _no_number(constant: str) -> object:
    raise ValueError(f"{constant} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _object(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a key stands twice in an object")
    return entries


def read_broker_properties(header: str) -> BrokerProperties:
    return broker_properties_of(read_json(header, HEADER))


def broker_properties_of(value: object) -> BrokerProperties:
    """From parsed JSON. Raises InvalidArgument with the key that is wrong."""
    if not isinstance(value, dict):
        raise InvalidArgument(f"{HEADER} must be a JSON object.")
    for key in value:
        known = _BY_FOLDED.get(key.lower())
        if known is None:
            raise InvalidArgument(
                f"{HEADER}: '{key[:MAX_SHOWN]}' is an unknown key; the application's own are headers."
            )
        if known != key:
            raise InvalidArgument(f"{HEADER}: '{key}' must be written {known}.")
    fields: dict[str, str | None] = {field: _text(value, key) for key, field in _TEXTS.items()}
    if not isinstance(value.get(_FORCE_PERSISTENCE, False), bool | None):
        raise InvalidArgument(f"{HEADER}: {_FORCE_PERSISTENCE} must be true or false.")
    return BrokerProperties(
        **fields,
        time_to_live_ms=_time_to_live(value.get(_TIME_TO_LIVE)),
        scheduled_at_ms=_scheduled_time(value.get(_SCHEDULED)),
        user_id=None,
    )


def _text(entries: Mapping[str, object], key: str) -> str | None:
    value = entries.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidArgument(f"{HEADER}: {key} must be a string.")
    return checked_text(value, f"{HEADER}: {key}")


def checked_text(text: str, name: str) -> str:
    """JSON and HTTP can both say half a character, which no string of a message can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{name} holds half of a surrogate pair.") from None
    return text


def _time_to_live(value: object) -> int | None:
    """Seconds, with a fraction or not; more than the longest is the longest."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{HEADER}: {_TIME_TO_LIVE} must be a number of seconds.")
    if value <= 0:
        raise InvalidArgument(f"{HEADER}: {_TIME_TO_LIVE} must be more than 0.")
    return time_to_live_ms(value)


def time_to_live_ms(seconds: float) -> int:
    return max(1, int(seconds * 1000)) if seconds < MAX_TTL_MS // 1000 else MAX_TTL_MS


def _scheduled_time(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidArgument(f"{HEADER}: {_SCHEDULED} must be a string with a time.")
    at_ms = parse_http_time(value)
    if at_ms is None:
        raise InvalidArgument(
            f"{HEADER}: {_SCHEDULED} '{value[:MAX_SHOWN]}' is not a time such as 'Sun, 06 Nov 2044 08:49:37 GMT'."
        )
    return at_ms


def write_broker_properties(entries: Mapping[str, object]) -> str:
    """Without what is not there; in ASCII, so that nothing in it can end the header."""
    return json.dumps({key: value for key, value in entries.items() if value is not None}, separators=(",", ":"))
