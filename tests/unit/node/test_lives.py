"""What the record of starts and clean stops says at the next start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandembus.clock import ManualClock, SystemClock
from tandembus.config import ServeSettings
from tandembus.node.lives import LIVES_FILE, SHORT_S, Lives
from tandembus.node.wiring import NamespaceNode
from tests.covers import covers


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000.0)


def live(data: Path, clock: ManualClock, seconds: float) -> bool:
    """A life that nothing ends in order; returns whether the stores were suspect at its start."""
    lives = Lives(data, clock)
    is_suspect = lives.begin()
    clock.advance(seconds)
    lives.show_life()
    return is_suspect


@covers("F2", "F6")
def test_stores_are_suspect_after_two_unclean_stops_within_a_minute(tmp_path: Path, clock: ManualClock) -> None:
    assert [live(tmp_path, clock, 20.0) for _ in range(4)] == [False, False, True, True]


@covers("F2")
def test_a_single_unclean_stop_makes_nothing_suspect(tmp_path: Path, clock: ManualClock) -> None:
    assert [live(tmp_path, clock, 10 * SHORT_S) for _ in range(4)] == [False] * 4
    live(tmp_path, clock, 20.0)
    clock.advance(3_600.0)
    assert live(tmp_path, clock, 20.0), "however long it took until somebody started it again"


@covers("F2")
def test_a_clean_stop_takes_all_suspicion_away(tmp_path: Path, clock: ManualClock) -> None:
    live(tmp_path, clock, 1.0)
    live(tmp_path, clock, 1.0)
    lives = Lives(tmp_path, clock)
    assert lives.begin()
    lives.end()
    assert [live(tmp_path, clock, 1.0) for _ in range(3)] == [False, False, True]


@covers("F2", "F6")
async def test_a_start_that_fails_with_an_error_takes_no_suspicion_away(tmp_path: Path) -> None:
    def node() -> NamespaceNode:
        return NamespaceNode(ServeSettings(data=tmp_path, amqp_port=0, http_port=0, amqps_port=None))

    for _ in range(2):
        Lives(tmp_path, SystemClock()).begin()
    (tmp_path / "meter").write_text("in the way")
    with pytest.raises(FileExistsError):
        await node().start()
    assert Lives(tmp_path, SystemClock()).begin()


def test_a_start_that_fails_leaves_no_record_where_there_was_none(tmp_path: Path, clock: ManualClock) -> None:
    lives = Lives(tmp_path, clock)
    lives.begin()
    lives.take_back()
    assert [live(tmp_path, clock, 1.0) for _ in range(3)] == [False, False, True]


def test_a_record_that_cannot_be_read_is_one_unclean_stop(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / LIVES_FILE).write_bytes(b"{")
    assert [live(tmp_path, clock, 1.0) for _ in range(2)] == [False, True]
