"""Histories of two namespaces made up by chance, with faults planted in them: how they were made tells what a
reconciliation must find."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from tests.spark.audit_writing import WrittenAudit

BACKLOG = "contoso/x-servicebus-transfer/0"
WAYS = (
    "direct",
    "backlog",
    "lost on the way",
    "purged",
    "twice",
    "waits twice",
    "dropped at home",
    "scheduled",
    "reused",
)
ENDS = ("completed", "removed", "dead_lettered", "expired", "damaged", "again", "pending", "pending")


class Histories:
    """Each entity has a history of its own, and `expected` says what is true of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.primary = WrittenAudit(folder / "primary" / "audit" / "store-0")
        self.secondary = WrittenAudit(folder / "secondary" / "audit" / "store-0", "fabrikam", "cd")
        self.expected: dict[str, Counter[str]] = {}
        self.lost: set[tuple[str, str]] = set()
        self._random = random.Random(seed)
        self._message = 0
        # The records of both begin before all messages.
        self.primary.line("began", "first", {"numbers": [1], "counts": [0]})
        self.secondary.line("began", "first", {"numbers": [1], "counts": [0]})

    def play(self, entity: str, messages: int) -> None:
        self.expected[entity] = Counter()
        for _ in range(messages):
            self._message += 1
            # Both clocks agree, and messages come one after the other: nothing overtakes.
            self.primary.now_ms = self.secondary.now_ms = max(self.primary.now_ms, self.secondary.now_ms)
            self._send(entity, f"m{self._message}", self._random.choice(WAYS))
        for _ in range(self._random.randrange(2)):
            self.primary.leave(entity, 1_000_000 + self._message)
            self.expected[entity]["phantom"] += 1

    def _send(self, entity: str, message_id: str, way: str) -> None:
        expected = self.expected[entity]
        expected["accepted"] += 1
        if way == "direct":
            self._end(entity, message_id, self.primary.take(entity, message_id))
        elif way == "scheduled":
            (number,) = self.primary.take(entity, message_id, kind="scheduled")
            self.primary.leave(entity, number, kind="left")
            self._end(entity, message_id, self.primary.take(entity, message_id, kind="activated"))
        elif way == "reused":
            expected["accepted"] += 1
            expected["reused"] += 1
            for number in self.primary.take(entity, message_id, message_id):
                self._end(entity, message_id, [number], "completed")
        else:
            self._by_backlog(entity, message_id, way)

    def _by_backlog(self, entity: str, message_id: str, way: str) -> None:
        expected = self.expected[entity]
        there = self.secondary.take(BACKLOG, message_id, path=entity.upper())
        self.primary.now_ms = self.secondary.now_ms
        if way in ("lost on the way", "purged"):
            expected["lost"] += 1
            self.lost.add((entity, message_id))
        elif way == "twice":
            expected["settled"] += 1
            expected["duplicate"] += 1
            self.primary.leave(entity, *self.primary.take(entity, message_id, message_id))
        elif way == "waits twice":
            expected["accepted"] += 1
            expected["settled"] += 1
            expected["pending"] += 1
            expected["duplicate"] += 1
            self.primary.leave(entity, self.primary.take(entity, message_id, message_id)[0])
        else:
            home = self.primary.take(entity, message_id)
            if way == "dropped at home":
                self.primary.take(entity, message_id, kind="duplicate")
                expected["dropped_as_duplicate"] += 1
            self._end(entity, message_id, home)
        self.secondary.leave(BACKLOG, *there, kind="removed" if way == "purged" else "completed")

    def _end(self, entity: str, message_id: str, numbers: list[int], end: str | None = None) -> None:
        expected, end = self.expected[entity], end or self._random.choice(ENDS)
        if end == "pending":
            expected["pending"] += 1
            return
        self.primary.leave(entity, *numbers, kind="completed" if end == "again" else end)
        if end == "again":
            self.primary.leave(entity, *numbers)
            expected["duplicate"] += 1
        if end == "damaged":
            self.lost.add((entity, message_id))
        expected[{"damaged": "lost", "dead_lettered": end, "expired": end}.get(end, "settled")] += 1
