"""Sends messages of a backlog queue to one destination on the primary, and finds out which of them it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final, TypeAlias, final

from tandembus.clock import Clock
from tandembus.errors import (
    EntityNotFound,
    InvalidArgument,
    InvalidOperation,
    MalformedData,
    MessageTooLarge,
    NotSupported,
)
from tandembus.pairing.syphon.ports import Delivery, Held, PrimaryPort, PrimaryUnreachable
from tandembus.pairing.syphon.settings import SyphonSettings

BATCH_OVERHEAD_BYTES: Final = 8
"""Around each message of a batch."""
HOLD_S: Final = 20.0
"""How long the messages of one destination may be sent before it is another one's turn."""
AreSafe: TypeAlias = Callable[[Sequence[Delivery]], bool]
"""Whether the messages are still locked, and for long enough to begin to send them."""


class Refusal(Enum):
    """What a failed send to the primary means for the messages in it."""

    LATER = "later"
    """The destination takes nothing now: unavailable, disabled, over quota, busy, not authorized."""
    MESSAGE = "message"
    """The destination will never take one of these messages."""
    GONE = "gone"
    """There is no such destination."""
    UNREACHABLE = "unreachable"
    """No destination of the primary can be reached."""


REFUSALS: Final[Mapping[type[BaseException], Refusal]] = {
    PrimaryUnreachable: Refusal.UNREACHABLE,
    EntityNotFound: Refusal.GONE,
    MessageTooLarge: Refusal.MESSAGE,
    InvalidOperation: Refusal.MESSAGE,
    InvalidArgument: Refusal.MESSAGE,
    MalformedData: Refusal.MESSAGE,
    NotSupported: Refusal.MESSAGE,
}
"""Every other error passes by itself, or somebody has to act: `LATER`."""

DEAD_LETTER_REASONS: Final[Mapping[Refusal, str]] = {
    Refusal.GONE: "DestinationNotFound",
    Refusal.MESSAGE: "RefusedByDestination",
}


def refusal_in(error: BaseException) -> Refusal:
    return next((refusal for kind, refusal in REFUSALS.items() if isinstance(error, kind)), Refusal.LATER)


class Sent:
    """What became of messages for one destination."""

    __slots__ = ("accepted", "error", "refused", "rest")

    def __init__(self) -> None:
        self.accepted: Final[list[Held]] = []
        self.refused: Final[list[tuple[Held, str, str]]] = []
        """With the reason and the description of their dead letters."""
        self.rest: list[Held] = []
        """Not accepted now, because of `error`; without an error there was no time left or a lock was not safe."""
        self.error: Exception | None = None

    @property
    def is_primary_away(self) -> bool:
        return isinstance(self.error, PrimaryUnreachable)


@final
class HomeSender:
    def __init__(self, primary: PrimaryPort, are_safe: AreSafe, settings: SyphonSettings, clock: Clock) -> None:
        self._primary = primary
        self._are_safe = are_safe
        self._settings = settings
        self._clock = clock

    async def send(self, held: Sequence[Held]) -> Sent:
        """Sends batch after batch to one destination: until it takes no more, or the time is up."""
        until = self._clock.monotonic() + HOLD_S
        sent = Sent()
        sent.accepted.extend([each for each in held if each.is_home])
        rest = [each for each in held if not each.is_home]
        size = self._settings.batch_size
        while rest and self._clock.monotonic() < until:
            batch = self._batch(rest, size)
            if not self._are_safe([each.delivery for each in batch]):
                break
            try:
                await self._primary.send(batch[0].path, [each.payload for each in batch])
            except Exception as error:
                refusal = refusal_in(error)
                if refusal is Refusal.MESSAGE and len(batch) > 1:
                    size = 1  # Sent one by one, the refused message shows itself.
                    continue
                if refusal not in DEAD_LETTER_REASONS:
                    sent.error = error
                    break
                description = f"'{batch[0].path}' on the primary: {error}"[:1024]
                sent.refused.extend([(each, DEAD_LETTER_REASONS[refusal], description) for each in batch])
            else:
                sent.accepted.extend(batch)
            rest = rest[len(batch) :]
        sent.rest = rest
        return sent

    def _batch(self, held: list[Held], size: int) -> list[Held]:
        """The first messages that fit together. One that is too large goes alone, and the destination refuses it."""
        total = 0
        for count, each in enumerate(held[:size]):
            total += len(each.payload) + BATCH_OVERHEAD_BYTES
            if total > self._settings.batch_bytes and count:
                return held[:count]
        return held[:size]
