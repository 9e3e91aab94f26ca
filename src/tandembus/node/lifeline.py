"""A child process's hold on its supervisor: it must not outlive it, not even by the time a lock takes to be missed."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from typing import Final, NoReturn, final

SUPERVISOR_GONE: Final = 70
"""Exit code of a process whose supervisor is gone."""
MAX_ORDERS_BYTES: Final = 4 << 20
MEANT_FOR_SUPERVISOR: Final = frozenset({signal.SIGINT, signal.SIGTERM})
"""Whoever interrupts or stops the namespace means the supervisor, and that ends its children in order."""
_PR_SET_PDEATHSIG: Final = 1


@final
class Lifeline:
    """Made first thing in a child, before anything is opened."""

    def __init__(self, descriptor: int = 0) -> None:
        for number in MEANT_FOR_SUPERVISOR:
            signal.signal(number, signal.SIG_IGN)
        # Held back since we were started; those that came are forgotten now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, MEANT_FOR_SUPERVISOR)
        _die_with_parent()
        self._socket = socket.socket(fileno=os.dup(descriptor))
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, descriptor)
        os.close(null)

    def orders(self) -> dict[str, object]:
        """Waits for them, once; a supervisor that is gone gives none. To be called when all is loaded: that is told to
        the supervisor, and then that they are here."""
        self._give_sign()
        orders = self._read_orders()
        self._give_sign()
        if os.getppid() != orders.get("supervisor_pid"):
            self._end()
        return orders

    def watch(self) -> None:
        """From now on the process ends at once when its supervisor is gone. Nothing is finished: what was not
        acknowledged may be lost, and the next owner of the stores may be waiting."""
        self._socket.setblocking(False)
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._look)

    def _look(self) -> None:
        try:
            data = self._socket.recv(1)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._end()

    def _give_sign(self) -> None:
        with contextlib.suppress(OSError):  # reading tells when nobody is there any more
            self._socket.send(b"\x01")

    def _read_orders(self) -> dict[str, object]:
        size = int.from_bytes(self._read(4), "big")
        if size > MAX_ORDERS_BYTES:
            self._end()
        orders = json.loads(self._read(size))
        assert isinstance(orders, dict)
        return orders

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                part = self._socket.recv(size - len(data))
            except ConnectionError:
                part = b""
            if not part:
                self._end()
            data += part
        return data

    @staticmethod
    def _end() -> NoReturn:
        os._exit(SUPERVISOR_GONE)


def _die_with_parent() -> None:
    """The kernel ends us with our supervisor, even while our own loop is busy or we are stopped. Where there is no such
    thing the lifeline alone has to do."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
