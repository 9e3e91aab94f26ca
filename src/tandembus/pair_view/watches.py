"""What links tell of their traffic, where anybody wants to know.

Links of an entity that is sent to without trouble tell nothing: an accepted send costs them two comparisons. All the
rest is seldom, or concerns backlog queues and syphons only, and goes through calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.errors import BusError
from tandembus.message import Message


@final
class OutageMark:
    """Whether the last that was said of an entity is a refusal. All links of the entity share it: the first send that
    is accepted then is worth telling."""

    __slots__ = ("is_set",)

    def __init__(self) -> None:
        self.is_set: bool = False


@final
class SendWatch:
    __slots__ = ("_accepted", "_refused", "_sees_all", "mark")

    def __init__(
        self,
        mark: OutageMark,
        sees_all: bool,
        accepted: Callable[[list[Message]], None],
        refused: Callable[[list[Message], BusError], None],
    ) -> None:
        """`sees_all`: also what is accepted while nothing is amiss."""
        self.mark: Final = mark
        self._sees_all: bool = sees_all
        self._accepted: Final = accepted
        self._refused: Final = refused

    def accepted(self, messages: list[Message]) -> None:
        """Not pings."""
        if self._sees_all or self.mark.is_set:
            self._accepted(messages)

    def ping_accepted(self, messages: list[Message]) -> None:
        self._accepted(messages)

    def refused(self, messages: list[Message], error: BusError) -> None:
        self._refused(messages, error)


@final
class ReceiveWatch:
    """Of a receiver of a backlog queue."""

    __slots__ = ("_delivered", "_settled")

    def __init__(self, delivered: Callable[[Message, bytes], None], settled: Callable[[bytes, int], None]) -> None:
        self._delivered: Final = delivered
        self._settled: Final = settled

    def delivered(self, message: Message, token: bytes) -> None:
        self._delivered(message, token)

    def settled(self, token: bytes, settlement: i64) -> None:
        self._settled(token, int(settlement))
