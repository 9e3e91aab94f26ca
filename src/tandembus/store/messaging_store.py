"""The narrow seam between a message broker and where its fragments are durable.

A store only remembers. What may be locked, counted, expired or given out is the fragment's to decide, so two stores
cannot drift apart in behaviour. Changes are plain data, bounded, never callbacks; a commit may take long and may fail
with an unknown outcome, so nothing here assumes that it is quick, certain, or in the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, final

from tandembus.message import Message
from tandembus.store.audit_trail import AuditTrail
from tandembus.store.owner_records import OwnerRecord, ReservedRecord

AUDIT_TRIM: Final = 1000
"""Pages that go in one commit."""

MAIN: Final = 0
DEAD_LETTER: Final = 1
TRANSFER: Final = 2
TRANSFER_DEAD_LETTER: Final = 3
LANES: Final = (MAIN, DEAD_LETTER, TRANSFER, TRANSFER_DEAD_LETTER)
"""Every lane of a fragment: the queue itself, its dead letters, what waits to be handed to another entity, and what
could not be."""

BLOCK_SIZE: Final = 1024
"""Consecutive sequence numbers that share one block record."""
BITS_BYTES: Final = BLOCK_SIZE // 8

NUMBER_BITS: Final = 48
"""Of a message's number in its fragment. The sequence number that clients see names the fragment above them."""
NUMBER_MASK: Final = (1 << 48) - 1

ACTIVE: Final = 0
DEFERRED: Final = 1
SCHEDULED: Final = 2

SESSION_HASH_BYTES: Final = 8
SESSION_ENTRY_BYTES: Final = SESSION_HASH_BYTES + 2
HASH_BYTES: Final = 16
"""Of a message id in the history. Half as many would be too few: a false match silently drops a message."""

CHANNEL_BYTES: Final = 16
"""Of a channel's id: one life of a front end, or of a broker that forwards."""
MARK_NUMBERS: Final = 4096
"""Operations of a channel that may be open at once, and so the last ones that its mark knows of."""
MARK_BYTES: Final = MARK_NUMBERS // 8


NEVER: Final = 0
"""`expires_at` and `earliest_expiry` of what does not expire."""


@final
class PutBody:
    """A message takes its place in a lane; `message.number` says which."""

    __slots__ = ("fragment", "lane", "message")

    def __init__(self, fragment: int, lane: int, message: Message) -> None:
        self.fragment: Final = fragment
        self.lane: Final = lane
        self.message: Final = message


@final
class BodyRange:
    """Bodies first..last (inclusive) of a lane; numbers without a body are passed over."""

    __slots__ = ("first", "fragment", "lane", "last")

    def __init__(self, fragment: int, lane: int, first: int, last: int) -> None:
        self.fragment: Final = fragment
        self.lane: Final = lane
        self.first: Final = first
        self.last: Final = last


@final
class BlockRecord:
    """The state of `BLOCK_SIZE` consecutive numbers: number n stands in block n // BLOCK_SIZE at bit n % BLOCK_SIZE.

    `given` counts the numbers handed out so far, so the newest block of a lane also carries the next number. Counts and
    sizes change in the same commit as what they count: sums over blocks are exact without a scan.
    """

    __slots__ = (
        "block",
        "deferred_count",
        "earliest_expiry",
        "fragment",
        "given",
        "lane",
        "live_bytes",
        "live_count",
        "parked",
        "scheduled_count",
        "settled",
    )

    def __init__(
        self,
        fragment: int,
        lane: int,
        block: int,
        given: int,
        settled: bytes,
        parked: bytes,
        live_count: int,
        deferred_count: int,
        scheduled_count: int,
        live_bytes: int,
        earliest_expiry: int,
    ) -> None:
        self.fragment: Final = fragment
        self.lane: Final = lane
        self.block: Final = block
        self.given: Final = given
        self.settled: Final = settled
        self.parked: Final = parked
        self.live_count: Final = live_count
        self.deferred_count: Final = deferred_count
        self.scheduled_count: Final = scheduled_count
        self.live_bytes: Final = live_bytes
        self.earliest_expiry: Final = earliest_expiry


@final
class Overlay:
    """What a message has gained since its body was written; only where needed."""

    __slots__ = ("application_properties", "delivery_count", "fragment", "lane", "number", "state")

    def __init__(
        self,
        fragment: int,
        lane: int,
        number: int,
        state: int,
        delivery_count: int,
        application_properties: bytes,
    ) -> None:
        self.fragment: Final = fragment
        self.lane: Final = lane
        self.number: Final = number
        self.state: Final = state
        self.delivery_count: Final = delivery_count
        self.application_properties: Final = application_properties
        """The whole section that replaces the body's own; empty where it was not changed."""


@final
class Place:
    """One number, or one block, of a lane."""

    __slots__ = ("fragment", "lane", "number")

    def __init__(self, fragment: int, lane: int, number: int) -> None:
        self.fragment: Final = fragment
        self.lane: Final = lane
        self.number: Final = number


@final
class Due:
    """At `at_ms` (wall) somebody must look at this number (a scheduled message) or block (its earliest expiry)."""

    __slots__ = ("at_ms", "fragment", "lane", "number")

    def __init__(self, at_ms: int, fragment: int, lane: int, number: int) -> None:
        self.at_ms: Final = at_ms
        self.fragment: Final = fragment
        self.lane: Final = lane
        self.number: Final = number


@final
class FragmentHead:
    """That a fragment is there, and of which life of which entity."""

    __slots__ = ("fragment", "incarnation", "index", "is_dropping")

    def __init__(self, fragment: int, incarnation: int, index: int, is_dropping: bool) -> None:
        self.fragment: Final = fragment
        self.incarnation: Final = incarnation
        self.index: Final = index
        self.is_dropping: Final = is_dropping


@final
class SessionColumn:
    """Which sessions the messages of a block belong to; written in the commit that gives out the block's last number.

    `entries` are `SESSION_ENTRY_BYTES` each: a hash of the SessionId and the message's offset in the block, sorted. A
    hash only finds candidates: the id in the body decides.
    """

    __slots__ = ("block", "entries", "fragment", "lane")

    def __init__(self, fragment: int, lane: int, block: int, entries: bytes) -> None:
        self.fragment: Final = fragment
        self.lane: Final = lane
        self.block: Final = block
        self.entries: Final = entries


@final
class SessionState:
    """What an application keeps with a session: opaque bytes, None where there is nothing (any more)."""

    __slots__ = ("changed_at", "fragment", "session_id", "state")

    def __init__(self, fragment: int, session_id: str, state: bytes | None, changed_at: int) -> None:
        self.fragment: Final = fragment
        self.session_id: Final = session_id
        self.state: Final = state
        self.changed_at: Final = changed_at
        """Wall time in milliseconds."""


class HistoryRecord:
    """The message ids that a fragment took in with one commit, for the detection of duplicates: a hash of each.

    `number` tells records of one millisecond apart; a fragment gives each a larger one than all it still remembers.
    """

    __slots__ = ("at_ms", "fragment", "hashes", "number")

    def __init__(self, fragment: int, at_ms: int, number: int, hashes: bytes) -> None:
        self.fragment: Final = fragment
        self.at_ms: Final = at_ms
        self.number: Final = number
        self.hashes: Final = hashes
        """`HASH_BYTES` for each id, one behind the other."""


@final
class HistoryTrim:
    """The earliest `limit` history records of a fragment, as far as they are older than `before_ms`."""

    __slots__ = ("before_ms", "fragment", "limit")

    def __init__(self, fragment: int, before_ms: int, limit: int) -> None:
        self.fragment: Final = fragment
        self.before_ms: Final = before_ms
        self.limit: Final = limit


@final
class Mark:
    """Which operations of a channel were carried out: of the last `MARK_NUMBERS` up to `highest`, number n at bit
    n % MARK_NUMBERS. It changes in the commit that carries them out, so whoever asks later learns the truth."""

    __slots__ = ("at_ms", "channel", "done", "highest")

    def __init__(self, channel: bytes, highest: int, done: bytes, at_ms: int) -> None:
        self.channel: Final = channel
        self.highest: Final = highest
        self.done: Final = done
        """`MARK_BYTES`."""
        self.at_ms: Final = at_ms
        """Wall time of the commit: marks of channels that are long gone are removed."""


@final
class HighWater:
    """Up to which number a fragment has taken what is forwarded to it from a lane of another one: stored with what
    arrives, so that the same message sent once more is known."""

    __slots__ = ("at_ms", "fragment", "lane", "number", "source")

    def __init__(self, fragment: int, source: int, lane: int, number: int, at_ms: int) -> None:
        self.fragment: Final = fragment
        """The one that takes."""
        self.source: Final = source
        self.lane: Final = lane
        self.number: Final = number
        self.at_ms: Final = at_ms
        """Wall time of the last arrival: when the source is gone, this goes too, but not before it is certain that
        nothing is still on its way."""


@final
class AuditPage:
    """What the audit noted of one commit. Numbers follow each other without a gap, over all lives of a store."""

    __slots__ = ("at_ms", "data", "epoch", "number")

    def __init__(self, number: int, epoch: int, at_ms: int, data: bytes) -> None:
        self.number: Final = number
        self.epoch: Final = epoch
        self.at_ms: Final = at_ms
        """Wall time of the commit."""
        self.data: Final = data
        """See `audit_trail.py`."""


@final
class Damage:
    """A record that was asked for and cannot be served: its CRC is wrong, or it is not there at all."""

    __slots__ = ("is_missing", "number", "reason")

    def __init__(self, number: int, reason: str, is_missing: bool) -> None:
        self.number: Final = number
        self.reason: Final = reason
        self.is_missing: Final = is_missing


@final
class Changes:
    """Everything of one group commit, of all fragments of a store: all of it becomes durable, or none.

    Where one key is both dropped and put, the put wins: drops are carried out first.
    """

    __slots__ = (
        "audit",
        "audit_page",
        "blocks",
        "bodies",
        "columns",
        "dropped_blocks",
        "dropped_bodies",
        "dropped_columns",
        "dropped_expiries",
        "dropped_heads",
        "dropped_high_waters",
        "dropped_marks",
        "dropped_overlays",
        "dropped_owners",
        "dropped_schedules",
        "expiries",
        "heads",
        "high_waters",
        "history",
        "marks",
        "overlays",
        "owners",
        "quarantined",
        "reserved",
        "schedules",
        "session_states",
        "trimmed_audit",
        "trimmed_history",
    )

    def __init__(self) -> None:
        self.bodies: list[PutBody] = []
        self.dropped_bodies: list[BodyRange] = []
        self.blocks: list[BlockRecord] = []
        self.dropped_blocks: list[Place] = []
        self.overlays: list[Overlay] = []
        self.dropped_overlays: list[Place] = []
        self.schedules: list[Due] = []
        self.dropped_schedules: list[Due] = []
        self.expiries: list[Due] = []
        self.dropped_expiries: list[Due] = []
        self.heads: list[FragmentHead] = []
        self.dropped_heads: list[int] = []
        """Fragments of which nothing is left: the head goes last."""
        self.quarantined: list[Place] = []
        """Damaged bodies: their raw bytes move aside, for people to look at."""
        self.columns: list[SessionColumn] = []
        self.dropped_columns: list[BodyRange] = []
        """Of blocks first..last (inclusive) of a lane."""
        self.session_states: list[SessionState] = []
        """One for each session at most; None as the state deletes it."""
        self.history: list[HistoryRecord] = []
        """At most one per fragment: a commit's ids stand together, appended behind those of the commits before."""
        self.trimmed_history: list[HistoryTrim] = []
        self.marks: list[Mark] = []
        """One for each channel at most."""
        self.dropped_marks: list[bytes] = []
        """Of these channels."""
        self.high_waters: list[HighWater] = []
        """One for each fragment and source lane at most."""
        self.dropped_high_waters: list[HighWater] = []
        """Whatever their number."""
        self.audit: AuditTrail | None = None
        """Where the audit is on: gathers what the page will say."""
        self.audit_page: AuditPage | None = None
        self.trimmed_audit: int = 0
        """Pages with lower numbers go, some in each commit; but never the newest, which has the number."""
        self.owners: list[OwnerRecord] = []
        self.dropped_owners: list[Place] = []
        """By their slots."""
        self.reserved: list[ReservedRecord] = []
        """One for each slot and block at most; one without bits is dropped."""


@final
class Room:
    """How much can still grow: free on the volume plus free inside the file, against the reserve for settling."""

    __slots__ = ("free_bytes", "reserve_bytes", "shortage", "used_bytes")

    def __init__(self, free_bytes: int, reserve_bytes: int, shortage: str = "", used_bytes: int = 0) -> None:
        self.free_bytes: Final = free_bytes
        self.reserve_bytes: Final = reserve_bytes
        self.shortage: Final = shortage
        """Why there is too little, where more is known than that."""
        self.used_bytes: Final = used_bytes


@final
class CommitCost:
    """Of the last commit of a store."""

    __slots__ = ("put_bytes", "sync_s")

    def __init__(self) -> None:
        self.sync_s: float = 0.0
        """How long it waited for the disk."""
        self.put_bytes: int = 0
        """What clients added."""


class MessagingStore(Protocol):
    """Where fragments are durable."""

    @property
    def epoch(self) -> int:
        """The number of this life of the broker's hold on the store; one more with every open."""

    @property
    def last_commit(self) -> CommitCost: ...

    async def commit(self, changes: Changes) -> None:
        """Make all changes durable, or none. Returning is the promise behind every acknowledgement.

        Raises StoreFull when nothing was written for lack of room and the store is still usable; StoreUnavailable
        when the outcome is unknown, after which this object answers nothing else and must be closed and reopened.
        """

    async def heads(self) -> Sequence[FragmentHead]: ...

    async def blocks(self, fragment: int, lane: int) -> Sequence[BlockRecord]:
        """All block records of a lane in order; one that is damaged is rebuilt from its bodies and reported."""

    async def bodies(
        self, fragment: int, lane: int, numbers: Sequence[int], max_bytes: int
    ) -> Sequence[Message | Damage]:
        """Exactly these numbers, in this order, until `max_bytes` is passed (at least one). Every number asked for is
        one that should be there: a missing one is damage and reported as such."""

    async def overlays(self, fragment: int, lane: int, first: int, last: int) -> Sequence[Overlay]: ...

    async def overlays_at(self, fragment: int, lane: int, numbers: Sequence[int]) -> Sequence[Overlay]:
        """The overlays of exactly these numbers, as far as they have one: for numbers that lie far apart."""

    async def columns(self, fragment: int, lane: int, blocks: Sequence[int]) -> Sequence[SessionColumn | None]:
        """The session columns of exactly these blocks; None where there is none: not written yet, or damaged (which is
        reported). What it said stands in the bodies."""

    async def session_state(self, fragment: int, session_id: str) -> SessionState | None:
        """One that is damaged is reported, and counts as never set."""

    async def session_states(self, fragment: int, after: str | None, limit: int) -> Sequence[SessionState]:
        """Up to `limit` sessions with a state, without its bytes, in an order of the store's own, behind the session
        named."""

    async def schedules_before(self, at_ms: int, limit: int) -> Sequence[Due]:
        """The earliest scheduled messages due before `at_ms`, of all fragments."""

    async def expiries_before(self, at_ms: int, limit: int) -> Sequence[Due]: ...

    async def earliest_due(self) -> int:
        """The earliest of all schedules and expiries, 0 where there is none."""

    async def bodies_left(self, fragment: int, lane: int, limit: int) -> Sequence[int]:
        """The first numbers of a lane that still have a body: for dropping a fragment in slices."""

    async def history(self, fragment: int, at_ms: int, number: int, max_bytes: int) -> Sequence[HistoryRecord]:
        """The records of a fragment from (`at_ms`, `number`) on, by time, until `max_bytes` is passed (at least one).
        One that is damaged is reported and passed over: a message may then come twice, which is better than never."""

    async def marks(self) -> Sequence[Mark]:
        """Of every channel. One that is damaged is reported and passed over: what it knew counts as not carried
        out."""

    async def high_waters(self, fragment: int) -> Sequence[HighWater]:
        """All that a fragment takes from elsewhere. One that is damaged is reported and passed over: a message may then
        come twice, which is better than never."""

    @property
    def store_id(self) -> bytes:
        """Never the same for two stores."""

    async def audit_pages(self, first: int, max_bytes: int) -> Sequence[AuditPage]:
        """Those from a number on, until `max_bytes` is passed (at least one). One that is damaged is reported and
        passed over: its number is missing then, and whoever reads the records sees that."""

    async def newest_audit_page(self) -> AuditPage | None: ...

    async def enqueued_times(self, places: Sequence[Place]) -> Sequence[int]:
        """When these messages came (wall, milliseconds), without reading them; 0 for one that is not there."""

    async def sizes(self, fragment: int, lane: int, numbers: Sequence[int]) -> Sequence[int]:
        """How large the bodies of these numbers are (ascending), without reading them; 0 for one that is not there."""

    async def owners(self, fragment: int, lane: int) -> Sequence[OwnerRecord]:
        """By their slots. One that is damaged is reported and passed over: what it has reserved stays so, without a
        name."""

    async def reserved(self, fragment: int, lane: int) -> Sequence[ReservedRecord]:
        """By slot and block. One that is damaged is reported and passed over: its messages count as deferred ones."""

    def room(self) -> Room: ...

    async def close(self) -> None: ...
