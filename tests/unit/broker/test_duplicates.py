"""Hashes of message ids, and the table that remembers them."""

from __future__ import annotations

import hashlib
import uuid

from hypothesis import given, settings
from hypothesis import strategies as st

from tandembus.amqp.encoding.sections import data_section, properties_section
from tandembus.broker.duplicates import CHUNK_IDS, RecentIds, hash_of_id
from tandembus.message import parse_message
from tandembus.store.messaging_store import HASH_BYTES, HistoryRecord
from tests.covers import covers

IDS = 24


def digest(number: int) -> bytes:
    """Few of the index's shards are used, and few of the homes within them: ids get into each other's way."""
    unlike = hashlib.md5(number.to_bytes(4, "big")).digest()
    return bytes([number % 2, 0, 0, 0, 0, 0, 0, number % 3]) + unlike[:8]


def hashed(encoded_id: bytes) -> bytes:
    """Of a message whose properties list holds just this id."""
    size = 1 + len(encoded_id)
    section = b"\x00\x53\x73\xc0" + bytes([size, 1]) + encoded_id
    return hash_of_id(parse_message(section + data_section(b"body")))


@covers("M8")
def test_an_id_has_one_hash_however_it_is_encoded() -> None:
    assert len(hashed(b"\xa1\x03abc")) == HASH_BYTES
    assert hashed(b"\xa1\x03abc") == hashed(b"\xb1\x00\x00\x00\x03abc")
    assert hashed(b"\xa0\x03abc") == hashed(b"\xb0\x00\x00\x00\x03abc")
    assert hashed(b"\x53\x07") == hashed(b"\x80" + bytes(7) + b"\x07")
    assert hashed(b"\x44") == hashed(b"\x80" + bytes(8))


@covers("M8")
def test_ids_that_differ_in_anything_have_different_hashes() -> None:
    some = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    ids = [b"\xa1\x00", b"\xa1\x01a", b"\xa1\x01A", b"\xa1\x02a ", b"\xa0\x01a", b"\xa0\x10" + some.bytes]
    ids += [b"\x98" + some.bytes, b"\xa1\x24" + str(some).encode(), b"\x44", b"\x53\x01", b"\xa1\x011"]
    assert len({hashed(one) for one in ids}) == len(ids)


@covers("M8", "P12")
def test_only_the_id_counts() -> None:
    first = parse_message(properties_section("same", subject="first") + data_section(b"1"))
    second = parse_message(properties_section("same", content_type="text/plain") + data_section(b"2"))
    assert hash_of_id(first) == hash_of_id(second)
    without = [parse_message(data_section(b"x")) for _ in range(2)]
    assert hash_of_id(without[0]) != hash_of_id(without[1]), "the broker gives each an id of its own"


@covers("M8")
def test_an_id_is_known_until_its_time_is_over() -> None:
    recent = RecentIds()
    assert not recent.has(digest(1), 0)
    recent.add(digest(1), 100)
    assert recent.has(digest(1), 99)
    assert not recent.has(digest(1), 100)
    assert not recent.has(digest(2), 0)


@covers("M8")
def test_an_id_that_is_too_old_but_still_there_does_not_hide_the_newer_one() -> None:
    recent = RecentIds()
    recent.add(digest(1), 100)
    recent.add(digest(1), 300)
    assert recent.has(digest(1), 200)
    assert recent.forget(100, 10) == 1
    assert recent.has(digest(1), 200)


@covers("M8")
def test_as_many_as_asked_for_are_forgotten_the_oldest_first() -> None:
    recent = RecentIds()
    for number in range(10):
        recent.add(digest(number), number)
    assert recent.forget(6, 4) == 4
    assert [recent.has(digest(number), -1) for number in range(10)] == [False] * 4 + [True] * 6
    assert recent.forget(6, 100) == 3
    assert recent.forget(6, 100) == 0
    assert recent.count == 3


@covers("M8")
def test_ids_read_back_from_the_store_are_known_and_the_next_record_is_a_new_one() -> None:
    recent = RecentIds()
    recent.load(HistoryRecord(1, 100, 7, digest(1) + digest(2)))
    recent.load(HistoryRecord(1, 200, 3, digest(3)))
    assert recent.count == 3
    assert recent.newest_record == 7
    assert recent.has(digest(2), 99)
    assert recent.has(digest(3), 199)


@covers("M8")
def test_chunks_and_index_grow_and_are_given_back() -> None:
    recent = RecentIds()
    total = 5 * CHUNK_IDS + 100
    unlike = [hashlib.md5(number.to_bytes(4, "big")).digest() for number in range(total)]
    for number, one in enumerate(unlike):
        recent.add(one, number)
    assert all(recent.has(one, -1) for one in unlike)
    recent.take_back(2 * CHUNK_IDS)
    assert recent.forget(CHUNK_IDS + 50, total) == CHUNK_IDS + 51
    left = range(CHUNK_IDS + 51, total - 2 * CHUNK_IDS)
    assert recent.count == len(left)
    assert [number for number, one in enumerate(unlike) if recent.has(one, -1)] == list(left)
    for number in range(CHUNK_IDS):
        recent.add(unlike[number], total)
    assert all(recent.has(one, total - 1) for one in unlike[:CHUNK_IDS])
    assert recent.forget(total, 10 * total) == len(left) + CHUNK_IDS
    assert not any(recent.has(one, -1) for one in unlike)


steps = st.one_of(
    st.tuples(st.just("add"), st.integers(0, IDS)),
    st.tuples(st.just("forget"), st.integers(0, 8)),
    st.tuples(st.just("take back"), st.integers(1, 4)),
    st.tuples(st.just("wait"), st.integers(1, 5)),
    st.tuples(st.just("clock back"), st.integers(1, 5)),
)


@covers("M8")
@settings(max_examples=200)
@given(st.lists(steps, max_size=80))
def test_the_table_knows_exactly_what_a_list_would(history: list[tuple[str, int]]) -> None:
    recent, known, now = RecentIds(), list[tuple[int, int]](), 10
    for step, value in history:
        if step == "add":
            recent.add(digest(value), now)
            known.append((value, now))
        elif step == "forget":
            count = 0
            while count < value and known and known[0][1] <= now - 3:
                known.pop(0)
                count += 1
            assert recent.forget(now - 3, value) == count
        elif step == "take back":
            recent.take_back(min(value, len(known)))
            del known[max(0, len(known) - value) :]
        else:
            now = now + value if step == "wait" else max(now - value, 0)
        assert recent.count == len(known)
        for number in range(IDS + 1):
            for since in (-1, now - 3):
                assert recent.has(digest(number), since) == any(k == number and at > since for k, at in known)
