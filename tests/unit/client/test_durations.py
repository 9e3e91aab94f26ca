"""Durations as the service writes them."""

import pytest

from tandembus.client.durations import NEVER, duration_of, duration_text
from tandembus.errors import MalformedData


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT1M", 60.0),
        ("P14D", 1_209_600.0),
        ("PT0S", 0.0),
        ("P1DT2H3M4.5S", 93_784.5),
        ("P10675199DT2H48M5.477581S", NEVER),
    ],
)
def test_durations_of_the_service_are_read(text: str, seconds: float) -> None:
    assert duration_of(text) == seconds


@pytest.mark.parametrize("seconds", [0.0, 0.25, 59.0, 86_400.0, 93_784.5, NEVER])
def test_a_written_duration_is_read_back(seconds: float) -> None:
    assert duration_of(duration_text(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1M", "PT1X", "P1Y"])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(MalformedData):
        duration_of(text)
