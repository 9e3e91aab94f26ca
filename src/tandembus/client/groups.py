"""Messages that must arrive in their order, group by group, whatever is refused on the way and sent again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from tandembus.client.messages import Payload, batches_of


class Group:
    """Messages of one session or key, in their order. It knows how far it came: a second try goes on from there."""

    __slots__ = ("_accepted", "_messages")

    def __init__(self, messages: Sequence[Payload]) -> None:
        self._messages: Final = messages
        self._accepted = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def is_done(self) -> bool:
        return self._accepted >= len(self._messages)

    def batch(self, size: int, limit_bytes: int) -> tuple[bytes, int]:
        """The next one that is to be sent, and how many messages are in it."""
        return next(batches_of(self._messages[self._accepted : self._accepted + size], size, limit_bytes))

    def accept(self, count: int) -> None:
        self._accepted += count


class Turns:
    """Whose batch goes next. One of each group is under way at a time: a batch that is refused, and sent again, would
    otherwise be overtaken by the next one of its group."""

    def __init__(self, groups: Iterable[Group], size: int, limit_bytes: int) -> None:
        self._ready: Final = deque([group for group in groups if not group.is_done])
        self._size: Final = size
        self._limit_bytes: Final = limit_bytes

    def take(self) -> tuple[bytes, int, Turn] | None:
        """None while every group that has more is waiting for an answer."""
        if not self._ready:
            return None
        group = self._ready.popleft()
        payload, count = group.batch(self._size, self._limit_bytes)
        return payload, count, Turn(self, group)

    def accept(self, group: Group, count: int) -> None:
        group.accept(count)
        if not group.is_done:
            self._ready.append(group)


class Turn:
    """A batch under way, for whoever hears that it was accepted."""

    __slots__ = ("_group", "_turns")

    def __init__(self, turns: Turns, group: Group) -> None:
        self._turns: Final = turns
        self._group: Final = group

    def accept(self, count: int) -> None:
        self._turns.accept(self._group, count)
