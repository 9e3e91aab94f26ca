"""What pairing refuses or cannot do: few errors, each with one meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

CAUSES_TOLD: Final = 3
"""In the text of an error; there may be a thousand queues."""


class PairingError(Exception):
    """Anything that pairing itself raises; what the SDK raises is passed on as it is."""


class ReservedPropertyName(PairingError, ValueError):
    """An application property of the caller's has a name that the backlog needs (N8)."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the application property {name!r} is reserved for messages in a backlog queue")
        self.name = name


class BacklogMessageTooLarge(PairingError, ValueError):
    """With the added properties the message is larger than a backlog queue takes (N9). Nothing was sent."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"the message has {size_bytes} bytes with what the backlog adds to it; a backlog queue takes {limit_bytes}"
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class PairingFailed(PairingError):
    """`pair_namespace` could not do its work: the secondary was not reached, or did not allow it."""


class SchedulingUnavailable(PairingError):
    """`schedule_messages` while the entity is failed over: the sequence numbers it returns are the primary's to give.
    Set `scheduled_enqueue_time_utc` on the messages and send them instead."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is failed over, and only the primary gives sequence numbers: set scheduled_enqueue_time_utc on "
            "the messages and send them instead"
        )
        self.path = path


class SendAvailabilityBacklogError(PairingError):
    """The entity is failed over, and the backlog did not take the messages: every queue refused, or the caller's time
    is up. `unsent` are still the caller's; of a list or batch, those that are not among them are in the backlog.
    `causes` tells what each queue answered, to this send or to the one that took it out of use."""

    def __init__(self, path: str, unsent: Sequence[object], causes: Mapping[str, BaseException]) -> None:
        told = [f"{queue}: {error!r}" for queue, error in list(causes.items())[:CAUSES_TOLD]]
        told += [f"{len(causes) - CAUSES_TOLD} more"] if len(causes) > CAUSES_TOLD else []
        super().__init__(
            f"{path} is failed over, and no backlog queue takes {len(unsent)} message(s) ({'; '.join(told)})"
        )
        self.path = path
        self.unsent = tuple(unsent)
        self.causes = dict(causes)


class PairFaulted(PairingError):
    """One client of the pair is gone, so the other was closed (N14): nothing can be sent any more."""

    def __init__(self, first: str, reason: str) -> None:
        super().__init__(f"the {first} client {reason}, and its partner was closed because of that")
        self.first = first
        self.reason = reason


class PairClosed(PairingError):
    """The paired client or the sender was closed."""
