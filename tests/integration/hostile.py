"""What the tests with hostile peers need: somebody healthy beside them, and conversations gone wrong."""

from __future__ import annotations

import random
import socket
import threading
import time
from pathlib import Path

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.frames import AMQP_FRAME, AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from tandembus.amqp.encoding.sections import (
    amqp_value_section,
    application_properties_section,
    data_section,
    properties_section,
)
from tandembus.amqp.encoding.values import symbol, ubyte, uint, ulong
from tandembus.security.sas import ROOT_POLICY
from tests.integration.bus import Bus
from tests.integration.raw_amqp import (
    BATCH_FORMAT,
    MESSAGE,
    RECEIVER,
    SENDER,
    Frame,
    RawAmqp,
    parse_frame,
    source_of,
    state_of,
    target_of,
    transfer_frames,
)
from tests.integration.serving import KEY, RunningNamespace

ENDS_WITHIN_S = 10.0

INIT = frame(SASL_FRAME, 0, codes.SASL_INIT, [symbol("PLAIN"), f"\0{ROOT_POLICY}\0{KEY}".encode(), "localhost"])
OPEN = frame(AMQP_FRAME, 0, codes.OPEN, ["hostile", "localhost", uint(65536), None])
BEGIN = frame(AMQP_FRAME, 0, codes.BEGIN, [None, uint(0), uint(1000), uint(1000), uint(100)])


def anonymous_bytes(running: RunningNamespace) -> int:
    """What the process has allocated for itself; the store's mapped file is not in it."""
    for line in Path(f"/proc/{running.process.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise LookupError("RssAnon")


class HealthyClient:
    """Sends a message and receives it, again and again, and remembers the longest time that took."""

    def __init__(self, bus: Bus) -> None:
        self._queue = bus.make_queue()
        self._port = bus.running.port
        self._is_stopping = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="healthy client")
        self.round_trips = 0
        self.longest_s = 0.0
        self.failure: Exception | None = None
        self._thread.start()

    def go_round_once_more(self) -> None:
        """Wait until it has, from beginning to end."""
        with self._changed:
            enough = self.round_trips + 2
            self._changed.wait_for(lambda: self.round_trips >= enough or self.failure is not None, ENDS_WITHIN_S)
            assert self.failure is None
            assert self.round_trips >= enough, "the healthy client is not served"

    def stop(self) -> None:
        self._is_stopping = True
        self._thread.join()

    def _run(self) -> None:
        try:
            with RawAmqp(self._port) as raw:
                raw.log_in()
                raw.attach_sender(SENDER, self._queue)
                raw.attach_receiver(RECEIVER, self._queue)
                while not self._is_stopping:
                    began = time.monotonic()
                    self._go_round(raw)
                    raw.frames.clear()
                    self._tell(time.monotonic() - began, None)
        except Exception as error:
            self._tell(0.0, error)

    def _tell(self, took_s: float, failure: Exception | None) -> None:
        with self._changed:
            self.round_trips += 1
            self.longest_s = max(self.longest_s, took_s)
            self.failure = failure
            self._changed.notify_all()

    def _go_round(self, raw: RawAmqp) -> None:
        body = str(self.round_trips).encode()
        assert raw.send_message(SENDER, self.round_trips, data_section(body)).described(4)[0] == codes.ACCEPTED
        raw.flow(RECEIVER, 1, delivery_count=self.round_trips)
        transfer, message = raw.receive_message()
        assert message.body == body
        raw.dispose(transfer.number(1), state_of(codes.ACCEPTED))
        assert raw.expect(codes.DISPOSITION).described(4)[0] == codes.ACCEPTED


def performative(code: int, fields: list[object]) -> bytes:
    return frame(AMQP_FRAME, 0, code, fields)


def frames_in(answer: bytes) -> list[Frame]:
    """The AMQP frames of a server's whole answer, behind the protocol header."""
    at = answer.rindex(AMQP_HEADER) + 8
    frames: list[Frame] = []
    while at < len(answer):
        size = int.from_bytes(answer[at : at + 4], "big")
        frames.append(parse_frame(answer[at : at + size]))
        at += size
    return frames


def conversation(queue: str) -> list[bytes]:
    """A client's part of a whole life: the frames of it, one by one."""
    peek = properties_section(message_id="request", reply_to="client")
    peek += application_properties_section({"operation": "com.microsoft:peek-message"})
    peek += amqp_value_section({"from-sequence-number": 1, "message-count": 1})
    flow = [uint(0), uint(100), uint(0), uint(100), uint(1), uint(0), uint(10), None, False, True]
    node = f"{queue}/$management"

    def attach(name: str, handle: int, is_receiver: bool, address: str) -> bytes:
        fields: list[object] = [name, uint(handle), is_receiver, ubyte(0), ubyte(1), source_of(address)]
        return performative(codes.ATTACH, [*fields, target_of(address), None, None, uint(0), ulong(0)])

    return [
        SASL_HEADER,
        INIT,
        AMQP_HEADER,
        OPEN,
        BEGIN,
        attach("sender", 0, False, queue),
        attach("receiver", 1, True, queue),
        attach("requests", 2, False, node),
        attach("replies", 3, True, node),
        transfer_frames(0, 0, properties_section(message_id="m") + MESSAGE),
        transfer_frames(0, 1, data_section(bytes(3000)), settled=True),
        transfer_frames(0, 2, data_section(MESSAGE) * 3, message_format=BATCH_FORMAT),
        performative(codes.FLOW, list(flow)),
        performative(codes.FLOW, [*flow[:4], uint(3), *flow[5:]]),
        transfer_frames(2, 3, peek),
        performative(codes.DISPOSITION, [True, uint(0), uint(1), False, state_of(codes.ACCEPTED)]),
        performative(codes.DISPOSITION, [True, uint(2), None, True, state_of(codes.MODIFIED, True, True, {})]),
        performative(codes.DETACH, [uint(0), True]),
        performative(codes.END, []),
        performative(codes.CLOSE, []),
    ]


def mutated(frames: list[bytes], choice: random.Random) -> bytes:
    """One to three changes: to the order of the frames, to their sizes, or to any byte."""
    frames = frames.copy()
    for _ in range(choice.randint(1, 3)):
        at = choice.randrange(len(frames))
        chosen = bytearray(frames[at])
        if not chosen:
            continue
        spot = choice.randrange(len(chosen))
        kind = choice.randrange(9)
        if kind == 0:
            chosen[spot] ^= 1 << choice.randrange(8)
        elif kind == 1:
            chosen[spot] = choice.choice((0x00, 0x40, 0x45, 0x53, 0x7F, 0x80, 0xA0, 0xB0, 0xC0, 0xD0, 0xE0, 0xF0, 0xFF))
        elif kind == 2:
            del chosen[spot:]
        elif kind == 3:
            del chosen[spot : spot + choice.randint(1, 8)]
        elif kind == 4:
            chosen[spot:spot] = choice.randbytes(choice.randint(1, 16))
        elif kind == 5:
            chosen[0:4] = choice.choice((0, 7, 8, 9, len(chosen) + 1, 65_536, 65_537, 2**31, 2**32 - 1)).to_bytes(
                4, "big"
            )
        elif kind == 6:
            other = choice.randrange(len(frames))
            chosen, frames[other] = bytearray(frames[other]), bytes(chosen)
        elif kind == 7:
            chosen += bytes(chosen)
        else:
            end = spot + choice.randint(1, 8)
            chosen[spot:end] = b"\xff" * len(chosen[spot:end])
        frames[at] = bytes(chosen)
    return b"".join(frames)


def say_and_listen(port: int, data: bytes) -> bytes:
    """Everything the server answers until it closes, which it does once we have said everything."""
    answer = b""
    with socket.create_connection(("localhost", port), ENDS_WITHIN_S) as peer:
        try:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            while part := peer.recv(65536):
                answer += part
        except (ConnectionResetError, BrokenPipeError):
            pass
    return answer
