"""Cutting bytes into frames."""

from __future__ import annotations

import random

import pytest

from tandembus.errors import MalformedData
from tandembus.interconnect.frames import CALL, HEADER_BYTES, FrameReader, frame
from tests.covers import covers


def _frames(reader: FrameReader) -> list[tuple[int, int, bytes]]:
    found = []
    while reader.next():
        found.append((int(reader.kind), int(reader.epoch), reader.body()))
    return found


@covers("P1")
@pytest.mark.parametrize("step", [1, 2, 3, 7, 64, 10_000])
def test_frames_are_the_same_however_the_bytes_arrive(step: int) -> None:
    expected = [(CALL, 7, b""), (200, 0xFFFFFFFF, b"x" * 300), (1, 0, bytes(range(256)) * 20)]
    data = b"".join(frame(kind, epoch, body) for kind, epoch, body in expected)
    reader = FrameReader(10_000)
    found = []
    for at in range(0, len(data), step):
        reader.feed(data[at : at + step])
        found += _frames(reader)
    assert found == expected


@pytest.mark.parametrize("length", [0, 1, 4, 1001, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_length_that_cannot_be_is_refused_before_its_bytes_have_come(length: int) -> None:
    reader = FrameReader(1000)
    reader.feed(length.to_bytes(4, "big"))
    with pytest.raises(MalformedData):
        reader.next()


def test_the_longest_frame_is_taken() -> None:
    reader = FrameReader(1000)
    reader.feed(frame(CALL, 1, bytes(1000 - HEADER_BYTES + 4)))
    assert len(_frames(reader)[0][2]) == 995


def test_a_long_frame_in_many_pieces_is_put_together_once() -> None:
    body = random.Random(1).randbytes(3_000_000)
    data = frame(CALL, 1, body) + frame(CALL, 2, b"next")
    reader = FrameReader(4_000_000)
    found = []
    for at in range(0, len(data), 1000):
        reader.feed(data[at : at + 1000])
        found += _frames(reader)
    assert found == [(CALL, 1, body), (CALL, 2, b"next")]
