"""A queue's settings and counts as plain data, and as the Atom entries a namespace speaks.

`None` in the settings means "what the service takes by default", so that this works with any service,
whatever its defaults are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree

from tandembus.errors import EntityNotFound, MalformedData

ATOM: Final = "{http://www.w3.org/2005/Atom}"
CONNECT_NAMESPACE: Final = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
CONNECT: Final = "{" + CONNECT_NAMESPACE + "}"
COUNTS: Final = "{http://schemas.microsoft.com/netservices/2011/06/servicebus}"

NEVER_DAYS: Final = 10675199
NEVER: Final = float("inf")
"""A duration that means "for ever": no time to live, never idle for too long."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What can be chosen for a queue. `None` leaves the choice to the service."""

    lock_duration_s: float | None = None
    max_size_mb: int | None = None
    requires_duplicate_detection: bool | None = None
    requires_session: bool | None = None
    default_time_to_live_s: float | None = None
    dead_lettering_on_expiration: bool | None = None
    duplicate_detection_window_s: float | None = None
    max_delivery_count: int | None = None
    batched_operations: bool | None = None
    status: str | None = None
    auto_delete_on_idle_s: float | None = None
    partitioning: bool | None = None
    forward_to: str | None = None
    user_metadata: str | None = None
    forward_dead_letters_to: str | None = None
    max_message_size_kb: int | None = None


@dataclass(frozen=True, slots=True)
class QueueCounts:
    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue as the service describes it. Times are ISO 8601 text in UTC, as they came."""

    name: str
    settings: QueueSettings
    counts: QueueCounts
    created_at: str | None = None
    updated_at: str | None = None
    accessed_at: str | None = None


_ELEMENTS: Final = (
    # The order is the service's: it ignores what stands in the wrong place.
    ("LockDuration", "lock_duration_s", "duration"),
    ("MaxSizeInMegabytes", "max_size_mb", "number"),
    ("RequiresDuplicateDetection", "requires_duplicate_detection", "flag"),
    ("RequiresSession", "requires_session", "flag"),
    ("DefaultMessageTimeToLive", "default_time_to_live_s", "duration"),
    ("DeadLetteringOnMessageExpiration", "dead_lettering_on_expiration", "flag"),
    ("DuplicateDetectionHistoryTimeWindow", "duplicate_detection_window_s", "duration"),
    ("MaxDeliveryCount", "max_delivery_count", "number"),
    ("EnableBatchedOperations", "batched_operations", "flag"),
    ("Status", "status", "text"),
    ("AutoDeleteOnIdle", "auto_delete_on_idle_s", "duration"),
    ("EnablePartitioning", "partitioning", "flag"),
    ("ForwardTo", "forward_to", "text"),
    ("UserMetadata", "user_metadata", "text"),
    ("ForwardDeadLetteredMessagesTo", "forward_dead_letters_to", "text"),
    ("MaxMessageSizeInKilobytes", "max_message_size_kb", "number"),
)

_COUNT_ELEMENTS: Final = (
    ("ActiveMessageCount", "active"),
    ("DeadLetterMessageCount", "dead_letter"),
    ("ScheduledMessageCount", "scheduled"),
    ("TransferMessageCount", "transfer"),
    ("TransferDeadLetterMessageCount", "transfer_dead_letter"),
)

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


def duration_text(seconds: float) -> str:
    """ISO 8601, to the millisecond; for ever is the longest time span of the service."""
    if seconds == NEVER:
        return f"P{NEVER_DAYS}DT2H48M5.4775807S"
    days, milliseconds = divmod(round(seconds * 1000), 86_400_000)
    rest = f"{milliseconds / 1000:.3f}".rstrip("0").rstrip(".")
    return f"P{days}DT{rest}S" if days else f"PT{rest}S"


def duration_of(text: str) -> float:
    """Seconds of an ISO 8601 duration without years and months; at least the longest time span is `NEVER`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or text.strip() in ("P", "PT"):
        raise MalformedData(f"{text!r} is not a duration")
    days, hours, minutes, seconds = (float(match[part] or 0) for part in ("days", "hours", "minutes", "seconds"))
    return NEVER if days >= NEVER_DAYS else ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def queue_entry(settings: QueueSettings) -> bytes:
    """The Atom entry that asks for a queue with these settings."""
    entry = ElementTree.Element(f"{ATOM}entry")
    content = ElementTree.SubElement(entry, f"{ATOM}content", type="application/xml")
    description = ElementTree.SubElement(content, f"{CONNECT}QueueDescription")
    for element, attribute, kind in _ELEMENTS:
        value = getattr(settings, attribute)
        if value is not None:
            ElementTree.SubElement(description, f"{CONNECT}{element}").text = _text_of(kind, value)
    text: bytes = ElementTree.tostring(entry, encoding="utf-8", xml_declaration=True)
    return text


def _text_of(kind: str, value: float | str) -> str:
    match kind:
        case "duration":
            return duration_text(float(value))
        case "flag":
            return "true" if value else "false"
        case _:
            return str(value)


def queue_of(entry: ElementTree.Element) -> QueueInfo:
    description = entry.find(f"{ATOM}content/{CONNECT}QueueDescription")
    if description is None:
        raise EntityNotFound("the service answered with something that is not a queue")
    settings = {attribute: _value_of(kind, description.findtext(CONNECT + name)) for name, attribute, kind in _ELEMENTS}
    return QueueInfo(
        name=(entry.findtext(f"{ATOM}title") or "").strip(),
        settings=QueueSettings(**settings),  # type: ignore[arg-type]
        counts=_counts_of(description),
        created_at=description.findtext(f"{CONNECT}CreatedAt"),
        updated_at=description.findtext(f"{CONNECT}UpdatedAt"),
        accessed_at=description.findtext(f"{CONNECT}AccessedAt"),
    )


def _value_of(kind: str, text: str | None) -> float | int | bool | str | None:
    if text is None or (not text and kind != "text"):
        return None
    match kind:
        case "duration":
            return duration_of(text)
        case "number":
            return int(text)
        case "flag":
            return text.strip().lower() == "true"
        case _:
            return text or None


def _counts_of(description: ElementTree.Element) -> QueueCounts:
    details = description.find(f"{CONNECT}CountDetails")
    counts = {
        attribute: int((details.findtext(COUNTS + element) if details is not None else None) or 0)
        for element, attribute in _COUNT_ELEMENTS
    }
    return QueueCounts(size_bytes=int(description.findtext(f"{CONNECT}SizeInBytes") or 0), **counts)
