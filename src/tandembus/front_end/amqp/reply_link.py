"""The receiving half of a request/response node: replies go out in order as the client gives credit."""

from __future__ import annotations

from collections import deque

from tandembus.amqp.engine.link import OutgoingLink

MAX_WAITING_REPLIES = 1000
"""A client that asks and never gives credit for the answers loses them beyond this."""


class ReplyLink:
    def __init__(self, link: OutgoingLink, node: str) -> None:
        self.link = link
        self.node = node
        self._waiting: deque[bytes] = deque(maxlen=MAX_WAITING_REPLIES)
        self._count = 0

    def send(self, payload: bytes) -> None:
        self._waiting.append(payload)
        self.flow()

    def flow(self) -> None:
        while self._waiting and self.link.credit > 0:
            self._count += 1
            self.link.send(self._count.to_bytes(4, "big"), self._waiting.popleft(), True, None)
        if self.link.drain and self.link.credit > 0:
            self.link.drained()
