"""Writes deliveries within the peer's session window; what does not fit waits here, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from tandembus.amqp.encoding.frames import write_transfer_continuation, write_transfer_start
from tandembus.amqp.encoding.performatives import Flow
from tandembus.amqp.engine.serial import distance, following

if TYPE_CHECKING:
    from tandembus.amqp.engine.connection import Connection

TRANSFER_OVERHEAD_BYTES: Final = 38
"""The most that a transfer frame takes besides tag and payload."""


@final
class DeliveryWriter:
    """Numbers deliveries without gaps: some clients give up their connection over a missing delivery-id."""

    __slots__ = (
        "_channel",
        "_connection",
        "_held",
        "_next_delivery_id",
        "next_outgoing_id",
        "window",
    )

    def __init__(self, connection: Connection, channel: int) -> None:
        self._connection: Final = connection
        self._channel: i64 = channel
        self._held: list[bytes] = []
        self._next_delivery_id: i64 = 0
        self.next_outgoing_id: i64 = 0
        self.window: i64 = 0

    def write(self, handle: i64, tag: bytes, payload: bytes, settled: bool, message_format: i64) -> i64:
        """Write a delivery's frames, or hold them while the window is shut. Returns the delivery-id."""
        delivery_id: i64 = self._next_delivery_id
        self._next_delivery_id = following(delivery_id)
        connection = self._connection
        size: i64 = len(payload)
        room: i64 = connection.peer_max_frame_size - TRANSFER_OVERHEAD_BYTES - i64(len(tag))
        if size <= room and self.window > 0 and not self._held:
            self._count_frame()
            out = connection.out
            write_transfer_start(out, self._channel, handle, delivery_id, tag, message_format, settled, False, size)
            out.write(payload)
        else:
            self._write_frames(handle, delivery_id, tag, payload, settled, message_format, room)
        return delivery_id

    def _write_frames(
        self,
        handle: i64,
        delivery_id: i64,
        tag: bytes,
        payload: bytes,
        settled: bool,
        message_format: i64,
        room: i64,
    ) -> None:
        """Straight into what is sent, as far as the window reaches: a large payload is copied as little as can be."""
        size: i64 = len(payload)
        start: i64 = 0
        is_last = False
        while not is_last:
            end: i64 = min(start + room, size)
            is_last = end == size
            is_held = self.window <= 0 or len(self._held) > 0
            out = BytesWriter() if is_held else self._connection.out
            if start == 0:
                write_transfer_start(
                    out, self._channel, handle, delivery_id, tag, message_format, settled, not is_last, end
                )
            else:
                write_transfer_continuation(out, self._channel, handle, settled, not is_last, end - start)
            out.write(payload[start:end])
            if is_held:
                self._hold(out.getvalue())
            else:
                self._count_frame()
            start = end

    def _hold(self, frame: bytes) -> None:
        self._held.append(frame)
        self._connection.held_bytes += len(frame)

    def _count_frame(self) -> None:
        self.window -= 1
        self.next_outgoing_id = following(self.next_outgoing_id)

    def take_flow(self, flow: Flow) -> bool:
        """The peer says how much it takes; returns whether that opened a window that was shut.

        A peer that has seen nothing yet leaves its next-incoming-id out: our first one is meant, which is 0.
        """
        was_shut = self.window <= 0
        seen: i64 = flow.next_incoming_id if flow.next_incoming_id >= 0 else 0
        self.window = distance(seen, self.next_outgoing_id) + flow.incoming_window
        if self._held and self.window > 0:
            self._release(min(i64(len(self._held)), self.window))
        return was_shut and self.window > 0

    def release_all(self) -> None:
        """Write what is held, window or not: a link must not end with numbered deliveries unsent, since a few
        transfers beyond the window do less harm than a gap in the delivery-ids."""
        if self._held:
            self._release(len(self._held))

    def _release(self, count: i64) -> None:
        for frame in self._held[:count]:
            self._connection.held_bytes -= len(frame)
            self._connection.out.write(frame)
            self._count_frame()
        self._held = self._held[count:]

    def clear(self) -> None:
        for frame in self._held:
            self._connection.held_bytes -= len(frame)
        self._held = []
