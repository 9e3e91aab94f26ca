"""A message and a session belong to one receiver at a time."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from tests.chaos.history import Delivery, History, Holding, Operation, named

CLOCK_SLACK_S = 0.005
"""Times of locks are told in whole milliseconds."""
SEEN_LATE_S = 1.0
"""How long before it was noted the loss of a broker may have ended a lock."""


def exclusive_locks(history: History) -> list[str]:
    """At most one lock on a message, and one on a session, at any time. A new epoch ends those of the one before, and
    from then on nobody of the old one gives any. None is lost before its time."""
    breaches: list[str] = []
    for deliveries, _ in history.places.values():
        breaches += _overlapping(history, [one for one in deliveries if one.event.token])
    return breaches + _stale_epochs(history) + _lost_early(history) + _shared_sessions(history)


def _overlapping(history: History, deliveries: list[Delivery]) -> list[str]:
    breaches: list[str] = []
    ordered = sorted(deliveries, key=lambda one: one.event.at)
    for at, first in enumerate(ordered):
        for second in ordered[at + 1 :]:
            if first.event.token == second.event.token:
                breaches.append(f"{named(first.event)} was given to two receivers under one lock")
            elif first.epoch == second.epoch and history.granted_at(second) < first.certain_until() - CLOCK_SLACK_S:
                breaches.append(f"{named(first.event)} was locked twice at one time")
    return breaches


def _stale_epochs(history: History) -> list[str]:
    newest: dict[tuple[str, int], tuple[int, float]] = {}
    breaches: list[str] = []
    plain = [one for one in history.deliveries if one.event.token and one.event.session is None]
    for delivery in sorted(plain, key=history.granted_at):
        place, granted_at = (delivery.event.entity, delivery.event.fragment), history.granted_at(delivery)
        epoch, since = newest.get(place, (0, 0.0))
        if delivery.epoch < epoch and granted_at > since + CLOCK_SLACK_S:
            breaches.append(f"{named(delivery.event)} was locked by an owner that had been replaced")
        elif delivery.epoch > epoch:
            newest[place] = delivery.epoch, granted_at
    return breaches


def _lost_early(history: History) -> list[str]:
    """A settlement refused for a lock that still ran, and whose broker lived."""
    breaches: list[str] = []
    for delivery in history.deliveries:
        for settlement in delivery.settlements:
            is_early = settlement.answered_at < min(delivery.locked_until, delivery.closed_at) - CLOCK_SLACK_S
            is_lost = settlement.outcome == "failed" and "LockLost" in settlement.error
            if is_lost and is_early and not _may_have_ended(history, delivery, settlement):
                breaches.append(f"the lock of {named(delivery.event)} was lost before its time")
    return breaches


def _may_have_ended(history: History, delivery: Delivery, settlement: Operation) -> bool:
    event, granted_at = delivery.event, history.granted_at(delivery)
    was_settled_before = any(one is not settlement and one.may_be_done for one in delivery.settlements)
    return was_settled_before or history.is_down_within(
        event.entity, event.fragment, granted_at - SEEN_LATE_S, settlement.answered_at
    )


def _shared_sessions(history: History) -> list[str]:
    breaches: list[str] = []
    sessions: dict[tuple[str, str | None], list[Holding]] = defaultdict(list)
    for holding in history.holdings:
        sessions[holding.event.entity, holding.event.session].append(holding)
    for (entity, session), holdings in sessions.items():
        ordered = sorted(holdings, key=lambda one: one.event.at)
        for first, second in pairwise(ordered):
            granted_at = second.event.locked_until - history.entities[entity].lock_s
            is_shared = granted_at < first.certain_until() - CLOCK_SLACK_S
            began_at = first.event.at - SEEN_LATE_S
            if is_shared and not history.is_down_within(entity, _fragment_in(first), began_at, second.event.at):
                breaches.append(f"session {session} of {entity} was held twice at one time")
    return breaches


def _fragment_in(holding: Holding) -> int | None:
    return holding.deliveries[0].event.fragment if holding.deliveries else None
