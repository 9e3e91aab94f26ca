"""What every messaging store promises, whatever it is made of."""

from __future__ import annotations

import pytest

from tandembus.errors import StoreFull, StoreUnavailable
from tandembus.message import Message
from tandembus.store.messaging_store import (
    ACTIVE,
    DEAD_LETTER,
    DEFERRED,
    MAIN,
    MARK_BYTES,
    AuditPage,
    BodyRange,
    Changes,
    Damage,
    Due,
    FragmentHead,
    HighWater,
    HistoryRecord,
    HistoryTrim,
    Mark,
    MessagingStore,
    Overlay,
    Place,
    PutBody,
    SessionColumn,
    SessionState,
)
from tests.contract.samples import (
    FRAGMENT,
    NOW_MS,
    block,
    block_content,
    body_content,
    due_content,
    head_content,
    high_water_content,
    history_content,
    mark_content,
    message,
    numbers_of,
    overlay_content,
    sends,
    state_content,
)
from tests.contract.stores import StoreUnderTest
from tests.covers import covers

PLENTY = 1 << 30


@covers("M1")
async def test_a_committed_message_reads_back_as_it_was(store: MessagingStore) -> None:
    await store.commit(sends([1, 2, 3], expires_at=NOW_MS + 60_000))
    bodies = await store.bodies(FRAGMENT, MAIN, [1, 2, 3], PLENTY)
    expected = [message(number, expires_at=NOW_MS + 60_000) for number in (1, 2, 3)]
    assert list(map(body_content, bodies)) == list(map(body_content, expected))


@covers("M1")
async def test_everything_committed_is_there_after_the_store_is_opened_again(
    under_test: StoreUnderTest,
) -> None:
    store = under_test.open()
    changes = sends(range(1, 300))
    changes.blocks = [block(0)]
    changes.overlays = [Overlay(FRAGMENT, MAIN, 5, DEFERRED, 3, b"properties")]
    changes.schedules = [Due(NOW_MS, FRAGMENT, MAIN, 9)]
    changes.expiries = [Due(NOW_MS + 1, FRAGMENT, MAIN, 0)]
    changes.heads = [FragmentHead(FRAGMENT, 12, 3, False)]
    await store.commit(changes)
    await store.close()

    store = under_test.open()
    assert numbers_of(await store.bodies(FRAGMENT, MAIN, range(1, 300), PLENTY)) == list(range(1, 300))
    assert [block_content(record) for record in await store.blocks(FRAGMENT, MAIN)] == [block_content(block(0))]
    overlays = await store.overlays(FRAGMENT, MAIN, 0, 100)
    assert list(map(overlay_content, overlays)) == [(FRAGMENT, MAIN, 5, DEFERRED, 3, b"properties")]
    assert due_content(await store.schedules_before(NOW_MS + 1, 10)) == [(NOW_MS, FRAGMENT, MAIN, 9)]
    assert due_content(await store.expiries_before(NOW_MS + 2, 10)) == [(NOW_MS + 1, FRAGMENT, MAIN, 0)]
    assert list(map(head_content, await store.heads())) == [(FRAGMENT, 12, 3, False)]
    await store.close()


@covers("M1")
async def test_what_happens_to_a_message_after_its_commit_is_not_stored(store: MessagingStore) -> None:
    changes = sends([1])
    await store.commit(changes)
    changes.bodies[0].message.priority = 9
    (body,) = await store.bodies(FRAGMENT, MAIN, [1], PLENTY)
    assert body_content(body) == body_content(message(1))


@covers("M4")
async def test_bodies_come_in_the_order_asked_for_and_a_missing_one_is_named(store: MessagingStore) -> None:
    await store.commit(sends([1, 2, 4]))
    bodies = await store.bodies(FRAGMENT, MAIN, [4, 3, 1], PLENTY)
    assert [int(body.number) for body in bodies] == [4, 3, 1]
    missing = bodies[1]
    assert isinstance(missing, Damage)
    assert missing.is_missing


@covers("M12")
async def test_bodies_stop_once_the_bytes_asked_for_are_passed(store: MessagingStore) -> None:
    await store.commit(sends(range(1, 11), size_bytes=1000))
    assert numbers_of(await store.bodies(FRAGMENT, MAIN, range(1, 11), 2500)) == [1, 2, 3]
    assert numbers_of(await store.bodies(FRAGMENT, MAIN, range(1, 11), 0)) == [1], "at least one"
    assert await store.bodies(FRAGMENT, MAIN, [], 0) == []


@covers("M12")
async def test_a_message_of_a_megabyte_and_an_empty_one_are_stored(store: MessagingStore) -> None:
    changes = sends([1], size_bytes=1 << 20)
    changes.bodies.append(PutBody(FRAGMENT, MAIN, message(2, size_bytes=0)))
    await store.commit(changes)
    bodies = await store.bodies(FRAGMENT, MAIN, [1, 2], PLENTY)
    assert [len(body.sections) for body in bodies if isinstance(body, Message)] == [1 << 20, 0]


async def test_fragments_and_lanes_do_not_mix_even_at_the_edges_of_their_ranges(
    store: MessagingStore,
) -> None:
    places = [
        (0, 0, 0),
        (1, 0, 1),
        (1, 1, 1),
        (1, 255, 1),
        (0x80000000, 0, 1),
        (0xFFFFFFFF, 255, (1 << 48) - 1),
    ]
    changes = Changes()
    changes.bodies = [PutBody(fragment, lane, message(number)) for fragment, lane, number in reversed(places)]
    changes.blocks = [block(number >> 10, fragment, lane) for fragment, lane, number in places]
    await store.commit(changes)
    for fragment, lane, number in places:
        assert await store.bodies_left(fragment, lane, 10) == [number]
        (body,) = await store.bodies(fragment, lane, [number], PLENTY)
        assert body_content(body) == body_content(message(number))
        assert [record.block for record in await store.blocks(fragment, lane)] == [number >> 10]


async def test_sends_of_many_fragments_in_any_order_share_a_commit(store: MessagingStore) -> None:
    for first in (1, 11, 21):
        changes = Changes()
        for number in range(first, first + 10):
            for fragment in (9, 3, 6):
                changes.bodies.append(PutBody(fragment, number % 2, message(number)))
        await store.commit(changes)
    for fragment in (3, 6, 9):
        assert await store.bodies_left(fragment, 0, 100) == list(range(2, 31, 2))
        assert await store.bodies_left(fragment, 1, 100) == list(range(1, 31, 2))


async def test_a_dropped_range_goes_with_both_its_ends_and_nothing_else(store: MessagingStore) -> None:
    changes = sends([1, 2, 3, 5, 6])
    changes.bodies += sends([3, 4], lane=DEAD_LETTER).bodies + sends([2, 5], fragment=FRAGMENT + 1).bodies
    await store.commit(changes)
    drop = Changes()
    drop.dropped_bodies = [BodyRange(FRAGMENT, MAIN, 2, 5), BodyRange(FRAGMENT, MAIN, 100, 200)]
    await store.commit(drop)
    assert await store.bodies_left(FRAGMENT, MAIN, 10) == [1, 6]
    assert await store.bodies_left(FRAGMENT, DEAD_LETTER, 10) == [3, 4]
    assert await store.bodies_left(FRAGMENT + 1, MAIN, 10) == [2, 5]


async def test_a_range_at_the_end_of_the_store_is_dropped_completely(store: MessagingStore) -> None:
    await store.commit(sends(range(1, 2000), size_bytes=500))
    drop = Changes()
    drop.dropped_bodies = [BodyRange(FRAGMENT, MAIN, 1024, 2047), BodyRange(FRAGMENT, MAIN, 0, 1023)]
    await store.commit(drop)
    assert await store.bodies_left(FRAGMENT, MAIN, 10) == []


async def test_where_one_key_is_dropped_and_put_the_put_wins(store: MessagingStore) -> None:
    changes = sends([1])
    changes.blocks = [block(0)]
    changes.schedules = [Due(NOW_MS, FRAGMENT, MAIN, 1)]
    changes.dropped_bodies = [BodyRange(FRAGMENT, MAIN, 0, 10)]
    changes.dropped_blocks = [Place(FRAGMENT, MAIN, 0)]
    changes.dropped_schedules = [Due(NOW_MS, FRAGMENT, MAIN, 1)]
    await store.commit(changes)
    assert await store.bodies_left(FRAGMENT, MAIN, 10) == [1]
    assert len(await store.blocks(FRAGMENT, MAIN)) == 1
    assert len(await store.schedules_before(NOW_MS + 1, 10)) == 1


async def test_a_block_record_is_replaced_and_dropped(store: MessagingStore) -> None:
    changes = sends([1])
    changes.blocks = [block(number) for number in (3, 0, 1)]
    await store.commit(changes)
    changes = Changes()
    changes.blocks = [block(0, given=501)]
    changes.dropped_blocks = [Place(FRAGMENT, MAIN, 1)]
    await store.commit(changes)
    records = await store.blocks(FRAGMENT, MAIN)
    assert list(map(block_content, records)) == list(map(block_content, [block(0, given=501), block(3)]))


@covers("M3")
async def test_overlays_are_read_by_range_replaced_and_dropped(store: MessagingStore) -> None:
    changes = Changes()
    changes.overlays = [Overlay(FRAGMENT, MAIN, number, DEFERRED, number, b"") for number in (8, 2, 5)]
    await store.commit(changes)
    changes = Changes()
    changes.overlays = [Overlay(FRAGMENT, MAIN, 5, ACTIVE, 6, b"changed")]
    changes.dropped_overlays = [Place(FRAGMENT, MAIN, 8)]
    await store.commit(changes)
    overlays = await store.overlays(FRAGMENT, MAIN, 2, 8)
    assert list(map(overlay_content, overlays)) == [
        (FRAGMENT, MAIN, 2, DEFERRED, 2, b""),
        (FRAGMENT, MAIN, 5, ACTIVE, 6, b"changed"),
    ]
    assert [overlay.number for overlay in await store.overlays(FRAGMENT, MAIN, 3, 5)] == [5]
    exactly = await store.overlays_at(FRAGMENT, MAIN, [5, 3, 8, 2])
    assert [overlay.number for overlay in exactly] == [5, 2], "number 3 never had one, number 8 has none any more"
    assert await store.overlays(FRAGMENT, DEAD_LETTER, 0, 10) == []


@covers("M5")
async def test_schedules_come_by_time_over_all_fragments_up_to_the_limit(store: MessagingStore) -> None:
    changes = Changes()
    changes.schedules = [Due(at_ms, fragment, MAIN, 1) for at_ms, fragment in ((300, 1), (100, 9), (100, 2), (200, 5))]
    await store.commit(changes)
    assert due_content(await store.schedules_before(300, 10)) == [
        (100, 2, 0, 1),
        (100, 9, 0, 1),
        (200, 5, 0, 1),
    ]
    assert due_content(await store.schedules_before(301, 2)) == [(100, 2, 0, 1), (100, 9, 0, 1)]
    changes = Changes()
    changes.dropped_schedules = [Due(100, 2, MAIN, 1), Due(999, 2, MAIN, 1)]
    await store.commit(changes)
    assert due_content(await store.schedules_before(200, 10)) == [(100, 9, 0, 1)]


@covers("M6")
async def test_the_earliest_of_schedules_and_expiries_is_known(store: MessagingStore) -> None:
    assert await store.earliest_due() == 0
    changes = Changes()
    changes.expiries = [Due(NOW_MS, FRAGMENT, MAIN, 3), Due(NOW_MS + 1, FRAGMENT, MAIN, 4)]
    await store.commit(changes)
    assert await store.earliest_due() == NOW_MS
    changes = Changes()
    changes.schedules = [Due(NOW_MS - 1, FRAGMENT, MAIN, 1)]
    changes.dropped_expiries = [Due(NOW_MS, FRAGMENT, MAIN, 3)]
    await store.commit(changes)
    assert await store.earliest_due() == NOW_MS - 1
    assert due_content(await store.expiries_before(NOW_MS + 2, 10)) == [(NOW_MS + 1, FRAGMENT, MAIN, 4)]


async def test_heads_are_replaced_and_dropped(store: MessagingStore) -> None:
    changes = Changes()
    changes.heads = [FragmentHead(fragment, 5, fragment, False) for fragment in (2, 0xFFFFFFFF, 1)]
    await store.commit(changes)
    changes = Changes()
    changes.heads = [FragmentHead(2, 5, 2, True)]
    changes.dropped_heads = [1]
    await store.commit(changes)
    heads = await store.heads()
    assert list(map(head_content, heads)) == [(2, 5, 2, True), (0xFFFFFFFF, 5, 0xFFFFFFFF, False)]


async def test_the_first_numbers_left_of_a_lane_are_listed_for_dropping_it_in_slices(
    store: MessagingStore,
) -> None:
    await store.commit(sends(range(1, 50)))
    assert await store.bodies_left(FRAGMENT, MAIN, 3) == [1, 2, 3]
    assert await store.bodies_left(FRAGMENT, MAIN, 0) == []
    assert await store.bodies_left(FRAGMENT, DEAD_LETTER, 3) == []


def ids(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(16, "big") for number in numbers)


@covers("M8")
async def test_ids_come_back_by_time_from_where_they_are_asked_for(under_test: StoreUnderTest) -> None:
    store = under_test.open()
    for at_ms, number, hashes in ((200, 2, ids(3)), (100, 1, ids(1, 2)), (200, 3, ids(4, 5, 6)), (1 << 50, 4, ids(7))):
        changes = Changes()
        changes.history = [HistoryRecord(FRAGMENT, at_ms, number, hashes)]
        changes.history.append(HistoryRecord(FRAGMENT + 1, at_ms, number, ids(99)))
        await store.commit(changes)
    await store.close()

    store = under_test.open()
    found = await store.history(FRAGMENT, 0, 0, PLENTY)
    assert history_content(found) == [
        (FRAGMENT, 100, 1, ids(1, 2)),
        (FRAGMENT, 200, 2, ids(3)),
        (FRAGMENT, 200, 3, ids(4, 5, 6)),
        (FRAGMENT, 1 << 50, 4, ids(7)),
    ]
    assert [record.number for record in await store.history(FRAGMENT, 200, 3, PLENTY)] == [3, 4]
    assert [record.number for record in await store.history(FRAGMENT, 101, 0, 20)] == [2, 3], "until it is passed"
    assert [record.number for record in await store.history(FRAGMENT, -5, 0, 0)] == [1], "at least one"
    assert await store.history(FRAGMENT, 1 << 51, 0, PLENTY) == []
    await store.close()


@covers("M8")
async def test_the_earliest_ids_are_trimmed_as_far_as_they_are_old_and_as_many_as_are_allowed(
    store: MessagingStore,
) -> None:
    for at_ms in (100, 200, 300, 400):
        changes = Changes()
        changes.history = [HistoryRecord(fragment, at_ms, 1, ids(at_ms)) for fragment in (1, FRAGMENT, 0xFFFFFFFF)]
        await store.commit(changes)
    changes = Changes()
    changes.trimmed_history = [HistoryTrim(FRAGMENT, 400, 2), HistoryTrim(0xFFFFFFFF, 1 << 60, 1000)]
    await store.commit(changes)
    assert [record.at_ms for record in await store.history(FRAGMENT, 0, 0, PLENTY)] == [300, 400]
    assert await store.history(0xFFFFFFFF, 0, 0, PLENTY) == []
    changes.trimmed_history = [HistoryTrim(FRAGMENT, 400, 2)]
    await store.commit(changes)
    assert [record.at_ms for record in await store.history(FRAGMENT, 0, 0, PLENTY)] == [400]
    assert len(await store.history(1, 0, 0, PLENTY)) == 4, "another fragment's stay"


@covers("F6")
async def test_a_quarantined_body_is_no_longer_served(store: MessagingStore) -> None:
    await store.commit(sends([1, 2]))
    changes = Changes()
    changes.quarantined = [Place(FRAGMENT, MAIN, 1), Place(FRAGMENT, MAIN, 77)]
    await store.commit(changes)
    assert await store.bodies_left(FRAGMENT, MAIN, 10) == [2]


async def test_an_empty_store_answers_with_nothing(store: MessagingStore) -> None:
    await store.commit(Changes())
    assert await store.heads() == []
    assert await store.blocks(FRAGMENT, MAIN) == []
    assert await store.overlays(FRAGMENT, MAIN, 0, 100) == []
    assert await store.schedules_before(NOW_MS, 10) == []


async def test_room_says_what_is_free_and_what_is_reserved(store: MessagingStore) -> None:
    room = store.room()
    assert room.free_bytes > 0
    assert room.reserve_bytes >= 0


@covers("F7")
async def test_every_opening_is_a_new_epoch(under_test: StoreUnderTest) -> None:
    epochs = []
    for _ in range(3):
        store = under_test.open()
        epochs.append(store.epoch)
        await store.close()
    assert epochs == [epochs[0], epochs[0] + 1, epochs[0] + 2]


@covers("F7")
async def test_a_broker_that_lost_its_store_to_another_can_no_longer_commit(
    under_test: StoreUnderTest,
) -> None:
    store = under_test.open()
    await store.commit(sends([1]))
    under_test.take_away()
    with pytest.raises(StoreUnavailable) as refused:
        await store.commit(sends([2]))
    assert not isinstance(refused.value, StoreFull)
    with pytest.raises(StoreUnavailable):
        await store.bodies(FRAGMENT, MAIN, [1], PLENTY)
    await store.close()
    store = under_test.open()
    assert await store.bodies_left(FRAGMENT, MAIN, 10) == [1]
    await store.close()


@covers("F7")
async def test_a_second_opener_is_told_that_the_store_is_in_use(under_test: StoreUnderTest) -> None:
    store = under_test.open()
    with pytest.raises(StoreUnavailable, match="in use"):
        under_test.open()
    await store.commit(sends([1]))
    assert await store.bodies_left(FRAGMENT, MAIN, 10) == [1], "the first one goes on undisturbed"
    await store.close()
    await under_test.open().close()


async def test_a_closed_store_refuses_everything_and_can_be_closed_again(under_test: StoreUnderTest) -> None:
    store = under_test.open()
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.commit(Changes())
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.heads()
    with pytest.raises(StoreUnavailable, match="closed"):
        store.room()


@covers("M7")
async def test_session_columns_are_read_by_block_and_dropped_by_range(store: MessagingStore) -> None:
    changes = Changes()
    changes.columns = [SessionColumn(FRAGMENT, MAIN, block, bytes([block] * 20)) for block in (3, 0, 1, 2)]
    changes.columns.append(SessionColumn(FRAGMENT, DEAD_LETTER, 1, b""))
    await store.commit(changes)
    columns = await store.columns(FRAGMENT, MAIN, [2, 9, 0])
    assert [column and (column.block, column.entries) for column in columns] == [
        (2, bytes([2] * 20)),
        None,
        (0, bytes(20)),
    ]
    changes = Changes()
    changes.dropped_columns = [BodyRange(FRAGMENT, MAIN, 1, 2), BodyRange(FRAGMENT + 1, MAIN, 0, 9)]
    changes.columns = [SessionColumn(FRAGMENT, MAIN, 2, b"again.....")]
    await store.commit(changes)
    columns = await store.columns(FRAGMENT, MAIN, range(4))
    assert [column and column.entries for column in columns] == [bytes(20), None, b"again.....", bytes([3] * 20)]
    (empty,) = await store.columns(FRAGMENT, DEAD_LETTER, [1])
    assert empty is not None
    assert empty.entries == b""


@covers("M7")
async def test_a_session_state_is_replaced_deleted_and_there_after_reopening(under_test: StoreUnderTest) -> None:
    store = under_test.open()
    assert await store.session_state(FRAGMENT, "s") is None
    changes = Changes()
    changes.session_states = [
        SessionState(FRAGMENT, "s", b"first", NOW_MS),
        SessionState(FRAGMENT, "", b"", NOW_MS + 1),
        SessionState(FRAGMENT, "x" * 128, bytes(300_000), NOW_MS + 2),
        SessionState(FRAGMENT + 1, "s", b"of another entity", NOW_MS),
    ]
    await store.commit(changes)
    changes = Changes()
    changes.session_states = [
        SessionState(FRAGMENT, "s", b"second", NOW_MS + 3),
        SessionState(FRAGMENT, "x" * 128, None, NOW_MS + 3),
        SessionState(FRAGMENT, "never set", None, NOW_MS + 3),
    ]
    await store.commit(changes)
    await store.close()

    store = under_test.open()
    assert state_content(await store.session_state(FRAGMENT, "s")) == (FRAGMENT, "s", b"second", NOW_MS + 3)
    assert state_content(await store.session_state(FRAGMENT, "")) == (FRAGMENT, "", b"", NOW_MS + 1)
    assert await store.session_state(FRAGMENT, "x" * 128) is None
    listed = await store.session_states(FRAGMENT, None, 10)
    assert sorted((one.session_id, one.changed_at) for one in listed) == [("", NOW_MS + 1), ("s", NOW_MS + 3)]
    await store.close()


@covers("M7")
async def test_session_states_are_listed_page_by_page(store: MessagingStore) -> None:
    changes = Changes()
    changes.session_states = [SessionState(FRAGMENT, f"session {i}", b"state", NOW_MS) for i in range(25)]
    changes.session_states += [SessionState(fragment, "not this", b"", 1) for fragment in (FRAGMENT - 1, FRAGMENT + 1)]
    await store.commit(changes)
    found: list[str] = []
    after: str | None = None
    while page := await store.session_states(FRAGMENT, after, 10):
        assert [one.state for one in page] == [b""] * len(page), "a list does not carry the states themselves"
        found += [one.session_id for one in page]
        after = found[-1]
    assert sorted(found) == sorted(f"session {i}" for i in range(25))


@covers("P15")
async def test_marks_of_channels_are_replaced_removed_and_there_after_reopening(under_test: StoreUnderTest) -> None:
    store = under_test.open()
    assert await store.marks() == []
    first, last = bytes(16), b"\xff" * 16
    some, others = bytes([5]) * MARK_BYTES, bytes([6]) * MARK_BYTES
    changes = Changes()
    changes.marks = [Mark(last, 4097, some, NOW_MS), Mark(first, 1, some, NOW_MS), Mark(b"c" * 16, 9, some, NOW_MS)]
    await store.commit(changes)
    changes = Changes()
    changes.marks = [Mark(first, 1 << 40, others, NOW_MS + 1)]
    changes.dropped_marks = [b"c" * 16, b"unknown.........", first]
    await store.commit(changes)
    await store.close()

    store = under_test.open()
    expected = [(first, 1 << 40, others, NOW_MS + 1), (last, 4097, some, NOW_MS)]
    assert mark_content(await store.marks()) == expected
    await store.close()


@covers("P17")
async def test_high_waters_of_a_fragment_are_replaced_removed_and_there_after_reopening(
    under_test: StoreUnderTest,
) -> None:
    store = under_test.open()
    assert await store.high_waters(FRAGMENT) == []
    changes = Changes()
    changes.high_waters = [
        HighWater(FRAGMENT, 0xFFFFFFFF, 2, (1 << 48) - 1, NOW_MS),
        HighWater(FRAGMENT, 3, 1, 10, NOW_MS),
        HighWater(FRAGMENT, 3, 0, 11, NOW_MS),
        HighWater(FRAGMENT + 1, 3, 0, 12, NOW_MS),
        HighWater(FRAGMENT, 4, 0, 13, NOW_MS),
    ]
    await store.commit(changes)
    changes = Changes()
    changes.high_waters = [HighWater(FRAGMENT, 3, 0, 20, NOW_MS)]
    changes.dropped_high_waters = [HighWater(FRAGMENT, 4, 0, 0, NOW_MS), HighWater(FRAGMENT, 5, 0, 0, NOW_MS)]
    await store.commit(changes)
    await store.close()

    store = under_test.open()
    expected = [
        (FRAGMENT, 3, 0, 20, NOW_MS),
        (FRAGMENT, 3, 1, 10, NOW_MS),
        (FRAGMENT, 0xFFFFFFFF, 2, (1 << 48) - 1, NOW_MS),
    ]
    assert high_water_content(await store.high_waters(FRAGMENT)) == expected
    assert high_water_content(await store.high_waters(FRAGMENT + 1)) == [(FRAGMENT + 1, 3, 0, 12, NOW_MS)]
    await store.close()


@covers("D5")
async def test_audit_pages_stand_in_order_are_trimmed_from_the_left_and_there_after_reopening(
    under_test: StoreUnderTest,
) -> None:
    store = under_test.open()
    assert await store.newest_audit_page() is None
    assert await store.audit_pages(0, 1 << 20) == []
    store_id = store.store_id
    for number in (1, 2, 255, 256):
        changes = sends([number])
        changes.audit_page = AuditPage(number, store.epoch, NOW_MS + number, bytes([number % 256]) * 40)
        await store.commit(changes)
    changes = Changes()
    changes.trimmed_audit = 2
    await store.commit(changes)
    await store.close()

    store = under_test.open()
    assert store.store_id == store_id
    pages = await store.audit_pages(0, 1 << 20)
    assert [(page.number, page.at_ms, page.data[:1]) for page in pages] == [
        (2, NOW_MS + 2, b"\x02"),
        (255, NOW_MS + 255, b"\xff"),
        (256, NOW_MS + 256, b"\x00"),
    ]
    assert [page.number for page in await store.audit_pages(3, 0)] == [255]
    newest = await store.newest_audit_page()
    assert newest is not None
    assert (newest.number, newest.epoch) == (256, store.epoch - 1)
    await store.close()
