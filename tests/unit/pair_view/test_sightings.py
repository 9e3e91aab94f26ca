"""What links tell becomes signs of entities, and no more of them than the limits say."""

from __future__ import annotations

import pytest

from tandembus.broker.locks import ABANDON, COMPLETE, DEAD_LETTER, DEFER
from tandembus.clock import ManualClock
from tandembus.errors import (
    BusError,
    EntityDisabled,
    EntityNotFound,
    FragmentUnavailable,
    MessageTooLarge,
    OperationTimeout,
    OutcomeUnknown,
    QuotaExceeded,
    ServerBusy,
    StoreFull,
    StoreUnavailable,
    Unauthorized,
)
from tandembus.message import Message, parse_message
from tandembus.pair_view.sightings import Sightings
from tandembus.pair_view.signs import Sign
from tandembus.pair_view.watches import OutageMark, ReceiveWatch
from tests.covers import covers
from tests.unit.pair_view.backlog_messages import backlog_message, plain_message

BACKLOG = "contoso/x-servicebus-transfer/3"


def totals(sightings: Sightings) -> dict[tuple[str, str, str], int]:
    return {
        (signs.primary, signs.path, sign.value): count
        for signs in sightings.signs()
        for sign, count in signs.totals.items()
    }


def receiver(sightings: Sightings) -> ReceiveWatch:
    watch = sightings.of_receiver(BACKLOG)
    assert watch is not None
    return watch


def ping() -> Message:
    message = plain_message()
    message.is_ping = True
    return message


@covers("B4", "N4")
def test_a_healthy_entity_leaves_no_trace() -> None:
    sightings = Sightings(ManualClock())
    watch = sightings.of_sender("orders", OutageMark())
    watch.accepted([plain_message()])
    assert sightings.signs() == []
    assert sightings.of_receiver("orders") is None, "its receivers tell nobody"


@covers("B4", "N5")
@pytest.mark.parametrize(
    "error", [StoreUnavailable, StoreFull, FragmentUnavailable, OperationTimeout, OutcomeUnknown, EntityDisabled]
)
def test_sends_that_are_refused_as_in_an_outage_are_seen_and_so_is_the_first_that_is_not(
    error: type[BusError],
) -> None:
    sightings = Sightings(ManualClock())
    mark = OutageMark()
    watch, other = sightings.of_sender("orders", mark), sightings.of_sender("orders", mark)
    watch.refused([plain_message()], error("out"))
    watch.refused([plain_message()], error("out"))
    other.accepted([plain_message()])
    other.accepted([plain_message()])
    assert totals(sightings) == {("", "orders", "refused"): 2, ("", "orders", "accepted"): 1}


@covers("B4", "N5")
@pytest.mark.parametrize("error", [ServerBusy, Unauthorized, EntityNotFound, MessageTooLarge, QuotaExceeded])
def test_what_no_client_fails_over_for_is_not_seen(error: type[BusError]) -> None:
    sightings = Sightings(ManualClock())
    sightings.of_sender("orders", OutageMark()).refused([plain_message()], error("no"))
    sightings.attach_refused("orders", error("no"))
    assert sightings.signs() == []


@covers("B4", "N10")
def test_pings_are_seen_accepted_or_refused() -> None:
    sightings = Sightings(ManualClock())
    watch = sightings.of_sender("orders", OutageMark())
    watch.refused([ping()], StoreUnavailable("out"))
    watch.ping_accepted([ping()])
    assert totals(sightings) == {("", "orders", "ping-refused"): 1, ("", "orders", "ping-accepted"): 1}


@covers("B4", "N11")
def test_what_a_syphon_sends_comes_home_and_its_refusals_say_nothing() -> None:
    sightings = Sightings(ManualClock())
    watch = sightings.of_sender("orders", OutageMark(), is_syphon=True)
    watch.refused([plain_message()], StoreUnavailable("out"))
    watch.accepted([plain_message()] * 5)
    assert totals(sightings) == {("", "orders", "home"): 5}


@covers("B4", "N8")
def test_what_arrives_in_a_backlog_queue_is_told_by_where_it_was_sent_to() -> None:
    sightings = Sightings(ManualClock())
    watch = sightings.of_sender(BACKLOG, OutageMark())
    watch.accepted([backlog_message("orders"), backlog_message("events"), backlog_message("orders")])
    watch.accepted([plain_message()])
    assert totals(sightings) == {("contoso", "orders", "diverted"): 2, ("contoso", "events", "diverted"): 1}


@covers("B4", "N11", "N12")
def test_what_leaves_a_backlog_queue_is_told_by_where_it_was_sent_to() -> None:
    sightings = Sightings(ManualClock())
    watch = receiver(sightings)
    for number, settlement in enumerate((COMPLETE, DEAD_LETTER, ABANDON, DEFER)):
        token = bytes([number]) * 16
        watch.delivered(backlog_message("orders"), token)
        watch.settled(token, settlement)
        watch.settled(token, settlement)
    assert totals(sightings) == {("contoso", "orders", "taken"): 1, ("contoso", "orders", "dead"): 1}


@covers("B4")
def test_messages_in_nobodys_hands_any_more_are_forgotten_at_the_limit() -> None:
    sightings = Sightings(ManualClock(), max_held=2)
    watch = receiver(sightings)
    tokens = [bytes([number]) * 16 for number in range(3)]
    for token in tokens:
        watch.delivered(backlog_message("orders"), token)
    for token in tokens:
        watch.settled(token, COMPLETE)
    assert totals(sightings) == {("contoso", "orders", "taken"): 2}


@covers("B4")
def test_of_too_many_entities_those_that_were_seen_longest_ago_are_forgotten() -> None:
    sightings = Sightings(ManualClock(), max_entities=2)
    for path in ("a", "b", "a"):
        sightings.attach_refused(path, StoreUnavailable("out"))
    assert not sightings.is_cut_short
    sightings.attach_refused("c", StoreUnavailable("out"))
    assert {signs.path for signs in sightings.signs()} == {"a", "c"}
    assert sightings.is_cut_short


@covers("B4", "N8")
@pytest.mark.parametrize(
    "properties",
    [None, {}, {"x-ms-path": 7}, {"x-ms-path": ""}, {"x-ms-path": "x" * 2_000}, {"other": "x-ms-path"}],
)
def test_a_message_that_does_not_say_where_it_belongs_is_nobodys(properties: dict[str, object] | None) -> None:
    sightings = Sightings(ManualClock())
    sightings.of_sender(BACKLOG, OutageMark()).accepted([plain_message(properties)])
    assert sightings.signs() == []


@covers("B4", "N8")
def test_the_destination_is_found_among_many_properties_and_in_the_long_form() -> None:
    sightings = Sightings(ManualClock())
    many = {f"name{number}": number for number in range(300)}
    watch = sightings.of_sender(BACKLOG, OutageMark())
    watch.accepted([plain_message({**many, "x-ms-path": "sales/orders", "behind": True})])
    assert totals(sightings) == {("contoso", "sales/orders", "diverted"): 1}


@covers("B4")
def test_any_bytes_in_the_place_of_the_properties_are_taken_calmly() -> None:
    good = backlog_message("orders")
    sightings = Sightings(ManualClock())
    watch = sightings.of_sender(BACKLOG, OutageMark())
    for at in range(len(good.sections)):
        broken = parse_message(good.sections)
        broken.sections = good.sections[:at] + b"\xff" + good.sections[at + 1 :]
        watch.accepted([broken])
    assert all(sign is Sign.DIVERTED for signs in sightings.signs() for sign in signs.totals)
