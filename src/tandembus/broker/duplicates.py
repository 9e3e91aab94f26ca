"""The detection of duplicates: which message ids a fragment took in lately.

In memory an id is a hash of 16 bytes, its time, and a place in an index: 32 bytes or so, and no object of its own. The
hash is a cryptographic one, since a false match would silently drop a message. Ids stand in the order in which they
came, so that old ones leave from the left; nothing is forgotten before its time, however many there are. How many there
may be is the budget's to say.
"""

from __future__ import annotations

import os
from hashlib import blake2s
from typing import Final, final

from librt.strings import read_i64_be
from librt.vecs import append, vec
from mypy_extensions import i32, i64

from tandembus.amqp.encoding.codec import skip_value
from tandembus.broker.budget import Budget
from tandembus.message import Message, compared, explicit_key_of
from tandembus.message_sections import compound_count, first_element, text
from tandembus.store.messaging_store import HASH_BYTES, Changes, HistoryRecord, HistoryTrim

FORGET_SLICE: Final = 4096
"""Ids let go of in one go."""
TRIM_SLICE: Final = 4096
"""History records deleted in one commit."""

CHUNK_IDS: Final = 1024
"""Ids whose memory is given back together."""
SHARDS: Final = 256
"""Parts of the index that grow one by one: growing all of it at once would hold up everybody."""
FIRST_SLOTS: Final = 8
_PLACE_BITS: Final = 0x3FFFFFFF
_KEY_BITS: Final = 0x3FFFFFFF
"""Of a hash, which together with the secret say where in the index it belongs."""

TEXT_ID: Final = b"s"
BINARY_ID: Final = b"b"
UUID_ID: Final = b"u"
NUMBER_ID: Final = b"n"


_KEYED: Final = b"keyed"
_KEYLESS: Final = b"keyless"
"""Each is hashed in a space of its own, apart from ids alone: no choice of keys and ids makes two of them meet."""


def hash_of_id(message: Message) -> bytes:
    """Of the message's id, with its kind: the text "7" and the number 7 are two ids. Empty where there is none."""
    found = _id_of(message)
    return blake2s(found, digest_size=HASH_BYTES).digest() if found else b""


def hash_of_key_and_id(message: Message, has_sessions: bool, ignores_case: bool) -> bytes:
    """Returns a hash of the message's id with its SessionId, else its PartitionKey, else none. Empty without an id."""
    found = _id_of(message)
    if not found:
        return b""
    key = explicit_key_of(message, has_sessions)
    if key is None:
        return blake2s(found, digest_size=HASH_BYTES, person=_KEYLESS).digest()
    encoded = compared(key, ignores_case).encode("utf-8", "surrogatepass")
    length = len(encoded).to_bytes(4, "big")
    return blake2s(length + encoded + found, digest_size=HASH_BYTES, person=_KEYED).digest()


def _id_of(message: Message) -> bytes:
    data = message.sections
    at = message.annotations_end + 3
    end = message.properties_end
    if end <= at or data[at] == 0x45:
        return b""
    first = first_element(data, at, end, 0xC0, 0xD0, "properties")
    if compound_count(data, at, 0xC0) == 0 or data[first] == 0x40:
        return b""
    return _canonical(data, first, skip_value(data, first, end))


def _canonical(data: bytes, at: i64, behind: i64) -> bytes:
    """One form for every way in which the same value can be encoded."""
    code: i64 = data[at]
    if code == 0xA1 or code == 0xB1:
        return TEXT_ID + text(data, at, behind)
    if code == 0x98:
        return UUID_ID + data[at + 1 : behind]
    if code == 0xA0:
        return BINARY_ID + data[at + 2 : behind]
    if code == 0xB0:
        return BINARY_ID + data[at + 5 : behind]
    if code == 0x80 or code == 0x53 or code == 0x44:
        return NUMBER_ID + data[at + 1 : behind].rjust(8, b"\x00")
    return data[at:behind]


@final
class RecentIds:
    """The ids of one fragment, in the order in which they came.

    An id's place is counted on for ever; a slot of the index holds it modulo 2^30, plus one. Places are all that moves
    within the index, so that finding, adding and letting go cost the same however many ids there are.
    """

    def __init__(self) -> None:
        self.count: i64 = 0
        self.newest_record: i64 = 0
        """The largest number of a history record that is remembered."""
        self.newest_loaded_ms: i64 = 0
        """When the newest of the ids came that an earlier life has stored."""
        self._first: i64 = 0
        """The place of the oldest id."""
        self._first_chunk: i64 = 0
        self._chunks: list[vec[i64]] = []
        """Two halves of the hash, and the time, for each id."""
        self._index: list[vec[i32]] = [vec[i32]() for _ in range(SHARDS)]
        self._filled: vec[i64] = vec[i64]([0] * SHARDS)
        # Ids come from strangers: which of them meet in the index must not be theirs to choose.
        self._secret: i64 = (int.from_bytes(os.urandom(4), "big") & _KEY_BITS) | 0x20000001

    def has(self, digest: bytes, since_ms: i64) -> bool:
        """Whether this id came after `since_ms`."""
        high, low = read_i64_be(digest, 0), read_i64_be(digest, 8)
        index = self._index[_shard_of(high)]
        slots: i64 = len(index)
        if slots == 0:
            return False
        slot = self._home(high, slots)
        while index[slot] != 0:
            place = self._place_in(index, slot)
            chunk = self._chunks[place // CHUNK_IDS - self._first_chunk]
            at = place % CHUNK_IDS * 3
            # The same id may stand here twice: once too old to count, and not yet gone.
            if chunk[at] == high and chunk[at + 1] == low and chunk[at + 2] > since_ms:
                return True
            slot = (slot + 1) & (slots - 1)
        return False

    def add(self, digest: bytes, at_ms: i64) -> None:
        """The newest id. Whether it is there already is for the caller to know."""
        high = read_i64_be(digest, 0)
        place = self._first + self.count
        position = place // CHUNK_IDS - self._first_chunk
        if position == len(self._chunks):
            self._chunks.append(vec[i64](capacity=CHUNK_IDS * 3) if self._chunks else vec[i64]())
        chunk = append(self._chunks[position], high)
        chunk = append(chunk, read_i64_be(digest, 8))
        self._chunks[position] = append(chunk, at_ms)
        self.count += 1
        shard = _shard_of(high)
        self._filled[shard] += 1
        slots: i64 = len(self._index[shard])
        if self._filled[shard] * 4 > slots * 3:
            self._resize(shard, max(slots * 2, i64(FIRST_SLOTS)))
        self._enter(self._index[shard], high, place)

    def load(self, record: HistoryRecord) -> None:
        at = 0
        while at < len(record.hashes):
            self.add(record.hashes[at : at + HASH_BYTES], record.at_ms)
            at += HASH_BYTES
        self.newest_record = max(self.newest_record, i64(record.number))
        self.newest_loaded_ms = max(self.newest_loaded_ms, i64(record.at_ms))

    def take_back(self, count: i64) -> None:
        """The newest ids were never stored: their messages were refused."""
        place = self._first + self.count
        self.count -= count
        end = self._first + self.count
        while place > end:
            place -= 1
            self._leave(place)
        kept = (end + CHUNK_IDS - 1) // CHUNK_IDS - self._first_chunk
        del self._chunks[kept:]
        if end % CHUNK_IDS != 0:
            self._chunks[kept - 1] = self._chunks[kept - 1][: end % CHUNK_IDS * 3]

    def forget(self, until_ms: i64, most: i64) -> i64:
        """Let go of ids that came at `until_ms` or before, the oldest first; returns how many those were."""
        forgotten: i64 = 0
        while forgotten < most and self.count > 0 and self._time_of(self._first) <= until_ms:
            self._leave(self._first)
            self._first += 1
            self.count -= 1
            forgotten += 1
            if self._first % CHUNK_IDS == 0:
                del self._chunks[0]
                self._first_chunk += 1
        return forgotten

    def _time_of(self, place: i64) -> i64:
        return self._chunks[place // CHUNK_IDS - self._first_chunk][place % CHUNK_IDS * 3 + 2]

    def _high_of(self, place: i64) -> i64:
        return self._chunks[place // CHUNK_IDS - self._first_chunk][place % CHUNK_IDS * 3]

    # The index: a power of two of slots for each shard, filled from an id's home onwards.

    def _home(self, high: i64, slots: i64) -> i64:
        return ((high & _KEY_BITS) * self._secret) >> 20 & (slots - 1)

    def _place_in(self, index: vec[i32], slot: i64) -> i64:
        return self._first + ((i64(index[slot]) - 1 - self._first) & _PLACE_BITS)

    def _enter(self, index: vec[i32], high: i64, place: i64) -> None:
        slots: i64 = len(index)
        slot = self._home(high, slots)
        while index[slot] != 0:
            slot = (slot + 1) & (slots - 1)
        index[slot] = i32((place & _PLACE_BITS) + 1)

    def _leave(self, place: i64) -> None:
        """Behind a slot that becomes free, whoever had to make way for it moves up."""
        high = self._high_of(place)
        shard = _shard_of(high)
        index = self._index[shard]
        slots: i64 = len(index)
        free = self._home(high, slots)
        while self._place_in(index, free) != place or index[free] == 0:
            free = (free + 1) & (slots - 1)
        slot = (free + 1) & (slots - 1)
        while index[slot] != 0:
            home = self._home(self._high_of(self._place_in(index, slot)), slots)
            if (slot - home) & (slots - 1) >= (slot - free) & (slots - 1):
                index[free] = index[slot]
                free = slot
            slot = (slot + 1) & (slots - 1)
        index[free] = 0
        self._filled[shard] -= 1
        if slots > FIRST_SLOTS and self._filled[shard] * 16 < slots:
            self._resize(shard, slots // 2)

    def _resize(self, shard: i64, slots: i64) -> None:
        old = self._index[shard]
        new: vec[i32] = vec[i32]([0] * int(slots))
        self._index[shard] = new
        slot: i64 = 0
        while slot < len(old):
            if old[slot] != 0:
                place = self._place_in(old, slot)
                self._enter(new, self._high_of(place), place)
            slot += 1


def _shard_of(high: i64) -> i64:
    return (high >> 56) & 0xFF


@final
class DuplicateDetection:
    """What a fragment's commits make of message ids.

    An id is looked up when its message is about to be numbered, and remembered at once: a second one in the same commit
    shares the fate of the first, whatever that is. Ids of sends can be taken back as long as nothing was stored.

    On a partitioned entity an id counts under the key it came with. Ids of before that rule stand in the store hashed
    alone, as no partitioned entity writes them now: they count under every key until they are too old.
    """

    def __init__(self, fragment: i64, recent: RecentIds, budget: Budget, is_by_key: bool, ignores_case: bool) -> None:
        self._fragment: i64 = fragment
        self._recent: Final = recent
        self._budget: Final = budget
        self._is_by_key: bool = is_by_key
        self._ignores_case: bool = ignores_case
        """Of the keys; ids are compared exactly."""
        self._fresh: list[bytes] = []
        """Of the commit being collected, not yet written down."""
        self._sent_count: i64 = 0
        """Ids of the sends in the commit under way: the newest of all."""
        self._now_ms: i64 = 0
        self._since_ms: i64 = 0
        self._is_trimming: bool = False
        self.may_be_stale: bool = True
        """Whether the store may hold ids that are too old to count."""
        budget.recent_ids += recent.count

    def begin(self, now_ms: i64, window_ms: i64) -> None:
        """A commit is being collected."""
        self._now_ms = now_ms
        self._since_ms = now_ms - window_ms
        self.forget(self._since_ms)

    def is_duplicate(self, message: Message, has_sessions: bool = False) -> bool:
        """Whether the message came before. From here on it did."""
        digest = (
            hash_of_key_and_id(message, has_sessions, self._ignores_case) if self._is_by_key else hash_of_id(message)
        )
        if not digest:
            return False
        if self._recent.has(digest, self._since_ms) or self._came_under_any_key(message):
            return True
        self._recent.add(digest, self._now_ms)
        self._budget.recent_ids += 1
        self._fresh.append(digest)
        return False

    def _came_under_any_key(self, message: Message) -> bool:
        """Whether the id is among those that were stored without their keys."""
        if not self._is_by_key or self._recent.newest_loaded_ms <= self._since_ms:
            return False
        return self._recent.has(hash_of_id(message), self._since_ms)

    def write(self, changes: Changes) -> i64:
        """Put down what was remembered since the last time; returns how many ids that is."""
        count = len(self._fresh)
        if count > 0:
            self._recent.newest_record += 1
            number = int(self._recent.newest_record)
            changes.history.append(HistoryRecord(int(self._fragment), int(self._now_ms), number, b"".join(self._fresh)))
            self._fresh = []
        return count

    def write_sends(self, arrivals: Changes) -> None:
        self._sent_count = self.write(arrivals)

    def refuse_sends(self) -> None:
        """There was no room for them: as if they had never come."""
        self._recent.take_back(self._sent_count)
        self._budget.recent_ids -= self._sent_count
        self._sent_count = 0

    def committed(self) -> None:
        self._sent_count = 0

    def forget(self, until_ms: i64) -> bool:
        """Let go of some that came at `until_ms` or before; returns whether there may be more of them."""
        count = self._recent.forget(until_ms, FORGET_SLICE)
        self._budget.recent_ids -= count
        if count > 0:
            self.may_be_stale = True
        return count == FORGET_SLICE

    def trim(self) -> None:
        """The next commit deletes from the store what is too old to count."""
        self._is_trimming = True

    def write_trim(self, changes: Changes) -> None:
        if self._is_trimming:
            self._is_trimming = False
            before_ms = max(int(self._since_ms) + 1, 0)
            changes.trimmed_history.append(HistoryTrim(int(self._fragment), before_ms, TRIM_SLICE))

    def end(self) -> None:
        """Its fragment leaves the memory, or what it remembers is not to be relied upon."""
        self._budget.recent_ids -= self._recent.count
