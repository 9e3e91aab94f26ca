"""Calls and notices over real Unix sockets."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tandembus.amqp.encoding.codec import decode, encode
from tandembus.errors import (
    BusError,
    EntityNotFound,
    FragmentUnavailable,
    NotSupported,
    OutcomeUnknown,
    QuotaExceeded,
    ServerBusy,
    StoreUnavailable,
    Unauthorized,
)
from tandembus.interconnect import peer as peer_module
from tandembus.interconnect.frames import CALL, HELLO, NOTICE, PRE_AUTH_FRAME_BYTES, PROOF, REFUSED, WELCOME, frame
from tandembus.interconnect.handshake import Agreement, CallerHandshake, Party
from tandembus.interconnect.peer import Handlers, Peer, PeerListener, connect_peer
from tandembus.interconnect.wire_errors import error_of, name_of, text_of
from tests.covers import covers

KEY = bytes(range(32))


class Main:
    """A listener that lets in whom it likes and notes what it hears."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "control"
        self.heard: asyncio.Queue[object] = asyncio.Queue()
        self.joined: asyncio.Queue[Peer] = asyncio.Queue()
        self.held = asyncio.Event()
        self.unwanted = ""
        self.refusal: BusError = EntityNotFound("No stranger is expected.")
        handlers = Handlers(
            {"double": self._double, "fail": self._fail, "break": self._break, "hold": self._hold},
            {"note": lambda _, value: self.heard.put_nowait(value)},
        )
        self.listener = PeerListener(
            KEY, Party("main", {"id": "m"}), handlers, self._admit, self.joined.put_nowait, handshake_timeout_s=5.0
        )

    def _admit(self, agreement: Agreement) -> Mapping[str, object]:
        if agreement.role == self.unwanted:
            raise self.refusal
        return {"catalog_version": 5}

    async def _double(self, _peer: Peer, value: object) -> object:
        assert isinstance(value, int)
        return value * 2

    async def _fail(self, _peer: Peer, value: object) -> object:
        raise QuotaExceeded(f"full: {value}")

    async def _break(self, _peer: Peer, _value: object) -> object:
        raise RuntimeError("a mistake of ours")

    async def _hold(self, _peer: Peer, value: object) -> object:
        await self.held.wait()
        return value

    async def connect(self, role: str = "broker", key: bytes = KEY, handlers: Handlers | None = None) -> Peer:
        return await connect_peer(self.path, key, Party(role, {"index": 2}), handlers)


@pytest.fixture
async def main(run_folder: Path) -> AsyncIterator[Main]:
    main = Main(run_folder)
    await main.listener.start(main.path)
    yield main
    await main.listener.stop()


@covers("P1")
async def test_what_is_said_after_other_frames_does_not_overtake_them(main: Main) -> None:
    peer = await main.connect()
    unsaid = [frame(NOTICE, 0, encode(["note", "before"]))]
    peer.connection.on_flush = lambda: unsaid.pop() if unsaid else b""
    peer.push("note", "after")
    assert [await main.heard.get(), await main.heard.get()] == ["before", "after"]


@covers("P1")
async def test_a_call_is_answered_in_both_directions(main: Main) -> None:
    async def name(_peer: Peer, value: object) -> object:
        return [value, b"\0\xff", None, True, 1.5, {"a": [-1, 2**63 - 1]}]

    peer = await main.connect(handlers=Handlers({"name": name}))
    other = await main.joined.get()
    assert await peer.call("double", 21) == 42
    assert await other.call("name", "ü") == ["ü", b"\0\xff", None, True, 1.5, {"a": [-1, 2**63 - 1]}]
    assert (other.role, other.facts) == ("broker", {"index": 2})
    assert (peer.role, peer.facts) == ("main", {"id": "m", "catalog_version": 5})
    await peer.close()


async def test_many_calls_are_under_way_at_once_and_each_gets_its_own_answer(main: Main) -> None:
    peer = await main.connect()
    held = [asyncio.create_task(peer.call("hold", number)) for number in range(100)]
    assert await peer.call("double", 1) == 2
    main.held.set()
    assert await asyncio.gather(*held) == list(range(100))
    await peer.close()


async def test_an_error_arrives_as_the_same_error(main: Main) -> None:
    peer = await main.connect()
    with pytest.raises(QuotaExceeded, match="full: x"):
        await peer.call("fail", "x")
    with pytest.raises(NotSupported, match="'unheard'"):
        await peer.call("unheard")
    with pytest.raises(StoreUnavailable, match="'break' failed"):
        await peer.call("break")
    assert await peer.call("double", 3) == 6
    await peer.close()


async def test_notices_arrive_in_order_and_unknown_ones_do_no_harm(main: Main) -> None:
    peer = await main.connect()
    for number in range(50):
        peer.push("note", number)
        peer.push("unheard", number)
    assert [await main.heard.get() for _ in range(50)] == list(range(50))
    await peer.close()


async def test_a_call_without_an_answer_is_of_unknown_outcome(main: Main) -> None:
    peer = await main.connect()
    with pytest.raises(OutcomeUnknown, match=r"within 0\.05 s"):
        await peer.call("hold", 1, timeout_s=0.05)
    main.held.set()
    assert await peer.call("double", 1) == 2, "the late answer disturbs nobody"
    await peer.close()


async def test_what_was_asked_when_the_connection_broke_is_of_unknown_outcome(main: Main) -> None:
    peer = await main.connect()
    other = await main.joined.get()
    lost: list[Peer] = []
    peer.on_lost = lost.append
    asked = asyncio.create_task(peer.call("hold", 1))
    await peer.call("double", 1)
    other.connection.end(ServerBusy("away"))
    with pytest.raises(OutcomeUnknown):
        await asked
    assert lost == [peer]
    with pytest.raises(FragmentUnavailable):
        await peer.call("double", 1)


async def test_who_asks_and_is_cancelled_when_the_connection_breaks_is_cancelled(main: Main) -> None:
    """And does not ask again: a process that is being stopped would never end."""
    peer = await main.connect()
    asked = asyncio.create_task(peer.call("hold", 1))
    await peer.call("double", 1)
    peer.connection.end(ServerBusy("away"))
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_too_many_calls_at_once_are_refused(main: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_module, "MAX_CALLS", 5)
    peer = await main.connect()
    held = [asyncio.create_task(peer.call("hold", number)) for number in range(5)]
    await asyncio.sleep(0)
    with pytest.raises(ServerBusy):
        await peer.call("double", 1)
    main.held.set()
    await asyncio.gather(*held)
    assert await peer.call("double", 1) == 2
    await peer.close()


@covers("P1")
async def test_a_wrong_key_is_refused_on_both_sides(main: Main) -> None:
    with pytest.raises(Unauthorized):
        await main.connect(key=b"w" * 32)
    assert main.listener.peers == []


async def test_who_is_not_admitted_is_told_why(main: Main) -> None:
    main.unwanted = "stranger"
    with pytest.raises(EntityNotFound, match="No stranger is expected"):
        await main.connect("stranger")
    assert main.listener.peers == []


@pytest.mark.parametrize(
    ("refusal", "told"),
    [(FragmentUnavailable("Not served yet."), []), (EntityNotFound("Nobody knows you."), ["Nobody knows you."] * 2)],
    ids=["comes again soon", "is wrong here"],
)
async def test_who_comes_again_until_it_is_served_does_not_fill_the_log(
    main: Main, caplog: pytest.LogCaptureFixture, refusal: BusError, told: list[str]
) -> None:
    main.unwanted, main.refusal = "broker", refusal
    with pytest.raises(type(refusal)):
        await main.connect("broker")
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in warnings] == [f"a connection is ended: {text}" for text in told]


async def test_nobody_listens(run_folder: Path) -> None:
    with pytest.raises(FragmentUnavailable):
        await connect_peer(run_folder / "nothing", KEY, Party("broker"))


async def test_only_the_owner_can_reach_the_socket(main: Main) -> None:
    assert main.path.stat().st_mode & 0o077 == 0


# Strangers.


async def _raw(main: Main) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(str(main.path))


async def _frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    length = int.from_bytes(await reader.readexactly(4), "big")
    body = await reader.readexactly(length)
    return body[0], body[5:]


async def _refusal(reader: asyncio.StreamReader) -> str:
    kind, body = await _frame(reader)
    assert kind == REFUSED
    value, _ = decode(body)
    assert isinstance(value, list)
    assert await reader.read() == b"", "the connection is closed behind it"
    return str(value[0])


@covers("P1")
async def test_an_overheard_hello_and_proof_are_refused_when_they_come_again(main: Main) -> None:
    handshake = CallerHandshake(KEY, Party("broker"))
    hello = frame(HELLO, 0, handshake.hello())
    reader, writer = await _raw(main)
    writer.write(hello)
    kind, body = await _frame(reader)
    assert kind == WELCOME
    proof = frame(PROOF, 0, handshake.welcome(body))
    writer.write(proof)
    await _frame(reader)
    await main.joined.get()
    writer.close()
    again, second = await _raw(main)
    second.write(hello + proof)
    await _frame(again)
    assert await _refusal(again) == "Unauthorized"
    assert main.joined.empty()
    second.close()


@pytest.mark.parametrize(
    "said",
    [
        frame(CALL, 0, encode([1, "double", 1])),
        frame(PROOF, 0, encode({"proof": b"\0" * 32})),
        frame(HELLO, 0, b"nonsense"),
        frame(HELLO, 0, bytes(PRE_AUTH_FRAME_BYTES)),
        (0x7FFFFFFF).to_bytes(4, "big") + b"\x01",
        frame(250, 0, b""),
    ],
)
async def test_whoever_begins_with_anything_but_a_hello_is_sent_away(main: Main, said: bytes) -> None:
    reader, writer = await _raw(main)
    writer.write(said)
    assert await _refusal(reader) == "MalformedData"
    assert main.joined.empty()
    writer.close()


async def test_a_frame_that_nobody_knows_ends_the_connection(main: Main) -> None:
    peer = await main.connect()
    other = await main.joined.get()
    peer.connection.send(frame(250, 0, b""))
    await peer.connection.until_ended()
    assert not other.is_open


async def test_who_does_not_finish_its_handshake_is_sent_away(run_folder: Path) -> None:
    main = Main(run_folder)
    main.listener = PeerListener(
        KEY, Party("main"), Handlers(), lambda _: {}, main.joined.put_nowait, handshake_timeout_s=0.05
    )
    await main.listener.start(main.path)
    reader, writer = await _raw(main)
    assert await reader.read() == b""
    writer.close()
    await main.listener.stop()


async def test_strangers_take_up_a_bounded_number_of_places(main: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_module, "MAX_STRANGERS", 3)
    strangers = [await _raw(main) for _ in range(5)]
    for reader, _ in strangers[:2]:
        assert await reader.read() == b"", "whoever has dawdled longest goes first"
    peer = await main.connect()
    assert await peer.call("double", 2) == 4
    for _, writer in strangers:
        writer.close()
    await peer.close()


async def test_thousands_of_mutated_frames_end_connections_and_nothing_else(main: Main) -> None:
    """Whatever an end says that has the key and has lost its mind."""
    chance = random.Random(20)
    good = [frame(CALL, 0, encode([1, "double", 2])), frame(19, 0, encode(["note", 1])), frame(17, 0, encode([9, 1]))]
    for _ in range(100):
        peer = await main.connect()
        for _ in range(20):
            bad = bytearray(chance.choice(good))
            for _ in range(chance.randint(1, 4)):
                bad[chance.randrange(len(bad))] = chance.randrange(256)
            peer.connection.send(bytes(bad[: chance.randint(1, len(bad))]))
        await peer.close()
    peer = await main.connect()
    assert await peer.call("double", 2) == 4
    await peer.close()


def test_errors_keep_their_names_both_ways() -> None:
    for kind in [Unauthorized, OutcomeUnknown, FragmentUnavailable, BusError]:
        error = kind("why")
        back = error_of(name_of(error), text_of(error))
        assert (type(back), str(back)) == (kind, "why")
    assert type(error_of("OfTheFuture", "why")) is StoreUnavailable
