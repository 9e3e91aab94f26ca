"""Messages to look at: lists of them, one with its body, why dead letters died, and which sessions there are.

Nothing is locked or changed by looking. A fragment that is out of reach is passed over, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web

from tandembus.descriptions import EntityKind
from tandembus.errors import FragmentUnavailable, InvalidOperation, MessageNotFound
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.api.message_json import (
    LISTED_BODY_BYTES,
    SHOWN_BODY_BYTES,
    MessageJson,
    dead_letter_reason,
    message_json,
    size_of,
)
from tandembus.front_end.http.api.places import (
    has_sessions,
    integer_in,
    place_of,
    sequence_number,
)
from tandembus.front_end.http.api.routes import Route, asked, told
from tandembus.front_end.http.api.scanning import PAGE_MESSAGES, Scan, Wanted, wanted_in
from tandembus.interconnect.requests import Browsed, Listing
from tandembus.metering.meter import Meter
from tandembus.metering.reasons import reason_to_receive
from tandembus.metering.slot import LIST_SESSIONS
from tandembus.namespace.entity import Entity
from tandembus.namespace.namespace import Namespace
from tandembus.namespace.paths import EntityAddress, SubQueue
from tandembus.security.claims import Claims, Right

DEFAULT_TOP: Final = 50
MAX_TOP: Final = 200
SCAN_MESSAGES: Final = 5_000
SCAN_BYTES: Final = 8 * 1024 * 1024
"""Looked at for one page."""
PAGE_OUT_BYTES: Final = 2 * 1024 * 1024
"""Of messages in one page, bodies as far as they are shown; there is always one."""
REASON_MESSAGES: Final = 20_000
REASON_BYTES: Final = 32 * 1024 * 1024
MAX_REASONS: Final = 200
MAX_SESSIONS: Final = 1_000
MAX_SKIP: Final = 2**31 - 1


class Browsing:
    def __init__(self, namespace: Namespace, access: Access, meter: Meter) -> None:
        self._namespace = namespace
        self._access = access
        self._meter = meter

    def routes(self) -> list[Route]:
        return [
            Route("GET", "messages", self._list),
            Route("GET", "message", self._one),
            Route("GET", "messages/reasons", self._reasons),
            Route("GET", "sessions", self._sessions),
        ]

    async def looked_at(self, request: web.Request) -> tuple[Claims, Entity, int]:
        """Who looks, at what entity, in which of its lanes."""
        address = place_of(request)
        claims = self._access.check(request, Right.LISTEN, address.claim_path)
        entity = await self._namespace.entity(address.key)
        _check_can_look(entity, address)
        return claims, entity, address.sub_queue.lane

    @contextmanager
    def in_use(self, entity: Entity) -> Iterator[None]:
        entity.accessed_at = self._namespace.clock.now()
        with entity.in_use():
            yield

    def scan(self, entity: Entity, lane: int) -> Scan:
        return Scan(entity, lane, self._namespace.limits, self._meter)

    async def _list(self, request: web.Request) -> web.Response:
        _, entity, lane = await self.looked_at(request)
        wanted = wanted_in(request, self._namespace.limits)
        first = sequence_number(request.query.get("from", "0"), "from")
        top = integer_in(request, "top", DEFAULT_TOP, 1, MAX_TOP)
        page_messages = top + 1 if wanted == Wanted() else PAGE_MESSAGES
        with self.in_use(entity):
            scan = self.scan(entity, lane)
            found: list[MessageJson] = []
            room = PAGE_OUT_BYTES
            next_number: int | None = None
            async for one in scan.messages(first, wanted, SCAN_MESSAGES, SCAN_BYTES, page_messages):
                if len(found) == top or room <= 0:
                    next_number = one.sequence_number
                    break
                found.append(told_of(one, LISTED_BODY_BYTES))
                room -= _listed_bytes(one)
            else:
                next_number = scan.next_number
        goes_on = None if next_number is None else str(next_number)
        is_partial = entity.is_limited()
        return told({"messages": found, "next": goes_on, "scanned": scan.scanned, "is_partial": is_partial})

    async def _one(self, request: web.Request) -> web.Response:
        _, entity, lane = await self.looked_at(request)
        number = sequence_number(asked(request, "sequence_number"), "sequence_number")
        with self.in_use(entity):
            return told(told_of(await self.find(entity, lane, number), SHOWN_BODY_BYTES))

    async def find(self, entity: Entity, lane: int, number: int) -> Browsed:
        """Raises MessageNotFound, or FragmentUnavailable where it may be in a fragment that is out of reach."""
        async for one in self.scan(entity, lane).messages(number, Wanted(), 1, page_messages=1):
            if one.sequence_number == number:
                return one
        if entity.is_limited():
            raise FragmentUnavailable(f"The message {number} was not found, but not every fragment can be reached.")
        raise MessageNotFound(f"There is no message with sequence number {number}.")

    async def _reasons(self, request: web.Request) -> web.Response:
        _, entity, lane = await self.looked_at(request)
        counts: dict[str | None, int] = {}
        is_complete = True
        with self.in_use(entity):
            scan = self.scan(entity, lane)
            async for one in scan.messages(0, Wanted(), REASON_MESSAGES, REASON_BYTES):
                reason = dead_letter_reason(one.message) or None
                if reason in counts or len(counts) < MAX_REASONS:
                    counts[reason] = counts.get(reason, 0) + 1
                else:
                    is_complete = False
        by_count = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0] or ""))
        reasons = [{"reason": reason, "count": count} for reason, count in by_count]
        is_complete = is_complete and scan.next_number is None and not entity.is_limited()
        return told({"reasons": reasons, "scanned": scan.scanned, "is_complete": is_complete})

    async def _sessions(self, request: web.Request) -> web.Response:
        _, entity, lane = await self.looked_at(request)
        if not has_sessions(entity, lane):
            raise InvalidOperation(f"'{entity.name}' does not require sessions: it has none to list.")
        skip = integer_in(request, "skip", 0, 0, MAX_SKIP)
        top = integer_in(request, "top", DEFAULT_TOP, 1, MAX_SESSIONS)
        with self.in_use(entity):
            ids = list(await entity.requests.list_sessions(None, skip, top + 1, Listing()))
        key = entity.entry.key
        self._meter.count(key, LIST_SESSIONS, reason_to_receive(key), 0, 1, 0)
        return told({"sessions": ids[:top], "has_more": len(ids) > top})


def told_of(one: Browsed, max_body_bytes: int) -> MessageJson:
    return message_json(one.message, one.sequence_number, one.state, max_body_bytes)


def _check_can_look(entity: Entity, address: EntityAddress) -> None:
    if entity.kind is EntityKind.TOPIC and address.sub_queue is SubQueue.DEAD_LETTER:
        raise InvalidOperation(f"'{entity.name}' is a topic: dead letters are in its subscriptions.")


def _listed_bytes(one: Browsed) -> int:
    body_bytes = len(one.message.sections) - int(one.message.application_end)
    return size_of(one.message) - max(body_bytes - LISTED_BODY_BYTES, 0)
