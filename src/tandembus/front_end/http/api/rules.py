"""Rules of subscriptions as JSON, and a try of one: what is wrong with it, and what it would do with a message."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from tandembus.clock import Clock
from tandembus.errors import InvalidArgument, InvalidOperation
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.api.places import integer_in
from tandembus.front_end.http.api.routes import Route, asked, read_document, told
from tandembus.front_end.http.api.rule_json import read_action, read_filter, read_rule, rule_json
from tandembus.front_end.http.api.rule_trial import RuleTrial, view_of
from tandembus.front_end.http.api.sending import AROUND_BYTES, JSON_PER_BYTE
from tandembus.metering.meter import Meter
from tandembus.metering.slot import MANAGE, NORMAL
from tandembus.namespace.namespace import Namespace
from tandembus.namespace.paths import SubQueue, parse_address, split_subscription
from tandembus.security.claims import Right

MAX_TOP: Final = 1_000
MAX_SKIP: Final = 2**31 - 1
TRIED: Final = "tried"
"""The name of a rule that has none yet: its action writes it into the message."""
_CHECK_KEYS: Final = frozenset(("name", "filter", "action", "message"))


class Rules:
    def __init__(self, namespace: Namespace, access: Access, meter: Meter, clock: Clock) -> None:
        self._namespace = namespace
        self._access = access
        self._meter = meter
        self._clock = clock

    def routes(self) -> list[Route]:
        return [
            Route("GET", "rules", self._list),
            Route("PUT", "rules", self._put),
            Route("DELETE", "rules", self._delete),
            Route("POST", "rules/check", self._check),
        ]

    async def _subscription(self, request: web.Request) -> tuple[str, str]:
        """Topic and name, once it is clear who asks and that it is there."""
        address = parse_address("/" + asked(request, "path"))
        self._access.check(request, Right.MANAGE, address.claim_path)
        found = split_subscription(address.key)
        if found is None or address.is_management or address.sub_queue is not SubQueue.MAIN:
            raise InvalidOperation(f"'{address.path[:300]}' has no rules: only subscriptions have.")
        await self._namespace.faults.hit_namespace(grows=request.method == "PUT")
        await self._namespace.refresh()
        if self._namespace.catalog.find_subscription(*found) is None:
            raise self._namespace.not_found(address.path)
        self._meter.count(address.key, MANAGE, NORMAL, 0, 1, 0)
        return found

    async def _list(self, request: web.Request) -> web.Response:
        topic, name = await self._subscription(request)
        skip = integer_in(request, "skip", 0, 0, MAX_SKIP)
        top = integer_in(request, "top", MAX_TOP, 1, MAX_TOP)
        found = self._namespace.rules(topic, name, skip, top + 1)
        return told({"rules": [rule_json(rule) for rule in found[:top]], "has_more": len(found) > top})

    async def _put(self, request: web.Request) -> web.Response:
        topic, name = await self._subscription(request)
        limits = self._namespace.limits
        document = await read_document(request, limits.max_management_body_bytes)
        rule = read_rule(document, asked(request, "name"), limits.max_rule_values)
        if self._namespace.catalog.find_rule(topic, name, rule.name) is not None:
            return told(rule_json(await self._namespace.update_rule(topic, name, rule)))
        return told(rule_json(await self._namespace.create_rule(topic, name, rule)), 201)

    async def _delete(self, request: web.Request) -> web.Response:
        topic, name = await self._subscription(request)
        await self._namespace.delete_rule(topic, name, asked(request, "name"))
        return web.Response(status=204)

    async def _check(self, request: web.Request) -> web.Response:
        self._access.check_any(request)
        limits = self._namespace.limits
        document = await read_document(request, JSON_PER_BYTE * limits.max_message_size_bytes + AROUND_BYTES)
        unknown = document.keys() - _CHECK_KEYS
        if unknown:
            known = ", ".join(sorted(_CHECK_KEYS))
            raise InvalidArgument(f"'{min(unknown)[:64]}' is an unknown key; known are {known}.")
        name, action, message = document.get("name", TRIED), document.get("action"), document.get("message")
        if not isinstance(name, str) or not isinstance(message, dict | None):
            raise InvalidArgument("name must be a text, and message an object or null.")
        wanted = read_filter(document.get("filter"), limits.max_rule_values)
        sql = None if action is None else read_action(action, limits.max_rule_values)
        trial = RuleTrial(name, wanted, sql, limits)
        if message is not None:
            trial.run(view_of(message, limits, self._clock.now_ms()))
        return told(trial.document())
