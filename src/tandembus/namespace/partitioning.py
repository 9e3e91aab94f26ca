"""Which fragment of a partitioned entity a message belongs to. Pure functions.

A key pins a message to one fragment for ever: the same key lands in the same fragment in every process and every
release, so nothing here may change once messages are stored. What has no key may go anywhere; whoever asks decides.
"""

from __future__ import annotations

from hashlib import blake2s
from typing import Final, final

from mypy_extensions import i64

from tandembus.amqp.encoding.codec import decode, skip_value
from tandembus.broker.session import check_sessions
from tandembus.descriptions.changes import FRAGMENT_COUNT
from tandembus.errors import InvalidOperation
from tandembus.message import Message, compared, explicit_key_of, message_id_of
from tandembus.message_sections import compound_count, first_element, text
from tandembus.store.messaging_store import NUMBER_BITS

VIA_PARTITION_KEY: Final = "x-opt-via-partition-key"

DIFFERENT_KEYS: Final = (
    "The messages of a batch must have the same SessionId and PartitionKey: a batch is stored in one partition."
)
DIFFERENT_VIA_KEYS: Final = (
    "The messages of a batch must have the same ViaPartitionKey: they pass through one partition together."
)
NO_TRANSACTION_KEY: Final = (
    "In a transaction on a partitioned entity every message needs a SessionId or PartitionKey, the same for all."
)


@final
class PartitionSettings:
    """What the front end of a partitioned entity needs to know of its description, and of the namespace's limits."""

    __slots__ = (
        "cache_bytes",
        "cache_keep_s",
        "drain_wait_s",
        "has_sessions",
        "ignores_key_case",
        "lock_duration_s",
        "requires_duplicate_detection",
        "requires_session",
    )

    def __init__(
        self,
        requires_duplicate_detection: bool = False,
        requires_session: bool = False,
        lock_duration_s: float = 60.0,
        cache_bytes: i64 = 1 << 20,
        cache_keep_s: float = 10.0,
        drain_wait_s: float = 0.15,
        has_sessions: bool = False,
        ignores_key_case: bool = False,
    ) -> None:
        self.requires_duplicate_detection: bool = requires_duplicate_detection
        self.requires_session: bool = requires_session
        self.has_sessions: bool = has_sessions or requires_session
        """Whether it, or a subscription of the topic that it is, requires sessions."""
        self.ignores_key_case: bool = ignores_key_case
        """Whether SessionIds and PartitionKeys are compared without regard to case."""
        self.lock_duration_s: float = lock_duration_s
        self.cache_bytes: i64 = cache_bytes
        """Kept ready for receivers at most, for each lane."""
        self.cache_keep_s: float = cache_keep_s
        """For so long at most, and never beyond a quarter of the lock: the client must see most of it."""
        self.drain_wait_s: float = drain_wait_s
        """How long a drain waits for a fragment that is slow."""

    def index_of(self, session_id: str) -> i64:
        """The fragment in which the session lives."""
        return fragment_of_key(compared(session_id, self.ignores_key_case))


# Keys.


def fragment_of_key(key: str) -> i64:
    """The same everywhere and for ever."""
    digest = blake2s(key.encode("utf-8", "surrogatepass"), digest_size=2).digest()
    return i64(digest[0]) & (FRAGMENT_COUNT - 1)


def partition_key_of(message: Message, settings: PartitionSettings) -> str | None:
    """What pins the message to a fragment: SessionId, else PartitionKey, else MessageId where duplicates are looked
    for, since only the fragment that has the first one can know the second. None: any fragment will do."""
    key = _explicit_key_of(message, settings)
    if key is None and settings.requires_duplicate_detection:
        return _id_of(message)
    return key


def _explicit_key_of(message: Message, settings: PartitionSettings) -> str | None:
    """In the form in which it is compared. A ping that has it as SessionId and PartitionKey carries a MessageId (N10),
    which is compared exactly."""
    key = explicit_key_of(message, settings.has_sessions)
    is_id = message.is_ping and message.partition_key is not None and settings.requires_duplicate_detection
    return key if key is None or is_id else compared(key, settings.ignores_key_case)


def _id_of(message: Message) -> str:
    data = message.sections
    at = message.annotations_end + 3
    end = message.properties_end
    if at < end and data[at] != 0x45 and compound_count(data, at, 0xC0) > 0:
        first = first_element(data, at, end, 0xC0, 0xD0, "properties")
        if data[first] == 0xA1 or data[first] == 0xB1:
            return text(data, first, skip_value(data, first, end)).decode("utf-8", "replace")
    return message_id_of(message)


def via_key_of(message: Message) -> str | None:
    """The key for the entity that a message passes through on its way to another one."""
    if message.annotations_end == 0:
        return None
    annotations, _ = decode(message.sections, 3)
    if isinstance(annotations, dict):
        for name, value in annotations.items():
            if str(name) == VIA_PARTITION_KEY and isinstance(value, str):
                return value
    return None


def _via_key_of(message: Message, settings: PartitionSettings) -> str | None:
    key = via_key_of(message)
    return None if key is None else compared(key, settings.ignores_key_case)


# Batches.


def via_key_of_batch(messages: list[Message], settings: PartitionSettings) -> str | None:
    """The same of messages that pass through together. Raises InvalidOperation where they differ."""
    key = _via_key_of(messages[0], settings)
    for message in messages:
        if _via_key_of(message, settings) != key:
            raise InvalidOperation(DIFFERENT_VIA_KEYS)
    return key


def key_of_batch(messages: list[Message], settings: PartitionSettings) -> str | None:
    """The key that the senders of a batch chose for all of it. Raises InvalidOperation where they differ."""
    key = _explicit_key_of(messages[0], settings)
    for message in messages:
        if _explicit_key_of(message, settings) != key:
            raise InvalidOperation(DIFFERENT_KEYS)
    return key


def split_by_fragment(messages: list[Message]) -> dict[int, list[Message]]:
    """A batch whose keys are its message ids, each part in its order. A fragment knows only the ids that it has seen
    itself, so the parts cannot be kept together."""
    parts: dict[int, list[Message]] = {}
    for message in messages:
        index = int(fragment_of_key(_id_of(message)))
        part = parts.get(index)
        if part is None:
            parts[index] = [message]
        else:
            part.append(message)
    return parts


def transaction_key_of(messages: list[Message], settings: PartitionSettings) -> str:
    """The one key of all messages that a transaction sends. Raises InvalidOperation where there is none, or several, or
    a SessionId is missing."""
    if settings.requires_session:
        check_sessions(messages)
    key: str | None = None
    for message in messages:
        own = partition_key_of(message, settings)
        if own is None or (key is not None and own != key):
            raise InvalidOperation(NO_TRANSACTION_KEY)
        key = own
    if key is None:
        raise InvalidOperation(NO_TRANSACTION_KEY)
    return key


# Sequence numbers: the top 16 bits name the fragment.


def sequence_number(index: i64, number: i64) -> i64:
    return index << NUMBER_BITS | number


def fragment_of_number(sequence_number: int) -> int:
    """The index that a whole sequence number names; of whatever a client says, so it may name no fragment at all."""
    return sequence_number >> NUMBER_BITS
