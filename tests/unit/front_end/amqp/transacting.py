"""A client of transactions at the other end of a whole connection without a socket: every frame written by hand, time
in the hands of the test."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path

from tandembus.amqp.encoding import Described, Encoded, encode, symbol, symbol_map, symbols, ubyte, uint
from tandembus.amqp.encoding.delivery_states import ACCEPTED_STATE, transactional_state
from tandembus.amqp.encoding.frames import AMQP_HEADER, SASL_HEADER, frame
from tandembus.amqp.encoding.sections import (
    MessageSections,
    amqp_value_section,
    application_properties_section,
    data_section,
    decode_message,
    properties_section,
)
from tandembus.amqp.encoding.transactions import declare_message, discharge_message
from tandembus.descriptions import QueueDescription
from tandembus.front_end.amqp.attaching import TRANSFER_DESTINATION
from tandembus.front_end.amqp.driver import AmqpConnection
from tandembus.front_end.amqp.front_end import AmqpFrontEnd
from tandembus.limits import Limits
from tandembus.metering.meter import Meter
from tandembus.security.claims import Authorizer, Policy, Right
from tandembus.store.messaging_store import MAIN
from tests.unit.amqp.engine.peers import (
    ATTACH,
    BEGIN,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    TRANSFER,
    Frame,
    begin_frame,
    frames_of,
    open_frame,
)
from tests.unit.namespace.namespace_lives import Life

KEY = "for-tests-only"
ACCEPTED, REJECTED, RELEASED, MODIFIED, DECLARED, TRANSACTIONAL = 0x24, 0x25, 0x26, 0x27, 0x33, 0x34
PATIENCE = 500
UNKNOWN_ID, ROLLBACK, TIMEOUT = (f"amqp:transaction:{name}" for name in ("unknown-id", "rollback", "timeout"))
NOT_ALLOWED, LIMIT_EXCEEDED = "amqp:not-allowed", "amqp:resource-limit-exceeded"
SMALL = Limits(
    max_message_size_bytes=3500,
    max_transaction_messages=4,
    max_transaction_bytes=4096,
    max_transactions_per_connection=2,
)
POLICIES = (
    Policy("sends", KEY, "", frozenset({Right.SEND})),
    Policy("listens", KEY, "", frozenset({Right.LISTEN})),
)
COORDINATOR = Described(0x30, [symbols(["amqp:local-transactions"])])


def code_of(state: object) -> int:
    assert isinstance(state, Described), state
    assert isinstance(state.descriptor, int)
    return state.descriptor


def fields_of(state: object) -> list[object]:
    assert isinstance(state, Described), state
    assert isinstance(state.value, list)
    return state.value


def condition_of(state: object) -> str:
    """Why something was rejected."""
    assert code_of(state) == REJECTED, state
    (error,) = fields_of(state)
    condition, description, _info = fields_of(error)
    assert description
    return str(condition)


class Wire(asyncio.Transport):
    """Keeps what the server writes until the client reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False
        self.is_read = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


class Server:
    """A namespace with a front end, for any number of clients."""

    def __init__(self, life: Life, folder: Path, *policies: Policy) -> None:
        self.life = life
        self.meter = Meter(life.clock, folder, "bus")
        self.authorizer = Authorizer([Policy("root", KEY, "", frozenset(Right)), *policies])
        self.front_end = AmqpFrontEnd(life.namespace, self.authorizer, self.meter, life.clock)

    async def client(self, policy: str = "root", *queues: str) -> TransactionClient:
        """Logged in, with a session on channel 1; the queues are made."""
        for queue in queues:
            await self.life.namespace.create_queue(QueueDescription(queue))
        client = TransactionClient(self)
        await client.start(policy)
        return client


class TransactionClient:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.connection = AmqpConnection(server.front_end, lambda: None)
        self.wire = Wire()
        self.connection.connection_made(self.wire)
        self._frames: deque[Frame] = deque()
        self._next_ids = {1: 0}
        self._next_handle = 10
        self.control = 0

    # Frames.

    def say(self, code: int, fields: list[object], payload: bytes = b"", channel: int = 1) -> None:
        self.connection.data_received(frame(0, channel, code, fields, payload))

    def heard(self) -> list[Frame]:
        """Everything that came and was not expected yet; credit for senders and opening frames apart."""
        self._frames.extend(one for one in frames_of(self.wire.written) if one.code not in (FLOW, OPEN, -1))
        self.wire.written = b""
        return list(self._frames)

    async def expect(self, code: int) -> Frame:
        """The next frame must be this one."""
        for _ in range(PATIENCE):
            if self.heard():
                found = self._frames.popleft()
                assert found.code == code, f"expected {code:#x}, got {found}"
                return found
            await asyncio.sleep(0)
        raise AssertionError(f"nothing came, {code:#x} was expected")

    async def start(self, policy: str) -> None:
        """With name and key; an empty name: without SASL, so without any claim."""
        if policy:
            self._log_in(policy)
        self.connection.data_received(AMQP_HEADER + open_frame())
        await self.begin()

    def _log_in(self, policy: str) -> None:
        response = f"\0{policy}\0{KEY}".encode()
        self.connection.data_received(SASL_HEADER + frame(1, 0, 0x41, [symbol("PLAIN"), response, "host"]))
        self.heard()
        self._frames.clear()

    async def begin(self, channel: int = 1) -> None:
        self.connection.data_received(begin_frame(channel))
        await self.expect(BEGIN)

    # Links.

    async def attach(
        self,
        is_receiver: bool,
        source: object,
        target: object,
        properties: dict[str, object] | None = None,
        channel: int = 1,
    ) -> tuple[int, Frame]:
        self._next_handle += 1
        handle = self._next_handle
        fields: list[object] = [f"link-{handle}", uint(handle), is_receiver, ubyte(0), ubyte(1), source, target]
        fields += [None, None, None if is_receiver else uint(0), None, None, None]
        fields.append(None if properties is None else symbol_map(properties))
        self.say(ATTACH, fields, channel=channel)
        return handle, await self.expect(ATTACH)

    async def sender(self, queue: str, channel: int = 1, via: str | None = None) -> int:
        properties: dict[str, object] | None = None if via is None else {TRANSFER_DESTINATION: queue}
        target = Described(0x29, [via or queue])
        handle, answer = await self.attach(False, Described(0x28, ["me"]), target, properties, channel)
        assert answer.fields[6] is not None, await self.expect(DETACH)
        return handle

    async def receiver(self, queue: str, credit: int = 0, channel: int = 1) -> int:
        handle, answer = await self.attach(True, Described(0x28, [queue]), Described(0x29, ["me"]), None, channel)
        assert answer.fields[5] is not None
        if credit:
            numbers = (0, 65_536, 0, 65_536, handle, 0, credit)
            self.say(FLOW, [uint(number) for number in numbers], channel=channel)
        return handle

    async def coordinator(self, channel: int = 1) -> Frame:
        self.control, answer = await self.attach(False, Described(0x28, ["me"]), COORDINATOR, None, channel)
        return answer

    async def refusal(self) -> str:
        """Why the attach before was refused."""
        detach = await self.expect(DETACH)
        return str(fields_of(detach.fields[2])[0])

    def detach(self, handle: int, channel: int = 1) -> None:
        self.say(DETACH, [uint(handle), True], channel=channel)

    def end(self, channel: int) -> None:
        self.say(END, [], channel=channel)

    def transfer(
        self,
        handle: int,
        payload: bytes,
        state: bytes = b"",
        settled: bool = False,
        message_format: int = 0,
        channel: int = 1,
    ) -> int:
        delivery_id = self._next_ids.setdefault(channel, 0)
        self._next_ids[channel] += 1
        fields: list[object] = [uint(handle), uint(delivery_id), b"tag", uint(message_format), settled, False, None]
        fields.append(Encoded(state) if state else None)
        self.say(TRANSFER, fields, payload, channel)
        return delivery_id

    async def answer_to(self, delivery_id: int) -> object:
        """The state of a delivery that we sent; it must be settled."""
        disposition = await self.expect(DISPOSITION)
        assert disposition.fields[:4] == [True, delivery_id, delivery_id, True]
        return disposition.fields[4]

    # Transactions.

    async def declare(self) -> bytes:
        if not self.control:
            await self.coordinator()
        state = await self.answer_to(self.transfer(self.control, declare_message()))
        assert code_of(state) == DECLARED, state
        (txn_id,) = fields_of(state)
        assert isinstance(txn_id, bytes)
        return txn_id

    async def discharge(self, txn_id: bytes, fail: bool = False) -> object:
        return await self.answer_to(self.transfer(self.control, discharge_message(txn_id, fail)))

    async def commit(self, txn_id: bytes) -> None:
        assert code_of(await self.discharge(txn_id)) == ACCEPTED

    async def roll_back(self, txn_id: bytes) -> None:
        assert code_of(await self.discharge(txn_id, True)) == ACCEPTED

    async def send(self, handle: int, body: str, txn_id: bytes | None = None, padding: int = 0) -> object:
        payload = properties_section(body) + data_section(body.encode() + bytes(padding))
        state = b"" if txn_id is None else transactional_state(txn_id)
        return await self.answer_to(self.transfer(handle, payload, state))

    async def send_in(self, txn_id: bytes, handle: int, *bodies: str) -> None:
        """Each is accepted, if the transaction is."""
        for body in bodies:
            state = await self.send(handle, body, txn_id)
            assert (code_of(state), fields_of(state)) == (TRANSACTIONAL, [txn_id, Described(ACCEPTED, [])])

    async def delivery(self) -> tuple[int, MessageSections]:
        transfer = await self.expect(TRANSFER)
        assert isinstance(transfer.fields[1], int)
        return transfer.fields[1], decode_message(transfer.payload)

    def dispose(self, delivery_id: int, state: bytes, settled: bool = False) -> None:
        value = Encoded(state) if state else None
        self.say(DISPOSITION, [True, uint(delivery_id), uint(delivery_id), settled, value])

    async def settle_in(self, txn_id: bytes, delivery_id: int, outcome: bytes = ACCEPTED_STATE) -> object:
        """The provisional outcome."""
        self.dispose(delivery_id, transactional_state(txn_id, outcome))
        answer = await self.expect(DISPOSITION)
        assert answer.fields[:4] == [False, delivery_id, delivery_id, False]
        found, provisional = fields_of(answer.fields[4])
        assert found == txn_id
        return provisional

    async def echo_of(self, delivery_id: int) -> object:
        """The final outcome of a delivery that we settled."""
        echo = await self.expect(DISPOSITION)
        assert echo.fields[:4] == [False, delivery_id, delivery_id, True]
        return echo.fields[4]

    async def echo_in(self, txn_id: bytes, delivery_id: int) -> object:
        """The final outcome of a delivery that we settled in a transaction."""
        found, outcome = fields_of(await self.echo_of(delivery_id))
        assert found == txn_id
        return outcome

    # Management.

    async def node(self, queue: str, channel: int = 1) -> int:
        address = f"{queue}/$management"
        await self.receiver(address, credit=100, channel=channel)
        return await self.sender(address, channel)

    async def ask(
        self, node: int, operation: str, body: object, txn_id: bytes | None = None, channel: int = 1
    ) -> tuple[int, str]:
        """Status and condition of the reply."""
        payload = properties_section("request", reply_to="me")
        payload += application_properties_section({"operation": operation}) + amqp_value_section(body)
        state = b"" if txn_id is None else transactional_state(txn_id)
        answer = await self.answer_to(self.transfer(node, payload, state, channel=channel))
        expected = ACCEPTED_STATE if txn_id is None else transactional_state(txn_id, ACCEPTED_STATE)
        assert encode(answer) == expected
        reply = decode_message((await self.expect(TRANSFER)).payload).application_properties or {}
        status = reply["statusCode"]
        assert isinstance(status, int)
        return status, str(reply.get("errorCondition", ""))


async def waiting(server: Server, queue: str = "orders", lane: int = MAIN) -> list[str]:
    await server.life.quiet()
    return await server.life.peek(queue, lane)


async def received(client: TransactionClient, *bodies: str) -> list[int]:
    """Send these to `orders` in the ordinary way and receive them; returns the delivery ids."""
    await client.server.life.send("orders", *bodies)
    await client.receiver("orders", credit=len(bodies))
    return [(await client.delivery())[0] for _ in bodies]


async def is_doomed(client: TransactionClient, txn: bytes) -> None:
    """Nothing of it can be carried out any more; rolling back is all there is."""
    assert condition_of(await client.discharge(txn)) == ROLLBACK
    assert await waiting(client.server, "orders") == await waiting(client.server, "bills") == []
    assert client.server.front_end.transaction_memory.used_bytes == 0
