"""What happens to whole connections: TLS, silence, strangers, and a namespace that stops."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.frames import EMPTY_FRAME
from tandembus.amqp.encoding.sections import data_section
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.raw_amqp import (
    MESSAGE,
    RECEIVER,
    SENDER,
    RawAmqp,
    assert_has_three_fields,
    transfer_frames,
)
from tests.integration.serving import start_namespace

HASTY = """
[limits]
idle_timeout_s = 1.0
pre_auth_timeout_s = 1.0
"""
ENDS_WITHIN_S = 15.0


@pytest.fixture
def hasty_bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    """A namespace that loses its patience within a second."""
    folder = tmp_path_factory.mktemp("hasty")
    (folder / "config.toml").write_text(HASTY)
    running = start_namespace(folder / "data", "--config", str(folder / "config.toml"))
    bus = Bus(running)
    yield bus
    bus.close()
    running.stop_in_peace()


@covers("M15")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_same_port_speaks_amqp_in_tls(bus: Bus, queue: str, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=str(bus.running.ca_path))
    context.minimum_version = context.maximum_version = version
    body = bytes(range(256)) * 800
    with RawAmqp(bus.running.port, tls=context) as raw:
        raw.log_in()
        raw.attach_sender(SENDER, queue)
        raw.send_message(SENDER, 0, data_section(body))
        raw.attach_receiver(RECEIVER, queue)
        raw.flow(RECEIVER, 1)
        assert raw.receive_message()[1].body == body


@covers("M15")
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_old_versions_of_tls_are_refused(bus: Bus) -> None:
    context = ssl.create_default_context(cafile=str(bus.running.ca_path))
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        RawAmqp(bus.running.port, tls=context)


def test_silence_is_kept_alive_by_us_and_ended_when_it_is_the_peer_s(hasty_bus: Bus) -> None:
    with RawAmqp(hasty_bus.running.port) as raw:
        raw.open_timeout_ms = 1000
        raw.log_in()
        heartbeat = raw.read(8)
        assert heartbeat == EMPTY_FRAME
        close = raw.expect_end()[-1]
        assert close.code == codes.CLOSE
        assert_has_three_fields(close.error(0), "amqp:connection:forced")


@covers("M15")
def test_who_shows_no_claim_in_time_has_to_go(hasty_bus: Bus) -> None:
    with RawAmqp(hasty_bus.running.port) as mute, RawAmqp(hasty_bus.running.port) as raw:
        raw.start()
        raw.begin()
        close = raw.expect_end()[-1]
        assert close.code == codes.CLOSE
        assert_has_three_fields(close.error(0), "amqp:unauthorized-access")
        assert mute.read_whatever(ENDS_WITHIN_S) == b""


@covers("M1")
def test_a_namespace_that_stops_says_so_and_has_stored_what_it_accepted(hasty_bus: Bus) -> None:
    queue = hasty_bus.make_queue()
    running = hasty_bus.running
    with RawAmqp(running.port) as raw:
        raw.log_in()
        raw.attach_sender(SENDER, queue)
        raw.send(b"".join(transfer_frames(SENDER, number, MESSAGE) for number in range(500)))
        running.stop_in_peace()
        found = raw.expect_end()
    assert_has_three_fields(found[-1].error(0), "amqp:connection:forced")
    accepted = sum(
        answer.number(2) - answer.number(1) + 1 if answer.plain(2) is not None else 1
        for answer in found
        if answer.code == codes.DISPOSITION
    )
    again = start_namespace(running.data, port=running.port)
    try:
        bus = Bus(again)
        assert accepted <= bus.counts(queue).active <= 500
        bus.close()
    finally:
        again.stop_in_peace()
