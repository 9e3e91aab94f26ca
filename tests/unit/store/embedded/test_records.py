"""Records read back as they were written, or are known to be damaged: there is nothing in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus.message import Message, stored_message
from tandembus.store.embedded import keys, records
from tandembus.store.messaging_store import DEFERRED, Damage, Due, FragmentHead, Overlay, PutBody
from tests.contract.samples import block, block_content, body_content, head_content, message, overlay_content
from tests.covers import covers

times = st.integers(0, 2**63 - 1)
bytes_of_one = st.integers(0, 255)


def flips(value: bytes) -> Iterator[bytes]:
    for bit in range(len(value) * 8):
        changed = bytearray(value)
        changed[bit >> 3] ^= 1 << (bit & 7)
        yield bytes(changed)


@given(
    st.integers(0, keys.MAX_NUMBER),
    st.tuples(times, times, times),
    st.tuples(bytes_of_one, bytes_of_one, bytes_of_one),
    st.binary(max_size=3000),
    st.data(),
)
def test_a_body_reads_back_as_it_was(
    number: int, at: tuple[int, int, int], small: tuple[int, int, int], sections: bytes, data: st.DataObject
) -> None:
    first, second, third = sorted(data.draw(st.integers(0, len(sections))) for _ in range(3))
    sent = stored_message(number, *at, *small, first, second, third, sections)
    key, value = records.encode_body(PutBody(0xFFFFFFFF, 3, sent))
    assert key == keys.body_key(0xFFFFFFFF, 3, number)
    assert len(value) == records.BODY_HEAD_BYTES + len(sections)
    assert body_content(records.decode_body(key, value)) == body_content(sent)


@covers("F6")
def test_a_body_with_any_one_bit_flipped_is_damage() -> None:
    key, value = records.encode_body(PutBody(7, 0, message(1, size_bytes=64)))
    for changed in flips(value):
        body = records.decode_body(key, changed)
        assert isinstance(body, Damage)
        assert (body.number, body.is_missing) == (1, False)


@covers("F6")
def test_a_body_cut_short_or_prolonged_is_damage() -> None:
    key, value = records.encode_body(PutBody(7, 0, message(1, size_bytes=64)))
    for length in range(len(value)):
        assert isinstance(records.decode_body(key, value[:length]), Damage)
    assert isinstance(records.decode_body(key, value + b"\0"), Damage)


@covers("F6")
def test_a_body_found_under_another_key_is_damage() -> None:
    _, value = records.encode_body(PutBody(7, 0, message(1)))
    body = records.decode_body(keys.body_key(7, 0, 2), value)
    assert isinstance(body, Damage)
    assert body.number == 2


def test_a_body_that_is_not_there_is_damage_of_its_own_kind() -> None:
    body = records.decode_body(keys.body_key(7, 0, 2), None)
    assert isinstance(body, Damage)
    assert body.is_missing


@covers("F6")
def test_a_body_whose_offsets_contradict_each_other_is_damage_although_its_checksum_is_right() -> None:
    wrong = stored_message(1, 0, 0, 1, 0, 0, 4, 30, 20, 10, bytes(64))
    assert isinstance(records.decode_body(*records.encode_body(PutBody(7, 0, wrong))), Damage)
    wrong = stored_message(1, 0, 0, 1, 0, 0, 4, 0, 0, 65, bytes(64))
    assert isinstance(records.decode_body(*records.encode_body(PutBody(7, 0, wrong))), Damage)


def test_bodies_are_encoded_in_key_order_whatever_order_they_came_in() -> None:
    puts = [PutBody(fragment, 0, message(number)) for number in (5, 1, 3) for fragment in (2, 1)]
    items = records.encode_bodies(puts)
    assert [key for key, _ in items] == sorted(keys.body_key(f, 0, n) for f in (1, 2) for n in (1, 3, 5))
    assert records.size_of(items) == sum(len(value) for _, value in items)
    decoded = records.decode_bodies([key for key, _ in items], [value for _, value in items])
    assert all(isinstance(body, Message) for body in decoded)


def test_the_smaller_records_read_back_as_they_were() -> None:
    decoded_block = records.decode_block(*records.encode_block(block(12)))
    assert decoded_block is not None
    assert block_content(decoded_block) == block_content(block(12))
    overlay = Overlay(7, 1, 99, DEFERRED, 0xFFFFFFFF, b"section")
    decoded_overlay = records.decode_overlay(*records.encode_overlay(overlay))
    assert decoded_overlay is not None
    assert overlay_content(decoded_overlay) == overlay_content(overlay)
    head = FragmentHead(0xFFFFFFFF, 2**62, 15, True)
    decoded_head = records.decode_head(*records.encode_head(head))
    assert decoded_head is not None
    assert head_content(decoded_head) == head_content(head)
    meta = records.encode_meta(b"m", 3, bytes(range(16)), 2**62)
    assert records.decode_meta(b"m", meta) == (3, bytes(range(16)), 2**62)


@covers("F6")
def test_every_smaller_record_with_any_one_bit_flipped_is_damaged() -> None:
    key, value = records.encode_block(block(12))
    assert all(records.decode_block(key, changed) is None for changed in flips(value))
    assert all(records.decode_block(changed, value) is None for changed in flips(key))
    key, value = records.encode_overlay(Overlay(7, 1, 99, DEFERRED, 3, b"section"))
    assert all(records.decode_overlay(key, changed) is None for changed in flips(value))
    key, value = records.encode_head(FragmentHead(7, 5, 0, False))
    assert all(records.decode_head(key, changed) is None for changed in flips(value))
    value = records.encode_meta(b"m", 1, bytes(16), 9)
    assert all(records.decode_meta(b"m", changed) is None for changed in flips(value))
    key, value = records.encode_due(keys.due_key(keys.SCHEDULE, Due(1000, 7, 0, 5)))
    assert records.due_is_sound(key, value)
    assert not any(records.due_is_sound(key, changed) for changed in flips(value))
    assert not any(records.due_is_sound(changed, value) for changed in flips(key))


@covers("F6")
@pytest.mark.parametrize("length", range(50))
def test_a_smaller_record_cut_short_is_damaged(length: int) -> None:
    key, value = records.encode_block(block(12))
    assert records.decode_block(key, value[:length]) is None
    assert records.decode_overlay(key, value[:length]) is None
    assert records.decode_head(key, value[:length]) is None
    assert records.decode_meta(b"m", value[:length]) is None
