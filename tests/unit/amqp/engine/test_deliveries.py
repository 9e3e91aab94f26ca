"""Transfers and dispositions: what is sent arrives whole, numbered without gaps, and is settled once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandembus.amqp.encoding import Encoded, int_, symbol, uint
from tandembus.amqp.encoding.frames import frame
from tandembus.amqp.engine import (
    ACCEPTED,
    ACCEPTED_STATE,
    MODIFIED_STATE,
    REJECTED_STATE,
    RELEASED_STATE,
    AmqpError,
    ConnectionClosed,
    DeliveryReceived,
    DeliveryTooLarge,
    DispositionReceived,
    EngineSettings,
    LinkFlow,
    Outcome,
    OutgoingDelivery,
    SettlementConfirmed,
    declared_state,
    modified_state,
    rejected_state,
    transactional_state,
)
from tandembus.errors import InvalidArgument
from tests.covers import covers
from tests.unit.amqp.engine.peers import (
    FLOW,
    TRANSFER,
    HandWritten,
    Pair,
    client_settings,
    detach_frame,
    disposition_frame,
    flow_frame,
    frames_of,
    of,
    only,
    server_settings,
    transfer_frame,
)


@pytest.mark.parametrize("size", [0, 1, 1024, 65_480, 65_536, 200_000, 999_999])
def test_a_message_of_any_size_arrives_whole(size: int) -> None:
    pair = Pair().open()
    link, peer = pair.sender(pair.begin())
    payload = bytes(number & 255 for number in range(size))
    delivery_id = link.send(b"tag", payload, False, "context", message_format=0x80013700)
    data = pair.client.data_to_send()
    assert all(len(one.data) <= 65_536 for one in frames_of(data))
    delivery = only(DeliveryReceived, pair.server.receive_data(data))
    assert delivery.link is peer
    assert delivery.payload == payload
    assert delivery.delivery_id == delivery_id
    assert delivery.tag == b"tag"
    assert delivery.message_format == 0x80013700
    assert not delivery.settled
    assert link.credit == peer.credit == 99


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=3_000), max_size=8), st.integers(512, 2_000))
def test_frames_never_exceed_what_the_peer_takes(payloads: list[bytes], max_frame_size: int) -> None:
    pair = Pair(server_settings(max_frame_size)).open()
    link, _ = pair.sender(pair.begin())
    for payload in payloads:
        link.send(b"t" * 32, payload, False, None)
    data = pair.client.data_to_send()
    assert all(len(one.data) <= max_frame_size for one in frames_of(data))
    assert [event.payload for event in of(DeliveryReceived, pair.server.receive_data(data))] == payloads


def test_a_client_may_repeat_id_and_tag_in_every_frame() -> None:
    peer = HandWritten().open()
    peer.attach_sender(1)
    events = peer.send(transfer_frame(5, b"one ", True), transfer_frame(5, b"two ", True), transfer_frame(5, b"three"))
    assert only(DeliveryReceived, events).payload == b"one two three"


def test_deliveries_of_two_links_may_be_interleaved() -> None:
    peer = HandWritten().open()
    peer.attach_sender(1, "a")
    peer.attach_sender(2, "b")
    events = peer.send(
        transfer_frame(0, b"a1", True, handle=1),
        transfer_frame(1, b"b1", True, handle=2),
        transfer_frame(None, b"a2", handle=1),
        transfer_frame(None, b"b2", handle=2),
    )
    assert [event.payload for event in of(DeliveryReceived, events)] == [b"a1a2", b"b1b2"]


def test_an_aborted_delivery_leaves_no_trace() -> None:
    peer = HandWritten().open()
    link = peer.attach_sender(1, credit=10)
    assert peer.send(transfer_frame(0, b"half", True), transfer_frame(0, b"", aborted=True)) == []
    assert peer.send(transfer_frame(1, b"", aborted=True)) == []
    assert only(DeliveryReceived, peer.send(transfer_frame(2, b"whole"))).payload == b"whole"
    assert link.delivery_count == 3
    assert peer.server._unfinished_bytes == 0


def test_a_first_frame_without_delivery_id_closes_the_connection() -> None:
    peer = HandWritten().open()
    peer.attach_sender(1)
    error = only(ConnectionClosed, peer.send(transfer_frame(None, b"x"))).error
    assert error is not None
    assert error.condition == "amqp:not-allowed"


def test_a_delivery_that_begins_within_another_closes_the_connection() -> None:
    peer = HandWritten().open()
    peer.attach_sender(1)
    only(ConnectionClosed, peer.send(transfer_frame(1, b"x", True), transfer_frame(2, b"y", tag=b"other")))


@covers("B1")
def test_the_last_frame_of_a_delivery_may_have_an_id_of_its_own() -> None:
    peer = HandWritten().open()
    peer.attach_sender(1)
    frames = (transfer_frame(1, b"x", True), transfer_frame(None, b"y", True), transfer_frame(2, b"z"))
    delivery = only(DeliveryReceived, peer.send(*frames))
    assert (delivery.delivery_id, delivery.payload) == (1, b"xyz")


@covers("F13")
def test_a_delivery_above_the_link_s_limit_is_told_and_its_bytes_are_not_kept() -> None:
    peer = HandWritten().open()
    link = peer.attach_sender(1, limit=1_000)
    whole = only(DeliveryTooLarge, peer.send(transfer_frame(0, b"x" * 1_001)))
    assert (whole.delivery_id, whole.size_bytes) == (0, 1_001)
    assert only(DeliveryReceived, peer.send(transfer_frame(1, b"x" * 1_000))).payload == b"x" * 1_000
    for _ in range(100):
        assert peer.send(transfer_frame(2, b"x" * 60_000, True)) == []
        assert peer.server._unfinished_bytes == 0
    told = only(DeliveryTooLarge, peer.send(transfer_frame(2, b"x")))
    assert (told.link, told.delivery_id, told.settled, told.size_bytes) == (link, 2, False, 6_000_001)
    assert only(DeliveryReceived, peer.send(transfer_frame(3, b"fine"))).payload == b"fine"


@covers("F13")
def test_a_link_without_limit_has_the_engine_s() -> None:
    peer = HandWritten(server_settings(max_message_size=2_000)).open()
    peer.attach_sender(1)
    only(DeliveryTooLarge, peer.send(transfer_frame(0, b"x" * 2_001)))


@covers("F13")
def test_unfinished_deliveries_of_a_connection_are_limited_together() -> None:
    peer = HandWritten(EngineSettings(True, "server", max_unfinished_bytes=500_000)).open()
    for handle in range(20):
        peer.attach_sender(handle, f"link {handle}")
    events = []
    for handle in range(20):
        events += peer.send(transfer_frame(handle, b"x" * 60_000, True, handle))
    error = only(ConnectionClosed, events).error
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"


@covers("F13")
def test_an_endless_delivery_of_tiny_frames_is_limited_too() -> None:
    peer = HandWritten(EngineSettings(True, "server", max_unfinished_bytes=1_000_000)).open()
    peer.attach_sender(1)
    frames = [transfer_frame(0, b"xy", True)] * 15_151
    assert peer.send(*frames) == []
    only(ConnectionClosed, peer.send(transfer_frame(0, b"xy", True)))


def test_a_detached_link_gives_its_unfinished_bytes_back() -> None:
    peer = HandWritten().open()
    peer.attach_sender(1)
    peer.send(transfer_frame(0, b"x" * 1_000, True))
    assert peer.server._unfinished_bytes > 1_000
    peer.send(detach_frame(1))
    assert peer.server._unfinished_bytes == 0


def test_delivery_states_come_along_with_transfers() -> None:
    peer = HandWritten().open()
    peer.attach_sender(1)
    fields: list[object] = [uint(1), uint(0), b"t", uint(0), False, False, None]
    fields.append(Encoded(transactional_state(b"tx")))
    state = only(DeliveryReceived, peer.send(frame(0, 1, TRANSFER, fields, b"x"))).state
    assert state is not None
    assert (state.code, state.txn_id, state.inner) == (0x34, b"tx", None)


def test_a_delivery_that_is_too_large_still_says_whose_transaction_it_is_part_of() -> None:
    peer = HandWritten().open()
    peer.attach_sender(1, limit=1_000)
    state = Encoded(transactional_state(b"tx"))
    whole: list[object] = [uint(1), uint(0), b"t", uint(0), False, False, None, state]
    told = only(DeliveryTooLarge, peer.send(frame(0, 1, TRANSFER, whole, b"x" * 1_001)))
    assert told.state is not None
    assert told.state.txn_id == b"tx"
    first: list[object] = [uint(1), uint(1), b"t", uint(0), False, True, None, state]
    peer.send(frame(0, 1, TRANSFER, first, b"x" * 600))
    told = only(DeliveryTooLarge, peer.send(transfer_frame(1, b"x" * 600)))
    assert told.state is not None
    assert told.state.txn_id == b"tx"


def test_what_is_sent_stays_with_its_context_until_it_is_settled() -> None:
    pair = Pair().open()
    link, peer = pair.sender(pair.begin())
    for number in range(5):
        link.send(b"%d" % number, b"", False, f"context {number}")
    pair.exchange()
    peer.session.settle(0, 2, ACCEPTED_STATE)
    peer.session.settle(3, 3, rejected_state(AmqpError("amqp:not-allowed", "no")))
    pair.exchange()
    first, second = of(DispositionReceived, pair.at_client)
    assert [delivery.context for delivery in first.deliveries] == ["context 0", "context 1", "context 2"]
    assert first.outcome is ACCEPTED
    assert first.settled
    assert second.outcome is not None
    assert second.outcome.error == AmqpError("amqp:not-allowed", "no")
    assert list(link.session.unsettled.by_id) == [4]
    assert link.unsettled_count == 1


def test_a_settled_send_is_not_waited_for() -> None:
    pair = Pair().open()
    link, _ = pair.sender(pair.begin())
    link.send(b"t", b"", True, None)
    pair.exchange()
    assert only(DeliveryReceived, pair.at_server).settled
    assert link.session.unsettled.by_id == {}


def _send_unsettled(peer: HandWritten, count: int, first_id: int = 0) -> list[OutgoingDelivery]:
    link = peer.attach_receiver(1, credit=count)
    link.session.writer._next_delivery_id = first_id
    for number in range(count):
        link.send(b"t", b"%d" % number, False, number)
    peer.take()
    return list(link.session.unsettled.by_id.values())


@pytest.mark.parametrize("first_id", [0, 2**31 - 3, 2**32 - 3])
def test_a_range_of_dispositions_finds_its_deliveries_also_where_ids_wrap(first_id: int) -> None:
    peer = HandWritten().open()
    sent = _send_unsettled(peer, 8, first_id)
    ids = [int(delivery.delivery_id) for delivery in sent]
    assert ids == [(first_id + number) % 2**32 for number in range(8)]
    one = only(DispositionReceived, peer.send(disposition_frame(ids[2], ids[4], ACCEPTED_STATE, True)))
    assert one.deliveries == sent[2:5]
    rest = only(DispositionReceived, peer.send(disposition_frame(ids[0], ids[7], ACCEPTED_STATE, True)))
    assert rest.deliveries == sent[:2] + sent[5:]


@covers("F12")
def test_a_range_of_billions_costs_no_more_than_what_is_unsettled() -> None:
    peer = HandWritten().open()
    sent = _send_unsettled(peer, 8)
    event = only(DispositionReceived, peer.send(disposition_frame(3, 2**31, RELEASED_STATE, True)))
    assert event.deliveries == sent[3:]
    assert peer.send(disposition_frame(2**31 - 1, 2**32 - 2, ACCEPTED_STATE, True)) == []
    assert peer.send(disposition_frame(5, 4, ACCEPTED_STATE, True)) == []
    last = only(DispositionReceived, peer.send(disposition_frame(0, None, ACCEPTED_STATE, True)))
    assert last.deliveries == sent[:1]


def test_an_unsettled_disposition_keeps_the_delivery_until_we_settle_it() -> None:
    peer = HandWritten().open()
    sent = _send_unsettled(peer, 2)
    session = sent[0].link.session
    for _ in range(2):
        event = only(DispositionReceived, peer.send(disposition_frame(0, 0, ACCEPTED_STATE, False)))
        assert not event.settled
        assert event.deliveries == sent[:1]
    session.settle(0, 0, ACCEPTED_STATE, settled=True, role_receiver=False)
    assert peer.send(disposition_frame(0, 0, ACCEPTED_STATE, False)) == []
    assert list(session.unsettled.by_id) == [1]


def test_detaching_a_link_forgets_what_it_sent() -> None:
    peer = HandWritten().open()
    sent = _send_unsettled(peer, 3)
    other = peer.attach_receiver(2, "other", credit=1)
    kept = other.send(b"t", b"", False, None)
    peer.send(detach_frame(1))
    assert list(sent[0].link.session.unsettled.by_id) == [kept]


def test_a_receiver_hears_what_became_of_its_unsettled_disposition() -> None:
    pair = Pair().open()
    link, peer = pair.receiver(pair.begin())
    link.grant(1)
    pair.exchange()
    peer.send(b"t" * 16, b"x", False, "lock")
    pair.exchange()
    delivery = only(DeliveryReceived, pair.at_client)
    link.session.settle(int(delivery.delivery_id), int(delivery.delivery_id), MODIFIED_STATE, settled=False)
    pair.exchange()
    asked = only(DispositionReceived, pair.at_server)
    assert asked.outcome is not None
    assert asked.outcome.code == 0x27
    assert asked.deliveries[0].context == "lock"
    peer.session.settle(0, 0, MODIFIED_STATE, settled=True, role_receiver=False)
    pair.exchange()
    confirmed = only(SettlementConfirmed, pair.at_client)
    assert (confirmed.session, confirmed.first, confirmed.last, confirmed.settled) == (link.session, 0, 0, True)
    assert confirmed.outcome is not None
    assert confirmed.outcome.code == 0x27


def _outcome(state: bytes) -> Outcome:
    peer = HandWritten().open()
    _send_unsettled(peer, 1)
    outcome = only(DispositionReceived, peer.send(disposition_frame(0, None, state, False))).outcome
    assert outcome is not None
    return outcome


def test_every_delivery_state_is_understood() -> None:
    assert _outcome(ACCEPTED_STATE) is ACCEPTED
    assert _outcome(b"\x00\x53\x24\xc0\x01\x00") is ACCEPTED
    assert _outcome(b"\x00\xa3\x12amqp:accepted:list\x45") is ACCEPTED
    assert _outcome(RELEASED_STATE).code == 0x26
    assert _outcome(MODIFIED_STATE).code == 0x27
    assert _outcome(REJECTED_STATE).error is None
    modified = _outcome(modified_state(True, True, {"tries": int_(3)}))
    assert (modified.delivery_failed, modified.undeliverable_here) == (True, True)
    assert modified.message_annotations == {"tries": int_(3)}
    error = AmqpError("com.microsoft:dead-letter", "why", {"DeadLetterReason": "r", "n": int_(5)})
    assert _outcome(rejected_state(error)).error == error
    assert _outcome(declared_state(b"tx")).txn_id == b"tx"
    inner = _outcome(transactional_state(b"tx", ACCEPTED_STATE))
    assert (inner.code, inner.txn_id, inner.inner) == (0x34, b"tx", ACCEPTED)
    assert _outcome(b"\x00\x53\x23\xc0\x03\x02\x43\x44").code == 0x23


@pytest.mark.parametrize(
    "state",
    [
        b"\x41",
        b"\x00\x53\x99\x45",
        b"\x00\x53\x25\xc0\x02\x01\x41",
        b"\x00\x53\x33\x45",
        b"\x00\x53\x34\xc0\x02\x01\x40",
        b"\x00\x53\x27\xc0\x04\x03\x42\x42\x41",
        b"\x00\x53\x24\x40",
    ],
    ids=bytes.hex,
)
@covers("F12")
def test_a_delivery_state_that_is_none_closes_the_connection(state: bytes) -> None:
    peer = HandWritten().open()
    _send_unsettled(peer, 1)
    error = only(ConnectionClosed, peer.send(disposition_frame(0, None, state, True))).error
    assert error is not None
    assert error.condition == "amqp:decode-error"


def test_deliveries_wait_while_the_peer_s_window_is_shut() -> None:
    peer = HandWritten().open(window=2)
    link = peer.attach_receiver(1, credit=0)
    peer.send(flow_frame(1, 100, 0, next_incoming_id=0, window=2))
    assert link.window_is_open()
    for number in range(5):
        link.send(b"t", b"%d" % number, False, number)
    assert not link.window_is_open()
    assert [one.payload for one in peer.take()] == [b"0", b"1"]
    assert peer.server.pending_bytes() > 0
    events = peer.send(flow_frame(next_incoming_id=2, window=2))
    assert [one.payload for one in peer.frames] == [b"2", b"3"]
    assert events == []  # still shut: what was opened is used up already
    events = peer.send(flow_frame(next_incoming_id=4, window=10))
    assert [one.payload for one in peer.frames] == [b"4"]
    assert only(LinkFlow, events).link is link
    assert link.window_is_open()
    assert peer.server.pending_bytes() == 0


def test_a_link_that_ends_sends_what_waits_first() -> None:
    peer = HandWritten().open(window=0)
    link = peer.attach_receiver(1)
    peer.send(flow_frame(1, 100, 0, window=0))
    link.send(b"t", b"waits", False, None)
    assert peer.take() == []
    link.detach()
    assert [one.code for one in peer.take()] == [0x14, 0x16]


def test_too_many_unsettled_deliveries_shut_the_window() -> None:
    peer = HandWritten(EngineSettings(True, "server", max_unsettled=3)).open()
    link = peer.attach_receiver(1, credit=100)
    for _ in range(3):
        assert link.window_is_open()
        link.send(b"t", b"", False, None)
    assert not link.window_is_open()
    peer.send(disposition_frame(0, 1, ACCEPTED_STATE, True))
    assert link.window_is_open()


def test_our_own_window_is_refreshed_long_before_it_is_used_up() -> None:
    peer = HandWritten().open()
    peer.attach_sender(1, credit=100_000)
    flows = 0
    for first in range(0, 10_000, 500):
        peer.send(*[transfer_frame(number, b"") for number in range(first, first + 500)])
        flows += len([one for one in peer.frames if one.code == FLOW])
    assert flows >= 4
    assert peer.server.is_closed is False


def test_a_sender_within_its_window_is_never_stopped() -> None:
    pair = Pair(client=client_settings()).open()
    link, peer = pair.sender(pair.begin())
    peer.grant(1_000_000)
    for _ in range(140):
        for _ in range(1_000):
            link.send(b"t", b"x", True, None)
        pair.exchange()
        assert link.window_is_open()
        assert len(pair.at_server) == 1_000


def test_a_tag_has_at_most_32_bytes() -> None:
    pair = Pair().open()
    link, _ = pair.sender(pair.begin())
    with pytest.raises(InvalidArgument):
        link.send(b"t" * 33, b"", True, None)


def test_symbols_as_keys_of_an_error_s_info_become_text() -> None:
    error = AmqpError("c", "d", {symbol("k"): "v", "n": None})
    assert _outcome(rejected_state(error)).error == AmqpError("c", "d", {"k": "v", "n": None})
