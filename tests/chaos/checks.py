"""What must be true of every history, whatever was killed in between. Each check names each breach that it finds.

A check relies only on what the history says for certain: an operation without an answer may have happened or not, a
lock is held until whatever may have ended it first. So a breach is never a matter of timing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from tests.chaos.events import Event
from tests.chaos.history import NEVER, History, Operation, name_of, named
from tests.chaos.lock_checks import CLOCK_SLACK_S, exclusive_locks
from tests.chaos.order_checks import session_order
from tests.chaos.pairing_checks import doubts, needless_failures, no_ping

Breaches = list[str]
Check = Callable[[History], Breaches]

WINDOW_SLACK_S = 2.0
"""How far from its end the window of duplicate detection is not judged: what was sent when is known roughly."""


def sound(history: History) -> Breaches:
    """A history that contradicts itself, or tells nothing, proves nothing."""
    if not history.sends:
        return ["nothing was sent"]
    spoken_of = {one.event.entity for one in history.sends} | {one.event.entity for one in history.deliveries}
    spoken_of |= {one.entity for one in history.left}
    return history.faulty + [
        f"nothing is said about the entity {one}" for one in sorted(spoken_of - set(history.entities))
    ]


def total_queue(history: History) -> Breaches:
    """What was accepted was consumed, or is still there."""
    return [
        f"{name_of(place)} was accepted and is lost" for place in missing(history) if not _may_go(history, place[0])
    ]


def missing(history: History) -> list[tuple[str, str]]:
    """Where what was accepted should be and is not, and nobody consumed it."""
    present = {(one.entity, one.id) for one in history.left}
    present |= {
        (one.event.entity, one.event.id) for one in history.deliveries if one.is_consumed or not one.event.token
    }
    accepted = [one.event for one in history.sends if history.is_stored(one)]
    expected = [(entity, event.id) for event in accepted for entity in history.fed_by(event.entity)]
    return list(dict.fromkeys(place for place in expected if place not in present))


def _may_go(history: History, entity: str) -> bool:
    """Receive and delete: what was under way to its receiver when something was lost is gone; the mode says so."""
    return history.entities[entity].is_at_most_once and bool(history.downs)


def no_phantom(history: History) -> Breaches:
    """Everything that came was sent before, as it came; nothing that was refused came."""
    seen = [one.event for one in history.deliveries] + history.left
    return _each_once(breach for one in seen if (breach := _phantom(history, one)) is not None)


def _phantom(history: History, seen: Event) -> str | None:
    sends = [one for one in history.sends_of(seen.entity, seen.id) if one.invoked_at <= seen.at]
    if not sends:
        return f"{named(seen)} was never sent"
    if not any(history.may_be_stored(one) for one in sends):
        return f"{named(seen)} was refused, and is there"
    if all((one.event.digest, one.event.session) != (seen.digest, seen.session) for one in sends):
        return f"{named(seen)} is not what was sent"
    return None


def whole_batches(history: History) -> Breaches:
    """Of what was sent in one transfer everything is there, or nothing."""
    batches: dict[int, list[Operation]] = defaultdict(list)
    for send in history.sends:
        batches[send.event.batch].append(send)
    batches.pop(0, None)
    breaches: Breaches = []
    for batch, sends in batches.items():
        for entity in history.fed_by(sends[0].event.entity):
            there = [(entity, one.event.id) in history.numbers for one in sends]
            if any(there) and not all(there) and not _may_go(history, entity):
                breaches.append(f"of batch {batch} a part is in {entity}")
    return breaches


def no_repeat(history: History) -> Breaches:
    """What was consumed for certain never comes again; nothing is consumed twice; nothing is there twice, except what
    was in doubt."""
    consumed: dict[tuple[str, int], Operation] = {}
    breaches: Breaches = []
    for settlement in history.settlements:
        if settlement.event.how == "complete" and settlement.is_done and not settlement.event.transaction:
            place = settlement.event.entity, settlement.event.number
            if place in consumed:
                breaches.append(f"number {place[1]} of {place[0]} was completed twice")
            consumed[place] = settlement
    for delivery in history.deliveries:
        before = consumed.get((delivery.event.entity, delivery.event.number))
        if before is not None and history.granted_at(delivery) > before.answered_at + CLOCK_SLACK_S:
            breaches.append(f"{named(delivery.event)} came again after it was completed")
    there = [one for one in history.left if (one.entity, one.number) in consumed]
    breaches += [f"{named(one)} is there although it was completed" for one in there]
    return breaches + _deleted_twice(history) + _stored_twice(history)


def _deleted_twice(history: History) -> Breaches:
    places = Counter((one.event.entity, one.event.number) for one in history.deliveries if not one.event.token)
    return [f"number {place[1]} of {place[0]} was received and deleted twice" for place in places if places[place] > 1]


def _stored_twice(history: History) -> Breaches:
    """One send, two sequence numbers: allowed only where a broker was lost while the send was under way, or something
    of a pair while the message was on its way home from the backlog."""
    breaches: Breaches = []
    for (entity, message_id), numbers in history.numbers.items():
        sends = [one for one in history.sends_of(entity, message_id) if history.may_be_stored(one)]
        if len(numbers) > max(len(sends), 1):
            doubtful = sum(_doubts(history, one, entity) for one in sends)
            if len(numbers) > len(sends) + doubtful:
                name = name_of((entity, message_id))
                breaches.append(f"{name} is there {len(numbers)} times, and was sent {len(sends)} times")
    return breaches


def _doubts(history: History, send: Operation, entity: str) -> int:
    """How many copies of one send nobody is to blame for."""
    if history.entities[send.event.entity].is_paired:
        return len(doubts(history, send, entity))
    return history.is_down_within(entity, None, send.invoked_at, send.answered_at)


def duplicate_count(history: History) -> int:
    """How many copies there were beyond the first of each send: for the figures."""
    return sum(max(0, len(numbers) - len(history.sends_of(*place))) for place, numbers in history.numbers.items())


def duplicate_window(history: History) -> Breaches:
    """Of sends with one id, as many are stored as windows lie between them: not more, and not less. On partitioned
    entities that holds for each key by itself."""
    sends: dict[str, set[str]] = defaultdict(set)
    for send in history.sends:
        for entity in history.fed_by(send.event.entity):
            sends[entity].add(send.event.id)
    breaches: Breaches = []
    for entity, described in history.entities.items():
        for message_id in sends[entity] if described.duplicate_window_s else ():
            count = len(history.numbers.get((entity, message_id), ()))
            by_key: dict[str | None, list[Operation]] = defaultdict(list)
            for send in history.sends_of(entity, message_id):
                by_key[send.event.key if described.fragments > 1 else None].append(send)
            copies = [_copies(history, own, described.duplicate_window_s) for own in by_key.values()]
            least, most = sum(one[0] for one in copies), sum(one[1] for one in copies)
            if not least <= count <= most:
                wanted = f"{least}" if least == most else f"{least} to {most}"
                breaches.append(f"{name_of((entity, message_id))} is there {count} times instead of {wanted}")
    return breaches


def _copies(history: History, sends: list[Operation], window_s: float) -> tuple[int, int]:
    """How many copies there must be at least, and may be at most."""
    least, most = 0, 0
    forgotten_at, might_forget_at = -NEVER, -NEVER
    for send in sorted(sends, key=lambda one: one.invoked_at):
        if history.is_stored(send) and send.invoked_at > forgotten_at:
            least += 1
            forgotten_at = send.answered_at + window_s + WINDOW_SLACK_S
        if history.may_be_stored(send) and send.answered_at > might_forget_at:
            most += 1
            might_forget_at = send.invoked_at + window_s - WINDOW_SLACK_S
    return least, most


def transactions(history: History) -> Breaches:
    """All of it or nothing: what was sent in it is there, and what was settled in it is gone."""
    effects: dict[int, list[bool]] = defaultdict(list)
    for send in history.sends:
        if send.event.transaction:
            place = history.fed_by(send.event.entity)[0], send.event.id
            effects[send.event.transaction].append(place in history.numbers)
    for settlement in history.settlements:
        if settlement.event.transaction:
            effects[settlement.event.transaction].append(not _came_again(history, settlement))
    return [breach for one, done in effects.items() for breach in _judge(one, history.endings.get(one), done)]


def _judge(transaction: int, ending: Operation | None, effects: list[bool]) -> Breaches:
    commit = ending if ending is not None and ending.event.kind == "commit" else None
    if commit is not None and commit.outcome == "unknown":
        return [] if all(effects) or not any(effects) else [f"transaction {transaction} was carried out in part"]
    if commit is not None and commit.is_done:
        return [] if all(effects) else [f"transaction {transaction} was committed, and a part of it is missing"]
    return [f"transaction {transaction} was not committed, and a part of it was carried out"] if any(effects) else []


def _came_again(history: History, settlement: Operation) -> bool:
    """Whether the message of a settlement is there after all: delivered once more, or left."""
    event = settlement.event
    deliveries, left = history.places.get((event.entity, event.number), ([], []))
    return bool(left) or any(one.event.token != event.token and one.event.at > event.at for one in deliveries)


def count_is_content(history: History) -> Breaches:
    """What the service says it holds is what is found there."""
    found = Counter((one.entity, one.state) for one in history.left)
    breaches: Breaches = []
    for entity, count in history.counts.items():
        for state, told in (("active", count.active), ("dead", count.dead), ("scheduled", count.scheduled)):
            if found[entity, state] != told:
                breaches.append(f"{entity} counts {told} {state} messages and holds {found[entity, state]}")
    return breaches


def _each_once(breaches: Iterable[str]) -> Breaches:
    return list(dict.fromkeys(breaches))


CHECKS: dict[str, Check] = {
    "sound history": sound,
    "total queue": total_queue,
    "no phantom": no_phantom,
    "no repeat": no_repeat,
    "whole batches": whole_batches,
    "session order": session_order,
    "duplicate window": duplicate_window,
    "transactions": transactions,
    "exclusive locks": exclusive_locks,
    "count is content": count_is_content,
    "no ping": no_ping,
    "needless failures": needless_failures,
}


def breaches_of(history: History) -> dict[str, Breaches]:
    """Every check that failed, with what it found. What does not hold together is not judged any further."""
    if found := sound(history):
        return {"sound history": found}
    return {name: found for name, check in CHECKS.items() if (found := check(history))}
