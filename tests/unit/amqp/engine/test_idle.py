"""Heartbeats, and what becomes of a peer that falls silent."""

from __future__ import annotations

from tandembus.amqp.encoding.frames import AMQP_HEADER, EMPTY_FRAME
from tandembus.amqp.engine import Connection, ConnectionClosed, EngineSettings
from tests.unit.amqp.engine.peers import CLOSE, frames_of, only, open_frame


def opened(peer_timeout_ms: int | None, own_timeout_ms: int = 240_000) -> Connection:
    server = Connection(EngineSettings(True, "server", idle_timeout_ms=own_timeout_ms), 100.0)
    server.receive_data(AMQP_HEADER + open_frame(idle_timeout_ms=peer_timeout_ms))
    server.data_to_send()
    server.tick(100.0)
    return server


def test_a_heartbeat_goes_out_at_half_of_the_peer_s_time_out() -> None:
    server = opened(60_000)
    server.tick(129.9)
    assert server.data_to_send() == b""
    server.tick(130.0)
    assert server.data_to_send() == EMPTY_FRAME
    server.tick(131.0)
    server.tick(160.9)
    assert server.data_to_send() == b""
    server.tick(161.0)
    assert server.data_to_send() == EMPTY_FRAME


def test_other_frames_are_as_good_as_heartbeats() -> None:
    server = opened(60_000)
    server.receive_data(b"")
    server.out.write(EMPTY_FRAME)
    server.data_to_send()
    server.tick(129.0)
    server.tick(158.0)
    assert server.data_to_send() == b""


def test_a_peer_without_time_out_gets_no_heartbeats() -> None:
    server = opened(None)
    server.receive_data(EMPTY_FRAME)
    server.tick(300.0)
    assert server.data_to_send() == b""


def test_a_silent_peer_is_closed_before_twice_the_time_out_we_told() -> None:
    server = opened(None, own_timeout_ms=60_000)
    assert server.tick(190.0) == []
    error = only(ConnectionClosed, server.tick(190.1)).error
    assert error is not None
    assert error.condition == "amqp:connection:forced"
    assert [frame.code for frame in frames_of(server.data_to_send())] == [CLOSE]
    assert server.is_closed
    assert server.tick(500.0) == []


def test_a_peer_that_sends_anything_is_not_silent() -> None:
    server = opened(None, own_timeout_ms=60_000)
    server.receive_data(EMPTY_FRAME)
    server.tick(180.0)
    assert server.tick(269.0) == []
    assert server.tick(271.0) != []


def test_without_a_time_out_of_ours_a_peer_may_be_silent() -> None:
    assert opened(None, own_timeout_ms=0).tick(1e9) == []


def test_a_connection_that_is_not_opened_in_time_is_closed() -> None:
    server = Connection(EngineSettings(True, "server", open_timeout_s=30.0), 0.0)
    server.receive_data(b"AMQP\x03")
    assert server.tick(30.0) == []
    only(ConnectionClosed, server.tick(30.1))
    assert server.data_to_send() == b""
    assert server.is_closed


def test_a_peer_that_does_not_answer_our_close_is_given_up() -> None:
    server = opened(None, own_timeout_ms=60_000)
    server.close()
    server.data_to_send()
    only(ConnectionClosed, server.tick(191.0))
    assert server.data_to_send() == b""
