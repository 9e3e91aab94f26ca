"""What clients did and saw, and what must follow from it whatever happened in between."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterable

from tandembus.client import OutgoingMessage, ReceivedMessage


class Tally:
    """Accepted, received and completed messages by id. Every body carries its own checksum."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._count = 0
        self.accepted: set[str] = set()
        self.completed: set[str] = set()
        self.unsure: set[str] = set()
        """Settlements whose confirmation never came: gone or not, both are right."""
        self.corrupt: list[str] = []
        self.again: Counter[str] = Counter()
        """Deliveries of messages whose completion had been confirmed."""
        self.seen: set[str] = set()
        self._batches: list[frozenset[str]] = []

    def new_message(self, largest: int = 3000) -> tuple[str, OutgoingMessage]:
        self._count += 1
        message_id = f"m-{self._count:08d}"
        body = self._random.randbytes(self._random.randint(1, largest))
        checksum = zlib.crc32(message_id.encode() + body)
        return message_id, OutgoingMessage(body, message_id=message_id, subject=str(checksum))

    def new_batch(self, size: int) -> tuple[frozenset[str], list[OutgoingMessage]]:
        batch = [self.new_message(largest=200) for _ in range(size)]
        ids = frozenset(message_id for message_id, _ in batch)
        self._batches.append(ids)
        return ids, [message for _, message in batch]

    def received(self, message: ReceivedMessage) -> str:
        message_id = message.message_id or ""
        body = message.body
        checksum = zlib.crc32(message_id.encode() + body) if isinstance(body, bytes) else -1
        if message.subject != str(checksum):
            self.corrupt.append(message_id)
        self.seen.add(message_id)
        if message_id in self.completed:
            self.again[message_id] += 1
        return message_id

    def check(self, left: Iterable[str]) -> None:
        """`left`: ids of everything that was still in the queue at the end."""
        missing = self.accepted - self.completed - self.unsure - set(left)
        assert not missing, f"{len(missing)} accepted messages are lost, such as {sorted(missing)[:5]}"
        assert not self.corrupt, f"corrupt messages were delivered: {self.corrupt[:5]}"
        assert not self.again, f"completed messages came again: {self.again.most_common(5)}"
        for batch in self._batches:
            assert batch <= self.seen or not batch & self.seen, f"a part of a batch was stored: {sorted(batch)[:2]} ..."
