"""The receiving half of a request/response node: replies go out in order as the client gives credit."""

from __future__ import annotations

from collections import deque

from tandembus.amqp.engine.link import OutgoingLink
from tandembus.front_end.amqp.link_host import LinkHost

MAX_WAITING_BYTES = 4 * 1024 * 1024
"""A client that asks and never gives credit for the answers loses the oldest of a link when those of its connection are
more than this."""


class ReplyLink:
    def __init__(self, link: OutgoingLink, node: str, host: LinkHost) -> None:
        self.link = link
        self.node = node
        self._host = host
        self._waiting: deque[bytes] = deque()
        self._count = 0

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
            self.link.send(self._count.to_bytes(4, "big"), self._take(), True, None)
        if self.link.drain and self.link.credit > 0:
            self.link.drained()
