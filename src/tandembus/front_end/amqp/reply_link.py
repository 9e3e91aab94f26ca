"""The receiving half of a request/response node: replies go out in order as the client gives credit."""

from __future__ import annotations

from collections import deque

from tandembus.amqp.encoding.sections import decode_message
from tandembus.amqp.engine.link import OutgoingLink
from tandembus.errors import BusError
from tandembus.front_end.amqp.link_host import LinkHost

MAX_WAITING_BYTES = 4 * 1024 * 1024
"""A client that asks and never gives credit for the answers loses the oldest of a link when those of its connection are
more than this."""

_REPLY_TO = 4


def read_reply_to(request: bytes) -> object:
    """Where a request wants its reply; None where it does not say, or cannot be read."""
    try:
        return decode_message(request).property_at(_REPLY_TO)
    except BusError:
        return None


class ReplyLink:
    def __init__(self, link: OutgoingLink, node: str, host: LinkHost) -> None:
        self.link = link
        self.node = node
        self._host = host
        self._waiting: deque[bytes] = deque()
        self._count = 0

    def takes(self, reply_to: object) -> bool:
        target = self.link.target
        return target is not None and target.address is not None and target.address == reply_to

    def send(self, payload: bytes) -> None:
        self._waiting.append(payload)
        self._host.waiting_reply_bytes += len(payload)
        self.flow()
        while self._waiting and self._host.waiting_reply_bytes > MAX_WAITING_BYTES:
            self._take()

    def _take(self) -> bytes:
        payload = self._waiting.popleft()
        self._host.waiting_reply_bytes -= len(payload)
        return payload

    def end(self) -> None:
        """Nobody will ask for what waits."""
        while self._waiting:
            self._take()

    def flow(self) -> None:
        while self._waiting and self.link.credit > 0:
            self._count += 1
            payload = self._take()
            self.link.send(self._count.to_bytes(4, "big"), payload, True, None)
            self._host.give(len(payload))
        if self.link.drain and self.link.credit > 0:
            self.link.drained()
