"""SAS policies over HTTP, as JSON: those of the namespace at `/$policies`, those of a queue or topic at its own.

The service has no such route (its policies are administered elsewhere). Answers hold keys: who may manage the namespace
or entity may hand out access to it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from tandembus.descriptions import AuthorizationRule
from tandembus.errors import InvalidArgument
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.broker_properties import read_json
from tandembus.front_end.http.entities import Answer
from tandembus.front_end.http.metrics import JSON_CONTENT_TYPE
from tandembus.front_end.http.request import HttpRefusal, allow, check_encoding, read_body
from tandembus.front_end.http.values import format_time
from tandembus.metering.meter import Meter
from tandembus.metering.slot import MANAGE, NORMAL
from tandembus.namespace.namespace import Namespace
from tandembus.namespace.policies import KeyKind, find_policy
from tandembus.security.claims import Right
from tandembus.security.scopes import fold

POLICIES: Final = "$policies"
REGENERATE: Final = "regenerate"
_FIELDS: Final = ("rights", "primary_key", "secondary_key")


@dataclass(frozen=True, slots=True)
class PolicyPath:
    entity: str
    """Whose policies, "" for the namespace's."""
    name: str = ""
    is_regenerate: bool = False


def parse_policy_path(path: str) -> PolicyPath | None:
    """From a decoded path; None where a request is about something else."""
    segments = path.split("/")
    folded = [segment.lower() for segment in segments]
    if POLICIES not in folded:
        return None
    at = folded.index(POLICIES)
    entity, behind = "/".join(segments[:at]), segments[at + 1 :]
    if len(behind) <= 1:
        return PolicyPath(entity, behind[0] if behind else "")
    if len(behind) == 2 and behind[1].lower() == REGENERATE:
        return PolicyPath(entity, behind[0], True)
    return None


class PolicyAdministration:
    def __init__(self, namespace: Namespace, access: Access, meter: Meter) -> None:
        self._namespace = namespace
        self._access = access
        self._meter = meter

    async def answer(self, request: web.Request, path: PolicyPath) -> Answer:
        self._access.check(request, Right.MANAGE, path.entity or POLICIES)
        size_bytes = 0
        try:
            answer = await self._operate(request, path)
            size_bytes = len(answer.body)
        finally:
            entry = self._namespace.catalog.find(path.entity)
            self._meter.count(entry.key if entry is not None else "", MANAGE, NORMAL, 0, 1, size_bytes)
        return answer

    async def _operate(self, request: web.Request, path: PolicyPath) -> Answer:
        if path.is_regenerate:
            allow(request, "POST")
            return await self._regenerate(request, path)
        if not path.name:
            allow(request, "GET")
            return _told({"policies": [_document(rule) for rule in self._namespace.policies(path.entity)]})
        allow(request, "GET", "PUT", "DELETE")
        if request.method == "GET":
            return _told(_document(find_policy(self._namespace.policies(path.entity), path.name)))
        if request.method == "DELETE":
            await self._namespace.remove_policy(path.name, path.entity)
            return Answer(200)
        return await self._put(path, await self._wanted(request, path.name))

    async def _put(self, path: PolicyPath, wanted: AuthorizationRule) -> Answer:
        is_there = wanted.key_name in [rule.key_name for rule in self._namespace.policies(path.entity)]
        kept = await self._namespace.put_policy(wanted, path.entity)
        return _told(_document(kept), 200 if is_there else 201)

    async def _regenerate(self, request: web.Request, path: PolicyPath) -> Answer:
        word = fold(request.query.get("key", KeyKind.PRIMARY.value))
        kinds = {kind.value: kind for kind in KeyKind}
        if word not in kinds:
            raise InvalidArgument(f"key: '{word[:64]}' is neither {' nor '.join(kinds)}.")
        return _told(_document(await self._namespace.regenerate_key(path.name, kinds[word], path.entity)))

    async def _wanted(self, request: web.Request, name: str) -> AuthorizationRule:
        check_encoding(request)
        if "Content-Type" in request.headers and request.content_type != "application/json":
            raise HttpRefusal(415, f"The content type must be application/json, not {request.content_type[:64]}.")
        max_bytes = self._namespace.limits.max_management_body_bytes
        body = await read_body(request, max_bytes)
        if body is None:
            raise HttpRefusal(413, f"The body has more than {max_bytes} bytes.")
        return read_policy(name, read_json(body, "The policy"))


def read_policy(name: str, document: object) -> AuthorizationRule:
    """Keys that are not given are kept, or made."""
    if not isinstance(document, dict):
        raise InvalidArgument("A policy must be a JSON object with 'rights' and, where wanted, keys.")
    unknown = sorted(set(document) - {*_FIELDS, "name", "created_at", "modified_at"})
    if unknown:
        raise InvalidArgument(f"A policy has no '{unknown[0][:64]}'; it has {', '.join(_FIELDS)}.")
    if document.get("name", name) != name:
        raise InvalidArgument("The policy's name is the one in its address.")
    rights = document.get("rights")
    if not isinstance(rights, list) or not all(isinstance(right, str) for right in rights):
        raise InvalidArgument("'rights' must be an array of Send, Listen, Manage.")
    return AuthorizationRule(name, _key(document, "primary_key"), _key(document, "secondary_key"), frozenset(rights))


def _key(document: dict[str, object], name: str) -> str:
    key = document.get(name)
    if key is not None and not isinstance(key, str):
        raise InvalidArgument(f"'{name}' must be a string.")
    return key or ""


def _document(rule: AuthorizationRule) -> dict[str, object]:
    return {
        "name": rule.key_name,
        "rights": sorted(rule.rights),
        "primary_key": rule.primary_key,
        "secondary_key": rule.secondary_key,
        "created_at": format_time(rule.created_at),
        "modified_at": format_time(rule.modified_at),
    }


def _told(document: dict[str, object], status: int = 200) -> Answer:
    return Answer(status, JSON_CONTENT_TYPE, json.dumps(document).encode())
