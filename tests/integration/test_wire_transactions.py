"""Transactions frame by frame: what clients do that Proton does not."""

from __future__ import annotations

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.frames import AMQP_FRAME, frame
from tandembus.amqp.encoding.sections import data_section, message_annotations_section, properties_section
from tandembus.amqp.encoding.values import Described, symbol, timestamp, uint, ulong
from tandembus.clock import SystemClock
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.raw_amqp import (
    RECEIVER,
    SENDER,
    RawAmqp,
    assert_has_three_fields,
    plain,
    rejection,
    state_of,
)
from tests.integration.raw_transactions import Transacting
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape


@pytest.fixture
def transacting(raw: RawAmqp) -> Transacting:
    return Transacting(raw)


def message(body: bytes, **annotations: object) -> bytes:
    """With a partition key: partitioned entities want one in a transaction (P16), and others do not mind."""
    head = message_annotations_section({"x-opt-partition-key": "together", **annotations})
    return head + properties_section(body[:20].decode()) + data_section(body)


@covers("M11")
def test_an_answer_in_a_transaction_says_whose_it_is(transacting: Transacting, bus: Bus, queue: str) -> None:
    transacting.raw.attach_sender(SENDER, queue)
    txn_id = transacting.declare()
    code, (found, outcome) = transacting.transfer(SENDER, message(b"a"), txn_id).described(4)
    assert (code, found) == (codes.TRANSACTIONAL_STATE, txn_id)
    assert outcome == Described(codes.ACCEPTED, [])
    transacting.commit(txn_id)
    assert bus.counts(queue) == Counts(1)


@covers("M11")
def test_a_message_of_many_frames_is_part_of_the_transaction(transacting: Transacting, bus: Bus, queue: str) -> None:
    transacting.raw.attach_sender(SENDER, queue)
    txn_id = transacting.declare()
    answer = transacting.transfer(SENDER, message(b"x" * 200_000), txn_id, pieces=5)
    assert answer.described(4)[0] == codes.TRANSACTIONAL_STATE
    assert bus.counts(queue) == Counts(0)
    transacting.commit(txn_id)
    assert bus.counts(queue) == Counts(1)


@covers("M11")
def test_the_loss_of_the_connection_rolls_back(bus: Bus, queue: str) -> None:
    with RawAmqp(bus.running.port) as lost:
        lost.log_in()
        transacting = Transacting(lost)
        lost.attach_sender(SENDER, queue)
        assert transacting.transfer(SENDER, message(b"plain")).described(4)[0] == codes.ACCEPTED
        lost.attach_receiver(RECEIVER, queue)
        lost.flow(RECEIVER, 1)
        lost.receive_message()
        txn_id = transacting.declare()
        lost.dispose(0, state_of(codes.TRANSACTIONAL_STATE, txn_id, state_of(codes.ACCEPTED)))
        provisional = lost.expect(codes.DISPOSITION)
        assert (provisional[0], provisional[3]) == (False, False)
        transacting.transfer(SENDER, message(b"a"), txn_id)
    # The socket is closed without a word: nothing of the transaction is ever seen.
    assert bus.counts(queue) == Counts(1)
    with RawAmqp(bus.running.port) as other:
        other.log_in()
        again = Transacting(other)
        assert_has_three_fields(rejection(again.discharge(txn_id)), "amqp:transaction:unknown-id")
    assert bus.counts(queue) == Counts(1)


@covers("M11")
def test_the_end_of_the_session_rolls_back(transacting: Transacting, bus: Bus, queue: str) -> None:
    raw = transacting.raw
    raw.attach_sender(SENDER, queue)
    txn_id = transacting.declare()
    transacting.transfer(SENDER, message(b"a"), txn_id)
    raw.perform(codes.END, [])
    raw.expect(codes.END)
    raw.begin()
    again = Transacting(raw)
    assert_has_three_fields(rejection(again.discharge(txn_id)), "amqp:transaction:unknown-id")
    assert bus.counts(queue) == Counts(0)


@covers("M11", "M6")
def test_a_dead_letter_of_a_transaction_has_its_reason(transacting: Transacting, bus: Bus, queue: str) -> None:
    raw = transacting.raw
    raw.attach_sender(SENDER, queue)
    transacting.transfer(SENDER, message(b"a"))
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 1)
    raw.receive_message()
    txn_id = transacting.declare()
    info = {symbol("DeadLetterReason"): "why", symbol("DeadLetterErrorDescription"): "because"}
    error = Described(ulong(codes.ERROR), [symbol("com.microsoft:dead-letter"), None, info])
    raw.dispose(0, state_of(codes.TRANSACTIONAL_STATE, txn_id, state_of(codes.REJECTED, error)))
    code, (_, outcome) = raw.expect(codes.DISPOSITION).described(4)
    assert (code, outcome) == (codes.TRANSACTIONAL_STATE, Described(codes.REJECTED, [None]))
    transacting.commit(txn_id)
    echo = raw.expect(codes.DISPOSITION)
    # Still as part of the transaction: Java's SDK closes its connection over a rejection without an error.
    final = (codes.TRANSACTIONAL_STATE, [txn_id, Described(codes.REJECTED, [None])])
    assert (echo[0], echo[3], echo.described(4)) == (False, True, final)
    raw.attach_receiver(RECEIVER + 1, f"{queue}/$DeadLetterQueue")
    raw.flow(RECEIVER + 1, 1)
    _, dead = raw.receive_message()
    found = {str(plain(key)): value for key, value in (dead.application_properties or {}).items()}
    assert found == {"DeadLetterReason": "why", "DeadLetterErrorDescription": "because"}


@covers("M11")
def test_what_is_scheduled_in_a_transaction_waits_for_its_time(transacting: Transacting, bus: Bus, queue: str) -> None:
    transacting.raw.attach_sender(SENDER, queue)
    at_ms = SystemClock().now_ms() + 3_600_000
    txn_id = transacting.declare()
    scheduled = message(b"a", **{"x-opt-scheduled-enqueue-time": timestamp(at_ms)})
    transacting.transfer(SENDER, scheduled, txn_id)
    transacting.commit(txn_id)
    assert bus.counts(queue) == Counts(0, scheduled=1)


@covers("M11", "M12")
def test_a_state_that_is_no_state_ends_the_connection(bus: Bus, queue: str) -> None:
    with RawAmqp(bus.running.port) as raw:
        raw.log_in()
        transacting = Transacting(raw)
        raw.attach_sender(SENDER, queue)
        txn_id = transacting.declare()
        transacting.transfer(SENDER, message(b"a"), txn_id)
        fields: list[object] = [uint(SENDER), uint(7), b"tag", uint(0), False, False, None]
        fields.append(state_of(codes.TRANSACTIONAL_STATE, "no binary"))
        raw.send(frame(AMQP_FRAME, 0, codes.TRANSFER, fields, message(b"b")))
        assert_has_three_fields(raw.expect(codes.CLOSE).error(0), "amqp:decode-error")
    assert bus.counts(queue) == Counts(0)
