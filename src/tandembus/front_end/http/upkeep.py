"""What users of queues have long wished for, beyond the service's own routes: purge, delete one message, resubmit.

Each is about the waiting messages of one queue, subscription or dead-letter queue; none needs a receiver.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from aiohttp import web

from tandembus.clock import Clock
from tandembus.errors import BusError, InvalidArgument, InvalidOperation, MessageNotFound, Unauthorized
from tandembus.front_end.amqp.entity_link import send_checks
from tandembus.front_end.http.access import SUPPLEMENTARY, Access
from tandembus.front_end.http.message_paths import MESSAGES
from tandembus.front_end.http.metrics import JSON_CONTENT_TYPE
from tandembus.front_end.http.request import allow
from tandembus.front_end.http.resubmission import Progress, Resubmission
from tandembus.front_end.http.values import parse_integer
from tandembus.metering.meter import Meter
from tandembus.metering.slot import COMPLETE, DELETE_BATCH, NORMAL, RECEIVE, SEND
from tandembus.namespace.entity import Entity
from tandembus.namespace.namespace import Namespace
from tandembus.namespace.paths import EntityAddress, SubQueue, decode_http_path, parse_address, split_subscription
from tandembus.security.claims import Claims, Right

logger = logging.getLogger(__name__)

LINES_CONTENT_TYPE: Final = "application/x-ndjson"
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
        target_address = parse_address("/" + (chosen or _home(address)))
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

        with target.in_use():
            return await self._stream(request, resubmission, source, target, max_count, check)

    async def _stream(
        self,
        request: web.Request,
        resubmission: Resubmission,
        source: Entity,
        target: Entity,
        max_count: int,
        check: Callable[[], None],
    ) -> web.StreamResponse:
        """A line of JSON for every slice that was moved; the last one says that it is the last, and why. `check` raises
        when what was allowed at first is so no longer."""
        response = web.StreamResponse(headers={"Content-Type": LINES_CONTENT_TYPE})
        await response.prepare(request)
        progress = Progress()
        moved = moved_bytes = 0
        end: dict[str, object] = {"done": True}
        try:
            async for progress in resubmission.run(max_count):
                self._count(source, target, progress.moved - moved, progress.moved_bytes - moved_bytes)
                moved, moved_bytes = progress.moved, progress.moved_bytes
                await response.write(_line(progress, {}))
                check()
        except BusError as error:
            end = {"done": False, "error": str(error)}
        except ConnectionError:
            raise
        except Exception:
            # The answer has begun: nobody else can say it any more.
            logger.exception("a fault of ours in resubmitting the dead letters of '%s'", source.name)
            end = {"done": False, "error": "The namespace failed to carry out the request."}
        await response.write(_line(progress, end))
        await response.write_eof()
        return response

    def _count(self, source: Entity, target: Entity, count: int, size_bytes: int) -> None:
        for key, operation in ((source.entry.key, RECEIVE), (source.entry.key, COMPLETE), (target.entry.key, SEND)):
            self._meter.count(key, operation, NORMAL, count, count, 0 if operation == COMPLETE else size_bytes)


def _home(address: EntityAddress) -> str:
    """Where messages of this entity are sent to: a subscription's come through its topic."""
    found = split_subscription(address.path)
    return address.path if found is None else found[0]


def _line(progress: Progress, more: dict[str, object]) -> bytes:
    refusals = [{"sequence_number": number, "error": error} for number, error in progress.refusals]
    line: dict[str, object] = {"moved": progress.moved, "refused": progress.refused, **more}
    if more and refusals:
        line["refusals"] = refusals
    return json.dumps(line).encode() + b"\n"


def _json(document: dict[str, object]) -> web.Response:
    return web.Response(body=json.dumps(document).encode(), headers={"Content-Type": JSON_CONTENT_TYPE})
