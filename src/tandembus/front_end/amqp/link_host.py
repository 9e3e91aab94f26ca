"""What the links of one connection share: its engine, its unsent bytes, and the moment it is flushed.

A commit answers many links of many connections; each connection is then written to once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.amqp.engine.connection import Connection
from tandembus.errors import BusError
from tandembus.front_end.amqp.transactions import Transactions
from tandembus.front_end.refusals import AMQP, Refusals
from tandembus.large_messages import LARGE_BYTES, LargeMemory
from tandembus.logs import ids


class Flushable:
    """A link with answers it has gathered and not yet written to its engine."""

    def write_answers(self) -> None:
        raise AssertionError("a link must implement it")


@final
class Flusher:
    """The connections that have something to write, over all of the front end.

    Whoever answers many at once says when it is done. What is written besides that, by a timer or on behalf of another
    connection, goes out in the next turn of the loop."""

    def __init__(self, soon: Callable[[Callable[[], None]], None] | None = None) -> None:
        self.hosts: list[LinkHost] = []
        self._soon: Final = soon
        self._is_awaited: bool = False

    def add(self, host: LinkHost) -> None:
        self.hosts.append(host)
        soon = self._soon
        if soon is not None and not self._is_awaited:
            self._is_awaited = True
            soon(self._flush_at_last)

    def _flush_at_last(self) -> None:
        self._is_awaited = False
        self.flush()

    def flush(self) -> None:
        """Write everybody's answers."""
        hosts = self.hosts
        self.hosts = []
        for host in hosts:
            host.flush()


@final
class PingTally:
    """Pings that were refused, over all of the front end; those that were accepted the meter counts."""

    def __init__(self) -> None:
        self.refused_count: i64 = 0


@final
class LinkHost:
    def __init__(
        self,
        engine: Connection,
        write: Callable[[bytes], None],
        resume: Callable[[], None],
        feed: Callable[[], None],
        flusher: Flusher,
        max_unsent_bytes: i64,
        max_unacknowledged_bytes: i64,
        transactions: Transactions,
        large: LargeMemory,
    ) -> None:
        self.engine: Final = engine
        self.large: Final = large
        self.given_bytes: i64 = 0
        """Of large messages that were written and wait for the peer to read them."""
        self._waits_for_room: bool = False
        self.transactions: Final = transactions
        self.pings: PingTally = PingTally()
        self.refusals: Refusals | None = None
        self.connection: str = ""
        """What the log calls the connection."""
        self.is_gone: bool = False
        """The connection is over: answers that come now have nobody to go to."""
        self.is_backed_up: bool = False
        """The transport holds more than its limit: the peer does not read."""
        self._is_stalled: bool = False
        """A delivery was put off because of what is unsent; it is asked for again when there is room."""
        self.unacknowledged_bytes: i64 = 0
        self.waiting_reply_bytes: i64 = 0
        """Of answers to requests, for which the peer has given no credit yet."""
        self.is_unread: bool = False
        """The peer sends faster than we store: its socket is not read for the moment."""
        self._resume: Callable[[], None] = resume
        self._feed: Callable[[], None] = feed
        self._write: Callable[[bytes], None] = write
        self._flusher: Final = flusher
        self._max_unsent_bytes: i64 = max_unsent_bytes
        self._max_unacknowledged_bytes: i64 = max_unacknowledged_bytes
        self._is_dirty: bool = False
        self._answering: list[Flushable] = []

    def end(self) -> None:
        """The connection is over; nothing of it is asked for any more."""
        self.is_gone = True
        self.large.leave(self)
        self._end_giving()
        self._resume = _nothing
        self._feed = _nothing
        self._write = _nowhere

    def touch(self) -> None:
        """Something was written to the engine: flush at the end of this turn."""
        if not self._is_dirty:
            self._is_dirty = True
            self._flusher.add(self)

    def answer(self, link: Flushable) -> None:
        self._answering.append(link)
        self.touch()

    def can_take(self) -> bool:
        """Frames held for a session whose window is shut count as unsent: they are in memory all the same."""
        if self._waits_for_room:
            return False
        if self._has_room():
            return True
        self._is_stalled = True
        return False

    def has_room_for(self, size_bytes: i64) -> bool:
        """Asked of a large message before it is delivered. Without room nothing is, until there is some."""
        if self.large.can_give(size_bytes):
            return True
        self._waits_for_room = True
        self.large.wait(self, self._room_came)
        return False

    def _room_came(self) -> None:
        self._waits_for_room = False
        self._feed()

    def refused(self, error: BusError, what: str, link: str | None = None) -> None:
        """Something that the client asked for, such as "a link to 'orders'"."""
        refusals = self.refusals
        if refusals is not None:
            refusals.add(AMQP, error, what, ids(self.connection, link))

    def give(self, size_bytes: i64) -> None:
        """So many bytes were written for the peer."""
        if size_bytes > LARGE_BYTES and not self.is_gone:
            self.given_bytes += size_bytes
            self.large.give(size_bytes)

    def _end_giving(self) -> None:
        if self.given_bytes > 0:
            size_bytes = self.given_bytes
            self.given_bytes = 0
            self.large.end_giving(size_bytes)

    def take(self, size_bytes: i64) -> None:
        """So many bytes came from the peer, which waits for their answer."""
        self.unacknowledged_bytes += size_bytes
        if size_bytes > LARGE_BYTES:
            self.large.take(size_bytes)

    def end_taking(self, size_bytes: i64) -> None:
        self.unacknowledged_bytes -= size_bytes
        if size_bytes > LARGE_BYTES:
            self.large.end_taking(size_bytes)

    def _has_room(self) -> bool:
        return not self.is_backed_up and self.engine.pending_bytes() <= self._max_unsent_bytes

    def feed_if_stalled(self) -> None:
        """Asked after every flush, and when the transport can write again; never while there is no room, since whoever
        is fed in vain asks again at once."""
        if self.given_bytes > 0 and self._has_room():
            self._end_giving()
        if self._is_stalled and self._has_room():
            self._is_stalled = False
            self._feed()

    def flush(self) -> None:
        self._is_dirty = False
        if self._answering:
            answering = self._answering
            self._answering = []
            for link in answering:
                link.write_answers()
        data = self.engine.data_to_send()
        if self.is_gone:
            return
        if data:
            self._write(data)
        if self.is_unread and self.unacknowledged_bytes <= self._max_unacknowledged_bytes // 2:
            self.is_unread = False
            self._resume()
        self.feed_if_stalled()

    def must_pause(self) -> bool:
        """Credit does not bind every client: what is not acknowledged yet does."""
        return not self.is_unread and self.unacknowledged_bytes > self._max_unacknowledged_bytes


def _nothing() -> None:
    """Stands for what an ended connection would do."""


def _nowhere(data: bytes) -> None:
    """Stands for the transport of an ended connection."""
