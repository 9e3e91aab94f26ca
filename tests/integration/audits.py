"""The audit files of a namespace as plain Python: which messages were accepted, and where each of them is by now."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

OPENING = ("accepted", "scheduled", "copied", "arrived", "activated", "dead_letter")
MARKS = ("stream", "rolled", "ended")
PASSING = ("duplicate", "published", "began", "nothing")


class Audit:
    """All of it, checked on the way: numbers without gaps, each record once, nothing left that never came."""

    def __init__(self, data: Path) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.ids: dict[str, list[str]] = {}
        """Accepted, by entity."""
        self.open: dict[tuple[str, int, int], dict[int, str]] = {}
        self.last: dict[str, int] = {}
        """The newest record, by folder."""
        self.ended: dict[str, int | None] = {}
        """The record at which the files say that they end, by folder."""
        self.stores: dict[str, set[int]] = {}
        """How many stores the files say that there are, by folder."""
        self._names: dict[tuple[str, int, int], str] = {}
        for folder in sorted((data / "audit").iterdir()):
            self._read(folder)

    def _read(self, folder: Path) -> None:
        lines = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.open()]
        self.ended[folder.name] = lines[-1]["number"] if lines and lines[-1]["kind"] == "ended" else None
        self.stores[folder.name] = {line["stores"] for line in lines if line["kind"] == "stream"}
        lines = [line for line in lines if line["kind"] not in MARKS]
        self.last[folder.name] = lines[-1]["number"] if lines else 0
        places = [(line["number"], line["part"]) for line in lines]
        assert places == sorted(set(places)), "each record once, in order"
        numbers = sorted({number for number, _ in places})
        assert numbers == list(range(1, len(numbers) + 1)), "no record is missing"
        for line in lines:
            if "fragment" in line:
                self._include(line)

    def _include(self, line: dict[str, Any]) -> None:
        lane, kind = (line["store"], line["fragment"], line["lane"]), line["kind"]
        name = self._names.setdefault(lane, line.get("entity", "")) or line.get("entity", "")
        self._names[lane] = name
        self.counts.setdefault(name, Counter())[kind] += len(line["numbers"])
        places = self.open.setdefault(lane, {})
        if kind in OPENING:
            assert not set(line["numbers"]) & set(places), f"taken twice: {line}"
            places.update(zip(line["numbers"], line["ids"], strict=True))
            self.ids.setdefault(name, []).extend(line["ids"])
        elif kind == "dropped":
            places.clear()
        elif kind not in PASSING:
            for number in line["numbers"]:
                assert number in places, f"left, and never taken: {line}"
                del places[number]

    def pending(self, entity: str) -> int:
        """Still there, over all fragments."""
        return sum(len(places) for lane, places in self.open.items() if self._names[lane].lower() == entity.lower())
