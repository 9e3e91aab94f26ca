"""First in, first out in each session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tests.chaos.history import NEVER, Delivery, History, Holding, Operation, fragment_of, name_of, named

TAKES_OUT = ("complete", "defer", "dead-letter")
GIVES_BACK = ("abandon", "release")


def session_order(history: History) -> list[str]:
    """Numbers follow the order of the sends, deliveries that of the numbers; a session stays in one fragment. What
    went through a backlog may be overtaken (N15), so there only deliveries are judged."""
    breaches: list[str] = []
    for entity, described in history.entities.items():
        if described.has_sessions:
            breaches += [] if described.is_paired else _numbered_as_sent(history, entity)
            breaches += _delivered_as_numbered(history, entity)
    return breaches


def _numbered_as_sent(history: History, entity: str) -> list[str]:
    """A send that began after another was accepted has a larger number."""
    sessions: dict[str, list[tuple[Operation, int]]] = defaultdict(list)
    for send in history.sends:
        session, numbers = send.event.session, history.numbers.get((entity, send.event.id), set())
        is_clear = len(numbers) == 1 and len(history.sends_of(entity, send.event.id)) == 1
        if session is not None and entity in history.fed_by(send.event.entity) and is_clear:
            sessions[session].append((send, min(numbers)))
    return [breach for sent in sessions.values() for breach in _sorted_wrongly(entity, sent)]


def _sorted_wrongly(entity: str, sent: list[tuple[Operation, int]]) -> list[str]:
    breaches: list[str] = []
    if len({fragment_of(number) for _, number in sent}) > 1:
        breaches.append(f"session {sent[0][0].event.session} of {entity} is in several fragments")
    accepted = sorted((one for one in sent if one[0].is_done), key=lambda one: one[0].answered_at)
    at, highest = 0, -1
    for send, number in sorted(sent, key=lambda one: one[0].invoked_at):
        while at < len(accepted) and accepted[at][0].answered_at < send.invoked_at:
            highest = max(highest, accepted[at][1])
            at += 1
        if number < highest:
            breaches.append(f"{name_of((entity, send.event.id))} stands before what was sent to its session earlier")
    return breaches


def _delivered_as_numbered(history: History, entity: str) -> list[str]:
    rows: dict[str | None, dict[int, float]] = defaultdict(dict)
    for (where, number), (deliveries, left) in history.places.items():
        if where == entity and (deliveries or left[0].state == "active"):
            session = deliveries[0].event.session if deliveries else left[0].session
            rows[session][number] = _gone_at(deliveries)
    holdings: dict[str | None, list[Holding]] = defaultdict(list)
    for holding in history.holdings:
        if holding.event.entity == entity:
            holdings[holding.event.session].append(holding)
    return [breach for session, held in holdings.items() for breach in _in_order(held, rows[session])]


def _gone_at(deliveries: Iterable[Delivery]) -> float:
    """When somebody perhaps took it out of the row; from then on others may come before it is seen again."""
    return min(
        (
            settlement.invoked_at
            for delivery in deliveries
            for settlement in delivery.settlements
            if settlement.event.how in TAKES_OUT and settlement.may_be_done
        ),
        default=NEVER,
    )


def _in_order(holdings: list[Holding], row: dict[int, float]) -> list[str]:
    """In one holding: upwards, and past nothing that was there and that nobody wanted gone."""
    numbers = sorted(row)
    breaches: list[str] = []
    first = 0
    pairs = [(delivery, holding) for holding in holdings for delivery in holding.deliveries]
    seen: dict[int, set[int]] = defaultdict(set)
    for delivery, holding in sorted(pairs, key=lambda one: one[0].event.at):
        number, at, before = delivery.event.number, delivery.event.at, seen[holding.event.receiver]
        if before and number < max(before) and not _was_given_back(holding, number, at):
            breaches.append(f"{named(delivery.event)} of session {delivery.event.session} came after a later one")
        while first < len(numbers) and row[numbers[first]] <= at:
            first += 1
        for earlier in numbers[first:]:
            if earlier >= number:
                break
            if earlier not in before and row[earlier] > at:
                breaches.append(f"number {earlier} of session {delivery.event.session} was passed over by {number}")
        before.add(number)
    return breaches


def _was_given_back(holding: Holding, number: int, at: float) -> bool:
    return any(
        settlement.event.how in GIVES_BACK and settlement.invoked_at <= at
        for delivery in holding.deliveries
        if delivery.event.number == number
        for settlement in delivery.settlements
    )
