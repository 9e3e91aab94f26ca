"""Frames come in any pieces and give the same stream; what breaks RFC 6455 is told by its own code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus.front_end.websocket.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    PROTOCOL_ERROR,
    TEXT,
    TOO_LARGE,
    UNSUPPORTED_DATA,
    FrameReader,
    close_frame,
    frame,
    unmasked,
)
from tests.covers import covers
from tests.unit.front_end.websocket.masking import masked

LIMIT = 100_000


def read_all(data: bytes, piece_bytes: int, limit: int = LIMIT) -> tuple[bytes, list[bytes], bytes | None]:
    reader = FrameReader(limit)
    payload, pings = b"", []
    for at in range(0, len(data), piece_bytes):
        received = reader.receive(data[at : at + piece_bytes])
        assert received.violation is None
        payload += received.payload
        pings += received.pings
        if received.close is not None:
            return payload, pings, received.close
    return payload, pings, None


CONVERSATION = (
    masked(b"AMQP")
    + masked(b"", PONG)
    + masked(b"first ", is_last=False)
    + masked(b"are you there?", PING)
    + masked(b"", CONTINUATION, is_last=False)
    + masked(b"last", CONTINUATION, key=b"\x00\x01\x02\x03")
    + masked(b"")
    + masked(bytes(range(256)) * 2)
    + masked(b"\x03\xe8good bye", CLOSE)
    + masked(b"unheard")
)


@covers("B1")
@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 5, 7, 64, 1_000])
def test_frames_in_any_pieces_give_the_same_stream(piece_bytes: int) -> None:
    payload, pings, close = read_all(CONVERSATION, piece_bytes)
    assert payload == b"AMQPfirst last" + bytes(range(256)) * 2
    assert pings == [b"are you there?"]
    assert close == b"\x03\xe8"


@given(st.binary(max_size=70_000), st.binary(min_size=4, max_size=4), st.integers(1, 9_999))
def test_any_payload_of_any_length_arrives(payload: bytes, key: bytes, piece_bytes: int) -> None:
    assert read_all(masked(payload, key=key), piece_bytes)[0] == payload


@given(st.binary(max_size=40), st.sampled_from([1, 200]), st.binary(min_size=4, max_size=4))
def test_unmasking_goes_byte_by_byte_with_the_key_repeated(data: bytes, times: int, key: bytes) -> None:
    data *= times
    assert unmasked(data, key) == bytes([byte ^ key[at % 4] for at, byte in enumerate(data)])


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (masked(b"hello", TEXT), UNSUPPORTED_DATA),
        (masked(b"hello", is_masked=False), PROTOCOL_ERROR),
        (masked(b"hello", reserved=4), PROTOCOL_ERROR),
        (masked(b"hello", 0x3), PROTOCOL_ERROR),
        (masked(b"hello", 0xB), PROTOCOL_ERROR),
        (masked(b"hello", CONTINUATION), PROTOCOL_ERROR),
        (masked(b"a", is_last=False) + masked(b"b"), PROTOCOL_ERROR),
        (masked(b"hello", PING, is_last=False), PROTOCOL_ERROR),
        (masked(bytes(126), PING), PROTOCOL_ERROR),
        (masked(b"\x03", CLOSE), PROTOCOL_ERROR),
        (masked(b"\x00\x00", CLOSE), PROTOCOL_ERROR),
        (masked(length=LIMIT + 1), TOO_LARGE),
        (masked(length=2**63), TOO_LARGE),
        (masked(length=2**64 - 1), TOO_LARGE),
        (masked(bytes(LIMIT), is_last=False) + masked(b"1", CONTINUATION), TOO_LARGE),
    ],
    ids=[
        "text",
        "not masked",
        "a reserved bit",
        "an unknown data frame",
        "an unknown control frame",
        "continuing nothing",
        "a message within another",
        "a ping in parts",
        "a long ping",
        "half a code",
        "a code that is none",
        "one byte too many",
        "half of all bytes",
        "all bytes",
        "one byte too many in parts",
    ],
)
def test_what_a_client_must_not_do_is_told_by_its_code(data: bytes, code: int) -> None:
    reader = FrameReader(LIMIT)
    received = reader.receive(masked(b"before") + data)
    assert received.payload.startswith(b"before")
    assert received.violation is not None
    assert received.violation[0] == code
    assert received.violation[1].endswith(".")
    later = reader.receive(masked(b"later"))
    assert (later.payload, later.violation) == (b"", None)


def test_a_frame_is_refused_by_its_head_before_anything_of_it_comes() -> None:
    assert FrameReader(LIMIT).receive(b"\x82\xff" + (2**40).to_bytes(8, "big") + b"key!").violation is not None
    assert FrameReader(LIMIT).receive(b"\x81\x80").violation is not None


def test_a_large_frame_is_passed_on_as_it_comes() -> None:
    """So a message of any size costs no memory here."""
    reader = FrameReader(LIMIT)
    data = masked(bytes(LIMIT))
    assert len(reader.receive(data[:1_000]).payload) == 1_000 - 14
    assert len(reader.receive(data[1_000:1_500]).payload) == 500


@given(st.binary(max_size=300))
def test_no_bytes_at_all_make_the_reader_fail(data: bytes) -> None:
    reader = FrameReader(LIMIT)
    for at in range(0, len(data), 7):
        received = reader.receive(data[at : at + 7])
        assert len(received.payload) <= 7


@pytest.mark.parametrize(
    ("size", "head"),
    [
        (0, b"\x82\x00"),
        (125, b"\x82\x7d"),
        (126, b"\x82\x7e\x00\x7e"),
        (65_535, b"\x82\x7e\xff\xff"),
        (65_536, b"\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
    ],
)
def test_a_servers_frames_are_plain_and_use_the_shortest_length(size: int, head: bytes) -> None:
    assert frame(BINARY, b"x" * size) == head + b"x" * size


def test_a_close_frame_keeps_as_much_of_the_reason_as_fits() -> None:
    written = close_frame(TOO_LARGE, "é" * 100)
    assert written[:4] == b"\x88\x7c\x03\xf1"
    assert written[4:].decode() == "é" * 61
