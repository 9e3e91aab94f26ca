"""Injected faults over HTTP, as JSON, at `/$faults`: put, look at, clear. The service has no such route.

It answers whatever is out, the whole namespace included: what was broken here must be healed here.
"""

from __future__ import annotations

import json
from typing import Final

from aiohttp import web

from tandembus.errors import InvalidArgument
from tandembus.faults.board import StandingFault
from tandembus.faults.fault import Kind, Target, check_id, check_is_there, read_fault
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.broker_properties import read_json
from tandembus.front_end.http.entities import Answer
from tandembus.front_end.http.metrics import JSON_CONTENT_TYPE
from tandembus.front_end.http.request import HttpRefusal, allow, check_encoding, read_body
from tandembus.front_end.http.values import format_time
from tandembus.namespace.namespace import Namespace
from tandembus.security.claims import Right

FAULTS: Final = "$faults"
MAX_BODY_BYTES: Final = 4096


def parse_fault_path(path: str) -> str | None:
    """From a decoded path: the id of a fault, "" for all of them; None where a request is about something else."""
    first, _, fault_id = path.partition("/")
    return fault_id if first.lower() == FAULTS else None


class FaultAdministration:
    def __init__(self, namespace: Namespace, access: Access) -> None:
        self._namespace = namespace
        self._access = access

    async def answer(self, request: web.Request, fault_id: str) -> Answer:
        self._access.check(request, Right.MANAGE, FAULTS)
        if not fault_id:
            return await self._all(request)
        allow(request, "GET", "PUT", "DELETE")
        check_id(fault_id)
        if request.method == "PUT":
            return await self._put(request, fault_id)
        if request.method == "DELETE":
            await self._namespace.fault_desk.remove(fault_id)
            return _told({"cleared": 1})
        return _told(self._document(self._namespace.faults.get(fault_id)))

    async def _all(self, request: web.Request) -> Answer:
        allow(request, "GET", "DELETE")
        if request.method == "DELETE":
            return _told({"cleared": await self._namespace.fault_desk.clear()})
        return _told({"faults": [self._document(each) for each in self._namespace.faults.standing()]})

    async def _put(self, request: web.Request, fault_id: str) -> Answer:
        fault = read_fault(fault_id, await self._read(request))
        self._is_there(fault.target)
        is_new = await self._namespace.fault_desk.put(fault)
        return _told(self._document(self._namespace.faults.get(fault_id)), 201 if is_new else 200)

    async def _read(self, request: web.Request) -> object:
        check_encoding(request)
        if "Content-Type" in request.headers and request.content_type != "application/json":
            raise HttpRefusal(415, f"The content type must be application/json, not {request.content_type[:64]}.")
        body = await read_body(request, MAX_BODY_BYTES)
        if body is None:
            raise HttpRefusal(413, f"The body has more than {MAX_BODY_BYTES} bytes.")
        return read_json(body, "The fault")

    def _document(self, standing: StandingFault) -> dict[str, object]:
        fault = standing.fault
        ends_in_s = standing.left_s(self._namespace.clock.monotonic())
        return {
            "id": fault.id,
            "target": str(fault.target),
            "kind": fault.kind.value,
            "latency_ms": fault.latency_ms if fault.kind is Kind.SLOW else None,
            "probability": fault.probability,
            "for_s": fault.for_s,
            "ends_in_s": None if ends_in_s is None else round(ends_in_s, 3),
            "state": "active" if self._is_active(standing) else "pending",
            "started_at": format_time(standing.started_at),
        }

    def _is_there(self, target: Target) -> bool:
        return check_is_there(target, self._namespace.faults.topology, self._fragments_of)

    def _fragments_of(self, path: str) -> int | None:
        entry = self._namespace.catalog.find(path)
        return None if entry is None else len(entry.stores)

    def _is_active(self, standing: StandingFault) -> bool:
        """A fault of an entity that is not there waits for it."""
        try:
            return self._is_there(standing.fault.target)
        except InvalidArgument:
            return False  # the entity was made since then, with fewer fragments


def _told(document: dict[str, object], status: int = 200) -> Answer:
    return Answer(status, JSON_CONTENT_TYPE, json.dumps(document).encode())
