"""The HTTP front end as an aiohttp application: who may ask, which operation is meant, how refusals look.

It opens no port: the listener, which finds out what a connection speaks, hands over those that speak HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import HttpVersion11, web

from tandembus.clock import Clock
from tandembus.errors import BusError, InvalidArgument, MalformedData
from tandembus.front_end.error_texts import error_text
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.administration import METER_PATH, Administration
from tandembus.front_end.http.api.parts import JsonApi
from tandembus.front_end.http.api.routes import API_PATHS, Routes, told
from tandembus.front_end.http.atom import ERROR_CONTENT_TYPE, error_document
from tandembus.front_end.http.connection import BANNER, HttpConnection, HttpTimings
from tandembus.front_end.http.cookies import TokenCookie
from tandembus.front_end.http.entities import Answer
from tandembus.front_end.http.faults import FaultAdministration, parse_fault_path
from tandembus.front_end.http.message_paths import parse_message_path
from tandembus.front_end.http.messages import METHODS, MessagesOverHttp
from tandembus.front_end.http.metrics import JSON_CONTENT_TYPE, meter_document
from tandembus.front_end.http.policies import PolicyAdministration, parse_policy_path
from tandembus.front_end.http.request import (
    HttpRefusal,
    allow,
    check_head,
    connection_of,
)
from tandembus.front_end.http.scraping import is_scrape
from tandembus.front_end.http.static_files import StaticFiles
from tandembus.front_end.http.statuses import INTERNAL, Status, status_of
from tandembus.front_end.http.surroundings import Surroundings
from tandembus.front_end.http.topology import TOPOLOGY_PATH, topology_answer
from tandembus.front_end.http.upkeep import METHODS as UPKEEP_METHODS
from tandembus.front_end.http.upkeep import EntityUpkeep, parse_upkeep_path
from tandembus.front_end.http.values import format_time
from tandembus.front_end.http.xml_reader import old_parser_note
from tandembus.front_end.listener import Speaker
from tandembus.front_end.refusals import HTTP, Refusals
from tandembus.front_end.websocket.handshake import PATH as WEBSOCKET_PATH
from tandembus.front_end.websocket.handshake import HandshakeRefused, accept_handshake
from tandembus.limits import Limits
from tandembus.logs import begin_about, ids
from tandembus.metering import Meter, MeterTotals
from tandembus.namespace.namespace import Namespace
from tandembus.namespace.paths import decode_http_path
from tandembus.prometheus import CONTENT_TYPE as METRICS_CONTENT_TYPE
from tandembus.security.claims import Authorizer, Right

LIMITS: Final = web.AppKey("limits", Limits)
API: Final = web.AppKey("api", Routes)
WHOLE_NAMESPACE: Final = "$namespaceinfo"
"""What a claim must cover for things of the whole namespace. Entities cannot be called that, so a claim for
an entity named 'tandembus' is none for what lies below `/tandembus/`."""
HEALTH_PATHS: Final = frozenset({"health", "health/live", "health/ready", "health/startup"})
AmqpFactory = Callable[[Callable[[], None]], Speaker]
"""Makes the AMQP side of a connection, given what to call at its first valid claim."""
HEALTHY: Final = '{"status":"healthy","message":"Service is healthy."}'
"""The answer of the official emulator, byte by byte."""
NOT_READY: Final = '{"status":"unhealthy","message":"Service is not ready."}'
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

logger = logging.getLogger(__name__)


def build_application(
    namespace: Namespace,
    authorizer: Authorizer,
    meter: Meter,
    clock: Clock,
    health: Callable[[], bool],
    amqp: AmqpFactory | None = None,
    surroundings: Surroundings | None = None,
    refusals: Refusals | None = None,
) -> web.Application:
    """`amqp` makes the other side of WebSockets; without it there are none. `surroundings`: what is
    told of other processes. `refusals`: those of this process, if it has others beside HTTP's."""
    note = old_parser_note()
    if note is not None:
        logger.debug(note)
    front_end = HttpFrontEnd(namespace, authorizer, meter, clock, health, amqp, surroundings, refusals)
    application = web.Application(
        client_max_size=namespace.limits.max_management_body_bytes, middlewares=[front_end.refusals]
    )
    application[LIMITS] = namespace.limits
    application[API] = front_end.api.routes
    application.router.add_route("*", "/{path:.*}", front_end.answer)
    application.on_response_prepare.append(_tidy_headers)
    application.on_shutdown.append(front_end.stop_waiting)
    return application


def build_runner(application: web.Application) -> web.AppRunner:
    """Call `setup()` before connections are handed over, and `cleanup()` at the stop."""
    return web.AppRunner(application, handle_signals=False, access_log=None, shutdown_timeout=5.0)


def http_protocol_factory(
    runner: web.AppRunner, timings: HttpTimings | None = None
) -> Callable[[asyncio.Transport, bytes, Callable[[], None] | None], HttpConnection]:
    """What the listener calls with a connection that turned out to speak HTTP.

    Its arguments: the transport, the bytes already read, and what to call at the first valid claim.
    """

    def hand_over(
        transport: asyncio.Transport, first_bytes: bytes, when_claimed: Callable[[], None] | None = None
    ) -> HttpConnection:
        assert runner.server is not None, "the runner must be set up first"
        limits = runner.app[LIMITS]
        connection = HttpConnection(runner.server, limits, timings or HttpTimings(), when_claimed)
        connection.start_on(transport, first_bytes)
        return connection

    return hand_over


class HttpFrontEnd:
    """Every request: which operation it means, whether it is allowed, what it is charged."""

    def __init__(
        self,
        namespace: Namespace,
        authorizer: Authorizer,
        meter: Meter,
        clock: Clock,
        health: Callable[[], bool],
        amqp: AmqpFactory | None = None,
        surroundings: Surroundings | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self._amqp = amqp
        self._surroundings = surroundings or Surroundings()
        self._namespace = namespace
        self._meter = meter
        self._clock = clock
        self._health = health
        self._refusals = refusals or Refusals(clock)
        cookie = TokenCookie(namespace.name)
        self._access = Access(authorizer, clock, cookie)
        self._administration = Administration(namespace, self._access, meter, namespace.clock)
        self._policies = PolicyAdministration(namespace, self._access, meter)
        self._messages = MessagesOverHttp(namespace, self._access, meter, namespace.clock)
        self._upkeep = EntityUpkeep(namespace, self._access, meter, namespace.clock)
        self._faults = FaultAdministration(namespace, self._access)
        self._static = StaticFiles()
        self.api = JsonApi(
            namespace, authorizer, self._access, cookie, meter, self._meter_totals, clock, self._surroundings
        )

    async def stop_waiting(self, _application: web.Application) -> None:
        self._messages.stop_waiting()
        await self.api.stop()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        begin_about(ids(connection_of(request).id))
        path = decode_http_path(request.rel_url.raw_path)
        if path in HEALTH_PATHS and "Authorization" not in request.headers:
            return self._tell_health(request, path)
        check_head(request, self._namespace.limits)
        page = self._static.answer(request, path)
        if page is not None:
            return page
        answer = await self._about_itself(request, path)
        if answer is not None:
            return _response(answer)
        route = self.api.routes.find(path, request.method)
        if route is not None and route.is_about_itself:
            return await route.answer(request)
        self._check_is_not_out()
        if route is not None:
            return await route.answer(request)
        message_path = parse_message_path(request.rel_url.raw_path)
        if message_path is not None and request.method in METHODS[message_path.target]:
            return await self._messages.answer(request, message_path)
        upkeep_path = parse_upkeep_path(request.rel_url.raw_path)
        if upkeep_path is not None and request.method == UPKEEP_METHODS[upkeep_path.upkeep]:
            return await self._upkeep.answer(request, upkeep_path)
        folded = path.lower()
        if self._amqp is not None and folded.rstrip("/") == WEBSOCKET_PATH:
            return await self._carry_amqp(request, self._amqp)
        await self._namespace.faults.hit_namespace(grows=request.method == "PUT")
        await self._namespace.refresh()
        policy_path = parse_policy_path(path)
        if policy_path is not None:
            return _response(await self._policies.answer(request, policy_path))
        return _response(await self._administration.answer(request, path))

    async def _about_itself(self, request: web.Request, path: str) -> Answer | None:
        """What the namespace tells of itself, also while a fault says that it is out: that could not be healed else.
        None where a request is about something else."""
        folded = path.lower()
        fault_id = parse_fault_path(path)
        if fault_id is not None:
            return await self._faults.answer(request, fault_id)
        if folded == METER_PATH and request.method == "GET":
            self._access.check(request, Right.MANAGE, WHOLE_NAMESPACE)
            totals = await self._meter_totals()
            body = await asyncio.to_thread(meter_document, totals, self._namespace.name, request.query)
            return Answer(200, JSON_CONTENT_TYPE, body)
        topology = self._surroundings.topology
        if folded == TOPOLOGY_PATH and topology is not None:
            allow(request, "GET")
            self._access.check(request, Right.MANAGE, WHOLE_NAMESPACE)
            return Answer(200, JSON_CONTENT_TYPE, await topology_answer(topology, request.query))
        metrics = self._surroundings.metrics
        if metrics is not None and is_scrape(request, path):
            if not self._surroundings.has_open_metrics:
                self._access.check(request, Right.MANAGE, WHOLE_NAMESPACE)
            return Answer(200, METRICS_CONTENT_TYPE, (await metrics()).encode())
        return None

    async def _meter_totals(self) -> MeterTotals:
        source = self._surroundings.meter
        return await (self._meter.look() if source is None else source())

    def _check_is_not_out(self) -> None:
        outage = self._namespace.faults.namespace_outage()
        if outage is not None:
            raise outage

    async def _carry_amqp(self, request: web.Request, amqp: AmqpFactory) -> web.StreamResponse:
        """Claims are shown inside, as on any AMQP connection. Returns when the connection is over."""
        connection = connection_of(request)
        try:
            headers = accept_handshake(request.method, request.headers, _asks_to_upgrade(request), request.body_exists)
        except HandshakeRefused as error:
            raise HttpRefusal(error.status, str(error), error.headers) from None
        response = web.StreamResponse(status=101, headers=headers)
        response.force_close()
        await response.prepare(request)
        await connection.become_websocket(amqp(connection.claim_shown)).lost
        return response

    def _tell_health(self, request: web.Request, path: str) -> web.StreamResponse:
        """Out of what this process remembers, so that probes cost next to nothing. A process that answers lives, and
        has started: it takes no connection earlier. A restart would bring back neither a store nor an orderly stop."""
        allow(request, "GET", "HEAD")
        is_healthy = True
        if path in ("health", "health/ready"):
            is_healthy = self._health() and (path == "health" or self._surroundings.serves_a_store())
        text = HEALTHY if is_healthy else NOT_READY
        return web.Response(status=200 if is_healthy else 503, text=text, content_type="application/json")

    @web.middleware
    async def refusals(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every refusal, whoever said it, in the one form that the SDKs read."""
        try:
            response = await handler(request)
        except BusError as error:
            error.__traceback__ = None  # frames in it may refer back to it, and to the connection
            response = self._refused(request, status_of(error), error_text(error, request.headers.get("Host")), error)
        except HttpRefusal as error:
            response = self._refused(request, Status(error.code, error.code * 100), str(error))
            response.headers.update(error.headers)
        except web.HTTPException as error:
            response = self._refused(request, Status(error.status, error.status * 100), f"{error.reason}.")
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            logger.exception("a fault of ours in %s %s", request.method, request.rel_url.raw_path)
            response = self._refused(request, INTERNAL, "The namespace failed to carry out the request.")
        return response

    def _refused(
        self, request: web.Request, status: Status, text: str, refusal: BusError | None = None
    ) -> web.Response:
        tracking_id = uuid.uuid4()
        # Not the text, which may quote what was sent: the client has it, with this id.
        what = (request.method, request.rel_url.raw_path, status.code, tracking_id)
        logger.debug("%s %s is refused with %d, TrackingId:%s", *what)
        if refusal is not None and not _is_question(request, status):
            why = f"{status.code}" if isinstance(refusal, InvalidArgument | MalformedData) else f"{refusal}"
            about = f"{request.method} {request.rel_url.raw_path}"
            self._refusals.add(HTTP, refusal, about, ids(connection_of(request).id), f"{why} TrackingId:{tracking_id}")
        if request.rel_url.raw_path.lower().startswith(API_PATHS):
            error = {"status": status.code, "text": text, "sub_code": status.sub_code, "tracking_id": str(tracking_id)}
            response = told({"error": error}, status.code)
        else:
            detail = (
                f"{text} SubCode={status.sub_code}. TrackingId:{tracking_id}, "
                f"SystemTracker:{self._namespace.name}, Timestamp:{format_time(self._clock.now())}"
            )
            response = _response(Answer(status.code, ERROR_CONTENT_TYPE, error_document(status.code, detail)))
        if status.code == 401:
            response.headers["WWW-Authenticate"] = "SharedAccessSignature"
        if status.retry_after_s is not None:
            response.headers["Retry-After"] = str(status.retry_after_s)
        return response


def _is_question(request: web.Request, status: Status) -> bool:
    """Whether something is there; or, from the dashboard, whether somebody is signed in."""
    is_signed_out = "Authorization" not in request.headers and request.rel_url.raw_path.lower().startswith(API_PATHS)
    return request.method in ("GET", "HEAD") and (status.code == 404 or is_signed_out)


def _response(answer: Answer) -> web.Response:
    headers = {"Content-Type": answer.content_type} if answer.content_type else None
    return web.Response(status=answer.status, body=answer.body, headers=headers)


async def _tidy_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = BANNER
    response.headers["X-Content-Type-Options"] = "nosniff"
    # Messages and states are of the moment, and not for everybody who uses the same browser or proxy.
    response.headers.setdefault("Cache-Control", "no-store")
    if isinstance(response, web.Response) and not response.body:
        response.headers.pop("Content-Type", None)


def _asks_to_upgrade(request: web.Request) -> bool:
    wishes = [wish.strip().lower() for wish in request.headers.get("Connection", "").split(",")]
    return request.version >= HttpVersion11 and "upgrade" in wishes
