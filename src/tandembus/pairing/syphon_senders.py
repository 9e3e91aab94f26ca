"""The senders of a syphon's primary port: one for each destination in use, and not too many that are not."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
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

    def __init__(self, make: Callable[[str], S], limit: int) -> None:
        self._make: Final = make
        self._limit: Final = limit
        self._lent: Final[OrderedDict[str, _Lent[S]]] = OrderedDict()

    def borrow(self, path: str) -> S:
        """To be given back."""
        lent = self._lent.get(path)
        if lent is None:
            lent = self._lent[path] = _Lent(self._make(path))
        self._lent.move_to_end(path)
        lent.users += 1
        return lent.sender

    def give_back(self, path: str) -> list[S]:
        """Returns those to be closed now: unused ones, when there are too many."""
        self._lent[path].users -= 1
        too_many = len(self._lent) - self._limit
        if too_many <= 0:
            return []
        unused = [path for path, lent in self._lent.items() if lent.users == 0][:too_many]
        return [self._lent.pop(path).sender for path in unused]
