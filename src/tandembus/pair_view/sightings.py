"""What this process has seen of a pair since it was started: bounded, in memory, and never in anybody's way.

It is for people who look at it. Nothing is decided by it, and after a restart it begins anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Final

from tandembus.broker.locks import COMPLETE, DEAD_LETTER
from tandembus.clock import Clock
from tandembus.errors import BusError, EntityDisabled, OperationTimeout, StoreUnavailable
from tandembus.message import Message
from tandembus.pair_view.backlog_paths import destination_in, primary_of
from tandembus.pair_view.signs import EntityRecord, EntitySigns, Sign
from tandembus.pair_view.watches import OutageMark, ReceiveWatch, SendWatch

MAX_ENTITIES: Final = 1_000
"""Entities of which signs are kept; those that were seen longest ago go first."""
MAX_HELD: Final = 20_000
"""Messages in the hands of syphons whose destination is remembered until they are settled."""


def is_outage(error: BusError) -> bool:
    """Whether paired clients count it as one (N5): the entity cannot be sent to, whatever the message."""
    return isinstance(error, StoreUnavailable | OperationTimeout | EntityDisabled)


class Sightings:
    def __init__(self, clock: Clock, max_entities: int = MAX_ENTITIES, max_held: int = MAX_HELD) -> None:
        self._clock = clock
        self._max_entities = max_entities
        self._max_held = max_held
        self._records: dict[tuple[str, str], EntityRecord] = {}
        self._last: EntityRecord | None = None
        """The one that was seen last, which is often seen next."""
        self._held: dict[bytes, tuple[str, str]] = {}
        self.since: Final = clock.now()
        self.is_cut_short = False
        """Whether entities had to be forgotten."""
        self.syphon_senders = 0
        """Links on which syphons send, at the moment."""

    # What links need.

    def of_sender(self, path: str, mark: OutageMark, is_syphon: bool = False) -> SendWatch:
        primary = primary_of(path)
        if primary is not None:
            return SendWatch(mark, True, partial(self._diverted, primary), _nothing_refused)
        if is_syphon:
            return SendWatch(mark, True, partial(self._came_home, path, mark), _nothing_refused)
        return SendWatch(mark, False, partial(self._accepted, path, mark), partial(self._refused, path, mark))

    def of_receiver(self, path: str) -> ReceiveWatch | None:
        """None where nobody wants to know."""
        primary = primary_of(path)
        return None if primary is None else ReceiveWatch(partial(self._delivered, primary), self._settled)

    def attach_refused(self, path: str, error: BusError) -> None:
        """A sender could not even attach. What it would have sent is not known."""
        if is_outage(error) and primary_of(path) is None:
            self._note("", path, Sign.REFUSED, 1)

    # What they tell.

    def _accepted(self, path: str, mark: OutageMark, messages: list[Message]) -> None:
        mark.is_set = False
        self._note("", path, Sign.PING_ACCEPTED if messages[0].is_ping else Sign.ACCEPTED, len(messages))

    def _refused(self, path: str, mark: OutageMark, messages: list[Message], error: BusError) -> None:
        if is_outage(error):
            mark.is_set = True
            self._note("", path, Sign.PING_REFUSED if messages[0].is_ping else Sign.REFUSED, len(messages))

    def _came_home(self, path: str, mark: OutageMark, messages: list[Message]) -> None:
        mark.is_set = False
        self._note("", path, Sign.HOME, len(messages))

    def _diverted(self, primary: str, messages: list[Message]) -> None:
        for path, count in Counter(map(destination_in, messages)).items():
            if path is not None:
                self._note(primary, path, Sign.DIVERTED, count)

    def _delivered(self, primary: str, message: Message, token: bytes) -> None:
        path = destination_in(message)
        if path is None:
            return
        if len(self._held) >= self._max_held:
            del self._held[next(iter(self._held))]
        self._held[token] = (primary, path)

    def _settled(self, token: bytes, settlement: int) -> None:
        where = self._held.pop(token, None)
        if where is None:
            return
        if settlement == COMPLETE:
            self._note(*where, Sign.TAKEN, 1)
        elif settlement == DEAD_LETTER:
            self._note(*where, Sign.DEAD, 1)

    def _note(self, primary: str, path: str, sign: Sign, count: int) -> None:
        record = self._last
        if record is None or record.path != path or record.primary != primary:
            record = self._last = self._record(primary, path)
        record.note(sign, count, self._clock.now())

    def _record(self, primary: str, path: str) -> EntityRecord:
        key = (primary.lower(), path.lower())
        record = self._records.pop(key, None) or EntityRecord(primary, path)
        if len(self._records) >= self._max_entities:
            del self._records[next(iter(self._records))]
            self.is_cut_short = True
        self._records[key] = record  # behind all others: the first is the one that was seen longest ago
        return record

    # What was seen.

    def signs(self) -> list[EntitySigns]:
        now = self._clock.now()
        return [record.signs(now) for record in self._records.values()]


def _nothing_refused(_messages: Iterable[Message], _error: BusError) -> None:
    """A backlog queue that refuses is out of its senders' use, and a syphon that is refused tries again: neither says
    that an application's send has failed."""
