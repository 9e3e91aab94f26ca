"""The figures of a history: how much was done, what it cost, what was lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.chaos.checks import duplicate_count, total_queue
from tests.chaos.history import History, Operation


def is_pinned(history: History, send: Operation) -> bool:
    """Whether only one fragment can take it: it has a key, or its entity has no other."""
    return send.event.key is not None or history.entities[send.event.entity].fragments == 1


@dataclass(frozen=True, slots=True)
class Figures:
    kills: int
    sent: int
    accepted: int
    lost: int
    keyless_errors: int
    """Of sends that any fragment of their entity could have taken."""
    pinned: int
    pinned_errors: int
    errors: Counter[str]
    received: int
    completed: int
    commits: int
    """Transactions that were carried out for certain."""
    duplicates: int
    owned_again_s: tuple[float, ...]

    @staticmethod
    def of(history: History) -> Figures:
        sends = history.sends
        pinned = [one for one in sends if is_pinned(history, one)]
        return Figures(
            kills=len(history.downs),
            sent=len(sends),
            accepted=sum(one.is_done for one in sends),
            lost=len(total_queue(history)),
            keyless_errors=sum(not one.is_done for one in sends if not is_pinned(history, one)),
            pinned=len(pinned),
            pinned_errors=sum(not one.is_done for one in pinned),
            errors=Counter(one.error or "no answer" for one in sends if not one.is_done),
            received=len(history.deliveries),
            completed=sum(one.is_done and one.event.how == "complete" for one in history.settlements),
            commits=sum(one.is_done and one.event.kind == "commit" for one in history.endings.values()),
            duplicates=duplicate_count(history),
            owned_again_s=tuple(sorted(one.took_s for one in history.ups)),
        )

    def text(self) -> str:
        lines = [
            f"kills {self.kills}, sent {self.sent}, accepted {self.accepted}, lost {self.lost}",
            f"failed without a key {self.keyless_errors}, failed of {self.pinned} to one fragment {self.pinned_errors}"
            f" ({self.pinned_errors / max(1, self.pinned):.2%})",
            f"received {self.received}, completed {self.completed}, stored twice {self.duplicates}"
            + (f", transactions committed {self.commits}" if self.commits else ""),
        ]
        if self.errors:
            lines.append("errors: " + ", ".join(f"{name} {count}" for name, count in self.errors.most_common()))
        if self.owned_again_s:
            times = ", ".join(f"p{percent} {self.owned_again(percent):.2f} s" for percent in (50, 99))
            lines.append(f"owned again after {times} ({len(self.owned_again_s)} times)")
        return "\n".join(lines)

    def owned_again(self, percent: int) -> float:
        return self.owned_again_s[min(len(self.owned_again_s) - 1, len(self.owned_again_s) * percent // 100)]
