"""What an outage may do to sends, and what not: judged by the fragments that were lost when a send failed."""

from __future__ import annotations

from dataclasses import dataclass

from tandembus.namespace.partitioning import FRAGMENT_COUNT, fragment_of_key
from tests.chaos.figures import is_pinned
from tests.chaos.history import NEVER, History, Operation


@dataclass(frozen=True, slots=True)
class Outage:
    """Of one broker, from its death to the moment when all its fragments took messages again."""

    began_at: float
    ended_at: float
    places: dict[str, list[int]]

    def concerns(self, send: Operation) -> bool:
        return self.began_at <= send.answered_at and send.invoked_at <= self.ended_at


def outages_of(history: History) -> list[Outage]:
    ups = {(one.broker, round(one.at - one.took_s, 3)): one.at for one in history.ups}
    return [Outage(one.at, ups.get((one.broker, round(one.at, 3)), NEVER), one.places) for one in history.downs]


def fragment_of(history: History, send: Operation) -> int:
    is_partitioned = history.entities[send.event.entity].fragments > 1
    return int(fragment_of_key(send.event.key or "")) if is_partitioned else 0


def stray_failures(history: History) -> list[str]:
    """Sends to one fragment that failed although it was not lost: an outage takes its share, and nobody else's."""
    outages = outages_of(history)
    return [
        f"{send.event.id} to {send.event.entity} failed ({send.error}), and its fragment was not lost"
        for send in history.sends
        if is_pinned(history, send) and not send.is_done
        if not any(_is_lost(history, send, outage) for outage in outages)
    ]


def _is_lost(history: History, send: Operation, outage: Outage) -> bool:
    return outage.concerns(send) and fragment_of(history, send) in outage.places.get(send.event.entity, [])


def failed_share(history: History) -> tuple[float, float]:
    """Of the sends with a key that were begun during an outage: the share that failed, and the share of the fragments
    that were lost."""
    outages = [one for one in outages_of(history) if one.ended_at != NEVER]
    begun = [
        (send, outage)
        for send in history.sends
        for outage in outages
        if send.event.key is not None and outage.began_at <= send.invoked_at <= outage.ended_at
        if history.entities[send.event.entity].fragments > 1
    ]
    lost = sum(len(outage.places.get(send.event.entity, [])) / FRAGMENT_COUNT for send, outage in begun)
    failed = sum(not send.is_done for send, _ in begun)
    return failed / max(1, len(begun)), lost / max(1, len(begun))
