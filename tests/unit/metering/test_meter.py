"""What is counted, when it is written, and what survives."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import threading
from pathlib import Path

import pytest

from tandembus.clock import ManualClock
from tandembus.errors import InvalidArgument, StoreDamaged
from tandembus.metering import Meter, MeterSettings, operations_for
from tandembus.metering.meter import OTHER_ENTITIES, SLICE, MeterTotals
from tandembus.metering.slot import COMPLETE, EMPTY_RECEIVE, LONGPOLL, MANAGE, NORMAL, PEEK, RECEIVE, SEND
from tests.covers import covers

KIB = 1024
START = 1_700_000_000


def open_meter(folder: Path, clock: ManualClock | None = None, settings: MeterSettings | None = None) -> Meter:
    return Meter(clock or ManualClock(float(START)), folder, "contoso", settings)


def lines(folder: Path) -> list[dict[str, object]]:
    texts = [path.read_text() for path in sorted(folder.glob("*.jsonl"))]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def records(folder: Path) -> list[dict[str, object]]:
    return [line for line in lines(folder) if "second" in line]


def total(folder: Path, figure: str) -> int:
    return sum(int(str(record[figure])) for record in records(folder))


@covers("P28")
@pytest.mark.parametrize(
    ("size_bytes", "operations"),
    [
        (0, 1),
        (1, 1),
        (63 * KIB, 1),
        (64 * KIB, 1),
        (64 * KIB + 1, 2),
        (65 * KIB, 2),
        (96 * KIB, 2),
        (128 * KIB, 2),
        (256 * KIB, 4),
        (1024 * KIB, 16),
    ],
)
def test_every_started_64_kilobytes_of_a_message_are_one_operation(size_bytes: int, operations: int) -> None:
    assert operations_for(size_bytes) == operations


def test_the_unit_of_an_operation_is_a_setting() -> None:
    assert operations_for(5, unit=2) == 3


def test_a_flush_writes_one_record_per_entity_operation_and_reason(tmp_path: Path) -> None:
    meter = open_meter(tmp_path)
    orders = meter.slot("orders", SEND, NORMAL)
    for size_bytes in (63 * KIB, 64 * KIB, 65 * KIB):
        orders.add(1, operations_for(size_bytes), size_bytes)
    meter.count("orders", EMPTY_RECEIVE, LONGPOLL, 0, 1, 0)
    meter.flush()
    assert records(tmp_path) == [
        {
            "second": START,
            "namespace": "contoso",
            "entity": "orders",
            "operation": "send",
            "reason": "normal",
            "calls": 3,
            "messages": 3,
            "operations": 4,
            "bytes": 192 * KIB,
        },
        {
            "second": START,
            "namespace": "contoso",
            "entity": "orders",
            "operation": "empty_receive",
            "reason": "longpoll",
            "calls": 1,
            "messages": 0,
            "operations": 1,
            "bytes": 0,
        },
    ]


def test_a_flush_writes_only_what_changed_since_the_last_one(tmp_path: Path) -> None:
    clock = ManualClock(float(START))
    meter = open_meter(tmp_path, clock)
    meter.count("orders", SEND, NORMAL, 1, 1, 10)
    meter.count("invoices", SEND, NORMAL, 1, 1, 10)
    clock.advance(1.0)
    meter.flush()
    meter.count("invoices", SEND, NORMAL, 2, 2, 20)
    clock.advance(1.0)
    meter.flush()
    meter.flush()
    assert [(row["second"], row["entity"], row["messages"]) for row in records(tmp_path)] == [
        (START, "orders", 1),
        (START, "invoices", 1),
        (START + 1, "invoices", 2),
    ]


def test_an_idle_meter_writes_nothing(tmp_path: Path) -> None:
    meter = open_meter(tmp_path)
    meter.slot("orders", SEND, NORMAL)
    meter.flush()
    assert list(tmp_path.glob("*.jsonl")) == []
    meter.close()


def test_live_totals_hold_what_no_file_holds_yet(tmp_path: Path) -> None:
    meter = open_meter(tmp_path)
    slot = meter.slot("orders", SEND, NORMAL)
    slot.add(1, 1, 10)
    meter.flush()
    slot.add(2, 2, 20)
    totals = meter.totals()
    assert [(row.entity, row.count.calls, row.count.messages) for row in totals.since_start] == [("orders", 2, 3)]
    assert totals.cumulative[(SEND, NORMAL)].size_bytes == 30


@covers("D4")
async def test_a_look_at_very_many_counters_gives_others_their_turn_and_counts_nothing_twice(tmp_path: Path) -> None:
    meter = open_meter(tmp_path)
    for number in range(5 * SLICE):
        meter.count(f"queue-{number}", SEND, NORMAL, 1, 1, 0)
    meter.forget("queue-0")
    looking = asyncio.ensure_future(meter.look())
    turns = 0
    while not looking.done():
        await asyncio.sleep(0)
        turns += 1
        if turns == 3:
            meter.forget(f"queue-{5 * SLICE - 1}")
    assert turns > 5
    assert messages_of(meter.totals()) == messages_of(await looking) == 5 * SLICE


def messages_of(totals: MeterTotals) -> int:
    return sum(row.count.messages for row in totals.since_start)


def test_totals_survive_a_restart_exactly(tmp_path: Path) -> None:
    first = open_meter(tmp_path)
    first.count("orders", SEND, NORMAL, 5, 6, 7)
    first.close()
    second = open_meter(tmp_path)
    second.count("orders", SEND, NORMAL, 1, 1, 1)
    second.count("orders", COMPLETE, NORMAL, 1, 1, 0)
    totals = second.totals()
    assert totals.cumulative[(SEND, NORMAL)].operations == 7
    assert totals.cumulative[(COMPLETE, NORMAL)].calls == 1
    assert [row.count.operations for row in totals.since_start] == [1, 1]
    assert totals.gap is None
    second.close()
    assert total(tmp_path, "operations") == 8


def test_what_was_not_flushed_before_a_kill_is_a_named_gap(tmp_path: Path) -> None:
    clock = ManualClock(float(START))
    killed = open_meter(tmp_path, clock)
    killed.count("orders", SEND, NORMAL, 1, 1, 1)
    clock.advance(1.0)
    killed.flush()
    clock.advance(5.0)
    killed.flush()
    killed.count("orders", SEND, NORMAL, 1, 1, 1)
    clock.advance(10.0)
    restarted = open_meter(tmp_path, clock)
    assert {"gap": {"from": START + 6, "to": START + 16, "namespace": "contoso"}} in lines(tmp_path)
    assert restarted.totals().gap == (START + 6, START + 16)
    assert restarted.totals().cumulative[(SEND, NORMAL)].operations == total(tmp_path, "operations") == 1


def test_a_clean_stop_leaves_no_gap(tmp_path: Path) -> None:
    for _ in range(3):
        meter = open_meter(tmp_path)
        meter.count("orders", SEND, NORMAL, 1, 1, 1)
        meter.close()
    assert not [line for line in lines(tmp_path) if "gap" in line]
    assert total(tmp_path, "calls") == 3


def test_a_meter_that_counted_nothing_misses_nothing_when_it_is_killed(tmp_path: Path) -> None:
    open_meter(tmp_path)
    counting = open_meter(tmp_path)
    assert counting.totals().gap is None
    counting.count("orders", SEND, NORMAL, 1, 1, 1)
    for _ in range(2):  # the second one tells nothing that the first has told
        open_meter(tmp_path)
    assert len([line for line in lines(tmp_path) if "gap" in line]) == 1


@pytest.mark.parametrize(("second", "told"), [(START, "2023-11-14T22:13:20+00:00"), (10**15, str(10**15))])
def test_an_unclean_stop_is_told_with_times_for_people(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, second: int, told: str
) -> None:
    killed = open_meter(tmp_path, ManualClock(float(START)))
    killed.count("orders", SEND, NORMAL, 1, 1, 1)
    killed.flush()
    file = next(tmp_path.glob("*.jsonl"))
    file.write_text(file.read_text().replace(f'"second":{START}', f'"second":{second}'))
    open_meter(tmp_path, ManualClock(float(START)))
    assert f"counted after {told} and before {told} may be missing" in caplog.text


def test_a_gap_never_ends_before_it_starts_when_the_wall_clock_was_set_back(tmp_path: Path) -> None:
    clock = ManualClock(float(START))
    meter = open_meter(tmp_path, clock)
    meter.count("orders", SEND, NORMAL, 1, 1, 1)
    meter.flush()
    clock.shift_wall(-3600.0)
    gap = open_meter(tmp_path, clock).totals().gap
    assert gap is not None
    assert gap[0] == gap[1] == START


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_line_is_cut_off_and_everything_before_it_counts(tmp_path: Path, cut: int) -> None:
    meter = open_meter(tmp_path)
    meter.count("orders", SEND, NORMAL, 1, 1, 1)
    meter.flush()
    meter.count("orders", SEND, NORMAL, 1, 1, 1)
    meter.flush()
    newest = max(tmp_path.glob("*.jsonl"))
    newest.write_bytes(newest.read_bytes()[:-cut])
    again = open_meter(tmp_path)
    assert again.totals().cumulative[(SEND, NORMAL)].calls == 1
    again.count("orders", SEND, NORMAL, 1, 1, 1)
    again.close()
    assert total(tmp_path, "calls") == 2


def test_a_tail_of_zeros_after_a_power_loss_is_cut_off(tmp_path: Path) -> None:
    meter = open_meter(tmp_path)
    meter.count("orders", SEND, NORMAL, 1, 1, 1)
    meter.flush()
    newest = max(tmp_path.glob("*.jsonl"))
    newest.write_bytes(newest.read_bytes() + b"\0" * 100 + b"\n\0\0")
    open_meter(tmp_path).close()
    assert total(tmp_path, "calls") == 1


def test_a_damaged_line_in_the_middle_costs_only_itself(tmp_path: Path) -> None:
    meter = open_meter(tmp_path)
    for _ in range(3):
        meter.count("orders", SEND, NORMAL, 1, 1, 1)
        meter.flush()
    meter.close()
    newest = max(tmp_path.glob("*.jsonl"))
    parts = newest.read_bytes().splitlines(keepends=True)
    parts[2] = b'{"second":\xff' + parts[2][12:]
    newest.write_bytes(b"".join(parts))
    assert open_meter(tmp_path).totals().cumulative[(SEND, NORMAL)].calls == 2


def test_files_of_a_newer_format_are_refused_clearly(tmp_path: Path) -> None:
    tmp_path.joinpath("00000001.jsonl").write_text('{"meter":{"format":99,"number":1,"carried":[]}}\n')
    with pytest.raises(StoreDamaged, match="format 99"):
        open_meter(tmp_path)


def small(roll: int = 1_000, total_size: int = 4_000) -> MeterSettings:
    return MeterSettings(roll_size_bytes=roll, total_size_bytes=total_size)


def test_files_are_rolled_and_the_oldest_give_way_with_a_note_while_totals_go_on(tmp_path: Path) -> None:
    meter = open_meter(tmp_path, settings=small())
    for _ in range(200):
        meter.count("orders", SEND, NORMAL, 1, 1, 1)
        meter.flush()
    meter.close()
    sizes = [path.stat().st_size for path in tmp_path.glob("*.jsonl")]
    assert len(sizes) > 2
    assert sum(sizes) <= 4_000 + 2_000
    assert [line for line in lines(tmp_path) if "removed" in line]
    assert total(tmp_path, "calls") < 200
    assert open_meter(tmp_path, settings=small()).totals().cumulative[(SEND, NORMAL)].calls == 200


def test_a_crash_between_a_new_file_and_its_first_line_changes_no_total(tmp_path: Path) -> None:
    meter = open_meter(tmp_path)
    meter.count("orders", SEND, NORMAL, 1, 1, 1)
    meter.close()
    tmp_path.joinpath("00000002.jsonl").write_bytes(b'{"meter":{"for')
    again = open_meter(tmp_path)
    again.count("orders", SEND, NORMAL, 1, 1, 1)
    again.close()
    assert tmp_path.joinpath("00000003.jsonl").exists()
    assert open_meter(tmp_path).totals().cumulative[(SEND, NORMAL)].calls == 2


def many_records(folder: Path) -> int:
    """A file with several heads in it; returns how many calls were counted."""
    meter = open_meter(folder)
    names = [f"queue-{number}-" + "x" * 200 for number in range(100)]
    for _ in range(60):
        for name in names:
            meter.count(name, SEND, NORMAL, 1, 1, 1)
        meter.flush()
    meter.close()
    return 60 * len(names)


def test_opening_reads_from_the_last_head_and_finds_the_same_totals(tmp_path: Path) -> None:
    calls = many_records(tmp_path)
    (file,) = tmp_path.glob("*.jsonl")
    data = file.read_bytes()
    assert data.count(b'\n{"meter":') >= 2
    # What lies before the last head is not read: it may even be damaged.
    last = data.rfind(b'\n{"meter":') + 1
    file.write_bytes(b"#" * (last - 1) + b"\n" + data[last:])
    assert open_meter(tmp_path).totals().cumulative[(SEND, NORMAL)].calls == calls


def test_a_last_head_that_is_damaged_makes_the_one_before_it_count(tmp_path: Path) -> None:
    calls = many_records(tmp_path)
    (file,) = tmp_path.glob("*.jsonl")
    data = file.read_bytes()
    last = data.rfind(b'\n{"meter":') + 1
    file.write_bytes(data[: last + 12] + b"#" + data[last + 13 :])
    meter = open_meter(tmp_path)
    assert meter.totals().cumulative[(SEND, NORMAL)].calls == calls
    meter.count("orders", SEND, NORMAL, 1, 1, 1)
    meter.close()
    assert open_meter(tmp_path).totals().cumulative[(SEND, NORMAL)].calls == calls + 1


def test_a_name_that_looks_like_a_head_is_none(tmp_path: Path) -> None:
    meter = open_meter(tmp_path)
    meter.count('\n{"meter":{"format":99}}\n', MANAGE, NORMAL, 0, 1, 0)
    meter.close()
    assert open_meter(tmp_path).totals().cumulative[(MANAGE, NORMAL)].calls == 1


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    tmp_path.joinpath("notes.jsonl").write_text("mine")
    tmp_path.joinpath("7.jsonl").write_text("mine too")
    open_meter(tmp_path).close()
    assert tmp_path.joinpath("notes.jsonl").read_text() == "mine"
    assert tmp_path.joinpath("7.jsonl").read_text() == "mine too"


def test_entities_beyond_the_last_free_slot_share_one_and_nothing_is_lost(tmp_path: Path) -> None:
    meter = open_meter(tmp_path, settings=MeterSettings(max_slots=3))
    for index in range(10):
        meter.count(f"queue-{index}", SEND, NORMAL, 1, 1, 1)
    meter.flush()
    assert total(tmp_path, "calls") == 10
    assert [row["entity"] for row in records(tmp_path)] == ["queue-0", "queue-1", "queue-2", OTHER_ENTITIES]


def test_a_deleted_entity_gives_its_slots_back_and_late_counts_are_still_written(tmp_path: Path) -> None:
    meter = open_meter(tmp_path, settings=MeterSettings(max_slots=1))
    held = meter.slot("orders", SEND, NORMAL)
    held.add(1, 1, 1)
    meter.forget("orders")
    meter.slot("unused", MANAGE, NORMAL)
    meter.forget("unused")
    held.add(1, 1, 1)
    assert meter.slot("invoices", SEND, NORMAL).entity == "invoices"
    assert [(row.entity, row.count.calls) for row in meter.totals().since_start] == [(OTHER_ENTITIES, 1)]
    assert meter.totals().cumulative[(SEND, NORMAL)].calls == 2
    meter.close()
    assert total(tmp_path, "calls") == 2


def test_entity_names_are_written_so_that_any_name_reads_back(tmp_path: Path) -> None:
    name = 'a"b\\c\nd\u2028/é'
    meter = open_meter(tmp_path)
    meter.count(name, MANAGE, NORMAL, 0, 1, 0)
    meter.close()
    assert records(tmp_path)[0]["entity"] == name


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(InvalidArgument):
        MeterSettings(roll_size_bytes=10, total_size_bytes=9)
    with pytest.raises(InvalidArgument):
        MeterSettings(max_slots=0)


def wait_for_calls(folder: Path, calls: int) -> int:
    while (written := total(folder, "calls")) < calls:
        os.sched_yield()
    return written


async def test_the_running_meter_flushes_in_another_thread_without_being_asked(tmp_path: Path) -> None:
    meter = open_meter(tmp_path, settings=MeterSettings(flush_interval_s=0.01))
    stop = asyncio.Event()
    task = asyncio.create_task(meter.run(stop))
    meter.count("orders", RECEIVE, NORMAL, 1, 1, 1)
    written = await asyncio.wait_for(asyncio.to_thread(wait_for_calls, tmp_path, 1), 10.0)
    stop.set()
    await task
    meter.close()
    assert written == 1


@covers("F4")
def test_a_disk_that_is_full_for_a_while_loses_no_count(tmp_path: Path) -> None:
    meter = open_meter(tmp_path)
    meter.count("orders", SEND, NORMAL, 1, 1, 1)
    meter.flush()
    size_bytes = max(tmp_path.glob("*.jsonl")).stat().st_size
    for second in range(5):
        meter.count("orders", SEND, NORMAL, 1, 1, second)
        meter.count("orders", PEEK, NORMAL, 0, 1, 0)
        failed = flush_with_file_size_limit(meter, size_bytes + 20)
        assert isinstance(failed, OSError)
    assert total(tmp_path, "calls") == 1
    meter.flush()
    meter.close()
    assert total(tmp_path, "calls") == 11
    assert len(records(tmp_path)) == 3
    assert open_meter(tmp_path).totals().cumulative[(SEND, NORMAL)].calls == 6


def flush_with_file_size_limit(meter: Meter, limit_bytes: int) -> BaseException | None:
    """The kernel itself stops the file from growing, in the middle of a line: as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        meter.flush()
    except OSError as error:
        return error
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    return None


def test_a_full_disk_does_not_keep_the_meter_from_opening(tmp_path: Path) -> None:
    open_meter(tmp_path).count("orders", SEND, NORMAL, 1, 1, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        meter = open_meter(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert list(tmp_path.glob("*.jsonl")) == []
    meter.close()
    assert [line for line in lines(tmp_path) if "gap" in line]


def test_counting_and_flushing_in_turns_agrees_with_the_files_to_the_operation(tmp_path: Path) -> None:
    settings = small(roll=2_000, total_size=1_000_000)
    meter = open_meter(tmp_path, settings=settings)
    expected = 0
    for round_number in range(300):
        for entity in ("orders", "invoices", "returns"):
            size_bytes = (round_number * 977 + len(entity)) % (200 * KIB)
            meter.count(entity, SEND, NORMAL, 1, operations_for(size_bytes), size_bytes)
            expected += operations_for(size_bytes)
        if round_number % 50 == 49:
            meter.close()
            meter = open_meter(tmp_path, settings=settings)
        elif round_number % 3 == 0:
            meter.flush()
    meter.close()
    assert total(tmp_path, "operations") == expected
    assert threading.active_count() < 50
    assert not tmp_path.joinpath("running").exists()
    assert os.listdir(tmp_path)


@covers("F17")
def test_files_of_the_meter_are_for_their_owner_only_also_those_of_earlier_versions(tmp_path: Path) -> None:
    for _ in range(2):
        meter = open_meter(tmp_path, settings=MeterSettings(roll_size_bytes=KIB))
        for number in range(40):
            meter.count(f"queue-{number}", SEND, NORMAL, 1, 1, 1)
            meter.flush()
        names = {path.name for path in tmp_path.iterdir()}
        assert {"running", "00000001.jsonl", "00000002.jsonl"} <= names
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
        meter.close()
        for path in tmp_path.iterdir():
            path.chmod(0o644)
