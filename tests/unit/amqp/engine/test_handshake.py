"""Headers, SASL, open and close: how a connection begins and ends."""

from __future__ import annotations

import sys

import pytest

from tandembus.amqp.encoding import symbol, symbols, ubyte
from tandembus.amqp.encoding.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, frame
from tandembus.amqp.engine import (
    AmqpError,
    Connection,
    ConnectionClosed,
    EngineSettings,
    LinkAttaching,
    Opened,
    SaslInit,
    SaslOutcome,
    SessionBegun,
    plain_response,
    read_plain_response,
)
from tandembus.errors import InvalidOperation, MalformedData
from tests.unit.amqp.engine.peers import (
    CLOSE,
    OPEN,
    SASL_ANONYMOUS,
    HandWritten,
    Pair,
    attach_frame,
    begin_frame,
    client_settings,
    frames_of,
    only,
    open_frame,
    server_settings,
    transfer_frame,
)


def test_a_client_and_a_server_open_a_connection() -> None:
    pair = Pair().open("PLAIN", plain_response("policy", "key"))
    init = only(SaslInit, pair.at_server)
    assert init.mechanism == "PLAIN"
    assert init.hostname == "host"
    credentials = read_plain_response(init.initial_response)
    assert (credentials.name, credentials.password) == ("policy", "key")
    assert only(Opened, pair.at_server).container_id == "client"
    assert only(Opened, pair.at_server).hostname == "host"
    assert only(SaslOutcome, pair.at_client).ok
    assert only(Opened, pair.at_client).container_id == "server"


def test_credentials_do_not_show_in_an_event_s_text() -> None:
    assert "secret" not in repr(SaslInit("PLAIN", b"\0name\0secret", "host"))


def test_a_plain_response_that_is_none_is_refused() -> None:
    for response in (b"", b"name", b"\0name", b"\0\xff\0key", b"a\0b\0c\0d"):
        with pytest.raises(MalformedData):
            read_plain_response(response)


def test_the_mechanisms_are_offered_as_an_array_of_symbols() -> None:
    server = Connection(server_settings(), 0.0)
    server.receive_data(SASL_HEADER)
    answer = server.data_to_send()
    assert answer[:8] == SASL_HEADER
    assert answer[8:] == frame(1, 0, 0x40, [symbols(["ANONYMOUS", "PLAIN", "MSSBCBS"])])


def test_everything_may_be_sent_before_anything_is_answered() -> None:
    server = Connection(server_settings(), 0.0)
    everything = SASL_ANONYMOUS + AMQP_HEADER + open_frame() + begin_frame() + attach_frame()
    events = server.receive_data(everything)
    assert [type(event) for event in events] == [SaslInit]
    server.sasl_outcome(True)
    events = server.receive_data(b"")
    assert [type(event) for event in events] == [Opened, SessionBegun, LinkAttaching]
    assert [frame.code for frame in frames_of(server.data_to_send())] == [0x40, 0x44, 0x10, 0x11]


def test_a_server_may_be_spoken_to_without_sasl() -> None:
    peer = HandWritten()
    assert only(Opened, peer.send(AMQP_HEADER, open_frame())).container_id == "hand"
    pair = Pair().open(None)
    assert only(Opened, pair.at_client).container_id == "server"


def test_a_server_that_requires_sasl_answers_a_plain_header_with_its_own_and_closes() -> None:
    server = Connection(EngineSettings(True, "server", require_sasl=True), 0.0)
    closed = only(ConnectionClosed, server.receive_data(AMQP_HEADER + open_frame()))
    assert closed.error is not None
    assert closed.error.condition == "amqp:connection:framing-error"
    assert server.data_to_send() == SASL_HEADER
    assert server.is_closed


@pytest.mark.parametrize("header", [b"AMQP\x00\x00\x09\x01", b"AMQP\x02\x01\x00\x00", b"GET / HT", b"\x00" * 8])
def test_a_wrong_header_is_answered_with_ours_and_the_connection_closes(header: bytes) -> None:
    server = Connection(server_settings(), 0.0)
    events = server.receive_data(header + b"more that nobody reads")
    assert [type(event) for event in events] == [ConnectionClosed]
    assert server.data_to_send() == SASL_HEADER
    assert server.receive_data(AMQP_HEADER) == []


def test_refused_credentials_end_the_connection_on_both_sides() -> None:
    server = Connection(server_settings(), 0.0)
    client = Connection(client_settings(), 0.0)
    client.start("PLAIN", plain_response("policy", "wrong"))
    server.receive_data(client.data_to_send())
    client.receive_data(server.data_to_send())
    only(SaslInit, server.receive_data(client.data_to_send()))
    server.sasl_outcome(False)
    assert server.is_closed
    events = client.receive_data(server.data_to_send())
    assert not only(SaslOutcome, events).ok
    closed = only(ConnectionClosed, events)
    assert closed.error is not None
    assert closed.error.condition == "amqp:unauthorized-access"


def test_a_client_closes_when_its_mechanism_is_not_offered() -> None:
    pair = Pair().open("EXTERNAL")
    assert only(ConnectionClosed, pair.at_client).error is not None
    assert pair.client.is_closed


def test_a_mechanism_that_was_not_offered_is_refused() -> None:
    peer = HandWritten()
    events = peer.send(SASL_HEADER, frame(1, 0, 0x41, [symbol("EXTERNAL"), b""]))
    only(ConnectionClosed, events)
    assert peer.frames[-1].code == 0x44
    assert peer.frames[-1].fields == [1]


def test_only_one_sasl_init_is_taken() -> None:
    server = Connection(server_settings(), 0.0)
    init = frame(1, 0, 0x41, [symbol("ANONYMOUS")])
    assert len(server.receive_data(SASL_HEADER + init + init)) == 1
    server.sasl_outcome(True)
    assert only(ConnectionClosed, server.receive_data(b"")).error is not None


@pytest.mark.parametrize("code", [0x40, 0x42, 0x43, 0x44, 0x10])
def test_other_sasl_frames_close_the_connection(code: int) -> None:
    peer = HandWritten()
    only(ConnectionClosed, peer.send(SASL_HEADER, frame(1, 0, code, [ubyte(0)])))


def test_what_waits_for_the_sasl_outcome_is_limited() -> None:
    server = Connection(server_settings(), 0.0)
    server.receive_data(SASL_ANONYMOUS)
    events = server.receive_data(b"x" * 300_000)
    error = only(ConnectionClosed, events).error
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"


def test_frames_in_the_sasl_layer_are_small() -> None:
    peer = HandWritten()
    only(ConnectionClosed, peer.send(SASL_HEADER, frame(1, 0, 0x41, [symbol("PLAIN"), b"x" * 20_000])))


def test_the_answer_to_open_says_what_we_are_and_allow() -> None:
    peer = HandWritten()
    peer.send(AMQP_HEADER, open_frame())
    assert peer.frames[0].fields[:5] == ["server", None, 65_536, 4_999, 240_000]


def test_a_close_is_answered_with_a_close() -> None:
    peer = HandWritten().open()
    error = AmqpError("amqp:internal-error", "oops")
    closed = only(ConnectionClosed, peer.send(frame(0, 0, CLOSE, [error.as_value()])))
    assert closed.by_peer
    assert closed.error == error
    assert [frame.code for frame in peer.frames] == [CLOSE]
    assert peer.send(EMPTY_FRAME, open_frame()) == []
    assert peer.frames == []


def test_a_close_before_open_is_answered_with_open_and_close() -> None:
    peer = HandWritten()
    only(ConnectionClosed, peer.send(AMQP_HEADER, frame(0, 0, CLOSE, [])))
    assert [frame.code for frame in peer.frames] == [OPEN, CLOSE]


def test_closing_ends_with_the_peer_s_answer() -> None:
    pair = Pair().open()
    pair.server.close(AmqpError("amqp:connection:forced", "shutting down"))
    pair.server.close()
    assert pair.server.is_closed
    pair.exchange()
    at_client = only(ConnectionClosed, pair.at_client)
    assert at_client.by_peer
    assert at_client.error == AmqpError("amqp:connection:forced", "shutting down")
    at_server = only(ConnectionClosed, pair.at_server)
    assert not at_server.by_peer


def test_nothing_is_written_once_closed() -> None:
    pair = Pair().open()
    session = pair.begin()
    link, _ = pair.sender(session)
    pair.client.close()
    pair.client.data_to_send()
    assert link.send(b"t", b"payload", False, None) == -1
    session.settle(0, 0, b"\x00\x53\x24\x45")
    session.end()
    link.detach()
    assert pair.client.data_to_send() == b""
    with pytest.raises(InvalidOperation):
        pair.client.begin()


@pytest.mark.parametrize("code", [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17])
def test_nothing_but_open_may_come_first(code: int) -> None:
    peer = HandWritten()
    error = only(ConnectionClosed, peer.send(AMQP_HEADER, frame(0, 0, code, []))).error
    assert error is not None
    assert error.condition == "amqp:illegal-state"
    assert [frame.code for frame in peer.frames] == [OPEN, CLOSE]


def test_a_second_open_closes_the_connection() -> None:
    peer = HandWritten().open()
    error = only(ConnectionClosed, peer.send(open_frame())).error
    assert error is not None
    assert error.condition == "amqp:illegal-state"


def test_an_unknown_performative_closes_the_connection() -> None:
    peer = HandWritten().open()
    error = only(ConnectionClosed, peer.send(frame(0, 0, 0x70, []))).error
    assert error is not None
    assert error.condition == "amqp:not-allowed"


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (b"\x00\x00\x00\x07\x02\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x01\x00\x01\x02\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\xff\xff\xff\xff\x02\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x01\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x03\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x02\x01\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x02\x07\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x09\x02\x00\x00\x00\x40", "amqp:decode-error"),
        (b"\x00\x00\x00\x0c\x02\x00\x00\x00\x00\x53\x14\x40", "amqp:decode-error"),
        (b"\x00\x00\x00\x0c\x02\x00\x00\x00\x00\x53\x14\x45", "amqp:decode-error"),
    ],
)
def test_broken_frames_close_the_connection_with_the_right_error(data: bytes, condition: str) -> None:
    peer = HandWritten().open()
    closed = only(ConnectionClosed, peer.send(data))
    assert closed.error is not None
    assert closed.error.condition == condition
    assert not closed.by_peer
    assert [frame.code for frame in peer.frames] == [CLOSE]
    assert peer.server.is_closed


def test_the_peer_s_data_offset_is_honoured() -> None:
    peer = HandWritten()
    plain = open_frame()
    longer = (len(plain) + 4).to_bytes(4, "big") + b"\x03" + plain[5:8] + b"more" + plain[8:]
    only(Opened, peer.send(AMQP_HEADER, longer))


def test_empty_frames_mean_nothing() -> None:
    assert HandWritten().open().send(EMPTY_FRAME, EMPTY_FRAME) == []


def test_performatives_may_be_named_by_symbol_or_by_a_long_code() -> None:
    plain = open_frame()
    for descriptor in (b"\xa3\x0eamqp:open:list", b"\x80" + bytes(7) + b"\x10"):
        body = b"\x00" + descriptor + plain[11:]
        only(Opened, HandWritten().send(AMQP_HEADER, (len(body) + 8).to_bytes(4, "big") + plain[4:8] + body))


def test_an_idle_connection_keeps_nothing_of_what_was_read() -> None:
    peer = HandWritten().open()
    peer.attach_sender(1, credit=100)
    read = transfer_frame(0, b"x" * 50_000)
    users = sys.getrefcount(read)
    peer.server.receive_data(read)
    assert sys.getrefcount(read) == users


def test_sessions_are_limited_in_number_and_by_channel() -> None:
    settings = EngineSettings(True, "server", max_sessions=2, channel_max=10)
    peer = HandWritten(settings).open()
    only(SessionBegun, peer.send(begin_frame(10)))
    error = only(ConnectionClosed, peer.send(begin_frame(3))).error
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"
    error = only(ConnectionClosed, HandWritten(settings).open().send(begin_frame(11))).error
    assert error is not None
    assert error.condition == "amqp:connection:framing-error"


def test_a_channel_is_used_once_and_only_after_begin() -> None:
    for data in (begin_frame(1), attach_frame(channel=2)):
        error = only(ConnectionClosed, HandWritten().open().send(data)).error
        assert error is not None
        assert error.condition == "amqp:not-allowed"
