"""The numbers of one channel's operations where they are carried out, and the mark that the commits keep of them.

When the store fails in the middle of a commit, nobody can say whether what the commit held was carried out: its numbers
are in doubt until the store is open again, and its mark decides. What had not come so far is as certain as what was
refused: it was not carried out.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.channel_marks import ChannelMark
from tandembus.errors import BusError, FragmentUnavailable, StoreFull, StoreUnavailable
from tandembus.store.messaging_store import MARK_NUMBERS

NOT_CARRIED_OUT: Final = "The messaging store failed; the operation was not carried out."


@final
class MarkedNumbers:
    __slots__ = ("in_doubt", "last", "mark")

    def __init__(self, mark: ChannelMark) -> None:
        self.mark: Final = mark
        self.last: i64 = 0
        """The highest number so far."""
        self.in_doubt: list[int] = []

    def collected(self, number: i64) -> None:
        """It goes into the coming commit. One that its sender has given up long ago would take another's place in the
        mark."""
        if number > self.last - MARK_NUMBERS:
            self.mark.done(number)

    def is_done(self, number: i64) -> bool:
        return number > self.last - MARK_NUMBERS and self.mark.is_done(number)

    def is_doubtful(self, number: i64, error: BusError) -> bool:
        """Whether nobody knows what became of it, after this answer; then `resolve` tells, once the store is open
        again."""
        if not isinstance(error, StoreUnavailable) or not self.is_done(number):
            return False
        if isinstance(error, StoreFull):
            self.mark.undo(number)
            return False
        self.in_doubt.append(int(number))
        return True

    def take_in_doubt(self) -> list[int]:
        in_doubt = self.in_doubt
        self.in_doubt = []
        return in_doubt


def refusal_of(error: BusError) -> BusError:
    """A store that has failed took nothing, so another fragment may be tried; a full one says so itself."""
    if isinstance(error, StoreUnavailable) and not isinstance(error, StoreFull):
        return FragmentUnavailable(str(error))
    return error
