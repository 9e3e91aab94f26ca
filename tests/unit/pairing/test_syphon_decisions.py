"""What the syphon decides: what refusals mean, how much it asks for, and what a page of peeked messages says."""

from __future__ import annotations

import pytest

from tandembus import errors
from tandembus.amqp.encoding.sections import (
    application_properties_section,
    data_section,
    header_section,
    message_annotations_section,
)
from tandembus.amqp.encoding.values import int_
from tandembus.client.errors import ConnectionLost
from tandembus.pairing.aliases import PATH
from tandembus.pairing.syphon.home import Refusal, refusal_in
from tandembus.pairing.syphon.look_ahead import LookAhead
from tandembus.pairing.syphon.ports import PrimaryUnreachable
from tandembus.pairing.syphon.settings import SyphonSettings, Window
from tests.covers import covers

REFUSALS = {
    Refusal.LATER: (
        errors.EntityDisabled,
        errors.QuotaExceeded,
        errors.ServerBusy,
        errors.OperationTimeout,
        errors.StoreUnavailable,
        errors.Unauthorized,
        errors.BusError,
        ConnectionLost,
        OSError,
    ),
    Refusal.MESSAGE: (
        errors.MessageTooLarge,
        errors.InvalidOperation,
        errors.InvalidArgument,
        errors.MalformedData,
    ),
    Refusal.GONE: (errors.EntityNotFound,),
    Refusal.UNREACHABLE: (PrimaryUnreachable,),
}
ACTIVE, DEFERRED, SCHEDULED = 0, 1, 2


@covers("N12")
@pytest.mark.parametrize(("kind", "refusal"), [(kind, each) for each, kinds in REFUSALS.items() for kind in kinds])
def test_what_a_refusal_means_for_the_messages(kind: type[Exception], refusal: Refusal) -> None:
    assert refusal_in(kind("x")) is refusal


@covers("N12")
@pytest.mark.parametrize("seconds", [0.0, 0.9, 120.1, -1.0, float("nan")])
def test_a_retry_interval_out_of_range_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="1 s to 2 min"):
        SyphonSettings(retry_interval_s=seconds)


@covers("N12")
@pytest.mark.parametrize(
    ("first_s", "intervals_s"), [(1.0, [2, 4, 8, 16, 32, 60, 60]), (45.0, [60, 60]), (90.0, [90, 90])]
)
def test_retry_intervals_double_up_to_a_minute(first_s: float, intervals_s: list[float]) -> None:
    settings, found, interval_s = SyphonSettings(retry_interval_s=first_s), [], first_s
    for _ in intervals_s:
        interval_s = settings.doubled(interval_s)
        found.append(interval_s)
    assert found == intervals_s


@covers("N13")
def test_the_window_starts_at_one_grows_while_it_is_filled_and_shrinks_with_large_messages() -> None:
    window = Window(SyphonSettings(window=500, window_bytes=1_000_000))
    counts = [window.count]
    for _ in range(10):
        window.received(1000, window.count)
        counts.append(window.count)
    assert counts == [1, 2, 4, 8, 16, 32, 64, 128, 256, 500, 500]
    window.received(1000, 10)
    assert window.count == 500
    window.received(250_000, 3)
    assert window.count == 4
    window.received(5_000_000, 1)
    assert window.count == 1


def stored(path: str | None, number: int, state: int = ACTIVE, deliveries: int = 0) -> bytes:
    """A message as a peek returns it."""
    annotations = message_annotations_section({"x-opt-sequence-number": number, "x-opt-message-state": int_(state)})
    properties = application_properties_section({} if path is None else {PATH: path})
    return header_section(durable=True, delivery_count=deliveries) + annotations + properties + data_section(b"x")


def seen(look: LookAhead, *page: bytes, dead: tuple[str, ...] = ("dead",), held: tuple[int, ...] = ()) -> list[int]:
    return [each.sequence_number for each in look.see(page, set(dead), set(held), is_partitioned=False)]


@covers("N12")
@pytest.mark.parametrize(
    ("paths", "in_sight"),
    [
        (["dead"] * 5, 0),
        (["dead", "dead", "live", "dead"], 3),
        (["live", "DEAD", "live", "dead", "dead"], 3),
        (["dead", None], 2),  # It can only become a dead letter, so it must be received.
    ],
)
def test_messages_up_to_the_last_live_one_are_in_sight(paths: list[str | None], in_sight: int) -> None:
    look = LookAhead()
    look.start()
    assert seen(look, *[stored(path, at) for at, path in enumerate(paths, 1)]) == []
    assert look.in_sight == in_sight
    assert look.has_left
    look.received(1)
    assert look.in_sight == max(in_sight - 1, 0)
    look.received(0)
    assert look.in_sight == 0, "somebody else received them"


@covers("N12")
def test_what_a_syphon_holds_and_what_is_scheduled_stand_in_nobodys_way() -> None:
    look = LookAhead()
    look.start()
    seen(look, stored("live", 1), stored("live", 2, SCHEDULED), held=(1,))
    assert (look.in_sight, look.has_left, look.position) == (0, False, 3)


@covers("N12")
def test_deferred_messages_are_found_unless_their_path_is_malformed() -> None:
    look = LookAhead()
    look.start()
    messages = [stored(path, at, DEFERRED) for at, path in enumerate(("dead", "live", None, "./x"), 1)]
    assert seen(look, *messages) == [1, 2]
    assert look.in_sight == 0


@covers("N12")
def test_a_walk_ends_at_the_end_or_behind_so_many_messages_that_nobody_has_received() -> None:
    look = LookAhead()
    look.start(scan_beyond=10)
    seen(look, *[stored("live", number) for number in range(1, 10)], stored("live", 10, deliveries=1))
    assert not look.is_over
    seen(look, *[stored("live", number) for number in range(11, 21)])
    assert look.is_over
    assert look.is_cut_short
    look.start()
    seen(look, *[stored("live", number) for number in range(1, 30)])
    assert not look.is_over
    seen(look)
    assert look.is_over
    assert not look.is_cut_short
    look.resume()
    assert (look.is_over, look.position) == (False, 30)


@covers("N12")
def test_pages_that_cannot_be_read_are_neither_the_end_nor_read_for_ever() -> None:
    look = LookAhead()
    look.start()
    seen(look, *[b"?"] * 3)
    assert (look.is_over, look.position) == (False, 4)
    for _ in range(100):
        if not look.is_over:
            seen(look, *[b"?"] * 3)
    assert look.is_over
