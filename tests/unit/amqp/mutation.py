"""Malformed AMQP on purpose: changes that know where constructors, sizes and counts stand, so that most of what comes
out looks right for a while. The same seed gives the same inputs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tandembus.amqp.encoding import (
    Array,
    Described,
    Typed,
    decode,
    encode,
    int_,
    symbol,
    symbols,
    timestamp,
    uint,
    ulong,
)
from tandembus.amqp.encoding.frames import frame
from tandembus.amqp.encoding.sections import (
    application_properties_section,
    data_section,
    header_section,
    message_annotations_section,
    properties_section,
)
from tests.unit.amqp.engine.peers import (
    attach_frame,
    begin_frame,
    detach_frame,
    disposition_frame,
    flow_frame,
    open_frame,
    transfer_frame,
)

CONSTRUCTORS = bytes.fromhex("00404142434445505152535455566061707172737480818283849498a0a1a3b0b1b3c0c1d0d1e0f0")
SIZES = (0, 1, 4, 7, 8, 9, 127, 128, 255, 256, 511, 512, 65_535, 65_536, 65_537, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
ERROR = Described(0x1D, [symbol("amqp:not-found"), "no such queue", {symbol("why"): timestamp(2**40)}])

NUMBERS = tuple(uint(number) for number in (0, 1, 2, 3, 5, 2**16, 2**31 - 1, 2**31, 2**32 - 1))
FIELDS: tuple[object, ...] = (
    *(None, True, False, "out", "in", symbol("in2"), b"tag"),
    *NUMBERS,
    *(Described(0x24, []), Described(0x25, [ERROR]), Described(0x26, []), ERROR, {}, ulong(2**64 - 1)),
    *(Described(0x34, [b"transaction", Described(0x24, [])]), Described(0x34, [b"x" * 40]), Described(0x30, [])),
)
"""What a field of a performative may be: right in one place, wrong in another."""

MESSAGE = b"".join(
    (
        header_section(durable=True, priority=4, ttl_ms=60_000),
        message_annotations_section({"x-opt-partition-key": "k", "x-opt-sequence-number": 2**40}),
        properties_section("id", b"user", "to", "subject", "reply", ulong(2**63), "text/plain", None, 1, 2, "g", 3),
        application_properties_section({"n": int_(5), "u": Described("com.microsoft:uri", "x"), "l": 2**62}),
        data_section(b"body" * 10),
    )
)
VALUES: tuple[object, ...] = (
    [None, True, False, 1, -(2**63), 1.5, "text" * 100, b"bytes" * 60, symbol("s"), [1, [2, [3, [4]]]]],
    {"a": {"b": {"c": [1, 2, 3]}}, symbol("k"): ulong(2**64 - 1)},
    Array(0x70, [1, 2, 2**32 - 1]),
    Array(0xB1, ["a", "b" * 300]),
    Array(0xD0, [[1], [2, 3], []]),
    Array(0x40, [None] * 20),
    Array(0xF0, [symbols(["x"]), symbols([])]),
    Described("com.microsoft:timespan", Described(0x24, [])),
)


def performatives() -> list[bytes]:
    """Well-formed frames of every kind, as clients send them."""
    return [
        open_frame(65_536, 60_000),
        begin_frame(),
        begin_frame(2, 10, 3),
        attach_frame(1, False, "out"),
        attach_frame(2, True, "in"),
        attach_frame(3, True, "in2", source=Described(0x28, ["q", *[None] * 6, {symbol("f"): "s"}])),
        flow_frame(2, 100, 0),
        flow_frame(2, 0, 5, drain=True),
        flow_frame(echo=True),
        transfer_frame(0, MESSAGE),
        transfer_frame(1, MESSAGE[:50], more=True),
        transfer_frame(None, MESSAGE[50:]),
        transfer_frame(2, b"", aborted=True),
        disposition_frame(0, 0, b"\x00\x53\x24\x45", settled=False),
        disposition_frame(0, 10, encode(Described(0x25, [ERROR])), settled=True),
        disposition_frame(0, None, encode(Described(0x27, [True, False, {symbol("k"): 1}])), settled=True),
        disposition_frame(1, None, encode(Described(0x34, [b"tx", Described(0x26, [])])), settled=False),
        disposition_frame(0, 3, b"", settled=True, is_receiver=False),
        detach_frame(1),
        frame(0, 1, 0x16, [uint(2), True, ERROR]),
        frame(0, 1, 0x17, [ERROR]),
        frame(0, 0, 0x18, [ERROR]),
        frame(1, 0, 0x40, [symbols(["ANONYMOUS", "PLAIN"])]),
        frame(1, 0, 0x41, [symbol("PLAIN"), b"\0name\0key", "host"]),
        frame(1, 0, 0x44, [uint(0)]),
    ]


def encoded_values() -> list[bytes]:
    """Bodies of performatives, messages and plain values: what the decoder is given."""
    return [one[8:] for one in performatives()] + [MESSAGE] + [encode(value) for value in VALUES]


class Mutator:
    """Makes inputs from a corpus: one to four changes each."""

    def __init__(self, seed: int, corpus: list[bytes]) -> None:
        self._random = random.Random(seed)
        self._corpus = corpus
        self._changes: tuple[Callable[[bytearray], None], ...] = (
            self._flip_bits,
            self._put_constructor,
            self._put_size,
            self._put_small_number,
            self._cut,
            self._delete,
            self._repeat,
            self._insert_value,
            self._insert_piece,
        )

    def next(self) -> bytes:
        data = bytearray(self._random.choice(self._corpus))
        for _ in range(self._random.randint(1, 4)):
            if not data:
                break
            self._random.choice(self._changes)(data)
        return bytes(data[:70_000])

    def next_frame(self) -> bytes:
        """A mutated frame whose size is right more often than not, so that what is inside is read."""
        data = self.next()
        if len(data) < 8 or self._random.random() < 0.1:
            return data
        head = bytes((2 if self._random.random() < 0.95 else data[4], data[5], data[6], data[7]))
        return len(data).to_bytes(4, "big") + head + data[8:]

    def next_performative(self) -> bytes:
        """A frame without a flaw in its bytes, but not always with the values that belong there."""
        data = self._random.choice(self._corpus)
        if len(data) < 12 or self._random.random() < 0.3:
            return data
        value, end = decode(data, 8, typed=True)
        if not isinstance(value, Described) or not isinstance(value.value, list) or not value.value:
            return data
        fields = value.value
        for _ in range(self._random.randint(1, 2)):
            index = self._random.randrange(len(fields))
            fields[index] = self._random.choice(self._fields_like(fields[index]))
        body = encode(Described(value.descriptor, fields)) + data[end:]
        return (len(body) + 8).to_bytes(4, "big") + data[4:8] + body

    def _fields_like(self, field: object) -> Sequence[object]:
        """Mostly of the type that was there: wrong types are noticed before anything happens."""
        if self._random.random() < 0.2:
            return FIELDS
        if isinstance(field, bool):
            return (True, False)
        if isinstance(field, Typed) and isinstance(field.value, int):
            return NUMBERS
        return (field, None)

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def number(self, highest: int) -> int:
        return self._random.randint(0, highest)

    def _place(self, data: bytearray) -> int:
        return self._random.randrange(len(data))

    def _flip_bits(self, data: bytearray) -> None:
        data[self._place(data)] ^= 1 << self._random.randrange(8)

    def _put_constructor(self, data: bytearray) -> None:
        """Rather where a constructor stands already."""
        at = self._place(data)
        for place in range(at, min(at + 8, len(data))):
            if data[place] in CONSTRUCTORS:
                at = place
                break
        data[at] = self._random.choice(CONSTRUCTORS)

    def _put_size(self, data: bytearray) -> None:
        at = self._place(data)
        data[at : at + 4] = self._random.choice(SIZES).to_bytes(4, "big")

    def _put_small_number(self, data: bytearray) -> None:
        data[self._place(data)] = self._random.choice((0, 1, 2, 4, 127, 128, 254, 255))

    def _cut(self, data: bytearray) -> None:
        del data[self._place(data) :]

    def _delete(self, data: bytearray) -> None:
        at = self._place(data)
        del data[at : at + self._random.randint(1, 8)]

    def _repeat(self, data: bytearray) -> None:
        at = self._place(data)
        piece = data[at : at + self._random.randint(1, 40)]
        data[at:at] = piece * self._random.choice((1, 2, 3, 50))

    def _insert_value(self, data: bytearray) -> None:
        at = self._place(data)
        data[at:at] = encode(self._random.choice(VALUES))

    def _insert_piece(self, data: bytearray) -> None:
        other = self._random.choice(self._corpus)
        start = self._random.randrange(len(other))
        at = self._place(data)
        data[at:at] = other[start : start + self._random.randint(1, 100)]


def resident_bytes() -> int:
    """Anonymous memory of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
