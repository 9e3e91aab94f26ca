"""Whatever bytes come, decoding gives a value or `MalformedData`: soon, and without taking memory for promises."""

from __future__ import annotations

import time

import pytest

from tandembus.amqp.encoding import decode, encode, skip
from tandembus.amqp.encoding.fields import Fields
from tandembus.amqp.encoding.performatives import (
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Open,
    Transfer,
    read_error,
)
from tandembus.amqp.encoding.sections import decode_message, encode_message
from tandembus.errors import BusError, MalformedData
from tests.covers import covers
from tests.scale import scaled
from tests.unit.amqp.mutation import Mutator, encoded_values, resident_bytes

MEGABYTE = 1024 * 1024
SEED = 20_240_601


@pytest.mark.chaos
@covers("F12")
def test_mutated_values_are_decoded_or_refused() -> None:
    mutator = Mutator(SEED, encoded_values())
    before = resident_bytes()
    slowest = 0.0
    decoded = 0
    for _ in range(scaled(60_000, 20_000_000, 100_000_000)):
        data = mutator.next()
        began = time.perf_counter()
        decoded += try_everything(data)
        slowest = max(slowest, time.perf_counter() - began)
    assert decoded > 1_000  # most of the work was within values, not at their first byte
    assert resident_bytes() - before < 64 * MEGABYTE
    assert slowest < 1.0  # an input has 70 KB at most; the limit leaves room for a machine that does other things


def try_everything(data: bytes) -> int:
    """Every way to read `data`; returns 1 if it is a whole value."""
    kind = data[2] if len(data) > 2 else 0
    if 0x10 <= kind <= 0x18:
        try_performative(data, kind)
    elif 0x70 <= kind <= 0x78:
        try_message(data)
    return try_value(data)


def try_value(data: bytes) -> int:
    try:
        value, end = decode(data, 0, typed=True)
    except MalformedData:
        with pytest.raises(MalformedData):
            decode(data)
        return 0
    assert decode(data)[1] == end == skip(data, 0, len(data))
    again = encode(value)
    assert encode(decode(again, 0, typed=True)[0]) == again
    return 1


def try_performative(data: bytes, kind: int) -> None:
    fields = Fields()
    try:
        fields.open(data, 0, len(data))
        if kind == 0x10:
            Open(fields)
        elif kind == 0x11:
            Begin(fields)
        elif kind == 0x12:
            Attach(fields)
        elif kind == 0x13:
            Flow().read(fields)
        elif kind == 0x14:
            Transfer().read(fields)
        elif kind == 0x15:
            Disposition().read(fields)
        elif kind == 0x16:
            Detach(fields)
        else:
            read_error(fields)
    except MalformedData:
        return
    assert fields.at <= fields.stop <= len(data)


def try_message(data: bytes) -> None:
    try:
        message = decode_message(data, typed=True)
        encode_message(message)
    except BusError:
        return
