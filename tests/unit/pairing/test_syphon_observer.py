"""What a syphon counts, logs and shows."""

from __future__ import annotations

import logging

import pytest

from tandembus.clock import ManualClock
from tandembus.pairing.syphon_observer import MAX_TOLD, TELL_AGAIN_S, SyphonFigures

QUEUE = "contoso/x-servicebus-transfer/0"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def figures(clock: ManualClock) -> SyphonFigures:
    return SyphonFigures(clock)


def test_metrics_are_in_the_text_format_of_prometheus(figures: SyphonFigures) -> None:
    figures.moved(QUEUE, "orders", 3, 300)
    figures.moved(QUEUE, "events", 2, 200)
    figures.dead_lettered(QUEUE, None, [7], 'No"Path', "none")
    figures.deferred(QUEUE, "orders", 7)
    figures.stuck(QUEUE, "orders", OSError("x"))
    figures.retried(QUEUE, "orders", OSError("x"))
    lines = figures.metrics().splitlines()
    assert f'tandembus_syphon_messages_moved_total{{queue="{QUEUE}"}} 5' in lines
    assert f'tandembus_syphon_bytes_moved_total{{queue="{QUEUE}"}} 500' in lines
    assert f'tandembus_syphon_messages_dead_lettered_total{{queue="{QUEUE}",reason="No\\"Path"}} 1' in lines
    assert "# TYPE tandembus_syphon_messages_moved_total counter" in lines
    assert "tandembus_syphon_dead_destinations 1" in lines
    assert all(line.startswith(("#", "tandembus_syphon_")) for line in lines)


def test_when_a_message_came_home_last_is_not_told_before_one_did(figures: SyphonFigures) -> None:
    series = "\ntandembus_syphon_last_moved_timestamp_seconds "
    assert series not in figures.metrics()
    figures.moved(QUEUE, "orders", 1, 100)
    assert series in figures.metrics()


def test_the_time_of_moving_begins_with_the_first_message_that_comes(
    figures: SyphonFigures, clock: ManualClock
) -> None:
    assert figures.record()["moving_s"] == 0
    figures.received()
    assert figures.record()["moving_s"] == 0
    for _ in range(2):
        clock.advance(1.5)
        figures.received()
        figures.moved(QUEUE, "orders", 1, 100)
    assert figures.record()["moving_s"] == 3.0


def test_a_trouble_that_lasts_is_logged_once(figures: SyphonFigures, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tandembus.syphon"):
        for _ in range(5):
            figures.troubled(QUEUE, OSError("gone"))
            figures.stuck(QUEUE, "orders", OSError("busy"))
    assert [record.message.split(": ")[-1] for record in caplog.records][:2] == ["gone", "busy"]
    assert sum("gone" in record.message for record in caplog.records) == 1


def test_a_freed_destination_is_not_dead_any_more(figures: SyphonFigures) -> None:
    figures.stuck(QUEUE, "orders", OSError("x"))
    assert figures.stuck_paths == ["orders"]
    figures.freed(QUEUE, "orders")
    assert figures.stuck_paths == []
    assert figures.record()["dead_destinations"] == []


def test_warnings_say_which_message_and_how_many(figures: SyphonFigures, caplog: pytest.LogCaptureFixture) -> None:
    figures.dead_lettered(QUEUE, None, [7], "NoPath", "none")
    figures.lost(QUEUE, 1)
    figures.lost(QUEUE, 2)
    assert "dead-lettered message 7: NoPath" in caplog.text
    assert "of 1 message, which comes again" in caplog.text
    assert "of 2 messages, which come again" in caplog.text


def test_dead_letters_alike_are_told_once_a_minute_with_their_count(
    figures: SyphonFigures, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1, 21):
        figures.dead_lettered(QUEUE, "gone", [number], "DestinationNotFound", "none")
    figures.dead_lettered(QUEUE, "another", [21, 22], "DestinationNotFound", "none")
    clock.advance(TELL_AGAIN_S)
    figures.dead_lettered(QUEUE, "gone", [23, 24], "DestinationNotFound", "none")
    told = [record.message.split(": ")[1] for record in caplog.records]
    assert told == [
        "dead-lettered message 1",
        "dead-lettered message 21 and 1 more",
        "dead-lettered message 23 and 20 more",
    ]
    assert figures.dead_lettered_count == 24


def test_destinations_of_dead_letters_are_not_remembered_for_ever(figures: SyphonFigures) -> None:
    for number in range(3 * MAX_TOLD):
        figures.dead_lettered(QUEUE, f"gone{number}", [number], "DestinationNotFound", "none")
    assert len(figures._told) <= MAX_TOLD


def test_a_link_that_is_detached_while_idle_is_no_warning(
    figures: SyphonFigures, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "tandembus.syphon"):
        figures.detached(QUEUE, OSError("idle for 10 minutes"))
    assert [record.levelno for record in caplog.records] == [logging.INFO]
    assert "queue_troubles_total{" not in figures.metrics()
