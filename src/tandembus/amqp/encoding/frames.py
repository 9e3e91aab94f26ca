"""Writing frames. Descriptors always have the short form (0x00 0x53 code), and lists all their fields, absent ones as
null: clients take both for granted (the Python SDK before 7.15 reads fields by index)."""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, write_i32_be
from mypy_extensions import i64, u8

from tandembus.amqp.encoding.delivery_states import AmqpError
from tandembus.amqp.encoding.descriptors import ATTACH, BEGIN, CLOSE, DETACH, END, OPEN
from tandembus.amqp.encoding.encoder import encode, encode_into, patch_u32, write_u16, write_u32
from tandembus.amqp.encoding.terminus import Terminus
from tandembus.amqp.encoding.values import Encoded, symbol_map, ubyte, uint, ulong, ushort

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"
FRAME_HEADER_SIZE: Final = 8
AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1


def start_frame(out: BytesWriter, frame_type: i64, channel: i64) -> i64:
    """Write the header with its size still open; returns where it stands, for `end_frame`."""
    start: i64 = len(out)
    write_i32_be(out, 0)
    out.append(2)
    out.append(u8(frame_type))
    write_u16(out, channel)
    return start


def end_frame(out: BytesWriter, start: i64) -> None:
    patch_u32(out, start, i64(len(out)) - start)


def write_performative(out: BytesWriter, frame_type: i64, channel: i64, code: i64, fields: list[object]) -> None:
    start: i64 = start_frame(out, frame_type, channel)
    out.append(0)
    out.append(0x53)
    out.append(u8(code))
    encode_into(out, fields)
    end_frame(out, start)


def write_open(
    out: BytesWriter,
    container_id: str,
    hostname: str | None,
    max_frame_size: int,
    channel_max: int,
    idle_timeout_ms: int,
    properties: dict[str, object] | None,
) -> None:
    fields: list[object] = [container_id, hostname, uint(max_frame_size), ushort(channel_max)]
    fields.append(uint(idle_timeout_ms) if idle_timeout_ms > 0 else None)
    fields.extend((None, None, None, None))
    fields.append(None if properties is None else symbol_map(properties))
    write_performative(out, AMQP_FRAME, 0, OPEN, fields)


def write_begin(
    out: BytesWriter, channel: i64, remote_channel: int, next_outgoing_id: int, window: int, handle_max: int
) -> None:
    """`remote_channel` is -1 for a session that we begin ourselves."""
    fields: list[object] = [ushort(remote_channel) if remote_channel >= 0 else None, uint(next_outgoing_id)]
    fields.extend((uint(window), uint(window), uint(handle_max), None, None, None))
    write_performative(out, AMQP_FRAME, channel, BEGIN, fields)


@final
class AttachFrame:
    """What we say in an attach."""

    __slots__ = (
        "handle",
        "initial_delivery_count",
        "is_receiver",
        "max_message_size",
        "name",
        "properties",
        "rcv_settle_mode",
        "snd_settle_mode",
        "source",
        "target",
    )

    def __init__(self, name: str, handle: int, is_receiver: bool) -> None:
        self.name: Final = name
        self.handle: Final = handle
        self.is_receiver: Final = is_receiver
        self.snd_settle_mode = 2
        self.rcv_settle_mode = 0
        self.source: Terminus | None = None
        self.target: Terminus | None = None
        self.initial_delivery_count = 0
        self.max_message_size = 0
        self.properties: dict[str, object] | None = None

    def write(self, out: BytesWriter, channel: i64) -> None:
        fields: list[object] = [self.name, uint(self.handle), self.is_receiver]
        fields.extend((ubyte(self.snd_settle_mode), ubyte(self.rcv_settle_mode)))
        fields.append(None if self.source is None else Encoded(self.source.encoded()))
        fields.append(None if self.target is None else Encoded(self.target.encoded()))
        fields.extend((None, None))
        # To a receiver this is mandatory; a sender has none to say.
        fields.append(None if self.is_receiver else uint(self.initial_delivery_count))
        fields.append(ulong(self.max_message_size))
        fields.extend((None, None))
        fields.append(None if self.properties is None else symbol_map(self.properties))
        write_performative(out, AMQP_FRAME, channel, ATTACH, fields)


def write_detach(out: BytesWriter, channel: i64, handle: int, closed: bool, error: AmqpError | None) -> None:
    fields: list[object] = [uint(handle), closed, None if error is None else error.as_value()]
    write_performative(out, AMQP_FRAME, channel, DETACH, fields)


def write_end(out: BytesWriter, channel: i64, error: AmqpError | None) -> None:
    fields: list[object] = [None if error is None else error.as_value()]
    write_performative(out, AMQP_FRAME, channel, END, fields)


def write_close(out: BytesWriter, error: AmqpError | None) -> None:
    fields: list[object] = [None if error is None else error.as_value()]
    write_performative(out, AMQP_FRAME, 0, CLOSE, fields)


def write_session_flow(
    out: BytesWriter, channel: i64, next_incoming_id: i64, window: i64, next_outgoing_id: i64
) -> None:
    """A flow that speaks of the session only."""
    write_u32(out, 8 + 6 + 20 + 7)
    out.append(2)
    out.append(0)
    write_u16(out, channel)
    out.write(b"\x00\x53\x13\xc0\x1c\x0b")
    _write_session_fields(out, next_incoming_id, window, next_outgoing_id)
    out.write(b"\x40\x40\x40\x40\x40\x40\x40")


def _write_session_fields(out: BytesWriter, next_incoming_id: i64, window: i64, next_outgoing_id: i64) -> None:
    out.append(0x70)
    write_u32(out, next_incoming_id)
    out.append(0x70)
    write_u32(out, window)
    out.append(0x70)
    write_u32(out, next_outgoing_id)
    out.append(0x70)
    write_u32(out, window)


def write_link_flow(
    out: BytesWriter,
    channel: i64,
    next_incoming_id: i64,
    window: i64,
    next_outgoing_id: i64,
    handle: i64,
    delivery_count: i64,
    link_credit: i64,
    drain: bool,
    echo: bool,
) -> None:
    """A flow for a link."""
    write_u32(out, 8 + 6 + 20 + 15 + 4)
    out.append(2)
    out.append(0)
    write_u16(out, channel)
    out.write(b"\x00\x53\x13\xc0\x28\x0b")
    _write_session_fields(out, next_incoming_id, window, next_outgoing_id)
    out.append(0x70)
    write_u32(out, handle)
    out.append(0x70)
    write_u32(out, delivery_count)
    out.append(0x70)
    write_u32(out, link_credit)
    out.append(0x40)
    out.append(0x41 if drain else 0x42)
    out.append(0x41 if echo else 0x42)
    out.append(0x40)


def write_disposition(
    out: BytesWriter, channel: i64, is_receiver: bool, first: i64, last: i64, settled: bool, state: bytes
) -> None:
    """`state` is an encoded delivery state; empty for none."""
    start: i64 = start_frame(out, AMQP_FRAME, channel)
    size: i64 = 1 + 1 + 5 + 5 + 1 + (i64(len(state)) if state else 1) + 1
    if size < 256:
        out.write(b"\x00\x53\x15\xc0")
        out.append(u8(size))
        out.append(6)
    else:
        out.write(b"\x00\x53\x15\xd0")
        write_u32(out, size + 3)
        write_u32(out, 6)
    out.append(0x41 if is_receiver else 0x42)
    out.append(0x70)
    write_u32(out, first)
    out.append(0x70)
    write_u32(out, last)
    out.append(0x41 if settled else 0x42)
    if state:
        out.write(state)
    else:
        out.append(0x40)
    out.append(0x40)
    end_frame(out, start)


def write_transfer_start(
    out: BytesWriter,
    channel: i64,
    handle: i64,
    delivery_id: i64,
    tag: bytes,
    message_format: i64,
    settled: bool,
    more: bool,
    payload_size: i64,
) -> None:
    """Everything of a delivery's first frame but its payload, of `payload_size` bytes, which must follow."""
    tag_size: i64 = len(tag)
    handle_size: i64 = 2 if handle < 256 else 5
    format_size: i64 = 1 if message_format == 0 else 5
    size: i64 = 1 + handle_size + 5 + 2 + tag_size + format_size + 1 + 1 + 5
    write_u32(out, 13 + size + payload_size)
    out.append(2)
    out.append(0)
    write_u16(out, channel)
    out.write(b"\x00\x53\x14\xc0")
    out.append(u8(size))
    out.append(11)
    _write_handle(out, handle)
    out.append(0x70)
    write_u32(out, delivery_id)
    out.append(0xA0)
    out.append(u8(tag_size))
    out.write(tag)
    if message_format == 0:
        out.append(0x43)
    else:
        out.append(0x70)
        write_u32(out, message_format)
    out.append(0x41 if settled else 0x42)
    out.append(0x41 if more else 0x42)
    out.write(b"\x40\x40\x40\x40\x40")


def _write_handle(out: BytesWriter, handle: i64) -> None:
    if handle < 256:
        out.append(0x52)
        out.append(u8(handle))
    else:
        out.append(0x70)
        write_u32(out, handle)


def write_transfer_continuation(
    out: BytesWriter, channel: i64, handle: i64, settled: bool, more: bool, payload_size: i64
) -> None:
    """Everything of a later frame but its payload: the first frame said which delivery it is."""
    size: i64 = 1 + (2 if handle < 256 else 5) + 3 + 2 + 5
    write_u32(out, 13 + size + payload_size)
    out.append(2)
    out.append(0)
    write_u16(out, channel)
    out.write(b"\x00\x53\x14\xc0")
    out.append(u8(size))
    out.append(11)
    _write_handle(out, handle)
    out.write(b"\x40\x40\x40")
    out.append(0x41 if settled else 0x42)
    out.append(0x41 if more else 0x42)
    out.write(b"\x40\x40\x40\x40\x40")


def frame(frame_type: int, channel: int, code: int, fields: list[object], payload: bytes = b"") -> bytes:
    """One frame as bytes, for tools and tests."""
    body = bytes((0x00, 0x53, code)) + encode(fields) + payload
    return (
        (FRAME_HEADER_SIZE + len(body)).to_bytes(4, "big") + bytes((2, frame_type)) + channel.to_bytes(2, "big") + body
    )
