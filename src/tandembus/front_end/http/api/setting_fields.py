"""The settings of queues, topics and subscriptions: what forms show of them, and how they are read from JSON.

Whether a value is in its range is the descriptions' to say (`descriptions/ranges.py`); here is only what it must be to
be a value of its field at all.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tandembus.descriptions import (
    EntityDescription,
    EntityKind,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.descriptions.ranges import DEFAULT_KILOBYTES, LEAST_LARGE_KILOBYTES, MAX_DELIVERY_COUNT
from tandembus.errors import InvalidArgument
from tandembus.limits import Limits

BOOL: Final = "bool"
INT: Final = "int"
DURATION: Final = "duration"
TEXT: Final = "text"
CHOICE: Final = "choice"

KINDS: Final[Mapping[EntityKind, type[EntityDescription]]] = {
    EntityKind.QUEUE: QueueDescription,
    EntityKind.TOPIC: TopicDescription,
    EntityKind.SUBSCRIPTION: SubscriptionDescription,
}
LEFT_OUT: Final = frozenset(["name", "topic_name", "authorization_rules", "is_anonymous_accessible"])
"""Fields of descriptions that are no settings here: what it is called, keys, and what can only be false."""
MAX_INT: Final = 2**53
_UNWRITABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML, in which the SDKs get it, has no place for."""


@dataclass(frozen=True, slots=True)
class Field:
    type: str
    label: str
    help: str
    is_fixed: bool = False
    nullable: bool = False


FIELDS: Final[Mapping[str, Field]] = {
    "status": Field(CHOICE, "Status", "What clients may do with it."),
    "enable_partitioning": Field(
        BOOL, "Enable partitioning", "Spread over 16 fragments, on all brokers and stores.", is_fixed=True
    ),
    "max_size_in_megabytes": Field(
        CHOICE, "Maximum size (MB)", "How much it holds before sends are refused; each fragment of a partitioned one."
    ),
    "requires_session": Field(
        BOOL, "Require sessions", "Messages are received session by session, in order.", is_fixed=True
    ),
    "requires_duplicate_detection": Field(
        BOOL, "Detect duplicates", "A message id that was there within the window is dropped.", is_fixed=True
    ),
    "duplicate_detection_history_time_window_s": Field(
        DURATION, "Duplicate detection window", "How long message ids are remembered."
    ),
    "lock_duration_s": Field(DURATION, "Lock duration", "How long a receiver has a message for itself."),
    "max_delivery_count": Field(
        INT, "Maximum delivery count", "After so many deliveries a message becomes a dead letter."
    ),
    "default_message_time_to_live_s": Field(
        DURATION, "Default time to live", "When messages expire that do not say so themselves.", nullable=True
    ),
    "dead_lettering_on_message_expiration": Field(
        BOOL, "Dead-letter expired messages", "Else they are gone when they expire."
    ),
    "dead_lettering_on_filter_evaluation_exceptions": Field(
        BOOL, "Dead-letter on filter errors", "A message on which a rule fails is kept as a dead letter."
    ),
    "forward_to": Field(TEXT, "Forward to", "A queue or topic that gets all its messages.", nullable=True),
    "forward_dead_lettered_messages_to": Field(
        TEXT, "Forward dead letters to", "A queue or topic that gets all its dead letters.", nullable=True
    ),
    "auto_delete_on_idle_s": Field(
        DURATION, "Delete when idle for", "It is deleted when nobody has used it for so long.", nullable=True
    ),
    "max_message_size_in_kilobytes": Field(
        INT, "Maximum message size (KB)", "Empty: as much as the namespace allows.", nullable=True
    ),
    "enable_batched_operations": Field(
        BOOL, "Batched operations", "Kept for clients; operations are always committed in groups."
    ),
    "enable_express": Field(BOOL, "Express", "Kept for clients; messages are always made durable."),
    "support_ordering": Field(BOOL, "Support ordering", "Kept for clients; messages are always in order."),
    "filtering_messages_before_publishing": Field(
        BOOL, "Filter before publishing", "Kept for clients; a message that no subscription takes is never an error."
    ),
    "user_metadata": Field(TEXT, "User metadata", "A note of yours.", nullable=True),
}


def names_of(kind: EntityKind) -> list[str]:
    """In the order in which forms show them."""
    known = {one.name for one in dataclasses.fields(KINDS[kind])}
    return [name for name in FIELDS if name in known]


def field_documents(kind: EntityKind, limits: Limits) -> list[dict[str, object]]:
    defaults = {one.name: one.default for one in dataclasses.fields(KINDS[kind])}
    documents: list[dict[str, object]] = []
    for name in names_of(kind):
        field, default = FIELDS[name], defaults[name]
        least, most = _range(name, limits)
        documents.append(
            {
                "name": name,
                "label": field.label,
                "help": field.help,
                "type": field.type,
                "default": default.value if isinstance(default, EntityStatus) else default,
                "choices": _choices(name, limits),
                "min": least,
                "max": most,
                "is_fixed": field.is_fixed,
                "nullable": field.nullable,
            }
        )
    return documents


def read_settings(kind: EntityKind, document: object) -> dict[str, Any]:
    """The fields of a description that a request sets. Raises InvalidArgument."""
    if not isinstance(document, dict):
        raise InvalidArgument("'settings' must be a JSON object.")
    known = names_of(kind)
    unknown = sorted(set(document) - set(known))
    if unknown:
        raise InvalidArgument(f"A {kind.value} has no setting '{unknown[0][:64]}'; it has {', '.join(known)}.")
    return {name: _read(name, value) for name, value in document.items()}


def _read(name: str, value: object) -> object:
    field = FIELDS[name]
    if value is None and field.nullable:
        return None
    if name == "status":
        return _status(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if field.type == BOOL and isinstance(value, bool):
        return value
    if field.type in (INT, CHOICE) and is_number and isinstance(value, int) and abs(value) <= MAX_INT:
        return value
    if field.type == DURATION and is_number and isinstance(value, (int, float)) and abs(value) <= MAX_INT:
        return float(value)
    if field.type == TEXT and isinstance(value, str):
        return _text(name, value)
    wanted = {BOOL: "true or false", INT: "a whole number", CHOICE: "a whole number", DURATION: "seconds"}
    raise InvalidArgument(f"'{name}' must be {wanted.get(field.type, 'a text')}{' or null' * field.nullable}.")


def _status(value: object) -> EntityStatus:
    words = {status.value: status for status in EntityStatus}
    if not isinstance(value, str) or value not in words:
        raise InvalidArgument(f"'status' must be one of {', '.join(words)}.")
    return words[value]


def _text(name: str, value: str) -> str:
    if _UNWRITABLE.search(value) is not None:
        raise InvalidArgument(f"'{name}' contains characters that no text may have.")
    return value


def _choices(name: str, limits: Limits) -> Sequence[object] | None:
    if name == "status":
        return [status.value for status in EntityStatus]
    return list(limits.size_choices_megabytes) if name == "max_size_in_megabytes" else None


def _range(name: str, limits: Limits) -> tuple[float | None, float | None]:
    """Of a text: of its length."""
    largest = limits.largest_message_bytes // 1024
    least_kilobytes = largest if largest <= DEFAULT_KILOBYTES else min(LEAST_LARGE_KILOBYTES, largest)
    ranges: dict[str, tuple[float | None, float | None]] = {
        "lock_duration_s": (limits.min_lock_duration_s, limits.max_lock_duration_s),
        "duplicate_detection_history_time_window_s": (limits.min_duplicate_window_s, limits.max_duplicate_window_s),
        "auto_delete_on_idle_s": (limits.min_auto_delete_on_idle_s, None),
        "default_message_time_to_live_s": (0.001, None),
        "max_delivery_count": (1, MAX_DELIVERY_COUNT),
        "max_message_size_in_kilobytes": (least_kilobytes, largest),
        "forward_to": (0, limits.max_name_length),
        "forward_dead_lettered_messages_to": (0, limits.max_name_length),
        "user_metadata": (0, limits.max_user_metadata_length),
    }
    return ranges.get(name, (None, None))
