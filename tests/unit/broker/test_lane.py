"""Numbers, counts and the window of one lane."""

from __future__ import annotations

from tandembus.broker.lane import Lane
from tandembus.broker.lane_numbers import LARGE_BODY_BYTES, MAX_BLOCKS_DROPPED
from tandembus.broker.locks import LockTable
from tandembus.message import Message
from tandembus.store.messaging_store import NEVER, BlockRecord, Changes
from tests.contract.samples import message
from tests.covers import covers

FRAGMENT, CODE, BLOCK = 7, 0, 4
SIZE = 10


def lane_with(count: int, shown: bool = True) -> Lane:
    lane = Lane(FRAGMENT, CODE, BLOCK, 0)
    for _ in range(count):
        lane.give_number(SIZE, NEVER)
    if shown:
        lane.show()
    return lane


def reloaded(records: list[BlockRecord]) -> Lane:
    lane = Lane(FRAGMENT, CODE, BLOCK, 0)
    lane.load(records)
    return lane


def emitted(lane: Lane) -> Changes:
    changes = Changes()
    lane.emit(changes)
    return changes


def settle(lane: Lane, *numbers: int, size_bytes: int = SIZE) -> Changes:
    changes = Changes()
    for number in numbers:
        lane.settle(number, size_bytes, changes)
    return changes


def ranges(changes: Changes) -> list[tuple[int, int]]:
    return [(one.first, one.last) for one in changes.dropped_bodies]


def hold(lane: Lane, number: int) -> None:
    lane.hold(number, LockTable(0, 1).lock(CODE, number, 0.0, 60.0, SIZE, NEVER))


# Numbers and counts.


@covers("M1")
def test_numbers_start_at_one_and_follow_each_other() -> None:
    lane = Lane(FRAGMENT, CODE, BLOCK, 0)
    assert [lane.give_number(SIZE, NEVER) for _ in range(10)] == list(range(1, 11))


@covers("M1")
def test_a_number_is_nobodys_to_see_before_it_is_durable() -> None:
    lane = lane_with(1, shown=False)
    assert not lane.is_free(1)
    assert lane.next_live(1, 10) == []
    lane.show()
    assert lane.is_waiting(1)
    assert lane.next_live(1, 10) == [1]


@covers("M13")
def test_counts_and_bytes_follow_what_is_given_and_settled() -> None:
    lane = lane_with(5)
    settle(lane, 2, 4)
    assert (lane.live_count, lane.live_bytes) == (3, 3 * SIZE)


@covers("M13")
def test_parked_messages_are_counted_by_kind_and_not_available() -> None:
    lane = lane_with(5)
    lane.park(1, is_deferred=True)
    lane.park(2, is_deferred=False)
    assert (lane.deferred_count, lane.scheduled_count) == (1, 1)
    assert lane.next_available(1, 10) == [3, 4, 5]
    lane.unpark(1, is_deferred=True)
    lane.unpark(2, is_deferred=False)
    assert (lane.deferred_count, lane.scheduled_count) == (0, 0)
    assert lane.next_available(1, 10) == [1, 2, 3, 4, 5]


def test_a_parked_message_rests_and_does_not_wait() -> None:
    lane = lane_with(1)
    lane.park(1, is_deferred=True)
    assert lane.is_resting(1)
    assert not lane.is_waiting(1)


def test_a_held_message_neither_waits_nor_rests() -> None:
    lane = lane_with(2)
    lane.park(2, is_deferred=True)
    hold(lane, 1)
    hold(lane, 2)
    assert (lane.is_waiting(1), lane.is_resting(2)) == (False, False)


def test_a_settled_message_is_not_live() -> None:
    lane = lane_with(1)
    settle(lane, 1)
    assert not lane.is_live(1)
    assert not lane.is_free(1)


def test_numbers_that_were_never_given_are_not_live() -> None:
    lane = lane_with(1)
    assert [number for number in (-1, 0, 1, 2, 1000) if lane.is_free(number)] == [1]


# What a commit writes.


@covers("M1")
def test_only_blocks_that_changed_are_written() -> None:
    lane = lane_with(3 * BLOCK)
    emitted(lane)
    settle(lane, 1)
    assert [record.block for record in emitted(lane).blocks] == [0]


@covers("M1")
def test_a_lane_read_back_goes_on_where_it_was() -> None:
    lane = lane_with(6)
    settle(lane, 2)
    lane.park(3, is_deferred=True)
    lane.park(4, is_deferred=False)
    again = reloaded(emitted(lane).blocks)
    assert again.next_live(1, 10) == [1, 3, 4, 5, 6]
    assert again.next_available(1, 10) == [1, 5, 6]
    assert (again.live_count, again.live_bytes, again.deferred_count, again.scheduled_count) == (5, 5 * SIZE, 1, 1)
    assert again.give_number(SIZE, NEVER) == 7


@covers("M1")
def test_a_number_is_not_given_twice_after_everything_was_settled() -> None:
    lane = lane_with(BLOCK * 2 - 1)
    kept = {record.block: record for record in emitted(lane).blocks}
    settle(lane, *range(1, BLOCK * 2))
    changes = emitted(lane)
    kept.update({record.block: record for record in changes.blocks})
    for place in changes.dropped_blocks:
        del kept[place.number]
    assert reloaded(list(kept.values())).give_number(SIZE, NEVER) == BLOCK * 2


@covers("M1")
def test_the_bodies_of_a_block_go_together_once_all_of_it_is_settled() -> None:
    lane = lane_with(2 * BLOCK)
    emitted(lane)
    settle(lane, 3, 1)
    assert ranges(emitted(lane)) == []
    settle(lane, 2)
    changes = emitted(lane)
    assert ranges(changes) == [(0, BLOCK - 1)]
    assert [place.number for place in changes.dropped_blocks] == [0]


def test_the_newest_block_stays_since_it_has_the_next_number() -> None:
    lane = lane_with(BLOCK - 1)
    settle(lane, *range(1, BLOCK))
    changes = emitted(lane)
    assert (ranges(changes), changes.dropped_blocks) == ([], [])
    assert not lane.has_more_to_drop()


def test_a_mass_of_complete_blocks_goes_in_slices() -> None:
    lane = lane_with(BLOCK * (MAX_BLOCKS_DROPPED + 3))
    emitted(lane)
    settle(lane, *range(1, BLOCK * (MAX_BLOCKS_DROPPED + 2)))
    assert len(ranges(emitted(lane))) == MAX_BLOCKS_DROPPED
    assert lane.has_more_to_drop()
    emitted(lane)
    assert not lane.has_more_to_drop()


def test_a_large_body_goes_as_soon_as_it_is_settled() -> None:
    lane = Lane(FRAGMENT, CODE, BLOCK, 0)
    lane.give_number(LARGE_BODY_BYTES, NEVER)
    assert ranges(settle(lane, 1, size_bytes=LARGE_BODY_BYTES)) == [(1, 1)]


def test_thinning_deletes_what_is_settled_between_stragglers() -> None:
    lane = Lane(FRAGMENT, CODE, 16, 0)
    for _ in range(14):
        lane.give_number(SIZE, NEVER)
    settle(lane, 2, 3, 4, 7, 9, 10)
    changes = Changes()
    assert lane.thin(changes, 6)
    assert ranges(changes) == [(0, 0), (2, 4), (7, 7), (9, 10)]
    assert not lane.thin(Changes(), 6)


def test_thinning_waits_until_it_is_worth_the_while() -> None:
    lane = lane_with(3)
    settle(lane, 1)
    assert not lane.thin(Changes(), 2)


@covers("M13")
def test_a_number_taken_back_was_never_there() -> None:
    lane = lane_with(5)
    changes = emitted(lane)
    number = lane.give_number(SIZE, 99)
    lane.park(number, is_deferred=False)
    lane.emit(changes)
    lane.take_back_number(number, SIZE)
    lane.emit_again(changes)
    again = reloaded([record for record in changes.blocks if record.given])
    assert (again.next_number, again.live_count, again.scheduled_count) == (6, 5, 0)
    assert (lane.live_count, lane.live_bytes, lane.scheduled_count) == (5, 5 * SIZE, 0)


@covers("M13")
def test_a_block_is_written_once_even_after_numbers_were_taken_back() -> None:
    lane = lane_with(2)
    changes = emitted(lane)
    lane.take_back_number(2, SIZE)
    lane.emit_again(changes)
    assert [(record.block, record.given) for record in changes.blocks] == [(0, 2)]


# Expiry.


@covers("M6")
def test_the_due_index_follows_the_earliest_expiry_of_a_block() -> None:
    lane = Lane(FRAGMENT, CODE, BLOCK, 0)
    lane.give_number(SIZE, 50)
    first = emitted(lane)
    assert [(due.at_ms, due.number) for due in first.expiries] == [(50, 0)]
    lane.give_number(SIZE, 30)
    second = emitted(lane)
    assert [due.at_ms for due in second.expiries] == [30]
    assert [due.at_ms for due in second.dropped_expiries] == [50]
    assert lane.is_indexed(0, 30)


@covers("M6")
def test_a_block_without_a_time_to_live_is_not_in_the_due_index() -> None:
    assert emitted(lane_with(3)).expiries == []


@covers("M6")
def test_a_sweep_looks_at_what_waits_only() -> None:
    lane = lane_with(3)
    hold(lane, 1)
    lane.park(2, is_deferred=True)
    assert lane.begin_sweep(0) == [3]


@covers("M6")
def test_what_comes_during_a_sweep_is_not_forgotten_by_its_end() -> None:
    lane = Lane(FRAGMENT, CODE, BLOCK, 0)
    lane.give_number(SIZE, 50)
    lane.show()
    emitted(lane)
    lane.begin_sweep(0)
    lane.give_number(SIZE, 70)
    lane.end_sweep(0, NEVER)
    assert [due.at_ms for due in emitted(lane).expiries] == [70]


@covers("M6")
def test_a_dropped_block_leaves_nothing_in_the_due_index() -> None:
    lane = Lane(FRAGMENT, CODE, BLOCK, 0)
    for _ in range(BLOCK):
        lane.give_number(SIZE, 50)
    lane.show()
    emitted(lane)
    settle(lane, 1, 2, 3)
    assert [due.at_ms for due in emitted(lane).dropped_expiries] == [50]


# The window.


def entered(count: int, max_messages: int = 100) -> Lane:
    lane = lane_with(count)
    for number in range(1, count + 1):
        lane.enter(message(number, SIZE), max_messages, 1 << 20)
    return lane


def numbers(messages: list[Message]) -> list[int]:
    return [int(one.number) for one in messages]


def test_what_arrives_stays_in_memory_while_the_window_has_room() -> None:
    lane = entered(5, max_messages=3)
    assert numbers(list(lane.ready)) == [1, 2, 3]
    assert lane.window_end == 4


def test_behind_a_gap_nothing_enters_memory() -> None:
    lane = lane_with(3)
    lane.enter(message(2, SIZE), 100, 1 << 20)
    assert not lane.ready


def test_a_refill_reads_on_from_the_windows_end() -> None:
    lane = entered(5, max_messages=2)
    assert lane.plan_refill(2) == [3, 4]
    lane.refill([message(3, SIZE), message(4, SIZE)])
    assert numbers(list(lane.ready)) == [1, 2, 3, 4]
    assert lane.ready_bytes == 4 * SIZE


def test_what_came_back_is_read_before_anything_else() -> None:
    lane = entered(5, max_messages=3)
    lane.give_back(2)
    lane.give_back(1)
    assert lane.plan_refill(10) == [1, 2]


def test_a_message_that_came_back_goes_before_what_is_ready() -> None:
    lane = entered(3)
    lane.pop_ready()
    lane.give_back(1)
    assert not lane.has_next(), "2 may not go before 1"
    lane.plan_refill(10)
    assert not lane.has_next(), "1 is being read"
    lane.refill([message(1, SIZE)])
    assert numbers(list(lane.ready)) == [1, 2, 3]
    assert lane.has_next()


def test_what_was_settled_while_it_was_read_is_not_ready() -> None:
    lane = lane_with(3)
    lane.plan_refill(10)
    settle(lane, 2)
    lane.refill([message(1, SIZE), message(2, SIZE), message(3, SIZE)])
    assert numbers(list(lane.ready)) == [1, 3]


def test_what_was_locked_while_it_was_read_is_not_ready() -> None:
    lane = lane_with(2)
    lane.plan_refill(10)
    hold(lane, 1)
    lane.refill([message(1, SIZE), message(2, SIZE)])
    assert numbers(list(lane.ready)) == [2]


def test_what_there_was_no_room_for_is_planned_again() -> None:
    lane = lane_with(5)
    planned = lane.plan_refill(4)
    lane.unplan(planned[2:], False)
    lane.refill([message(1, SIZE), message(2, SIZE)])
    assert lane.plan_refill(10) == [3, 4, 5]


def test_what_came_back_and_was_not_read_stays_with_what_came_back() -> None:
    lane = entered(3)
    for number in (1, 2, 3):
        lane.pop_ready()
        lane.give_back(number)
    planned = lane.plan_refill(10)
    lane.unplan(planned[1:], True)
    lane.refill([message(1, SIZE)])
    assert lane.plan_refill(10) == [2, 3]


def test_an_evicted_window_is_read_again_from_its_start() -> None:
    lane = entered(4)
    lane.pop_ready()
    lane.evict()
    assert (len(lane.ready), lane.ready_bytes) == (0, 0)
    assert lane.plan_refill(10) == [2, 3, 4]


def test_what_came_back_is_not_forgotten_nor_doubled_by_an_eviction() -> None:
    lane = entered(4)
    lane.pop_ready()
    lane.give_back(1)
    lane.evict()
    assert lane.plan_refill(10) == [1]
    lane.refill([message(1, SIZE)])
    assert lane.plan_refill(10) == [2, 3, 4]


def test_parked_settled_and_held_messages_are_passed_over_by_a_refill() -> None:
    lane = lane_with(5)
    settle(lane, 1)
    lane.park(2, is_deferred=True)
    hold(lane, 3)
    assert lane.plan_refill(10) == [4, 5]


def test_a_scan_jumps_over_long_gaps() -> None:
    lane = lane_with(5 * BLOCK)
    settle(lane, *range(1, 4 * BLOCK + 1))
    emitted(lane)
    assert lane.next_live(1, 2) == [4 * BLOCK + 1, 4 * BLOCK + 2]


def test_a_lane_is_exhausted_when_nothing_is_available_anywhere() -> None:
    lane = entered(1)
    assert not lane.is_exhausted()
    lane.pop_ready()
    assert lane.is_exhausted()
    lane.give_back(1)
    assert not lane.is_exhausted()


def test_more_is_wanted_when_the_window_is_low_and_the_store_has_more() -> None:
    lane = entered(5, max_messages=2)
    assert not lane.wants_refill(2, 1 << 20)
    lane.pop_ready()
    assert lane.wants_refill(2, 1 << 20)


# What was on its way to another store and comes back.


@covers("P17")
def test_the_window_goes_back_to_what_is_available_again_and_forgets_what_lies_above() -> None:
    lane = lane_with(6)
    for number in range(1, 7):
        lane.enter(message(number), 10, 1 << 20)
    lane.give_back(2)
    lane.give_back(5)
    lane.rewind(4)
    assert (lane.window_end, [one.number for one in lane.ready]) == (4, [1, 2, 3])
    assert lane.ready_bytes == sum(len(one.sections) for one in lane.ready)
    assert lane.plan_refill(10) == [2]
    lane.refill([])
    assert lane.plan_refill(10) == [4, 5, 6]


@covers("P17")
def test_rewinding_again_and_again_leaves_no_notes_behind() -> None:
    lane = lane_with(3)
    lane.plan_refill(3)
    lane.refill([message(number) for number in (1, 2, 3)])
    for _ in range(100):
        lane.rewind(2)
    lane.rewind(3)
    assert (lane.window_end, lane.returned) == (2, [])
    assert lane.plan_refill(10) == [2, 3]


@covers("P17")
def test_while_bodies_are_being_read_what_comes_back_is_noted() -> None:
    lane = lane_with(3)
    assert lane.plan_refill(2) == [1, 2]
    lane.rewind(1)
    assert (lane.window_end, lane.returned) == (3, [1])


@covers("P17")
def test_the_first_that_somebody_holds_is_found_and_parked_ones_do_not_count() -> None:
    lane = lane_with(9)
    assert lane.first_held() == 0
    for number in (3, 7, 5):
        hold(lane, number)
    lane.park(3, True)
    assert lane.first_held() == 5
