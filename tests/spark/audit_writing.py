"""Audit files as a namespace would write them, with whatever a test plants in them."""

from __future__ import annotations

import json
from pathlib import Path

START_MS = 1_700_000_000_000


class WrittenAudit:
    """The audit of one store. Every call is a commit of its own, a second after the one before."""

    def __init__(
        self, folder: Path, namespace: str = "contoso", store: str = "ab", index: int = 0, store_count: int = 1
    ) -> None:
        self._path = folder / "00000001.jsonl"
        self._namespace = namespace
        self._store = store
        self._places = {"index": index, "stores": store_count}
        self._begins = True
        self.version = 2
        """Before 2, there are no marks."""
        self._fragments: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self.record = 0
        self.trimmed = 0
        """Records that have given way."""
        self.epoch = 1
        self.now_ms = START_MS
        folder.mkdir(parents=True, exist_ok=True)

    def take(self, entity: str, *ids: str, kind: str = "accepted", session: str = "", path: str = "") -> list[int]:
        """Returns the numbers that these messages have got."""
        first = self._numbers.get(entity, 0) + 1
        numbers = [0] * len(ids) if kind in ("duplicate", "published") else list(range(first, first + len(ids)))
        self._numbers[entity] = max([first - 1, *numbers])
        columns: dict[str, object] = {"numbers": numbers, "ids": list(ids)}
        columns |= {"sessions": [session] * len(ids)} if session else {}
        columns |= {"paths": [path] * len(ids)} if path else {}
        self.line(kind, entity, columns)
        return numbers

    def leave(self, entity: str, *numbers: int, kind: str = "completed") -> None:
        self.line(kind, entity, {"numbers": list(numbers)})

    def drop(self, entity: str) -> None:
        """Whoever makes an entity of this name again begins anew."""
        self.line("dropped", entity, {"numbers": [0]})
        self._fragments[entity] = 1000 + self.record
        self._numbers.pop(entity, None)

    def line(
        self, kind: str, entity: str, columns: dict[str, object], repeats: int = 1, part: int = 0, parts: int = 1
    ) -> None:
        if self._begins and self.version > 1:
            self._mark("stream", **self._places, trimmed=self.trimmed)
        self._begins = False
        self.record += 1
        self.now_ms += 1000
        fragment = self._fragments.setdefault(entity, len(self._fragments) + 1)
        line = {**self._head(), "part": part}
        line |= {"parts": parts, "at": self.now_ms, "epoch": self.epoch, "kind": kind}
        line |= {"fragment": fragment, "lane": _lane(entity)}
        self.text((json.dumps({**line, "entity": entity, **columns}) + "\n") * repeats)

    def stop(self) -> Path:
        """In order. Returns the newest file."""
        self._mark("ended")
        return self._path

    def roll(self) -> Path:
        """Returns the file that is full."""
        self._mark("rolled")
        full = self._path
        self._path = self._path.with_stem(f"{int(self._path.stem) + 1:08d}")
        self._begins = True
        return full

    def _mark(self, kind: str, **facts: int) -> None:
        self.text(json.dumps({**self._head(), "kind": kind, **facts}) + "\n")

    def _head(self) -> dict[str, object]:
        return {"audit": self.version, "namespace": self._namespace, "store": self._store, "number": self.record}

    def text(self, text: str) -> None:
        with self._path.open("a") as file:
            file.write(text)


def _lane(entity: str) -> int:
    return 1 if entity.endswith("/$deadletterqueue") else 0
