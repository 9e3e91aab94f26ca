"""What the .NET SDK puts on the wire when cross-entity transactions are enabled: one AMQP session for all entities, on
which the coordinator link comes first; tokens on a session of their own, perhaps only after the first declare."""

from __future__ import annotations

import uuid
from typing import cast

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import (
    amqp_value_section,
    application_properties_section,
    data_section,
    message_annotations_section,
    properties_section,
)
from tandembus.amqp.encoding.transactions import discharge_message
from tandembus.amqp.encoding.values import Array, Described, Typed, symbol, timestamp, uint, ulong
from tandembus.clock import SystemClock
from tandembus.security.sas import ROOT_POLICY, make_token
from tests.integration.raw_amqp import (
    CREDIT,
    FIRST,
    SETTLED,
    Frame,
    RawAmqp,
    plain,
    rejection,
    source_of,
    state_of,
    target_of,
    texts,
)
from tests.integration.raw_transactions import CONTROL, Transacting
from tests.integration.serving import KEY

LONG = 0x81
TOKENS = 1
"""Channel of the session for `$cbs`."""
COORDINATOR = Described(ulong(codes.COORDINATOR), [])


class DotNetClient(Transacting):
    """One connection of a client made with `EnableCrossEntityTransactions`."""

    def __init__(self, port: int, policy: str = ROOT_POLICY, key: str = KEY) -> None:
        self.raw = RawAmqp(port)
        self._next_id = 0
        self._next_handle = CONTROL + 1
        self._policy = (policy, key)
        self._has_token_session = False
        self._tokens_put = 0
        self.raw.start("MSSBCBS")
        self.raw.begin()

    def __enter__(self) -> DotNetClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.raw.socket.close()

    def coordinate(self) -> None:
        source = source_of(uuid.uuid4().hex, None, None, None, None, None, symbol("move"))
        self.raw.attach(CONTROL, False, source, COORDINATOR)
        assert self.raw.expect(codes.ATTACH).described(6)[0] == codes.COORDINATOR

    def put_token(self, path: str, policy: tuple[str, str] | None = None) -> None:
        if not self._has_token_session:
            self._has_token_session = True
            self.raw.begin(TOKENS)
            self._node = self.raw.attach_node("$cbs", channel=TOKENS)
        audience = f"amqp://localhost/{path}"
        name, key = policy or self._policy
        token = make_token(audience, name, key, SystemClock().now() + 60.0)
        reply = self.raw.put_token(audience, token, self._node)
        status = {str(name): value for name, value in (reply.application_properties or {}).items()}["status-code"]
        assert isinstance(status, Typed)
        assert status.value in (200, 202)

    def handle(self) -> int:
        self._next_handle += 1
        return self._next_handle

    def sender(self, path: str, policy: tuple[str, str] | None = None) -> int:
        """Returns the link's handle."""
        self.put_token(path, policy)
        handle = self.handle()
        self.raw.attach_sender(handle, path)
        return handle

    def receiver(self, path: str, credit: int = 1, policy: tuple[str, str] | None = None) -> int:
        self.put_token(path, policy)
        handle = self.handle()
        self.raw.attach_receiver(handle, path)
        self.raw.flow(handle, credit)
        return handle

    def refused_receiver(self, path: str) -> list[object]:
        """The error with which the receiver is detached."""
        self.put_token(path)
        self.raw.attach_receiver(self.handle(), path)
        return self.raw.expect(codes.DETACH).error(2)

    def receive(self) -> int:
        """The next message's delivery id."""
        frame, _ = self.raw.receive_message()
        return frame.number(1)

    def send(self, handle: int, payload: bytes, txn_id: bytes | None = None) -> Frame:
        return self.transfer(handle, payload, txn_id)

    def send_in(self, handle: int, payload: bytes, txn_id: bytes) -> None:
        assert self.transfer(handle, payload, txn_id).described(4)[0] == codes.TRANSACTIONAL_STATE

    def dispose_in(self, txn_id: bytes, delivery_id: int) -> Frame:
        self.raw.dispose(delivery_id, state_of(codes.TRANSACTIONAL_STATE, txn_id, state_of(codes.ACCEPTED)))
        return self.raw.expect(codes.DISPOSITION)

    def begin_discharge(self, txn_id: bytes) -> None:
        """Its answer is still to come."""
        fields: list[object] = [uint(CONTROL), uint(self._next_id), b"discharge", uint(0), False, False]
        self._next_id += 1
        self.raw.perform(codes.TRANSFER, fields, discharge_message(txn_id, False))

    def complete_in(self, txn_id: bytes, delivery_id: int) -> None:
        assert self.dispose_in(txn_id, delivery_id).described(4)[0] == codes.TRANSACTIONAL_STATE

    def node(self, path: str) -> int:
        """Of the entity's management node, on the same AMQP session; returns the request link's handle."""
        self.put_token(path)
        handle, reply = self.handle(), self.handle()
        self.raw.attach_sender(handle, f"{path}/$management")
        self.raw.attach_receiver(reply, f"{path}/$management", (SETTLED, FIRST))
        self.raw.flow(reply, CREDIT)
        return handle

    def ask(self, node: int, operation: str, body: object, txn_id: bytes | None = None) -> tuple[int, object]:
        """Status and body of the reply."""
        payload = properties_section(message_id=uuid.uuid4(), reply_to="client")
        payload += application_properties_section({"operation": f"com.microsoft:{operation}"})
        answer = self.transfer(node, payload + amqp_value_section(body), txn_id)
        assert answer.described(4)[0] == (codes.ACCEPTED if txn_id is None else codes.TRANSACTIONAL_STATE)
        _, reply = self.raw.receive_message()
        status = plain(texts(reply.application_properties)["statusCode"])
        assert isinstance(status, int)
        return status, reply.body

    def accept_session(self, path: str, session_id: str) -> int:
        """A session receiver, without credit."""
        self.put_token(path)
        handle = self.handle()
        session_filter = {symbol("com.microsoft:session-filter"): session_id}
        source = source_of(path, None, None, None, None, None, None, session_filter)
        self.raw.attach(handle, True, source, target_of("client"))
        self.raw.expect(codes.ATTACH)
        return handle


def condition(answer: Frame) -> str:
    return str(plain(rejection(answer)[0]))


def message(
    body: str,
    key: str | None = None,
    via_key: str | None = None,
    session_id: str | None = None,
    due_ms: int | None = None,
) -> bytes:
    annotations: dict[str, object] = {}
    if key is not None:
        annotations["x-opt-partition-key"] = key
    if via_key is not None:
        annotations["x-opt-via-partition-key"] = via_key
    if due_ms is not None:
        annotations["x-opt-scheduled-enqueue-time"] = timestamp(due_ms)
    head = message_annotations_section(annotations) if annotations else b""
    return head + properties_section(body, group_id=session_id) + data_section(body.encode())


def detach(client: DotNetClient, handle: int) -> None:
    client.raw.perform(codes.DETACH, [uint(handle), True])
    client.raw.expect(codes.DETACH)


def schedule(client: DotNetClient, node: int, txn_id: bytes | None, *payloads: bytes) -> tuple[int, list[int]]:
    """Status and sequence numbers."""
    body = {"messages": [{"message-id": str(place), "message": one} for place, one in enumerate(payloads)]}
    status, reply = client.ask(node, "schedule-message", body, txn_id)
    if status != 200:
        return status, []
    numbers = texts(cast("dict[object, object]", reply))["sequence-numbers"]
    assert isinstance(numbers, Array)
    return status, [cast(int, one) for one in numbers.items]
