"""What an outage may do to sends, and what not: judged by the fragments that were lost when a send was under way."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tandembus.descriptions.changes import FRAGMENT_COUNT
from tandembus.namespace.partitioning import fragment_of_key
from tests.chaos.checks import missing
from tests.chaos.figures import is_pinned
from tests.chaos.history import NEVER, History, Operation, name_of

IN_DOUBT_WAIT_S = 5.0
"""How long a front end waits for a broker that is gone before it gives a send without a key to another fragment."""
TOLERANCE = 0.02
DEVIATIONS = 4.0
"""How far chance may lead from the expected share, in standard deviations."""


@dataclass(frozen=True, slots=True)
class BrokerLoss:
    """Of one broker, from its death to the moment when all its fragments took messages again."""

    began_at: float
    gone_at: float
    """From here on nothing of it worked ..."""
    out_until: float
    """... up to here at least."""
    ended_at: float
    places: dict[str, list[int]]

    @property
    def is_short(self) -> bool:
        """Whoever was in doubt has waited until it was told what became of its message."""
        return self.ended_at - self.began_at < IN_DOUBT_WAIT_S

    def concerns(self, send: Operation) -> bool:
        return self.began_at <= send.answered_at and send.invoked_at <= self.ended_at


def losses_of(history: History) -> list[BrokerLoss]:
    ups = {one.kill: one for one in history.ups}
    assert len(ups) == len(history.ups), "a kill has two ends"
    losses = []
    for down in history.downs:
        up = ups.get(down.kill)
        ended_at = NEVER if up is None else up.at
        out_until = down.at if up is None else down.at + up.out_s
        losses.append(BrokerLoss(down.at, down.at + down.took_s, out_until, ended_at, down.places))
    return losses


def fragment_of(history: History, send: Operation) -> int:
    is_partitioned = history.entities[send.event.entity].fragments > 1
    return int(fragment_of_key(send.event.key or "")) if is_partitioned else 0


def stray_failures(history: History) -> list[str]:
    """Sends to one fragment that failed although it was not lost: an outage takes its share, and nobody else's."""
    losses = losses_of(history)
    return [
        f"{send.event.id} to {send.event.entity} failed ({send.error}), and its fragment was not lost"
        for send in history.sends
        if is_pinned(history, send) and not send.is_done
        if not any(_is_lost(history, send, loss) for loss in losses)
    ]


def _is_lost(history: History, send: Operation, loss: BrokerLoss) -> bool:
    return loss.concerns(send) and fragment_of(history, send) in loss.places.get(send.event.entity, [])


def needless_copies(history: History) -> list[str]:
    """Messages that are there more often than they were sent, although every broker that was lost meanwhile came back
    in time to say what became of them."""
    long_losses = [one for one in losses_of(history) if not one.is_short]
    copies = []
    for place, numbers in history.numbers.items():
        sends = history.sends_of(*place)
        is_excused = any(loss.concerns(send) for loss in long_losses for send in sends)
        if len(numbers) > max(1, len(sends)) and not is_excused:
            copies.append(f"{name_of(place)} is there {len(numbers)} times, and was sent {len(sends)} times")
    return copies


def deleted_unseen(history: History) -> list[str]:
    """Messages that were deleted for a receiver who never got them, although every broker came back in time."""
    is_excused = any(not one.is_short for one in losses_of(history))
    return [] if is_excused else [name_of(place) for place in missing(history)]


@dataclass(frozen=True, slots=True)
class FailedShare:
    """Of the sends with a key that were begun while a broker was out for certain: how many failed, and how many of the
    fragments were lost. Sessions are left out: there are too few of them to be spread evenly."""

    begun: int
    failed: int
    lost_share: float

    @staticmethod
    def of(history: History) -> FailedShare:
        losses = [one for one in losses_of(history) if one.ended_at != NEVER]
        begun = [
            (send, loss)
            for send in history.sends
            if send.event.key is not None and send.event.session is None and not send.event.transaction
            if history.entities[send.event.entity].fragments > 1
            for loss in losses
            if loss.gone_at <= send.invoked_at <= loss.out_until
        ]
        lost = sum(len(loss.places.get(send.event.entity, [])) / FRAGMENT_COUNT for send, loss in begun)
        return FailedShare(len(begun), sum(not send.is_done for send, _ in begun), lost / max(1, len(begun)))

    @property
    def share(self) -> float:
        return self.failed / max(1, self.begun)

    @property
    def tolerance(self) -> float:
        spread = math.sqrt(self.lost_share * (1.0 - self.lost_share) / max(1, self.begun))
        return TOLERANCE + DEVIATIONS * spread

    @property
    def is_as_expected(self) -> bool:
        return self.begun > 0 and abs(self.share - self.lost_share) <= self.tolerance

    def text(self) -> str:
        return (
            f"of {self.begun} sends with a key during an outage {self.share:.1%} failed, of the fragments "
            f"{self.lost_share:.1%} were lost (allowed: {self.tolerance:.1%} more or less)"
        )
