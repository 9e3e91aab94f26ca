"""The properties under `sys.`: their names, and which of them an action may set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MESSAGE_ID: Final = 0
TO: Final = 1
LABEL: Final = 2
REPLY_TO: Final = 3
CORRELATION_ID: Final = 4
CONTENT_TYPE: Final = 5
SESSION_ID: Final = 6
REPLY_TO_SESSION_ID: Final = 7
# Those above stand in the properties section.
PARTITION_KEY: Final = 8
VIA_PARTITION_KEY: Final = 9
SCHEDULED_ENQUEUE_TIME: Final = 10
DEAD_LETTER_SOURCE: Final = 11
# Those above are annotations.
TIME_TO_LIVE: Final = 12
EXPIRES_AT: Final = 13
ENQUEUED_TIME: Final = 14
SEQUENCE_NUMBER: Final = 15
ENQUEUED_SEQUENCE_NUMBER: Final = 16
SIZE: Final = 17
DELIVERY_COUNT: Final = 18
LOCKED_UNTIL: Final = 19
STATE: Final = 20

NAMES: Final = (
    "MessageId",
    "To",
    "Label",
    "ReplyTo",
    "CorrelationId",
    "ContentType",
    "SessionId",
    "ReplyToSessionId",
    "PartitionKey",
    "ViaPartitionKey",
    "ScheduledEnqueueTimeUtc",
    "DeadLetterSource",
    "TimeToLive",
    "ExpiresAtUtc",
    "EnqueuedTimeUtc",
    "SequenceNumber",
    "EnqueuedSequenceNumber",
    "Size",
    "DeliveryCount",
    "LockedUntilUtc",
    "State",
)
COUNT: Final = len(NAMES)

NO_PROPERTY: Final = 255
IN_FIELD: Final = bytes((0, 255, 1, 2, 3, 4, 5, 255, 255, 255, 6, 255, 7))
"""Which of the first eight stands in each field of the properties section."""
ANNOTATIONS: Final = (
    b"x-opt-partition-key",
    b"x-opt-via-partition-key",
    b"x-opt-scheduled-enqueue-time",
    b"x-opt-deadletter-source",
)
"""Keys of the next four in the message annotations."""

SETTABLE: Final = frozenset((*range(DEAD_LETTER_SOURCE), TIME_TO_LIVE))
"""The others say what the broker did with the message."""

_BY_NAME: Final[Mapping[str, int]] = {name.lower(): index for index, name in enumerate(NAMES)}
_OTHER_NAMES: Final[Mapping[str, str]] = {
    "subject": "Label",
    "scheduledenqueuetime": "ScheduledEnqueueTimeUtc",
    "enqueuedtime": "EnqueuedTimeUtc",
    "expiresat": "ExpiresAtUtc",
    "lockeduntil": "LockedUntilUtc",
    "groupid": "SessionId",
}
"""What newer clients call them; filters have to use the names above."""


def find(name: str) -> int:
    """The property of this name in any case; -1 if there is none."""
    return _BY_NAME.get(name.lower(), -1)


def suggestion(name: str) -> str:
    """What somebody who wrote an unknown name may have meant; empty if nobody knows."""
    meant = _OTHER_NAMES.get(name.lower())
    return "" if meant is None else f" (it is called sys.{meant} here)"
