"""Durations, times, booleans and numbers on the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus.descriptions import NEVER_S
from tandembus.errors import InvalidArgument
from tandembus.front_end.http.values import (
    NEVER,
    NOT_SET,
    format_duration,
    format_time,
    parse_boolean,
    parse_duration,
    parse_integer,
    parse_time_span,
)


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (0.0, "PT0S"),
        (5.0, "PT5S"),
        (60.0, "PT1M"),
        (90.0, "PT1M30S"),
        (300.0, "PT5M"),
        (3_600.0, "PT1H"),
        (86_400.0, "P1D"),
        (14 * 86_400.0, "P14D"),
        (90_061.5, "P1DT1H1M1.5S"),
        (0.0000001, "PT0.0000001S"),
        (0.1, "PT0.1S"),
        (None, NEVER),
        (NEVER_S, NEVER),
        (float("inf"), NEVER),
    ],
)
def test_durations_are_written_as_the_service_writes_them(duration_s: float | None, text: str) -> None:
    assert format_duration(duration_s) == text


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [
        ("PT0S", 0.0),
        ("PT1M", 60.0),
        ("PT60S", 60.0),
        ("P1DT1H1M1.5S", 90_061.5),
        ("P14D", 14 * 86_400.0),
        ("PT30.S", 30.0),
        ("P1Y", 365 * 86_400.0),
        ("P1M", 30 * 86_400.0),
        ("P10675199DT2H48M5.4775807S", None),
        ("P10675199DT2H48M5.477581S", None),
        ("P10675199DT2H48M5.47758S", None),
        ("P10675199D", None),
        ("P99999999D", None),
        ("P10675198D", 10_675_198 * 86_400.0),
    ],
)
def test_durations_are_read_in_every_form_that_clients_send(text: str, duration_s: float | None) -> None:
    assert parse_duration(text, "LockDuration") == duration_s


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "1M",
        "60",
        "PT1",
        "PT1M ",
        "PT1X",
        "P-1D",
        "-PT1M",
        "PT1.5M",
        "P1H",
        "PT1M1H",
        "PT" + "9" * 500 + "S",
        "PT\u0661S",
        "NaN",
        "inf",
    ],
)
def test_what_is_no_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidArgument, match="LockDuration"):
        parse_duration(text, "LockDuration")


@pytest.mark.parametrize("text", ["P999999999DT25H", "-P999999999DT12H", "-P1000Y999999999D"])
def test_a_time_span_that_nothing_can_hold_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="too long"):
        parse_time_span(text, "length")


@given(st.integers(min_value=0, max_value=10_675_198 * 86_400 * 10_000_000))
def test_a_duration_read_back_is_the_duration_written(ticks: int) -> None:
    duration_s = ticks / 10_000_000
    read = parse_duration(format_duration(duration_s), "LockDuration")
    assert read is not None
    assert read == pytest.approx(duration_s, abs=1e-7, rel=1e-12)


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0.0, NOT_SET),
        (-5.0, NOT_SET),
        (1_704_067_200.0, "2024-01-01T00:00:00Z"),
        (1_704_067_200.25, "2024-01-01T00:00:00.25Z"),
        (1_704_067_200.000001, "2024-01-01T00:00:00.000001Z"),
        (1_704_067_210.0, "2024-01-01T00:00:10Z"),
    ],
)
def test_times_are_utc(at: float, text: str) -> None:
    assert format_time(at) == text


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("True", True), ("1", True), ("false", False), ("0", False)]
)
def test_booleans_are_read_as_xml_allows_them(text: str, value: bool) -> None:
    assert parse_boolean(text, "RequiresSession") is value


@pytest.mark.parametrize("text", ["", "yes", "2", "tru", "null"])
def test_what_is_no_boolean_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="RequiresSession"):
        parse_boolean(text, "RequiresSession")


@pytest.mark.parametrize("text", ["", "1.0", "1e3", "0x10", "1_000", "\u0663", "9" * 5000, "--1", "nil"])
def test_what_is_no_whole_number_is_refused_without_being_worked_on(text: str) -> None:
    with pytest.raises(InvalidArgument, match="MaxDeliveryCount"):
        parse_integer(text, "MaxDeliveryCount")


def test_whole_numbers_are_read() -> None:
    assert [parse_integer(text, "n") for text in ("0", "-1", "+7", "2147483647")] == [0, -1, 7, 2_147_483_647]
