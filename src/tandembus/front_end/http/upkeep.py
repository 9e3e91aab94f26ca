"""What users of queues have long wished for, beyond the service's own routes: purge, delete one message, resubmit.

Each is about the waiting messages of one queue, subscription or dead-letter queue; none needs a receiver.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from aiohttp import web

from tandembus.clock import Clock
from tandembus.errors import InvalidArgument, InvalidOperation, MessageNotFound, Unauthorized
from tandembus.front_end.amqp.entity_link import send_checks
from tandembus.front_end.http.access import SUPPLEMENTARY, Access
from tandembus.front_end.http.message_paths import MESSAGES
from tandembus.front_end.http.metrics import JSON_CONTENT_TYPE
from tandembus.front_end.http.progress_stream import End, ProgressStream
from tandembus.front_end.http.request import allow
from tandembus.front_end.http.resubmission import Resubmission, count_moved
from tandembus.front_end.http.taking import Progress
from tandembus.front_end.http.values import parse_integer
from tandembus.metering.meter import Meter
from tandembus.metering.slot import DELETE_BATCH, NORMAL
from tandembus.namespace.entity import Entity
from tandembus.namespace.namespace import Namespace
from tandembus.namespace.paths import EntityAddress, SubQueue, decode_http_path, home_of, parse_address
from tandembus.security.claims import Claims, Right

EVERYTHING: Final = 2**63
_SEQUENCE_NUMBER: Final = re.compile(r"\d{1,19}", re.ASCII)


class Upkeep(Enum):
    """The value is how it is written behind the entity's path."""

    PURGE = "$purge"
    RESUBMIT = "$resubmit"
    DELETE_ONE = MESSAGES


METHODS: Final = {Upkeep.PURGE: "POST", Upkeep.RESUBMIT: "POST", Upkeep.DELETE_ONE: "DELETE"}


@dataclass(frozen=True, slots=True)
class UpkeepPath:
    upkeep: Upkeep
    address: EntityAddress
    sequence_number: int = 0


def parse_upkeep_path(raw_path: str) -> UpkeepPath | None:
    """None where a request is about something else."""
    segments = decode_http_path(raw_path).split("/")
    last = segments[-1].lower()
    if len(segments) > 1 and last in (Upkeep.PURGE.value, Upkeep.RESUBMIT.value):
        return UpkeepPath(Upkeep(last), parse_address("/" + "/".join(segments[:-1])))
    if len(segments) > 2 and segments[-2].lower() == MESSAGES and _SEQUENCE_NUMBER.fullmatch(last):
        return UpkeepPath(Upkeep.DELETE_ONE, parse_address("/" + "/".join(segments[:-2])), int(last))
    return None


class EntityUpkeep:
    def __init__(self, namespace: Namespace, access: Access, meter: Meter, clock: Clock) -> None:
        self._namespace = namespace
        self._access = access
        self._meter = meter
        self._clock = clock

    async def answer(self, request: web.Request, path: UpkeepPath) -> web.StreamResponse:
        allow(request, METHODS[path.upkeep])
        claims = self._access.check(request, Right.LISTEN, path.address.claim_path)
        entity = await self._namespace.entity(path.address.key)
        entity.check_can_receive(path.address.sub_queue.lane)
        entity.accessed_at = self._clock.now()
        with entity.in_use():
            if path.upkeep is Upkeep.PURGE:
                return await self._purge(entity, path.address.sub_queue)
            if path.upkeep is Upkeep.DELETE_ONE:
                return await self._delete_one(entity, path)
            return await self._resubmit(request, entity, path.address, claims)

    async def _purge(self, entity: Entity, sub_queue: SubQueue) -> web.Response:
        count = await self._namespace.purge(entity.name, sub_queue)
        self._meter.count(entity.entry.key, DELETE_BATCH, NORMAL, count, max(1, count), 0)
        return _json({"entity": entity.name + sub_queue.value, "purged": count})

    async def _delete_one(self, entity: Entity, path: UpkeepPath) -> web.Response:
        number = path.sequence_number
        if number >= EVERYTHING:
            raise MessageNotFound(f"There is no message with sequence number {number}.")
        await entity.requests.delete_one(path.address.sub_queue.lane, number)
        self._meter.count(entity.entry.key, DELETE_BATCH, NORMAL, 1, 1, 0)
        return web.Response()

    # Resubmitting.

    async def _resubmit(
        self, request: web.Request, source: Entity, address: EntityAddress, claims: Claims
    ) -> web.StreamResponse:
        if address.sub_queue is SubQueue.MAIN:
            raise InvalidOperation("Only dead letters can be resubmitted: the address ends with /$DeadLetterQueue.")
        chosen = request.query.get("to")
        max_count = parse_integer(request.query.get("max", str(EVERYTHING - 1)), "max")
        if max_count < 1:
            raise InvalidArgument("max must be at least 1.")
        target_address = parse_address("/" + (chosen or home_of(address)))
        if target_address.sub_queue is not SubQueue.MAIN or target_address.is_management:
            raise InvalidOperation("Dead letters can be resubmitted to a queue or topic.")
        proof = self._access.check_target(request, SUPPLEMENTARY, claims, target_address.claim_path)
        target = await self._namespace.entity(target_address.key)
        target.check_can_send()
        checks = send_checks(target, self._namespace.limits)
        lane = address.sub_queue.lane
        resubmission = Resubmission(source, lane, target, not chosen, checks)

        def check() -> None:
            if not (self._access.is_current(claims) and self._access.is_current(proof)):
                raise Unauthorized("The token has expired or is no longer valid.")
            source.check_can_receive(lane)
            target.check_can_send()

        def count(moved: int, moved_bytes: int) -> None:
            count_moved(self._meter, source, target, moved, moved_bytes)

        progress = Progress()
        stream = ProgressStream(_line, count, check, f"resubmitting the dead letters of '{source.name}'")
        with target.in_use():
            return await stream.run(request, progress, resubmission.run(progress, max_count))


def _line(progress: Progress, end: End | None) -> dict[str, object]:
    line: dict[str, object] = {"moved": progress.moved, "refused": progress.refused}
    if end is None:
        return line
    line["done"] = end.error is None
    if end.error is not None:
        line["error"] = end.error
    if progress.refusals:
        line["refusals"] = [{"sequence_number": number, "error": error} for number, error in progress.refusals]
    return line


def _json(document: dict[str, object]) -> web.Response:
    return web.Response(body=json.dumps(document).encode(), headers={"Content-Type": JSON_CONTENT_TYPE})
