"""Reservations: messages of an entity set aside for one owner, without locks, until it settles or releases them.

A tandembus namespace offers this beyond every Service Bus (docs/reservations.md); other services answer with
`NotSupported`. An owner is a name, and whoever opens it gets an epoch: calls under an older one raise `StaleEpoch`.
Everything here may be called again when an answer was lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from tandembus.amqp.encoding.message_parts import sized_parts
from tandembus.amqp.encoding.values import LONG, Array, uint
from tandembus.client.addresses import MANAGEMENT_NODE
from tandembus.client.connection import Connection
from tandembus.client.errors import failure_of_status
from tandembus.client.management import STATUS_NAMES
from tandembus.client.request_link import Answer, RequestLink
from tandembus.errors import InvalidArgument, MalformedData, StaleEpoch

__all__ = ["Browsed", "Opened", "OwnerInfo", "Ranges", "Reservation", "Reservations", "StaleEpoch"]

Ranges = dict[int, list[tuple[int, int]]]
"""By fragment, the first and last number of each range, both included: the low 48 bits of sequence numbers. A plain
entity has fragment 0 only."""

MAX_RANGES: Final = 4096
"""In one request; more are sent in several."""
OK: Final = 200


@dataclass(frozen=True, slots=True)
class Reservation:
    ranges: Ranges
    missing_fragments: tuple[int, ...] = ()
    """Out of reach at the moment: what they have is left for later."""


@dataclass(frozen=True, slots=True)
class Opened:
    epoch: int
    missing_fragments: tuple[int, ...] = ()
    """Out of reach: they refuse the epoch until `extend` makes it known to them."""


@dataclass(frozen=True, slots=True)
class Browsed:
    messages: list[bytes]
    """Encoded AMQP messages with the annotations of a peek."""
    next: int | None
    """Where to go on; None: the range is done."""


@dataclass(frozen=True, slots=True)
class OwnerInfo:
    owner: str
    epoch: int
    message_count: int


class Reservations:
    """The reservations of one entity. Made by `ServiceBus.reservations`."""

    def __init__(self, connection: Connection, address: str) -> None:
        self.address: Final = address
        self._timeout_ms: Final = int(connection.timeout_s * 1000)
        self._node: Final = RequestLink(connection, f"{address}/{MANAGEMENT_NODE}", STATUS_NAMES)

    async def open(self) -> None:
        await self._node.open()

    async def close(self) -> None:
        await self._node.close()

    async def __aenter__(self) -> Reservations:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def is_lost(self) -> bool:
        """Its links are gone, and it answers no more."""
        return self._node.is_lost

    async def open_owner(self, owner: str) -> int:
        """A new epoch; whoever uses an older one gets `StaleEpoch` from now on."""
        return _integer(await self._ask("open-owner", {"owner": owner}), "epoch")

    async def open_reachable(self, owner: str) -> Opened:
        """Like `open_owner`, in the fragments that can be reached; fails where none can be."""
        return _opened(await self._ask("open-owner", {"owner": owner, "partial": True}))

    async def extend(self, owner: str, epoch: int, fragments: Sequence[int]) -> Opened:
        """Make an epoch known to fragments that were missing; raises `StaleEpoch` if one of them has a newer one."""
        body: dict[str, object] = {"owner": owner, "epoch": epoch, "fragments": Array(LONG, list(fragments))}
        return _opened(await self._ask("open-owner", body))

    async def reserve(
        self,
        owner: str,
        epoch: int,
        request: int,
        max_messages: int,
        max_bytes: int,
        up_to: Mapping[int, int] | None = None,
    ) -> Reservation:
        """Reserve active messages, in order in each fragment. Request numbers grow within an epoch: the same one gets
        the same answer, unless that was empty. `up_to`: no further than to these numbers, by fragment."""
        body: dict[str, object] = {
            "owner": owner,
            "epoch": epoch,
            "request": request,
            "max-messages": max_messages,
            "max-bytes": max_bytes,
        }
        if up_to is not None:
            body["up-to"] = dict(up_to)
        answer = await self._ask("reserve", body)
        return Reservation(_ranges_in(answer), _missing_in(answer))

    async def reserved(self, owner: str, epoch: int | None = None) -> Ranges:
        """All that the owner has reserved and not settled or released."""
        body: dict[str, object] = {"owner": owner}
        if epoch is not None:
            body["epoch"] = epoch
        return _ranges_in(await self._ask("reserved", body))

    async def reserved_in_reach(self, owner: str, epoch: int) -> Reservation:
        """Like `reserved`, without the fragments that cannot be reached; fails where none can be."""
        answer = await self._ask("reserved", {"owner": owner, "epoch": epoch, "partial": True})
        return Reservation(_ranges_in(answer), _missing_in(answer))

    async def browse(self, fragment: int, first: int, last: int, max_messages: int, max_bytes: int) -> Browsed:
        """Messages of a range in any state, at least one if there is one; the service may give fewer than asked for."""
        body: dict[str, object] = {
            "fragment": fragment,
            "first": first,
            "last": last,
            "max-messages": max_messages,
            "max-bytes": max_bytes,
        }
        answer = await self._ask("browse", body)
        data, following = answer.fields.get("messages"), answer.fields.get("next")
        return Browsed(_messages_in(data), following if isinstance(following, int) else None)

    async def complete_ranges(self, owner: str, epoch: int, ranges: Ranges) -> int:
        """Settle what the owner has reserved of these ranges; returns how many messages it were."""
        count = 0
        for part in _parts(ranges):
            body: dict[str, object] = {"owner": owner, "epoch": epoch, "ranges": part}
            count += _integer(await self._ask("complete-ranges", body), "message-count")
        return count

    async def release(self, owner: str, epoch: int | None = None, ranges: Ranges | None = None) -> int:
        """Make reserved messages available again, in their old places; returns how many. Without an epoch it is done on
        the operator's behalf; without ranges it is all, and then the owner is given up, too."""
        body: dict[str, object] = {"owner": owner}
        if epoch is not None:
            body["epoch"] = epoch
        if ranges is None:
            return _integer(await self._ask("release", body), "message-count")
        count = 0
        for part in _parts(ranges):
            count += _integer(await self._ask("release", {**body, "ranges": part}), "message-count")
        return count

    async def owners(self) -> list[OwnerInfo]:
        found = (await self._ask("owners", {})).fields.get("owners")
        entries = found if isinstance(found, list) else []
        return [
            OwnerInfo(str(one.get("owner")), int(one.get("epoch") or 0), int(one.get("message-count") or 0))
            for one in entries
            if isinstance(one, dict)
        ]

    async def ends(self, fragments: Sequence[int] = ()) -> dict[int, int]:
        """The last number given out, by fragment; 0: none yet. `fragments`: of these; empty: of all."""
        body: dict[str, object] = {"fragments": Array(LONG, list(fragments))} if fragments else {}
        found = (await self._ask("ends", body)).fields.get("ends")
        return {int(index): int(end) for index, end in found.items()} if isinstance(found, dict) else {}

    async def _ask(self, operation: str, body: dict[str, object]) -> Answer:
        properties: dict[str, object] = {
            "operation": f"tandembus:{operation}",
            "com.microsoft:server-timeout": uint(self._timeout_ms),
        }
        answer = await self._node.request(body, properties)
        if answer.status != OK:
            raise failure_of_status(answer.status, answer.condition, answer.description)
        return answer


def _parts(ranges: Ranges) -> Iterator[dict[object, object]]:
    """As many requests as it takes."""
    part: dict[object, object] = {}
    room = MAX_RANGES
    for fragment, pairs in sorted(ranges.items()):
        position = 0
        while position < len(pairs):
            taken = pairs[position : position + room]
            position += len(taken)
            room -= len(taken)
            part[fragment] = Array(LONG, _flat(taken))
            if room == 0:
                yield part
                part, room = {}, MAX_RANGES
    if part:
        yield part


def _flat(pairs: Sequence[tuple[int, int]]) -> list[object]:
    for first, last in pairs:
        if not 0 <= first <= last:
            raise InvalidArgument(f"{first} to {last} is no range.")
    return [number for one in pairs for number in one]


def _ranges_in(answer: Answer) -> Ranges:
    found = answer.fields.get("ranges")
    if not isinstance(found, dict):
        raise MalformedData("an answer without ranges")
    return {int(index): list(zip(numbers[::2], numbers[1::2], strict=True)) for index, numbers in found.items()}


def _missing_in(answer: Answer) -> tuple[int, ...]:
    missing = answer.fields.get("missing-fragments")
    return tuple(missing) if isinstance(missing, list) else ()


def _opened(answer: Answer) -> Opened:
    return Opened(_integer(answer, "epoch"), _missing_in(answer))


def _integer(answer: Answer, name: str) -> int:
    value = answer.fields.get(name)
    if not isinstance(value, int):
        raise MalformedData(f"an answer without '{name}'")
    return value


def _messages_in(data: object) -> list[bytes]:
    if not isinstance(data, bytes):
        raise MalformedData("an answer without messages")
    return sized_parts(data)
