"""One message sent again as somebody has edited it, and if they say so in place of the original.

The original goes only when the new one is durable: an interruption may leave both, and never none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from tandembus.broker.locks import COMPLETE
from tandembus.errors import InvalidArgument, InvalidOperation
from tandembus.front_end.http.access import SUPPLEMENTARY, Access
from tandembus.front_end.http.api.browsing import Browsing
from tandembus.front_end.http.api.message_json import STATES
from tandembus.front_end.http.api.places import address_of, check_can_take_out, place_of, sequence_number
from tandembus.front_end.http.api.routes import Route, asked, told
from tandembus.front_end.http.api.sending import Sending, read_message_document
from tandembus.front_end.http.resubmission import why_dropped
from tandembus.front_end.http.taking import Taking, give_back
from tandembus.interconnect.answers import settle_all
from tandembus.metering.meter import Meter
from tandembus.metering.slot import DELETE_BATCH, NORMAL
from tandembus.namespace.entity import Entity
from tandembus.namespace.namespace import Namespace
from tandembus.namespace.paths import SubQueue, home_of
from tandembus.security.claims import Right

REMOVE: Final = "remove"
_SCHEDULED: Final = STATES.index("scheduled")


class Resending:
    def __init__(
        self, namespace: Namespace, access: Access, meter: Meter, browsing: Browsing, sending: Sending
    ) -> None:
        self._namespace = namespace
        self._access = access
        self._meter = meter
        self._browsing = browsing
        self._sending = sending

    def routes(self) -> list[Route]:
        return [Route("POST", "messages/resend", self._resend)]

    async def _resend(self, request: web.Request) -> web.Response:
        address = place_of(request)
        claims = self._access.check(request, Right.LISTEN, address.claim_path)
        target_address = address_of(request.query.get("to") or home_of(address))
        if target_address.sub_queue is not SubQueue.MAIN:
            raise InvalidOperation("Messages can be sent to a queue or topic.")
        self._access.check_target(request, SUPPLEMENTARY, claims, target_address.claim_path)
        number = sequence_number(asked(request, "sequence_number"), "sequence_number")
        source = await self._namespace.entity(address.key)
        target = await self._namespace.entity(target_address.key)
        target.check_can_send()
        document = await read_message_document(request, target, self._namespace.limits)
        is_removed = _is_removed(document)
        with self._browsing.in_use(source), self._browsing.in_use(target):
            lane = address.sub_queue.lane
            if is_removed:
                check_can_take_out(source, lane)
                sent = await self._replace(source, lane, number, target, document)
            else:
                sent = await self._send(source, lane, number, target, document)
        return told({"sequence_number": str(sent) if sent else None, "removed": is_removed}, 201)

    async def _send(
        self, source: Entity, lane: int, number: int, target: Entity, document: Mapping[str, object]
    ) -> int:
        original = (await self._browsing.find(source, lane, number)).message
        body = original.sections[int(original.application_end) :]
        return await self._sending.store(target, self._sending.read(target, document, body))

    async def _replace(
        self, source: Entity, lane: int, number: int, target: Entity, document: Mapping[str, object]
    ) -> int:
        await source.requests.ends(lane)  # what is kept ready for receivers goes back for this
        if (await self._browsing.find(source, lane, number)).state == _SCHEDULED:
            return await self._replace_scheduled(source, lane, number, target, document)
        lock, original = await Taking(source, lane).one(number)
        try:
            body = original.sections[int(original.application_end) :]
            sent = await self._sending.store(target, self._sending.read(target, document, body))
            if not sent:
                raise InvalidOperation(why_dropped(target))
        except BaseException:
            give_back(source, lock)
            raise
        await settle_all(source.traffic, [lock], COMPLETE)
        self._count_removed(source)
        return sent

    async def _replace_scheduled(
        self, source: Entity, lane: int, number: int, target: Entity, document: Mapping[str, object]
    ) -> int:
        """Nobody can hold one: it may come due before it is deleted, and then both are there."""
        sent = await self._send(source, lane, number, target, document)
        if not sent:
            raise InvalidOperation(why_dropped(target))
        await source.requests.delete_one(lane, number)
        self._count_removed(source)
        return sent

    def _count_removed(self, source: Entity) -> None:
        self._meter.count(source.entry.key, DELETE_BATCH, NORMAL, 1, 1, 0)


def _is_removed(document: dict[str, object]) -> bool:
    """Takes it out: the rest is the message."""
    is_removed = document.pop(REMOVE, False)
    if not isinstance(is_removed, bool):
        raise InvalidArgument(f"{REMOVE} must be true or false.")
    return is_removed
