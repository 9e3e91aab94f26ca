"""The figures of a history: how much was done, what it cost, what was lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.chaos.checks import duplicate_count, total_queue
from tests.chaos.history import History


@dataclass(frozen=True, slots=True)
class Figures:
    kills: int
    sent: int
    accepted: int
    lost: int
    keyless_errors: int
    keyed: int
    keyed_errors: int
    errors: Counter[str]
    received: int
    completed: int
    duplicates: int
    owned_again_s: tuple[float, ...]

    @staticmethod
    def of(history: History) -> Figures:
        sends = history.sends
        keyless = [one for one in sends if one.event.key is None]
        keyed = [one for one in sends if one.event.key is not None]
        return Figures(
            kills=len(history.downs),
            sent=len(sends),
            accepted=sum(one.is_done for one in sends),
            lost=len(total_queue(history)),
            keyless_errors=sum(not one.is_done for one in keyless),
            keyed=len(keyed),
            keyed_errors=sum(not one.is_done for one in keyed),
            errors=Counter(one.error or "no answer" for one in sends if not one.is_done),
            received=len(history.deliveries),
            completed=sum(one.is_done and one.event.how == "complete" for one in history.settlements),
            duplicates=duplicate_count(history),
            owned_again_s=tuple(sorted(one.took_s for one in history.ups)),
        )

    def text(self) -> str:
        lines = [
            f"kills {self.kills}, sent {self.sent}, accepted {self.accepted}, lost {self.lost}",
            f"keyless errors {self.keyless_errors}, keyed errors {self.keyed_errors} of {self.keyed} keyed sends"
            f" ({self.keyed_errors / max(1, self.keyed):.2%})",
            f"received {self.received}, completed {self.completed}, stored twice {self.duplicates}",
        ]
        if self.errors:
            lines.append("errors: " + ", ".join(f"{name} {count}" for name, count in self.errors.most_common()))
        if self.owned_again_s:
            times = ", ".join(f"p{percent} {self.owned_again(percent):.2f} s" for percent in (50, 99))
            lines.append(f"owned again after {times} ({len(self.owned_again_s)} times)")
        return "\n".join(lines)

    def owned_again(self, percent: int) -> float:
        return self.owned_again_s[min(len(self.owned_again_s) - 1, len(self.owned_again_s) * percent // 100)]
