"""The bits and counts of consecutive sequence numbers."""

from __future__ import annotations

import pytest

from tandembus.broker.block import Block, block_of
from tandembus.store.messaging_store import BITS_BYTES, BLOCK_SIZE, NEVER
from tests.contract.samples import block as sample_record
from tests.contract.samples import block_content
from tests.covers import covers

OFFSETS = [0, 1, 7, 8, 511, BLOCK_SIZE - 1]


@pytest.mark.parametrize("offset", OFFSETS)
def test_settling_a_number_leaves_its_neighbours_alone(offset: int) -> None:
    block = Block(0)
    block.settle(offset)
    assert [one for one in range(BLOCK_SIZE) if block.is_settled(one)] == [offset]


@pytest.mark.parametrize("offset", OFFSETS)
def test_parking_a_number_leaves_its_neighbours_alone(offset: int) -> None:
    block = Block(0)
    block.park(offset)
    assert [one for one in range(BLOCK_SIZE) if block.is_parked(one)] == [offset]
    assert not block.is_settled(offset)


@pytest.mark.parametrize("offset", OFFSETS)
def test_unparking_a_number_leaves_its_neighbours_parked(offset: int) -> None:
    block = Block(0)
    for one in range(BLOCK_SIZE):
        block.park(one)
    block.unpark(offset)
    assert [one for one in range(BLOCK_SIZE) if not block.is_parked(one)] == [offset]


def test_settling_twice_is_settling_once() -> None:
    block = Block(0)
    block.settle(9)
    block.settle(9)
    assert block.is_settled(9)
    assert block.record(1, 0).settled.count(0) == BITS_BYTES - 1


@covers("M6")
def test_the_earliest_expiry_is_the_smallest_that_was_said() -> None:
    block = Block(0)
    for expires_at in (50, 30, NEVER, 40):
        block.expire_from(expires_at)
    assert block.earliest_expiry == 30


@covers("M6")
def test_what_never_expires_is_never_later() -> None:
    block = Block(0)
    assert not block.is_later(NEVER)
    assert block.is_later(10)
    block.expire_from(10)
    assert not block.is_later(10)
    assert block.is_later(9)


@covers("M1")
def test_a_block_read_back_is_the_block_that_was_written() -> None:
    record = sample_record(3)
    assert block_content(block_of(record).record(record.fragment, record.lane)) == block_content(record)


def test_a_block_read_back_owes_the_bodies_of_what_is_settled() -> None:
    record = sample_record(3, given=500)
    assert block_of(record).thin_debt == 500 - record.live_count


@covers("M6")
def test_a_block_read_back_knows_what_the_due_index_says_of_it() -> None:
    record = sample_record(3)
    assert block_of(record).indexed_expiry == record.earliest_expiry
