"""Looking back into the meter's files, while they are being written, without reading all of them."""

from __future__ import annotations

import random
from datetime import date
from pathlib import Path

import pytest

from tandembus.clock import ManualClock
from tandembus.metering.files import MeterSettings, Totals
from tandembus.metering.looking_back import FailoverReader, counted_before, counted_between, meter_folders
from tandembus.metering.meter import OTHER_ENTITIES, Meter
from tandembus.metering.slot import COMPLETE, FAILOVER, NORMAL, PING, RECEIVE, SEND, SYPHON, Count
from tests.covers import covers

START = 1_700_000_000
SMALL = MeterSettings(roll_size_bytes=200_000, total_size_bytes=100_000_000)
SEND_NORMAL = (SEND, NORMAL)


def messages(totals: Totals) -> dict[tuple[str, str], int]:
    return {key: count.messages for key, count in totals.items()}


class Written:
    """A meter that has written one flush for every second of a history."""

    def __init__(self, folder: Path, settings: MeterSettings = SMALL) -> None:
        self.clock = ManualClock(float(START))
        self.meter = Meter(self.clock, folder, "contoso", settings)
        self.counts: dict[int, int] = {}

    def write(self, seconds: int, entities: int = 20) -> None:
        chance = random.Random(7)
        for _ in range(seconds):
            second = int(self.clock.now())
            for number in range(entities):
                count = chance.randrange(1, 5)
                self.meter.count(f"queue-{number}", SEND, NORMAL, count, count, 10)
                self.counts[second] = self.counts.get(second, 0) + count
            self.clock.advance(1.0)
            self.meter.flush()

    def before(self, second: int) -> int:
        return sum([count for at, count in self.counts.items() if at < second])


@covers("B4", "D4")
def test_what_was_counted_before_any_second_is_found_in_any_file(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.write(400)
    assert len(list(tmp_path.glob("*.jsonl"))) > 3
    for second in range(START - 5, START + 405, 7):
        found = messages(counted_before(tmp_path, second)).get(SEND_NORMAL, 0)
        assert found == written.before(second), second - START
    assert messages(counted_before(tmp_path, None)) == {SEND_NORMAL: written.before(START + 1_000)}


@covers("B4", "D4")
def test_heads_within_a_file_are_begun_from(tmp_path: Path) -> None:
    written = Written(tmp_path, MeterSettings())
    written.write(300, entities=60)
    (path,) = tmp_path.glob("*.jsonl")
    assert path.read_bytes().count(b'{"meter":') > 2
    for second in range(START, START + 300, 13):
        assert messages(counted_before(tmp_path, second)).get(SEND_NORMAL, 0) == written.before(second)


@covers("B4", "D4")
def test_what_the_size_cap_has_removed_is_counted_all_the_same(tmp_path: Path) -> None:
    written = Written(tmp_path, MeterSettings(roll_size_bytes=50_000, total_size_bytes=120_000))
    written.write(300)
    assert not (tmp_path / "00000001.jsonl").exists()
    assert messages(counted_before(tmp_path, None))[SEND_NORMAL] == written.before(START + 1_000)


@covers("B4", "D4")
def test_what_came_between_two_moments_is_their_difference(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.write(50)
    between = counted_between(counted_before(tmp_path, START + 20), counted_before(tmp_path, None))
    assert messages(between) == {SEND_NORMAL: written.before(START + 50) - written.before(START + 20)}
    assert counted_between({SEND_NORMAL: Count(5, 5, 5, 5)}, {SEND_NORMAL: Count(5, 5, 5, 5)}) == {}


@covers("B4", "D4")
def test_a_line_that_is_being_written_and_lines_that_are_damaged_are_left_out(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.write(3)
    (path,) = tmp_path.glob("*.jsonl")
    with path.open("ab") as file:
        file.write(b'not json\n{"second":"x"}\n[]\n' + b"x" * 200_000 + b'\n{"second":170000')
    assert messages(counted_before(tmp_path, None)) == {SEND_NORMAL: written.before(START + 10)}


def test_a_folder_without_files_has_counted_nothing(tmp_path: Path) -> None:
    assert counted_before(tmp_path, None) == counted_before(tmp_path, START) == {}
    assert meter_folders(tmp_path / "nowhere") == []


@covers("B4")
def test_every_process_has_a_folder_of_its_own(tmp_path: Path) -> None:
    for name in ("front-end-1", "broker-0"):
        (tmp_path / name).mkdir()
    (tmp_path / "00000001.jsonl").touch()
    assert meter_folders(tmp_path) == [tmp_path, tmp_path / "broker-0", tmp_path / "front-end-1"]


BACKLOG = "contoso/x-servicebus-transfer/0"


@pytest.fixture
def outage(tmp_path: Path) -> Written:
    """Between ordinary traffic: a minute in which messages go to the backlog and home."""
    written = Written(tmp_path)
    written.write(100)
    for _ in range(60):
        written.meter.count(BACKLOG, SEND, FAILOVER, 2, 2, 100)
        written.meter.count(BACKLOG, RECEIVE, SYPHON, 2, 2, 100)
        written.meter.count(BACKLOG, COMPLETE, SYPHON, 2, 2, 0)
        written.meter.count("events", SEND, PING, 1, 1, 0)
        written.meter.count("events/subscriptions/audit", RECEIVE, NORMAL, 1, 1, 10)
        written.write(1)
    written.write(100)
    return written


def used(reader: FailoverReader) -> dict[tuple[str, str, str], int]:
    return {(row.entity, row.operation, row.reason): row.messages for row in reader.used("contoso")}


@covers("B4", "D4", "N13")
def test_a_failovers_records_are_read_by_entity_and_ordinary_ones_are_passed_over(
    outage: Written, tmp_path: Path
) -> None:
    reader = FailoverReader(tmp_path, START)
    reader.read()
    assert used(reader) == {
        (BACKLOG, SEND, FAILOVER): 120,
        (BACKLOG, RECEIVE, SYPHON): 120,
        (BACKLOG, COMPLETE, SYPHON): 120,
        ("events", SEND, PING): 60,
        ("events/subscriptions/audit", RECEIVE, NORMAL): 60,
    }
    assert reader.is_complete
    assert {row.day for row in reader.used("contoso")} == {date(2023, 11, 14)}


@covers("B4", "D4")
@pytest.mark.parametrize(("since", "until", "count"), [(100, 159, 60), (110, None, 50), (100, 119, 20), (161, None, 0)])
def test_only_what_lies_within_the_time_that_is_asked_for_is_read(
    outage: Written, tmp_path: Path, since: int, until: int | None, count: int
) -> None:
    reader = FailoverReader(tmp_path, START + since, None if until is None else START + until)
    reader.read()
    assert used(reader).get(("events", SEND, PING), 0) == count


@covers("B4", "D4")
def test_reading_goes_on_where_it_was_and_says_when_there_is_more(outage: Written, tmp_path: Path) -> None:
    reader = FailoverReader(tmp_path, START)
    whole = FailoverReader(tmp_path, START)
    whole.read()
    looks = 0
    while looks == 0 or not reader.is_complete:
        reader.read(max_bytes=20_000)
        looks += 1
        assert looks < 1_000
    assert looks > 5
    assert used(reader) == used(whole)
    outage.meter.count(BACKLOG, SEND, FAILOVER, 5, 5, 0)
    outage.write(1)
    reader.read()
    assert used(reader)[BACKLOG, SEND, FAILOVER] == 125


@covers("B4", "D4")
def test_what_comes_long_after_the_time_that_is_asked_for_is_not_read(outage: Written, tmp_path: Path) -> None:
    outage.write(600)
    reader = FailoverReader(tmp_path, START + 100, START + 159)
    reader.read(max_bytes=1_000_000)
    assert reader.is_complete
    assert used(reader)["events", SEND, PING] == 60
    for path in tmp_path.glob("*.jsonl"):
        path.unlink()
    reader.read()
    assert used(reader)["events", SEND, PING] == 60, "asked again it reads nothing"


@covers("B4")
def test_of_too_many_rows_the_rest_are_those_of_others(tmp_path: Path) -> None:
    written = Written(tmp_path)
    for number in range(10):
        written.meter.count(f"queue-{number}", SEND, PING, 1, 1, 0)
    written.write(1, entities=0)
    reader = FailoverReader(tmp_path, START, max_rows=3)
    reader.read()
    assert len(used(reader)) == 4
    assert used(reader)[OTHER_ENTITIES, SEND, PING] == 7
