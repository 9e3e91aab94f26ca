"""The HTTP front end as an aiohttp application: who may ask, which operation is meant, how refusals look.

It opens no port: the listener, which finds out what a connection speaks, hands over those that speak HTTP.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import HttpVersion10, HttpVersion11, web

from tandembus.clock import Clock
from tandembus.errors import BusError, EntityNotFound, InvalidArgument, Unauthorized
from tandembus.front_end.http.administered import AdministeredNamespace
from tandembus.front_end.http.atom import ERROR_CONTENT_TYPE, Origin, error_document
from tandembus.front_end.http.connection import BANNER, HttpConnection, HttpTimings
from tandembus.front_end.http.entities import NEWEST_VERSION, Answer, EntityAdministration
from tandembus.front_end.http.metrics import JSON_CONTENT_TYPE, meter_document
from tandembus.front_end.http.statuses import INTERNAL, Status, status_of
from tandembus.front_end.http.values import format_time
from tandembus.front_end.http.xml_reader import old_parser_note
from tandembus.front_end.websocket.handshake import PATH as WEBSOCKET_PATH
from tandembus.front_end.websocket.handshake import HandshakeRefused, accept_handshake
from tandembus.limits import Limits
from tandembus.metering import Meter
from tandembus.metering.slot import MANAGE, NORMAL
from tandembus.namespace.paths import SubQueue, decode_http_path
from tandembus.security.claims import Authorizer, Right
from tandembus.security.scopes import fold

LIMITS: Final = web.AppKey("limits", Limits)
XML_TYPES: Final = ("application/atom+xml", "application/xml", "text/xml")
METER_PATH: Final = "tandembus/meter"
PURGE_PREFIX: Final = "tandembus/queues/"
PURGE_SUFFIX: Final = "/purge"
WHOLE_NAMESPACE: Final = "$namespaceinfo"
"""What a claim must cover for things of the whole namespace. Entities cannot be called that, so a claim for
an entity named 'tandembus' is none for what lies below `/tandembus/`."""
SUB_QUEUES: Final = {
    "": SubQueue.MAIN,
    "dead-letter": SubQueue.DEAD_LETTER,
    "transfer-dead-letter": SubQueue.TRANSFER_DEAD_LETTER,
}

_BEARER: Final = "bearer "
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}(:\d{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:\d{1,5})?", re.ASCII)
_API_VERSION: Final = re.compile(r"[0-9A-Za-z.-]{1,32}", re.ASCII)

AmqpFactory = Callable[[Callable[[], None]], asyncio.Protocol]
"""Makes the AMQP side of a connection, given what to call at its first valid claim."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

logger = logging.getLogger(__name__)


def build_application(
    namespace: AdministeredNamespace,
    authorizer: Authorizer,
    meter: Meter,
    clock: Clock,
    health: Callable[[], bool],
    amqp: AmqpFactory | None = None,
) -> web.Application:
    """`amqp` makes the other side of WebSockets; without it there are none."""
    note = old_parser_note()
    if note is not None:
        logger.debug(note)
    front_end = HttpFrontEnd(namespace, authorizer, meter, clock, health, amqp)
    application = web.Application(
        client_max_size=namespace.limits.max_management_body_bytes, middlewares=[front_end.refusals]
    )
    application[LIMITS] = namespace.limits
    application.router.add_route("*", "/{path:.*}", front_end.answer)
    application.on_response_prepare.append(_tidy_headers)
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


class HttpRefusal(Exception):
    """What only HTTP can be refused for: method, size, type. The namespace has no word for those."""

    def __init__(self, code: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.code: Final = code
        self.headers: Final = headers or {}


class HttpFrontEnd:
    """Every request: which operation it means, whether it is allowed, what it is charged."""

    def __init__(
        self,
        namespace: AdministeredNamespace,
        authorizer: Authorizer,
        meter: Meter,
        clock: Clock,
        health: Callable[[], bool],
        amqp: AmqpFactory | None = None,
    ) -> None:
        self._amqp = amqp
        self._namespace = namespace
        self._authorizer = authorizer
        self._meter = meter
        self._clock = clock
        self._health = health
        self._entities = EntityAdministration(namespace, clock)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = decode_http_path(request.rel_url.raw_path)
        if path == "health" and "Authorization" not in request.headers:
            return self._tell_health(request)
        _check_head(request, self._namespace.limits)
        folded = path.lower()
        if self._amqp is not None and folded.rstrip("/") == WEBSOCKET_PATH:
            return await self._carry_amqp(request, self._amqp)
        if folded == METER_PATH and request.method == "GET":
            self._authorize(request, WHOLE_NAMESPACE)
            body = meter_document(self._meter, self._namespace.name, request.query)
            return _response(Answer(200, JSON_CONTENT_TYPE, body))
        if folded.startswith(PURGE_PREFIX) and folded.endswith(PURGE_SUFFIX) and request.method == "POST":
            return await self._purge(request, path[len(PURGE_PREFIX) : -len(PURGE_SUFFIX)])
        self._authorize(request, path)
        return await self._administer(request, path)

    async def _carry_amqp(self, request: web.Request, amqp: AmqpFactory) -> web.StreamResponse:
        """Claims are shown inside, as on any AMQP connection. Returns when the connection is over."""
        connection = _connection(request)
        try:
            headers = accept_handshake(request.method, request.headers, _asks_to_upgrade(request), request.body_exists)
        except HandshakeRefused as error:
            raise HttpRefusal(error.status, str(error), error.headers) from None
        response = web.StreamResponse(status=101, headers=headers)
        response.force_close()
        await response.prepare(request)
        connection.answered()
        await connection.become_websocket(amqp(connection.claim_shown)).lost
        return response

    async def _administer(self, request: web.Request, path: str) -> web.StreamResponse:
        """One operation, charged to its entity, also when the answer is a refusal."""
        charged = self._entities.name_of(path)
        size_bytes = 0
        try:
            answer = await self._operate(request, path, _origin(request, self._namespace.name))
            charged = charged or answer.entity
            size_bytes = len(answer.body)
        finally:
            self._meter.count(fold(charged), MANAGE, NORMAL, 0, 1, size_bytes)
        if request.method == "DELETE":
            self._meter.forget(fold(charged))
        return _response(answer)

    async def _operate(self, request: web.Request, path: str, origin: Origin) -> Answer:
        folded = path.lower()
        if folded == "$namespaceinfo":
            _allow(request, "GET")
            return await self._entities.describe_namespace(origin)
        if folded == "$resources/queues":
            _allow(request, "GET")
            return await self._entities.list_queues(request.query, origin)
        if folded == "$resources/topics":
            _allow(request, "GET")
            return await self._entities.list_topics(request.query, origin)
        if folded.startswith("$") or not path:
            raise EntityNotFound(f"There is nothing at '/{path}'.")
        return await self._operate_entity(request, path, origin)

    async def _operate_entity(self, request: web.Request, path: str, origin: Origin) -> Answer:
        _allow(request, "GET", "PUT", "DELETE")
        if request.method == "GET":
            return await self._entities.get(path, origin)
        if request.method == "DELETE":
            return await self._entities.delete(path, origin)
        if path.lower() == METER_PATH:
            raise InvalidArgument(f"The name '{path}' is taken by the namespace's own page of that address.")
        body = await self._read_body(request)
        return await self._entities.put(path, body, _is_update(request), origin)

    async def _purge(self, request: web.Request, path: str) -> web.StreamResponse:
        self._authorize(request, path)
        sub_queue = SUB_QUEUES.get(request.query.get("sub-queue", ""))
        if sub_queue is None:
            raise InvalidArgument("sub-queue must be dead-letter or transfer-dead-letter, if it is there at all.")
        name, message_count = await self._entities.purge(path, sub_queue, _origin(request, self._namespace.name))
        self._meter.count(name, MANAGE, NORMAL, message_count, 1, 0)
        body = json.dumps({"queue": name, "purged": message_count}).encode()
        return _response(Answer(200, JSON_CONTENT_TYPE, body))

    def _tell_health(self, request: web.Request) -> web.StreamResponse:
        _allow(request, "GET", "HEAD")
        _connection(request).answered()
        is_ready = self._health()
        return web.Response(status=200 if is_ready else 503, text="ok" if is_ready else "not ready")

    def _authorize(self, request: web.Request, path: str) -> None:
        """Deny unless there is one token, and it proves Manage for this path now."""
        headers = request.headers.getall("Authorization", [])
        if len(headers) != 1:
            raise Unauthorized("The request needs one Authorization header with a shared access signature.")
        token = headers[0].strip()
        if token.lower().startswith(_BEARER):
            token = token[len(_BEARER) :].strip()
        now = self._clock.now()
        if not self._authorizer.verify_token(token, None, now).allows(Right.MANAGE, path, now):
            raise Unauthorized("The token does not grant Manage on this resource.")
        _connection(request).claim_shown()

    async def _read_body(self, request: web.Request) -> bytes:
        _check_body_head(request, self._namespace.limits.max_management_body_bytes)
        try:
            return await asyncio.wait_for(request.read(), _connection(request).timings.body_s)
        except asyncio.TimeoutError:
            raise HttpRefusal(408, "The body of the request did not come in time.") from None

    @web.middleware
    async def refusals(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every refusal, whoever said it, in the one form that the SDKs read."""
        try:
            response = await handler(request)
        except BusError as error:
            response = self._refused(request, status_of(error), str(error))
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
        _connection(request).answered()
        return response

    def _refused(self, request: web.Request, status: Status, text: str) -> web.Response:
        tracking_id = uuid.uuid4()
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


def _response(answer: Answer) -> web.Response:
    headers = {"Content-Type": answer.content_type} if answer.content_type else None
    return web.Response(status=answer.status, body=answer.body, headers=headers)


async def _tidy_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = BANNER
    response.headers["X-Content-Type-Options"] = "nosniff"
    if isinstance(response, web.Response) and not response.body:
        response.headers.pop("Content-Type", None)


def _connection(request: web.Request) -> HttpConnection:
    connection = request.protocol
    assert isinstance(connection, HttpConnection)
    return connection


def _origin(request: web.Request, namespace_name: str) -> Origin:
    host = request.headers.get("Host", namespace_name)
    if _HOST.fullmatch(host) is None:
        raise InvalidArgument("The Host header is not a host name or address, with or without a port.")
    version = request.query.get("api-version", NEWEST_VERSION)
    if _API_VERSION.fullmatch(version) is None:
        raise InvalidArgument("api-version must be a version such as 2021-05.")
    return Origin(request.scheme, host, version, namespace_name)


def _asks_to_upgrade(request: web.Request) -> bool:
    wishes = [wish.strip().lower() for wish in request.headers.get("Connection", "").split(",")]
    return request.version >= HttpVersion11 and "upgrade" in wishes


def _allow(request: web.Request, *methods: str) -> None:
    if request.method not in methods:
        allowed = ", ".join(methods)
        raise HttpRefusal(405, f"{request.method} is not possible here; {allowed} is.", {"Allow": allowed})


def _is_update(request: web.Request) -> bool:
    """`If-Match: *` means that the client expects the entity to be there; there are no versions to match."""
    match = request.headers.get("If-Match")
    if match is None:
        return False
    if match.strip() != "*":
        raise InvalidArgument("If-Match can only be '*' here: entities have no versions.")
    return True


def _check_head(request: web.Request, limits: Limits) -> None:
    if request.version < HttpVersion10:
        raise HttpRefusal(400, "The request is of an HTTP version before 1.0.")
    size_bytes = sum([len(name) + len(value) for name, value in request.raw_headers])
    if size_bytes > limits.max_http_header_bytes:
        raise HttpRefusal(431, f"The headers have {size_bytes} bytes; at most {limits.max_http_header_bytes} may be.")


def _check_body_head(request: web.Request, max_bytes: int) -> None:
    """What the head already says against the body, before any of it is waited for."""
    if request.content_length is not None and request.content_length > max_bytes:
        raise HttpRefusal(413, f"The body has {request.content_length} bytes; at most {max_bytes} are allowed.")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HttpRefusal(415, "A compressed body is not accepted.")
    if "Content-Type" in request.headers and request.content_type not in XML_TYPES:
        raise HttpRefusal(415, f"The content type must be {XML_TYPES[0]}, not {request.content_type[:64]}.")
    if (request.charset or "utf-8").lower() != "utf-8":
        raise HttpRefusal(415, "The body must be in UTF-8.")
