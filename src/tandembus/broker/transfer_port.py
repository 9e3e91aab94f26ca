"""Where forwarded messages go, as the namespace knows it and the broker does not.

A destination is an entity. Its fragments may be in the same store, where a message leaves one and arrives at the other
in one commit; or in another one, perhaps of another process, where it is sent, and settled here after the answer.
"""

from __future__ import annotations

from typing import Final, Protocol, final

from tandembus.broker.fragment import Fragment
from tandembus.broker.operations import SendOperation
from tandembus.broker.settings import FragmentSettings
from tandembus.broker.subscriptions import MAX_EVALUATIONS
from tandembus.errors import (
    BusError,
    EntityNotFound,
    InvalidArgument,
    InvalidOperation,
    MalformedData,
    MessageTooLarge,
)
from tandembus.message import Message

REASONS: Final[dict[type[BusError], str]] = {
    EntityNotFound: "TransferDestinationNotFound",
    InvalidOperation: "TransferNotAllowed",
    InvalidArgument: "TransferNotAllowed",
    MalformedData: "TransferNotAllowed",
    MessageTooLarge: "MessageSizeExceeded",
}
"""Refusals for good, and the reason told with the transfer dead letter. All others pass."""


def is_for_good(error: BusError) -> bool:
    return type(error) in REASONS


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

    @property
    def most_at_once(self) -> int:
        """Messages that a fragment is given in one operation: see `most_for_rules`."""

    def index_of(self, message: Message, number: int) -> int:
        """The fragment that takes a message: its key decides, else its number at the source. Always the same one, since
        only that one knows whether it has it already."""

    def key_of(self, index: int) -> int:
        """The key of one of its fragments. Keys are never given out again: an entity that was deleted and created anew
        has others."""

    async def open(self, index: int) -> Fragment | Outlet:
        """A `Fragment` only of the same store and broker. Raises why nothing can be sent to it."""


class TransferPort(Protocol):
    """Finds where a message is to go."""

    async def find(self, path: str) -> Fragment | Destination:
        """The queue or topic with this path; a fragment of the same store stands for an entity that has no other.
        Raises why nothing can be sent to it."""


def most_for_rules(rule_count: int) -> int:
    """A topic with many rules gets few messages at a time, so that their evaluation holds nobody up."""
    return max(1, MAX_EVALUATIONS // max(rule_count, 1))


@final
class OneFragment:
    """A destination that has one fragment, in the same store."""

    fragment_count: Final = 1

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment

    @property
    def settings(self) -> FragmentSettings:
        return self._fragment.settings

    @property
    def most_at_once(self) -> int:
        fan_out = self._fragment.fan_out
        if fan_out is None:
            return MAX_EVALUATIONS
        return most_for_rules(sum(len(one.rules.rules) for one in fan_out.subscriptions.values()))

    def index_of(self, message: Message, number: int) -> int:
        return 0

    def key_of(self, index: int) -> int:
        return int(self._fragment.key)

    async def open(self, index: int) -> Fragment:
        return self._fragment
