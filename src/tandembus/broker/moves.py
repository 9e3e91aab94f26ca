"""Messages on their way to another entity: settled here and arrived there in one commit, so never twice and never lost.

Whoever stages a move has found the destination and made sure that it takes the message. What happens to either of them
before the commit is judged when it is collected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from tandembus.broker.locks import MessageLock
from tandembus.message import Message

if TYPE_CHECKING:
    from tandembus.broker.fragment import Fragment


@final
class Move:
    """A message that leaves, held by its lock, in the form in which it arrives."""

    __slots__ = ("destination", "lock", "message")

    def __init__(self, lock: MessageLock, message: Message, destination: Fragment | None) -> None:
        self.lock: Final = lock
        self.message: Final = message
        self.destination: Final = destination
        """None: nobody takes it, so it goes to the transfer dead letters of where it is."""


@final
class StagedMoves:
    """The moves of one fragment between their staging and their end."""

    __slots__ = ("committing_refused", "staged")

    def __init__(self) -> None:
        self.staged: list[Move] = []
        self.committing_refused: list[Message] = []
        """In the commit under way: what goes to the transfer dead letters."""

    def begin_commit(self) -> list[Move]:
        moves = self.staged
        self.staged = []
        return moves

    def clear(self) -> list[MessageLock]:
        """Forget all of them; returns the locks that wait for an answer."""
        locks = [move.lock for move in self.staged]
        self.staged = []
        self.committing_refused = []
        return locks
