"""Where forwarded messages go, as the namespace knows it and the broker does not.

A destination is an entity. Its fragments may be in the same store, where a message leaves one and arrives at the other
in one commit; or in another one, perhaps of another process, where it is sent, and settled here after the answer.
"""

from __future__ import annotations

from typing import Protocol

from tandembus.broker.fragment import Fragment
from tandembus.broker.operations import SendOperation
from tandembus.broker.settings import FragmentSettings
from tandembus.errors import BusError
from tandembus.message import Message


class Outlet(Protocol):
    """A fragment in another store. Every operation is answered, if only with OutcomeUnknown: it is sent again then."""

    def failure(self) -> BusError | None:
        """Why it takes nothing at the moment; None while it does."""

    def send(self, operation: SendOperation) -> None:
        """Of which `source` is set. Raises when it is refused on the spot; else answered through its reply."""


class Destination(Protocol):
    """A queue or topic that messages are forwarded to."""

    @property
    def settings(self) -> FragmentSettings:
        """What a message has to fit."""

    @property
    def fragment_count(self) -> int: ...

    def index_of(self, message: Message, number: int) -> int:
        """The fragment that takes a message: its key decides, else its number at the source. Always the same one, since
        only that one knows whether it has it already."""

    async def open(self, index: int) -> Fragment | Outlet:
        """A `Fragment` only of the same store and broker. Raises why nothing can be sent to it."""


class TransferPort(Protocol):
    """Finds where a message is to go."""

    async def find(self, path: str) -> Fragment | Destination:
        """The queue or topic with this path; a fragment of the same store stands for an entity that has no other.
        Raises why nothing can be sent to it."""
