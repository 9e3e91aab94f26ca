"""The figures of a row with a pair, read from its history."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.chaos.checks import total_queue
from tests.chaos.events import Event
from tests.chaos.history import History
from tests.chaos.pairing_checks import back_at, extra_copies, lost, may_be_diverted, needless_failures, no_ping


@dataclass(frozen=True, slots=True)
class PairingFigures:
    sent: int
    accepted: int
    diverted: int
    """Accepted while their entity was failed over."""
    lost: int
    refused: int
    """Between a loss and failover, or while there was no backlog either."""
    needless: int
    received: int
    pings_received: int
    engaged_s: tuple[float, ...]
    """From the first failure of an entity to its failover, as its senders saw it."""
    returned_s: tuple[float, ...]
    """From the moment when the primary took messages again to that when the senders knew."""
    copies: Counter[str]
    """Messages that exist twice, by what was lost meanwhile."""
    copies_of_a_syphon_kill: int
    """The most messages of one of them."""
    in_hand_at_a_syphon_kill: int
    """The same, of what it held."""
    unexplained: int

    @staticmethod
    def of(history: History) -> PairingFigures:
        copies = extra_copies(history)
        of_syphons = {(blamed.kill, send.event.op) for send, blamed in copies if blamed and blamed.how == "syphon"}
        kills = Counter(kill for kill, _ in of_syphons)
        return PairingFigures(
            sent=len(history.sends),
            accepted=sum(one.is_done for one in history.sends),
            diverted=sum(one.is_done and may_be_diverted(history, one) for one in history.sends),
            lost=len(total_queue(history)),
            refused=sum(not one.is_done for one in history.sends),
            needless=len(needless_failures(history)),
            received=len(history.deliveries) + len(history.left),
            pings_received=len(no_ping(history)),
            engaged_s=_engaged_s(history),
            returned_s=_returned_s(history),
            copies=Counter(blamed.how for _, blamed in copies if blamed is not None),
            copies_of_a_syphon_kill=max(kills.values(), default=0),
            in_hand_at_a_syphon_kill=max((len(one) for one in history.held.values()), default=0),
            unexplained=sum(blamed is None for _, blamed in copies),
        )

    def text(self) -> str:
        causes = ", ".join(f"{count} at a loss of the {how}" for how, count in self.copies.most_common()) or "none"
        return "\n".join(
            (
                f"sent {self.sent}, accepted {self.accepted}, diverted {self.diverted}, lost {self.lost}",
                f"failed in the interval or without a backlog {self.refused - self.needless}, else {self.needless}",
                f"received {self.received}, pings among them {self.pings_received}",
                f"failover {_span(self.engaged_s)} after the first failure",
                f"return {_span(self.returned_s)} after the primary was back",
                f"twice there: {causes}; unexplained {self.unexplained}; of one syphon kill at most "
                f"{self.copies_of_a_syphon_kill}, and at most {self.in_hand_at_a_syphon_kill} were in its hands",
            )
        )


def _span(seconds: tuple[float, ...]) -> str:
    return f"{min(seconds):.2f} to {max(seconds):.2f} s ({len(seconds)} times)" if seconds else "never"


def _engaged_s(history: History) -> tuple[float, ...]:
    """By the failures that senders were told of; where they were told of none, by what pairing says."""
    found: list[float] = []
    for entity, spells in history.failovers.items():
        failures = [one.answered_at for one in history.sends if one.event.entity == entity and not one.is_done]
        for spell in spells:
            began_at = _last_before(lost(history, "primary"), spell.engaged_at).at
            seen = [at for at in failures if began_at <= at <= spell.engaged_at]
            found.append(spell.engaged_at - min(seen) if seen else spell.event.took_s)
    return tuple(found)


def _returned_s(history: History) -> tuple[float, ...]:
    """Below nothing: they knew before the last fragment of the primary was back, which is not their concern."""
    return tuple(
        max(0.0, spell.healthy_at - back_at(history, _last_before(lost(history, "primary"), spell.engaged_at)))
        for spells in history.failovers.values()
        for spell in spells
    )


def _last_before(downs: list[Event], at: float) -> Event:
    return max((one for one in downs if one.at <= at), key=lambda one: one.at)
