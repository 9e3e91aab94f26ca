"""Messages with their whole bodies, as lines of JSON: as fast as they are read, however many there are."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from functools import partial

from aiohttp import web

from tandembus.errors import BusError, Unauthorized
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.api.browsing import Browsing, told_of
from tandembus.front_end.http.api.message_json import WHOLE
from tandembus.front_end.http.api.places import LARGEST_NUMBER, integer_in
from tandembus.front_end.http.api.routes import Route
from tandembus.front_end.http.api.scanning import Scan, Wanted, wanted_in
from tandembus.front_end.http.progress_stream import FAULT_OF_OURS, LINES_CONTENT_TYPE
from tandembus.front_end.http.request import check_is_there
from tandembus.interconnect.requests import Browsed
from tandembus.limits import Limits
from tandembus.namespace.entity import Entity
from tandembus.security.claims import Claims

logger = logging.getLogger(__name__)


class Exporting:
    def __init__(self, browsing: Browsing, access: Access, limits: Limits) -> None:
        self._browsing = browsing
        self._access = access
        self._limits = limits

    def routes(self) -> list[Route]:
        return [Route("GET", "messages/export", self._export)]

    async def _export(self, request: web.Request) -> web.StreamResponse:
        claims, entity, lane = await self._browsing.looked_at(request)
        wanted = wanted_in(request, self._limits)
        most = integer_in(request, "max", LARGEST_NUMBER, 1, LARGEST_NUMBER)
        with self._browsing.in_use(entity):
            scan = self._browsing.scan(entity, lane)
            scan.check = partial(self._check, request, claims)
            return await self._stream(request, entity, self._messages(scan, wanted, most))

    def _check(self, request: web.Request, claims: Claims) -> None:
        check_is_there(request)
        if not self._access.is_current(claims):
            raise Unauthorized("The token has expired or is no longer valid.")

    async def _messages(self, scan: Scan, wanted: Wanted, most: int) -> AsyncIterator[Browsed]:
        """Those that are there now, at most so many."""
        await scan.stop_at_ends()
        found = 0
        async for one in scan.messages(0, wanted):
            yield one
            found += 1
            if found == most:
                return

    async def _stream(
        self, request: web.Request, entity: Entity, messages: AsyncIterator[Browsed]
    ) -> web.StreamResponse:
        """A last line with an `error` where it ended early; without one all is there."""
        disposition = 'attachment; filename="messages.jsonl"'
        headers = {"Content-Type": LINES_CONTENT_TYPE, "Content-Disposition": disposition}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        error: str | None = None
        try:
            async for one in messages:
                await response.write(_line(told_of(one, WHOLE)))
        except BusError as refusal:
            error = str(refusal)
        except ConnectionError:
            raise
        except Exception:
            logger.exception("a fault of ours in exporting '%s'", entity.name)
            error = FAULT_OF_OURS
        if error is not None:
            await response.write(_line({"error": error}))
        await response.write_eof()
        return response


def _line(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"
