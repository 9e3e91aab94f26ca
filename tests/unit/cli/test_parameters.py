"""Values as people type them."""

from uuid import UUID

import click
import pytest

from tandembus.amqp.encoding.values import int_, timestamp
from tandembus.cli.parameters import duration, duration_words, moment, moment_text, typed_property
from tandembus.client.durations import NEVER
from tandembus.clock import SystemClock


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        ("5m", 300.0),
        ("2h", 7200.0),
        ("14d", 1_209_600.0),
        ("1w", 604_800.0),
        ("never", NEVER),
        ("PT1M", 60.0),
        ("p1d", 86_400.0),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5s", "5 minutes", "1y"])
def test_other_texts_are_refused_with_examples(text: str) -> None:
    with pytest.raises(click.BadParameter, match="14d"):
        duration(text)


@pytest.mark.parametrize("seconds", [0.25, 5.0, 90.0, 300.0, 7200.0, 1_209_600.0, NEVER])
def test_the_words_for_a_duration_are_read_back(seconds: float) -> None:
    assert duration(duration_words(seconds)) == seconds


def test_a_moment_is_a_time_or_a_duration_from_now() -> None:
    assert moment("2030-01-31T08:00:00Z") == moment("2030-01-31T09:00:00+01:00") == 1_896_076_800.0
    assert abs(moment("10m") - SystemClock().now() - 600.0) < 60.0
    with pytest.raises(click.BadParameter):
        moment("tomorrow")


def test_a_moment_is_written_in_utc() -> None:
    assert moment_text(1_896_076_800.0) == "2030-01-31T08:00:00.000Z"
    assert moment_text(None) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name=value", ("name", "value")),
        ("name=", ("name", "")),
        ("name=a=b", ("name", "a=b")),
        ("n:int=5", ("n", int_(5))),
        ("n:long=5", ("n", 5)),
        ("n:double=0.5", ("n", 0.5)),
        ("n:bool=True", ("n", True)),
        ("n:uuid=00000000-0000-0000-0000-000000000001", ("n", UUID(int=1))),
        ("n:timestamp=2030-01-31T08:00:00Z", ("n", timestamp(1_896_076_800_000))),
    ],
)
def test_properties_have_a_name_a_type_and_a_value(text: str, expected: tuple[str, object]) -> None:
    assert typed_property(text) == expected


@pytest.mark.parametrize("text", ["name", "=value", "n:int=x", "n:odd=1", "n:bool=2"])
def test_a_property_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        typed_property(text)
