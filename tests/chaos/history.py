"""A history put in order: every send with what came of it, every delivery with its lock and its settlements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from tests.chaos.events import NUMBER_BITS, OUTCOMES, Event

NEVER = float("inf")
BESIDE = ("secondary", "syphon")
"""What can be lost of a pair, and the entities do not lie in it."""
NUMBER_MASK = (1 << NUMBER_BITS) - 1
EPOCH_AT = slice(4, 12)
"""Where a lock token, in hexadecimal digits, names the epoch of the broker that gave it."""


@dataclass(slots=True)
class Operation:
    """Something asked for: a send, a settlement, the end of a transaction."""

    event: Event
    outcome: str = "unknown"
    answered_at: float = NEVER
    error: str = ""

    @property
    def invoked_at(self) -> float:
        return self.event.at

    @property
    def is_done(self) -> bool:
        return self.outcome == "ok"

    @property
    def may_be_done(self) -> bool:
        return self.outcome != "failed"


@dataclass(slots=True)
class Delivery:
    event: Event
    locked_until: float
    closed_at: float = NEVER
    settlements: list[Operation] = field(default_factory=list)

    @property
    def epoch(self) -> int:
        """Of the broker that gave the lock; the token tells."""
        return int(self.event.token[EPOCH_AT], 16) if len(self.event.token) == 32 else 0

    @property
    def is_consumed(self) -> bool:
        """Certainly or possibly: its receiver wanted it gone, and was not told that it is not."""
        return any(one.event.how == "complete" and one.may_be_done for one in self.settlements)

    def certain_until(self) -> float:
        """Until when its lock was held for certain: whatever may have ended it first. A settlement ends it at some time
        after it was asked for."""
        settled_at = min((one.invoked_at for one in self.settlements), default=NEVER)
        return min(self.locked_until, self.closed_at, settled_at)


@dataclass(slots=True)
class Holding:
    """A session in the hands of one receiver."""

    event: Event
    locked_until: float
    closed_at: float = NEVER
    deliveries: list[Delivery] = field(default_factory=list)

    def certain_until(self) -> float:
        return min(self.locked_until, self.closed_at)


@dataclass(slots=True)
class Failover:
    """A spell in which the senders of an entity send to the backlog."""

    event: Event
    healthy_at: float = NEVER

    @property
    def engaged_at(self) -> float:
        return self.event.at


class History:
    """Everything that a run's lines say, by what belongs together."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.seed = 0
        self.note = ""
        self.entities: dict[str, Event] = {}
        self.sends: list[Operation] = []
        self.settlements: list[Operation] = []
        self.endings: dict[int, Operation] = {}
        """Commits and rollbacks by their transaction."""
        self.deliveries: list[Delivery] = []
        self.holdings: list[Holding] = []
        self.downs: list[Event] = []
        self.ups: list[Event] = []
        self.counts: dict[str, Event] = {}
        self.left: list[Event] = []
        self.failovers: dict[str, list[Failover]] = defaultdict(list)
        """By entity, one after the other."""
        self.held: dict[int, set[tuple[str, str]]] = defaultdict(set)
        """What a killed syphon had in its hands: entity and id, by the number of the loss."""
        self.faulty: list[str] = []
        """What the lines contradict themselves in: such a history proves nothing."""
        self._operations: dict[int, Operation] = {}
        self._by_token: dict[str, Delivery] = {}
        self._open: dict[int, Holding] = {}
        self._of_receiver: dict[int, list[Delivery]] = defaultdict(list)
        for event in events:
            self._take(event)
        self._by_id: dict[tuple[str, str], list[Operation]] = defaultdict(list)
        for send in self.sends:
            self._by_id[send.event.entity, send.event.id].append(send)

    def sends_of(self, entity: str, message_id: str) -> list[Operation]:
        """Who sent what came out of this entity: into itself, or into what feeds it."""
        described = self.entities.get(entity)
        source = described.source if described is not None and described.source else entity
        return self._by_id.get((source, message_id), [])

    def fed_by(self, entity: str) -> list[str]:
        """The entities that messages sent to this one can be received from."""
        fed = [one.entity for one in self.entities.values() if one.source == entity]
        return fed or [entity]

    def is_stored(self, send: Operation) -> bool:
        """Whether it must be there: accepted, and its transaction, if any, committed."""
        ending = self.endings.get(send.event.transaction)
        if send.event.transaction:
            return ending is not None and ending.event.kind == "commit" and ending.is_done
        return send.is_done

    def may_be_stored(self, send: Operation) -> bool:
        ending = self.endings.get(send.event.transaction)
        if send.event.transaction:
            return ending is not None and ending.event.kind == "commit" and ending.may_be_done
        return send.may_be_done

    def granted_at(self, delivery: Delivery) -> float:
        """When the lock was given, by the service's clock; without one of its own: when it was seen."""
        described = self.entities[delivery.event.entity]
        if not delivery.event.token or described.has_sessions:
            return delivery.event.at
        return delivery.event.locked_until - described.lock_s

    @cached_property
    def numbers(self) -> dict[tuple[str, str], set[int]]:
        """The sequence numbers under which each message was seen."""
        numbers: dict[tuple[str, str], set[int]] = defaultdict(set)
        for seen in [one.event for one in self.deliveries] + self.left:
            numbers[seen.entity, seen.id].add(seen.number)
        return dict(numbers)

    @cached_property
    def places(self) -> dict[tuple[str, int], tuple[list[Delivery], list[Event]]]:
        """By entity and sequence number: the deliveries, and what is left of it."""
        places: dict[tuple[str, int], tuple[list[Delivery], list[Event]]] = defaultdict(lambda: ([], []))
        for delivery in self.deliveries:
            places[delivery.event.entity, delivery.event.number][0].append(delivery)
        for one in self.left:
            places[one.entity, one.number][1].append(one)
        return dict(places)

    def is_down_within(self, entity: str, fragment: int | None, first: float, last: float) -> bool:
        """Whether this place was lost between two moments; None: any fragment of the entity may be meant."""
        return any(
            first <= down.at + down.took_s and down.at <= last and self._concerns(down, entity, fragment)
            for down in self.downs
        )

    def _concerns(self, down: Event, entity: str, fragment: int | None) -> bool:
        """A subscription lies where its topic does. What is forwarded lies somewhere else than it was sent to."""
        if down.how in BESIDE:
            return False
        if not down.places:
            return True
        described = self.entities.get(entity)
        source = described.source if described is not None and described.source else entity
        if fragment is None:
            return bool(down.places.get(source) or down.places.get(entity))
        return fragment in down.places.get(entity, down.places.get(source, []))

    def _take(self, event: Event) -> None:
        if event.kind in OUTCOMES:
            self._answer(event)
        elif event.kind in ("send", "settle", "commit", "rollback"):
            self._begin(event)
        elif event.kind == "received":
            self._receive(event)
        elif event.kind in ("session", "closed", "renewed"):
            self._hold(event)
        else:
            self._note(event)

    def _note(self, event: Event) -> None:
        if event.kind == "run":
            self.seed, self.note = event.seed, event.note
        elif event.kind == "entity":
            self.entities[event.entity] = event
        elif event.kind in ("failover", "healthy"):
            self._fail_over(event)
        elif event.kind == "held":
            self.held[event.kill].add((event.entity, event.id))
        elif event.kind == "count":
            self.counts[event.entity] = event
        else:
            {"down": self.downs, "up": self.ups, "left": self.left}[event.kind].append(event)

    def _fail_over(self, event: Event) -> None:
        spells = self.failovers[event.entity]
        is_over = not spells or spells[-1].healthy_at != NEVER
        if (event.kind == "failover") is not is_over:
            self.faulty.append(f"{event.entity} cannot become {event.kind} at {event.at}")
        elif event.kind == "failover":
            spells.append(Failover(event))
        else:
            spells[-1].healthy_at = event.at

    def _begin(self, event: Event) -> None:
        if event.op in self._operations:
            self.faulty.append(f"operation {event.op} begins twice")
        operation = self._operations[event.op] = Operation(event)
        if event.kind == "send":
            self.sends.append(operation)
        elif event.kind == "settle":
            self.settlements.append(operation)
            delivery = self._by_token.get(event.token)
            if delivery is None:
                self.faulty.append(f"operation {event.op} settles what was never received")
            else:
                delivery.settlements.append(operation)
        else:
            self.endings[event.transaction] = operation

    def _answer(self, event: Event) -> None:
        operation = self._operations.get(event.op)
        if operation is None or operation.answered_at != NEVER:
            self.faulty.append(f"operation {event.op} is answered, and is not under way")
            return
        operation.outcome, operation.answered_at, operation.error = event.kind, event.at, event.error

    def _receive(self, event: Event) -> None:
        delivery = Delivery(event, event.locked_until)
        self.deliveries.append(delivery)
        self._of_receiver[event.receiver].append(delivery)
        if event.token:
            self._by_token[event.token] = delivery
        holding = self._open.get(event.receiver)
        if holding is not None:
            holding.deliveries.append(delivery)

    def _hold(self, event: Event) -> None:
        if event.kind == "session":
            holding = self._open[event.receiver] = Holding(event, event.locked_until)
            self.holdings.append(holding)
        elif event.kind == "renewed":
            delivery = self._by_token.get(event.token)
            if delivery is not None:
                delivery.locked_until = event.locked_until
            elif event.receiver in self._open:
                self._open[event.receiver].locked_until = event.locked_until
        else:
            self._close(event)

    def _close(self, event: Event) -> None:
        held = self._open.pop(event.receiver, None)
        if held is not None:
            held.closed_at = event.at
        for delivery in self._of_receiver.pop(event.receiver, ()):
            if delivery.event.session is not None:
                delivery.closed_at = event.at


def fragment_of(number: int) -> int:
    return number >> NUMBER_BITS


def name_of(place: tuple[str, str]) -> str:
    return f"{place[1]} in {place[0]}"


def named(event: Event) -> str:
    return f"{event.id} ({fragment_of(event.number)}:{event.number & NUMBER_MASK}) in {event.entity}"
