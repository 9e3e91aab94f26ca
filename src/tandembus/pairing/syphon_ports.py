"""What the syphon needs of the two namespaces; `client_ports.py` does it with `tandembus.client`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tandembus.pairing.syphon_messages import Delivery


class BacklogPort(Protocol):
    """One backlog queue. Opens itself when it is used; after an error all locks are gone and it opens itself anew.

    Not so after a `LocksLost`, which settling and renewing raise when they are done: only the locks it names are gone,
    and those messages are not to be settled again.
    A link that was lost between two calls is an error of the next one, so that nobody takes its messages for theirs.
    """

    queue: str
    failures: tuple[type[Exception], ...]
    """What its calls may raise."""

    async def receive(self, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """As soon as there is one; none after `wait_s`. One poll: credit, a wait, and no credit left behind."""

    async def interrupt(self) -> None:
        """Have a `receive` that is under way return at once, and every later one."""

    async def wake(self) -> None:
        """Have a `receive` that is under way return with what there is, else the next one. Called beside it."""

    def has_lost(self, deliveries: Sequence[Delivery]) -> bool:
        """Whether the link that one of them came on is known to be gone: then somebody else may have it. Asked before
        each send, beside other calls, so it waits for nothing."""

    async def complete(self, deliveries: Sequence[Delivery]) -> None: ...

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Give them back."""

    async def abandon(self, deliveries: Sequence[Delivery], are_home: bool) -> None:
        """Give them back, which is counted, and with a note on them if they are home. Only what `receive` returned."""

    async def defer(self, deliveries: Sequence[Delivery]) -> None: ...

    async def dead_letter(self, deliveries: Sequence[Delivery], reason: str, description: str) -> None: ...

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """Called beside others, too."""

    async def receive_deferred(self, sequence_numbers: Sequence[int]) -> Sequence[Delivery]:
        """Those of them that are still there and not in somebody else's hands, in this order."""

    async def browse(self, from_number: int, max_count: int) -> Sequence[bytes]:
        """Messages in any state from this sequence number on, as encoded; none at the end."""

    async def close(self) -> None: ...


class PrimaryPort(Protocol):
    """The paired primary. There is no way to make it send anywhere else."""

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        """All of them, in this order, or none: until the destination has accepted them."""

    async def close(self) -> None: ...
