"""The senders of a syphon's primary port: one for each destination in use, and not too many that are not."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Generic, TypeVar, final

S = TypeVar("S")


class _Lent(Generic[S]):
    __slots__ = ("sender", "users")

    def __init__(self, sender: S) -> None:
        self.sender: Final = sender
        self.users = 0


@final
class SenderPool(Generic[S]):
    """Strangers decide how many destinations there are. So those used longest ago are given up when there are many, but
    never one that is sending: nobody would know what became of its messages."""

    def __init__(self, make: Callable[[str], S], limit: int, mutex: AbstractContextManager[None]) -> None:
        self._make: Final = make
        self._limit: Final = limit
        self._mutex: Final = mutex
        self._lent: Final[OrderedDict[str, _Lent[S]]] = OrderedDict()
        self._dropped: Final[dict[int, _Lent[S]]] = {}
        """Nobody gets these any more, and they are closed by the last who uses them."""

    def __len__(self) -> int:
        return len(self._lent) + len(self._dropped)

    def borrow(self, path: str) -> S:
        """To be given back."""
        with self._mutex:
            lent = self._lent.get(path)
            if lent is None:
                lent = self._lent[path] = _Lent(self._make(path))
            self._lent.move_to_end(path)
            lent.users += 1
            return lent.sender

    def give_back(self, path: str, sender: S, is_broken: bool = False) -> list[S]:
        """Those to be closed now: this one, if it is broken and nobody else is still at it, and unused ones when there
        are too many."""
        with self._mutex:
            lent = self._lent.get(path)
            if lent is None or lent.sender is not sender:
                lent = self._dropped.get(id(sender))
            elif is_broken:
                self._dropped[id(sender)] = self._lent.pop(path)
            if lent is None:
                return []  # All were closed meanwhile.
            lent.users -= 1
            is_done_with = lent.users == 0 and self._dropped.pop(id(sender), None) is not None
            return [sender, *self._unused()] if is_done_with else self._unused()

    def clear(self) -> list[S]:
        """All of them, to be closed."""
        with self._mutex:
            senders = [lent.sender for lent in (*self._lent.values(), *self._dropped.values())]
            self._lent.clear()
            self._dropped.clear()
            return senders

    def _unused(self) -> list[S]:
        too_many = len(self._lent) - self._limit
        if too_many <= 0:
            return []
        unused = [path for path, lent in self._lent.items() if lent.users == 0][:too_many]
        return [self._lent.pop(path).sender for path in unused]
