"""A namespace small enough to be read in a minute: one list per queue, on the server side of the engine.

It speaks over a real loopback socket, so that the client under test runs as it does in life. What it
answers can be changed by a test: refusals by payload, silence, lost connections.
"""

from __future__ import annotations

import asyncio
import uuid
from types import TracebackType

from tandembus.amqp.encoding.sections import (
    MessageSections,
    amqp_value_section,
    application_properties_section,
    decode_message,
    message_annotations_section,
    properties_section,
)
from tandembus.amqp.encoding.terminus import Terminus
from tandembus.amqp.encoding.values import LONG as LONG_TYPE
from tandembus.amqp.encoding.values import STRING, Array, Described, int_, symbol, timestamp
from tandembus.amqp.engine import (
    ACCEPTED_STATE,
    MODIFIED_STATE,
    REJECTED_STATE,
    RELEASED_STATE,
    AmqpError,
    ConnectionClosed,
    DeliveryReceived,
    DispositionReceived,
    EngineSettings,
    Event,
    IncomingLink,
    LinkAttaching,
    LinkFlow,
    OutgoingLink,
    SaslInit,
    read_plain_response,
    rejected_state,
)
from tandembus.amqp.engine import Connection as Engine

KEY = "the+key="
CREDIT = 100
MAX_MESSAGE_SIZE = 262_144
CONFIRMATIONS = {0x24: ACCEPTED_STATE, 0x25: REJECTED_STATE, 0x26: RELEASED_STATE, 0x27: MODIFIED_STATE}
BATCH_FORMAT = 0x80013700
SESSION_FILTER = "com.microsoft:session-filter"
LOCKED_UNTIL_TICKS = 621_355_968_000_000_000 + 2_000_000_000 * 10_000_000
SESSION_OPERATIONS = [
    f"com.microsoft:{name}"
    for name in (
        "get-session-state",
        "set-session-state",
        "renew-session-lock",
        "get-message-sessions",
        "enumerate-rules",
    )
]


class FakeNamespace:
    """Holds the queues and what clients did; use it as `async with FakeNamespace() as namespace`."""

    def __init__(self) -> None:
        self.queues: dict[str, list[bytes]] = {"orders": []}
        self.tokens: list[tuple[str, str]] = []
        self.settled: list[tuple[int, int, object]] = []
        self.requests: list[tuple[str, object]] = []
        self.refusals: dict[bytes, AmqpError] = {}
        self.lost_locks: set[bytes] = set()
        self.token_status = 200
        self.is_silent = False
        self.locked_sessions: set[str] = set()
        self.next_session: str | None = "next"
        self.session_attaches: list[tuple[object, object]] = []
        self.session_states: dict[str, object] = {}
        self.link_names: list[str] = []
        self.peers: list[Peer] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> FakeNamespace:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Peer(self), "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for peer in self.peers:
            peer.cut()
        await self._server.wait_closed()

    @property
    def connection_string(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        endpoint = f"Endpoint=sb://127.0.0.1:{port}/"
        return f"{endpoint};SharedAccessKeyName=root;SharedAccessKey={KEY};UseDevelopmentEmulator=true"

    def put(self, queue: str, *payloads: bytes) -> None:
        self.queues[queue] += payloads
        for peer in self.peers:
            peer.deliver()


class Peer(asyncio.Protocol):
    """The namespace's end of one connection."""

    def __init__(self, namespace: FakeNamespace) -> None:
        self.namespace = namespace
        self.engine = Engine(EngineSettings(is_server=True, container_id="fake"), 0.0)
        self.receivers: list[OutgoingLink] = []
        self.answers: dict[int, OutgoingLink] = {}
        self.transport: asyncio.Transport | None = None
        namespace.peers.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        events = self.engine.receive_data(data)
        while events:
            for event in events:
                self._handle(event)
            events = self.engine.receive_data(b"")
        self.deliver()

    def flush(self) -> None:
        if self.transport is not None and (data := self.engine.data_to_send()):
            self.transport.write(data)

    def cut(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _handle(self, event: Event) -> None:
        match event:
            case SaslInit():
                self.engine.sasl_outcome(self._may_enter(event))
            case LinkAttaching():
                self._attach(event)
            case DeliveryReceived():
                self._take(event)
            case LinkFlow(link=OutgoingLink() as link) if link not in self.receivers:
                pass
            case DispositionReceived():
                self._settle(event)
            case ConnectionClosed():
                self.flush()
                assert self.transport is not None
                self.transport.close()

    def _may_enter(self, event: SaslInit) -> bool:
        return event.mechanism != "PLAIN" or read_plain_response(event.initial_response).password == KEY

    def _attach(self, event: LinkAttaching) -> None:
        link = event.link
        terminus = link.source if isinstance(link, OutgoingLink) else link.target
        address = (terminus.address if terminus is not None else None) or ""
        entity = address.split("/$")[0]
        if address != "$cbs" and entity not in self.namespace.queues:
            link.refuse(AmqpError("amqp:not-found", f"The messaging entity '{entity}' could not be found."))
            return
        link.context = address
        if isinstance(link, OutgoingLink) and link.source is not None and SESSION_FILTER in (link.source.filter or {}):
            if not self._accept_session(link, link.source):
                return
        else:
            link.accept(MAX_MESSAGE_SIZE)
        if isinstance(link, IncomingLink):
            link.grant(CREDIT)
        elif isinstance(link, OutgoingLink):
            if "$management" in address or address == "$cbs":
                self.answers[id(link.session)] = link
            else:
                self.receivers.append(link)

    def _accept_session(self, link: OutgoingLink, source: Terminus) -> bool:
        asked = (source.filter or {})[SESSION_FILTER]
        self.namespace.session_attaches.append((asked, (link.properties or {}).get("com.microsoft:timeout")))
        session_id = str(asked) if asked is not None else self.namespace.next_session
        if session_id is None:
            link.refuse(AmqpError("com.microsoft:timeout", "No session came in time."))
            return False
        if session_id in self.namespace.locked_sessions:
            link.refuse(AmqpError("com.microsoft:session-cannot-be-locked", "Somebody has it."))
            return False
        self.namespace.locked_sessions.add(session_id)
        properties: dict[str, object] = {"com.microsoft:locked-until-utc": LOCKED_UNTIL_TICKS}
        link.accept(MAX_MESSAGE_SIZE, properties, source.with_filter({SESSION_FILTER: session_id}))
        return True

    def lose_sessions(self) -> None:
        """As when their locks lapse."""
        for link in self.receivers:
            link.detach(AmqpError("com.microsoft:session-lock-lost", "The session lock has lapsed."))
        self.flush()

    def deliver(self) -> None:
        """Send what is there within everybody's credit, then answer drains."""
        for link in self.receivers:
            queue = self.namespace.queues[str(link.context)]
            while link.credit > 0 and queue and link.is_attached:
                settled = link.snd_settle_mode == 1
                link.send(uuid.uuid4().bytes_le, queue.pop(0), settled, None)
            if link.drain and not self.namespace.is_silent:
                link.drained()
        self.flush()

    def _take(self, event: DeliveryReceived) -> None:
        link = event.link
        if self.namespace.is_silent:
            return
        address = str(link.context)
        if event.delivery_id % CREDIT == CREDIT // 2:
            link.grant(CREDIT)
        if "$" in address:
            link.session.settle(event.delivery_id, event.delivery_id, ACCEPTED_STATE)
            self._answer(address, decode_message(event.payload), self.answers[id(link.session)])
            return
        refusal = next((why for part, why in self.namespace.refusals.items() if part in event.payload), None)
        if refusal is None:
            batch = decode_message(event.payload).bodies if event.message_format == BATCH_FORMAT else []
            self.namespace.queues[address] += [each for each in batch if isinstance(each, bytes)] or [event.payload]
        state = ACCEPTED_STATE if refusal is None else rejected_state(refusal)
        link.session.settle(event.delivery_id, event.delivery_id, state)

    def _settle(self, event: DispositionReceived) -> None:
        if self.namespace.is_silent or event.outcome is None:
            return
        first, last = event.deliveries[0].delivery_id, event.deliveries[-1].delivery_id
        self.namespace.settled.append((first, last, event.outcome))
        if event.settled:
            return
        is_lost = any(delivery.tag in self.namespace.lost_locks for delivery in event.deliveries)
        lost = rejected_state(AmqpError("com.microsoft:message-lock-lost", "The lock was lost."))
        state = lost if is_lost else CONFIRMATIONS[event.outcome.code]
        event.session.settle(first, last, state, True, False)

    def _answer(self, address: str, request: MessageSections, link: OutgoingLink) -> None:
        properties = request.application_properties or {}
        self.namespace.requests.append((str(properties["operation"]), request.body))
        if "associated-link-name" in properties:
            self.namespace.link_names.append(str(properties["associated-link-name"]))
        if address == "$cbs":
            self.namespace.tokens.append((str(properties["name"]), str(request.body)))
            status: dict[str, object] = {"status-code": int_(self.namespace.token_status)}
            body: object = None
        else:
            status, body = self._managed(address, str(properties["operation"]), request.body)
        payload = properties_section(correlation_id=request.property_at(0))
        payload += application_properties_section(status) + amqp_value_section(body)
        link.send(b"\0", payload, True, None)

    def _managed(self, address: str, operation: str, body: object) -> tuple[dict[str, object], object]:
        assert isinstance(body, dict)
        queue = self.namespace.queues[address.split("/$")[0]]
        if operation == "com.microsoft:peek-message":
            start = int(str(body["from-sequence-number"]))
            found = [_numbered(payload, number) for number, payload in enumerate(queue, 1) if number >= start]
            chosen = [{"message": payload} for payload in found[: int(str(body["message-count"]))]]
            if chosen:
                return {"statusCode": int_(200)}, {"messages": chosen}
            return {
                "statusCode": int_(204),
                "errorCondition": symbol("com.microsoft:message-not-found"),
            }, None
        if operation == "com.microsoft:schedule-message":
            return {"statusCode": int_(200)}, {"sequence-numbers": Array(LONG_TYPE, [7, 8])}
        if operation == "com.microsoft:update-disposition":
            return {"statusCode": int_(200)}, {}
        if operation == "com.microsoft:receive-by-sequence-number":
            token = uuid.UUID(int=9)
            return {"statusCode": int_(200)}, {"messages": [{"lock-token": token, "message": queue[0]}]}
        if operation in SESSION_OPERATIONS:
            return {"statusCode": int_(200)}, self._session_answer(operation, body)
        error = {"statusDescription": "Gone.", "errorCondition": symbol("com.microsoft:message-not-found")}
        return {"statusCode": int_(404), **error}, None

    def _session_answer(self, operation: str, body: dict[object, object]) -> dict[str, object]:
        states = self.namespace.session_states
        session_id = str(body.get("session-id"))
        match operation:
            case "com.microsoft:get-session-state":
                return {"session-state": states.get(session_id)}
            case "com.microsoft:set-session-state":
                states[session_id] = body["session-state"]
                return {}
            case "com.microsoft:renew-session-lock":
                return {"expiration": timestamp(2_000_000_060_000)}
            case "com.microsoft:get-message-sessions":
                skip, top = int(str(body["skip"])), int(str(body["top"]))
                return {
                    "skip": int_(skip),
                    "sessions-ids": Array(STRING, list[object](sorted(states)[skip : skip + top])),
                }
            case _:
                rule = Described(0x0000013700000004, [Described(0x0000001370000007, []), None, "all"])
                return {"rules": [] if body["skip"] else [{"rule-description": rule}]}


def _numbered(payload: bytes, number: int) -> bytes:
    return message_annotations_section({"x-opt-sequence-number": number}) + payload
