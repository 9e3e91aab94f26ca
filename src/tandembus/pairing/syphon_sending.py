"""Sends a row of messages to one destination on the primary, in order, and finds out which of them it refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

from tandembus.clock import Clock
from tandembus.pairing.syphon_lane import Sent
from tandembus.pairing.syphon_messages import Delivery, Held
from tandembus.pairing.syphon_ports import PrimaryPort
from tandembus.pairing.syphon_rules import SyphonSettings, Verdict, dead_letter_reason, verdict_on

OVERHEAD_BYTES: Final = 8
"""What stands around a message in a batch."""
HOLD_S: Final = 20.0
"""How long one row of messages may be sent before it is somebody else's turn."""
AreSafe: TypeAlias = Callable[[Sequence[Delivery]], bool]
"""Whether messages are ours, and for so long that one can begin to send them."""


@final
class RowSender:
    def __init__(self, primary: PrimaryPort, are_safe: AreSafe, settings: SyphonSettings, clock: Clock) -> None:
        self._primary = primary
        self._are_safe = are_safe
        self._settings = settings
        self._clock = clock

    async def send(self, path: str, held: list[Held], until: float) -> Sent:
        """Batch by batch, until one is not taken for now, time is up, or a message is not safely ours any more."""
        sent = Sent()
        if any(each.is_home for each in held):
            sent.accepted.extend([each for each in held if each.is_home])
            held = [each for each in held if not each.is_home]
        position = 0
        size = self._settings.batch_size
        while position < len(held) and self._clock.monotonic() < until:
            batch = self._batch(held, position, size)
            if not self._are_safe([each.delivery for each in batch]):
                break
            try:
                await self._primary.send(path, [each.payload for each in batch])
            except Exception as error:
                verdict = verdict_on(error)
                if verdict is Verdict.REFUSED and len(batch) > 1:
                    size = 1  # One of them it is: which one, they tell one by one.
                    continue
                if verdict is not Verdict.REFUSED and verdict is not Verdict.GONE:
                    sent.error, sent.verdict = error, verdict
                    break
                reason, description = dead_letter_reason(verdict, path, error)
                sent.refused.extend([(each, reason, description) for each in batch])
            else:
                sent.accepted.extend(batch)
            position += len(batch)
        sent.rest = held[position:]
        return sent

    def _batch(self, held: list[Held], first: int, size: int) -> list[Held]:
        """The next ones that fit together; one that is too large goes alone, and the destination says so."""
        total = 0
        last = first
        while last < len(held) and last - first < size:
            total += len(held[last].payload) + OVERHEAD_BYTES
            if total > self._settings.batch_bytes and last > first:
                break
            last += 1
        return held[first:last]
