"""What is refused is counted each time, and logged within bounds that clients cannot move."""

from __future__ import annotations

import pytest

from tandembus.clock import ManualClock
from tandembus.errors import BusError, EntityNotFound, MessageLockLost, OperationTimeout, ServerBusy, Unauthorized
from tandembus.front_end.refusals import AMQP, LOGGED_EVERY_S, MAX_CHARACTERS, MAX_REMEMBERED, Refusals
from tests.covers import covers

MISSING = EntityNotFound("no such entity")


@covers("B5")
def test_each_kind_and_entity_is_logged_once_a_minute_and_counted_each_time(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    refusals = Refusals(clock)
    told = [MISSING, ServerBusy("busy"), Unauthorized("wrong key for policy 'a'"), Unauthorized("for policy 'b'")]
    for _ in range(3):
        for error in told:
            for entity in ("orders", "bills"):
                refusals.add(AMQP, error, f"a sender of '{entity}'", {})
    assert len(caplog.messages) == len(told) * 2
    assert caplog.messages[0] == "refused: a sender of 'orders': no such entity"
    clock.advance(LOGGED_EVERY_S)
    refusals.add(AMQP, MISSING, "a sender of 'orders'", {})
    assert len(caplog.messages) == len(told) * 2 + 1
    assert refusals.counts[AMQP, "entity_not_found"] == 7
    assert refusals.counts[AMQP, "unauthorized"] == 12


@covers("B5", "F18")
def test_names_without_end_fill_neither_the_log_nor_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    refusals = Refusals(clock)
    for minute in range(3):
        for number in range(1000):
            refusals.add(AMQP, MISSING, f"a sender of '{minute} {number} {'x' * 10_000}'", {})
        clock.advance(LOGGED_EVERY_S)
    assert len(caplog.messages) == 3 * (MAX_REMEMBERED + 1)
    assert max(len(message) for message in caplog.messages) < 2 * MAX_CHARACTERS
    assert refusals.counts[AMQP, "entity_not_found"] == 3000


@covers("B5")
@pytest.mark.parametrize(
    ("error", "entity"),
    [
        (OperationTimeout("nothing came"), "orders"),
        (MessageLockLost("lapsed"), "orders"),
        (MISSING, "contoso/x-servicebus-transfer/10"),
    ],
)
def test_what_happens_to_every_client_is_no_refusal(
    caplog: pytest.LogCaptureFixture, error: BusError, entity: str
) -> None:
    refusals = Refusals(ManualClock())
    refusals.add(AMQP, error, f"a receiver of '{entity}'", {})
    assert (caplog.messages, refusals.counts.total()) == ([], 0)
