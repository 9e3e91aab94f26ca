"""What must be true of a history with a pair: who may fail, what may exist twice, and that nobody sees a ping."""

from __future__ import annotations

from tests.chaos.events import Event
from tests.chaos.history import NEVER, History, Operation, name_of, named

READMISSION_S = 2.0
"""How long after the secondary is back senders may still do without it: one interval between pings, and a second."""
STOPPED = "stopped"
"""What a loss is noted as that nothing was killed for."""
DISABLED = "disabled"
"""Nothing was lost at all: an entity takes no more messages."""
SLACK_S = 0.25
"""Between a failure and the moment when the sender writes it down."""


def no_ping(history: History) -> list[str]:
    """A ping is stored nowhere and delivered to nobody (N10)."""
    seen = [one.event for one in history.deliveries] + history.left
    return [f"{named(one)} is a ping" for one in seen if one.is_ping]


def needless_failures(history: History) -> list[str]:
    """Sends of a pair fail from the loss of the primary until failover engages (N5), and while no backlog is there.
    At no other time."""
    breaches: list[str] = []
    for send in history.sends:
        if not send.is_done and history.entities[send.event.entity].is_paired and not _is_excused(history, send):
            why = f"{send.error or 'no answer'} at {send.answered_at:.3f}"
            breaches.append(f"the send of {name_of((send.event.entity, send.event.id))} failed needlessly: {why}")
    return breaches


def _is_excused(history: History, send: Operation) -> bool:
    first, last = send.invoked_at, send.answered_at
    if is_failed_over(history, send.event.entity, last) and not is_failed_over(
        history, send.event.entity, last, SLACK_S
    ):
        return True
    if is_failed_over(history, send.event.entity, last):
        return any(
            down.at <= last and first <= back_at(history, down) + READMISSION_S for down in lost(history, "secondary")
        )
    losses = [one for one in lost(history, "primary") if not one.places or send.event.entity in one.places]
    return any(down.at <= last <= _engaged_after(history, send.event.entity, down) for down in losses)


def is_failed_over(history: History, entity: str, at: float, since_s: float = 0.0) -> bool:
    """At a moment, and for so long already."""
    return any(one.engaged_at + since_s <= at <= one.healthy_at for one in history.failovers.get(entity, ()))


def may_be_diverted(history: History, send: Operation) -> bool:
    spells = history.failovers.get(send.event.entity, ())
    return any(one.engaged_at <= send.answered_at and send.invoked_at <= one.healthy_at for one in spells)


def _engaged_after(history: History, entity: str, down: Event) -> float:
    """When senders left a primary that was lost; when it was back, if they did not have to."""
    engaged = [one.engaged_at for one in history.failovers.get(entity, ()) if one.engaged_at >= down.at]
    return min([*engaged, back_at(history, down) + SLACK_S])


def lost(history: History, how: str) -> list[Event]:
    return [one for one in history.downs if one.how == how]


def back_at(history: History, down: Event) -> float:
    return max((one.at for one in history.ups if one.kill == down.kill), default=NEVER)


def doubts(history: History, send: Operation, entity: str) -> list[Event]:
    """Each loss after which a message of a pair may exist once more: nobody learnt what had become of a copy.

    The primary was lost while the send was under way there, and the message went to the backlog as well. Or, while it
    was there, whoever carried it home did not learn that it had arrived, or could not say so. A primary that is only
    stopped has time for that as long as it lasts: it takes what it was sent meanwhile when it wakes up.
    """
    if not may_be_diverted(history, send):
        return []
    last = max(_seen_at(history, entity, send.event.id).values(), default=-NEVER)
    losses = [one for one in history.downs if _may_double(history, one, send)]
    found = [one for one in losses if one.at <= last and send.invoked_at <= _harmful_until(one)]
    if began_on_primary(history, send):
        primary = [one for one in losses if one.how == "primary"]
        before = [one for one in primary if one.at < send.invoked_at <= one.at + one.took_s]
        found += [one for one in before if one not in found]
    return found


def _may_double(history: History, down: Event, send: Operation) -> bool:
    """A syphon only what it had in its hands when it was killed: what it had completed is gone, and what it had not
    received it cannot have sent."""
    if down.how == "syphon":
        return (send.event.entity, send.event.id) in history.held[down.kill]
    return bool(down.how) and down.note != DISABLED


def began_on_primary(history: History, send: Operation) -> bool:
    return not is_failed_over(history, send.event.entity, send.invoked_at)


def _harmful_until(down: Event) -> float:
    return down.at + (down.took_s if down.note == STOPPED else 0.0)


def extra_copies(history: History) -> list[tuple[Operation, Event | None]]:
    """Each copy of a message beyond the first in an entity, with what is to blame for it."""
    found: list[tuple[Operation, Event | None]] = []
    for (entity, message_id), numbers in history.numbers.items():
        if len(numbers) > 1:
            (send, *_) = history.sends_of(entity, message_id)
            blamed = _blamed(history, send, entity)
            found += [(send, blamed)] * (len(numbers) - 1)
    return found


def _blamed(history: History, send: Operation, entity: str) -> Event | None:
    """The last of the losses before the second copy was seen."""
    second = sorted(_seen_at(history, entity, send.event.id).values())[1]
    before = [one for one in doubts(history, send, entity) if one.at <= second]
    return max(before, key=lambda one: one.at, default=None)


def _seen_at(history: History, entity: str, message_id: str) -> dict[int, float]:
    """When each copy was first seen, by its number."""
    found: dict[int, float] = {}
    for number in history.numbers.get((entity, message_id), ()):
        deliveries, left = history.places[entity, number]
        found[number] = min([one.event.at for one in deliveries] + [one.at for one in left])
    return found
