"""What the syphon needs of the two namespaces; `client_port.py` implements it with `tandembus.client`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol


class Delivery:
    """A message of a backlog queue, locked for this syphon. `origin` is what the port settles it by."""

    __slots__ = ("origin", "payload")

    def __init__(self, payload: bytes, origin: Any) -> None:
        self.payload: Final = payload
        self.origin: Final = origin


class Held(NamedTuple):
    """A delivery and what it says."""

    delivery: Delivery
    path: str
    payload: bytes
    """The message in the form in which the primary gets it."""
    sequence_number: int
    is_home: bool = False
    """The primary has it already: another syphon noted so, and it is not sent again."""
    is_inherited: bool = False
    """Somebody held it who died or was stopped, and may have left deferred messages behind."""
    is_deferred: bool = False
    """It was received by its number, and stays deferred when it is given back."""

    @property
    def destination(self) -> str:
        return destination_of(self.path)


def destination_of(path: str) -> str:
    """Paths that differ only in case name the same entity."""
    return path.lower()


def by_destination(held: Iterable[Held]) -> dict[str, list[Held]]:
    groups: dict[str, list[Held]] = {}
    group: list[Held] = []
    path: str | None = None
    for each in held:
        if each.path != path:
            path = each.path
            group = groups.setdefault(destination_of(path), [])
        group.append(each)
    return groups


class LocksLost(Exception):
    """The locks of some messages are lost: whoever receives next gets them. The call did its work on all others."""

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        super().__init__(f"the locks of {len(deliveries)} messages were lost")
        self.deliveries: Final = tuple(deliveries)


class PrimaryUnreachable(Exception):
    """There is no connection to the primary. Ports raise it: only they know the state of their connection."""


class BacklogPort(Protocol):
    """One backlog queue. It opens its link when it is used; after an error all locks are gone and it opens a new one.

    `LocksLost`, which settling and renewing raise when they are done, is the exception: only the locks that it names
    are gone, and those messages must not be settled again. A link that is lost between two calls is an error of the
    next call, so that nobody takes the messages of the old link for those of the new one.
    """

    queue: str
    failures: tuple[type[Exception], ...]
    """What its calls may raise."""

    async def receive(self, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """Returns as soon as there is a message; none after `wait_s`. One poll: credit, a wait, no credit left."""

    async def interrupt(self) -> None:
        """Makes a `receive` that is under way return at once, and every later one."""

    def has_lost(self, deliveries: Sequence[Delivery]) -> bool:
        """Whether the link of one of them is known to be gone, so that somebody else may have it. Never waits."""

    async def complete(self, deliveries: Sequence[Delivery]) -> None: ...

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Gives them back as if they had never been delivered; deferred ones stay deferred."""

    async def abandon(self, deliveries: Sequence[Delivery], is_home: bool) -> None:
        """Gives them back, which counts as a delivery; `is_home`: with a note that the primary has them. Only for what
        `receive` returned."""

    async def defer(self, deliveries: Sequence[Delivery]) -> None: ...

    async def dead_letter(self, deliveries: Sequence[Delivery], reason: str, description: str) -> None: ...

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """Called beside other calls."""

    async def receive_deferred(self, sequence_numbers: Sequence[int]) -> Sequence[Delivery]:
        """Those that are still there and that nobody else holds, in this order."""

    async def browse(self, from_number: int, max_count: int) -> Sequence[bytes]:
        """Encoded messages in any state from this sequence number on; none at the end."""

    async def close(self) -> None: ...


class PrimaryPort(Protocol):
    """The paired primary. It cannot be made to send anywhere else."""

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        """Sends all of them, in this order, or none. Returns when the destination has accepted them."""

    async def close(self) -> None: ...
