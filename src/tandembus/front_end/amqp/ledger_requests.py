"""Requests about reservations: what this service does on `$management` beyond every other (docs/reservations.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tandembus.amqp.encoding.values import LONG, Array
from tandembus.broker.ledger import LOST_NAME
from tandembus.errors import InvalidArgument
from tandembus.front_end.amqp.requests import Body
from tandembus.limits import Limits
from tandembus.metering.slot import COMPLETE, PEEK, RESERVE
from tandembus.namespace.entity import Entity
from tandembus.namespace.entity_ledger import EntityLedger, Opened, Ranges, Reservation
from tandembus.store.messaging_store import NUMBER_MASK

LARGEST_LONG: Final = 2**63 - 1
MOST_FRAGMENTS: Final = 1 << 16
"""That sequence numbers can name."""

Answer = tuple[int, str | None, object]
Count = Callable[[str, int, int, int], None]


@dataclass(frozen=True, slots=True)
class BrowsedMessages:
    """The body of an answer with many messages in one block."""

    entries: dict[str, object]
    data: bytes


class LedgerRequests:
    def __init__(self, lane: int, limits: Limits, count: Count) -> None:
        self._lane = lane
        self._limits = limits
        self._count = count

    @property
    def operations(self) -> Mapping[str, Callable[[Entity, Body], Awaitable[Answer]]]:
        return {
            "tandembus:open-owner": self._open_owner,
            "tandembus:reserve": self._reserve,
            "tandembus:reserved": self._reserved,
            "tandembus:browse": self._browse,
            "tandembus:complete-ranges": self._complete,
            "tandembus:release": self._release,
            "tandembus:owners": self._owners,
            "tandembus:ends": self._ends,
        }

    def _ledger(self, entity: Entity) -> EntityLedger:
        return EntityLedger(entity.requests.ledgers, self._lane)

    def _ledger_of_owners(self, entity: Entity) -> EntityLedger:
        """Also of an entity that forwards its messages or is disabled by now: what was reserved before can be freed."""
        entity.check_is_no_topic()
        return self._ledger(entity)

    def _owner(self, body: Body) -> str:
        """Whoever it is: an operator may ask for what a lost owner has left behind."""
        owner = body.string("owner")
        most = self._limits.max_owner_length
        if not owner or len(owner) > most or not owner.isprintable():
            raise InvalidArgument(f"'owner' must be a string of 1 to {most} printable characters.")
        return owner

    def _own_name(self, body: Body) -> str:
        """Of somebody who is an owner, or wants to be one."""
        owner = self._owner(body)
        if owner.startswith(LOST_NAME):
            raise InvalidArgument(
                f"'owner' must not begin with '{LOST_NAME}': so those are called whose records are damaged. Such a one "
                "can be released, without an epoch."
            )
        return owner

    def _epoch(self, body: Body) -> int:
        return body.integer("epoch", least=0, most=LARGEST_LONG)

    def _owner_and_epoch(self, body: Body) -> tuple[str, int | None]:
        """The epoch is left out by an operator."""
        if body.is_missing("epoch"):
            return self._owner(body), None
        return self._own_name(body), self._epoch(body)

    def _counted(self) -> None:
        self._count(RESERVE, 0, 1, 0)

    async def _open_owner(self, entity: Entity, body: Body) -> Answer:
        entity.check_can_receive(self._lane)
        ledger, owner, most = self._ledger(entity), self._own_name(body), self._limits.max_owners
        if not body.is_missing("fragments"):
            opened = await ledger.extend(owner, self._epoch(body), body.integers("fragments", MOST_FRAGMENTS), most)
        elif body.flag("partial"):
            opened = await ledger.open_reachable(owner, most)
        else:
            opened = Opened(await ledger.open_owner(owner, most), ())
        self._counted()
        return 200, None, {"epoch": opened.epoch, "missing-fragments": Array(LONG, list(opened.missing_fragments))}

    async def _reserve(self, entity: Entity, body: Body) -> Answer:
        entity.check_can_receive(self._lane)
        limits = self._limits
        reservation = await self._ledger(entity).reserve(
            self._own_name(body),
            self._epoch(body),
            body.integer("request", least=0, most=LARGEST_LONG),
            min(body.integer("max-messages", least=1, most=LARGEST_LONG), limits.max_reserve_messages),
            body.integer("max-bytes", least=1, most=LARGEST_LONG),
            body.numbers_by_fragment("up-to", 0, NUMBER_MASK),
        )
        self._counted()
        missing = Array(LONG, list(reservation.missing_fragments))
        return 200, None, {"ranges": _ranges_value(reservation.ranges), "missing-fragments": missing}

    async def _reserved(self, entity: Entity, body: Body) -> Answer:
        ledger, known = self._ledger_of_owners(entity), self._owner_and_epoch(body)
        if body.flag("partial"):
            found = await ledger.reserved_in_reach(*known)
        else:
            found = Reservation(await ledger.reserved(*known), ())
        self._counted()
        missing = Array(LONG, list(found.missing_fragments))
        return 200, None, {"ranges": _ranges_value(found.ranges), "missing-fragments": missing}

    async def _browse(self, entity: Entity, body: Body) -> Answer:
        limits = self._limits
        found = await self._ledger(entity).browse(
            body.integer("fragment", least=0, most=None),
            body.integer("first", least=0, most=NUMBER_MASK),
            body.integer("last", least=0, most=NUMBER_MASK),
            min(body.integer("max-messages", least=1, most=None), limits.max_management_messages),
            min(body.integer("max-bytes", least=1, most=None), limits.max_browse_bytes),
        )
        self._count(PEEK, found.count, max(1, found.units), len(found.data))
        return 200, None, BrowsedMessages({"message-count": found.count, "next": found.next_number}, found.data)

    async def _complete(self, entity: Entity, body: Body) -> Answer:
        ranges = body.ranges("ranges", self._limits.max_ranges, NUMBER_MASK)
        count = await self._ledger_of_owners(entity).complete(self._own_name(body), self._epoch(body), ranges)
        self._count(COMPLETE, count, max(1, count), 0)
        return 200, None, {"message-count": count}

    async def _release(self, entity: Entity, body: Body) -> Answer:
        owner, epoch = self._owner_and_epoch(body)
        ranges = None if body.is_missing("ranges") else body.ranges("ranges", self._limits.max_ranges, NUMBER_MASK)
        count = await self._ledger_of_owners(entity).release(owner, epoch, ranges)
        self._counted()
        return 200, None, {"message-count": count}

    async def _owners(self, entity: Entity, _body: Body) -> Answer:
        owners = await self._ledger_of_owners(entity).owners()
        self._counted()
        listed = [{"owner": name, "epoch": epoch, "message-count": count} for name, epoch, count in owners]
        return 200, None, {"owners": listed}

    async def _ends(self, entity: Entity, body: Body) -> Answer:
        entity.check_can_receive(self._lane)
        chosen = [] if body.is_missing("fragments") else body.integers("fragments", MOST_FRAGMENTS)
        ends = await self._ledger(entity).ends(chosen)
        self._counted()
        return 200, None, {"ends": dict(ends)}


def _ranges_value(ranges: Ranges) -> dict[object, object]:
    """First and last number of each range, by fragment."""
    return {index: Array(LONG, [number for one in parts for number in one]) for index, parts in ranges.items() if parts}
