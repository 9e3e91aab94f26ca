"""Clients that send large messages, and the memory of the processes that take them."""

from __future__ import annotations

import threading
from pathlib import Path

from tandembus.amqp.encoding import descriptors as codes
from tests.integration.raw_amqp import SENDER, RawAmqp, frames_of_transfer, plain, rejection

MIB = 1024 * 1024
WAITS_S = 600.0
RETRY_S = 0.5
TYPED = ("com.microsoft:server-busy", "com.microsoft:timeout", "amqp:internal-error")


class LargeSender:
    """One client that sends one message until it is accepted, and the end of it not before `until`."""

    def __init__(self, port: int, entity: str, payload: bytes, until: threading.Event | None = None) -> None:
        self._port = port
        self._entity = entity
        self._payload = payload
        self._until = until
        self.refusals: list[str] = []

    def send(self) -> None:
        pause = threading.Event()
        while not self._is_accepted():
            pause.wait(RETRY_S)

    def _is_accepted(self) -> bool:
        with RawAmqp(self._port) as raw:
            raw.socket.settimeout(WAITS_S)
            raw.log_in()
            raw.attach_sender(SENDER, self._entity)
            held_back = b""
            for one in frames_of_transfer(SENDER, 0, self._payload):
                raw.send(held_back)
                held_back = one
            if self._until is not None:
                self._until.wait()
            raw.send(held_back)
            answer = raw.expect(codes.DISPOSITION)
            if answer.described(4)[0] == codes.ACCEPTED:
                return True
            self.refusals.append(str(plain(rejection(answer)[0])))
            assert self.refusals[-1] in TYPED, rejection(answer)
            return False


def processes_of(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *[one for child in children for one in processes_of(int(child))]]


def memory_of(pid: int) -> dict[int, int]:
    """Bytes of memory of its own that each of these processes has; the pages of the store's file are the system's."""
    found: dict[int, int] = {}
    for one in processes_of(pid):
        try:
            status = Path(f"/proc/{one}/status").read_text()
        except FileNotFoundError:
            continue
        found[one] = sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon"))
    return found
