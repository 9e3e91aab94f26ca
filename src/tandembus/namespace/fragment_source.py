"""Where entities get their fragments from: of this process, or behind a socket."""

from __future__ import annotations

from typing import Protocol

from tandembus.interconnect.requests import Requests
from tandembus.interconnect.traffic import Traffic
from tandembus.namespace.entries import Entry


class FragmentSource(Protocol):
    async def open(self, entry: Entry, index: int) -> tuple[Traffic, Requests]:
        """The fragment with this index, ready for use for as long as `close` is not called.

        A fragment whose broker or store is out of reach is opened, too: its traffic says so (`failure`), and serves
        once they are back. Raises EntityNotFound where the life that the entry tells of has ended."""

    def close(self, entry: Entry, index: int) -> None:
        """Nobody uses it here any more: it may leave the memory."""
