"""The traffic of a partitioned entity: which of its fragments takes what, and what happens when one does not.

A key pins a message to its fragment, whatever state that is in. Without a key fragments take turns, and one that is out
of reach, full or busy is passed over: the send succeeds elsewhere, so that only pinned traffic suffers from an outage.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.operations import SendOperation, SendReply
from tandembus.broker.transactions import TransactionOperation, TransactionSettlement
from tandembus.clock import Clock
from tandembus.errors import (
    BusError,
    FragmentUnavailable,
    InvalidOperation,
    OperationTimeout,
    OutcomeUnknown,
    QuotaExceeded,
    ServerBusy,
    StoreFull,
    StoreUnavailable,
    anew,
)
from tandembus.interconnect.open_operations import unavailable
from tandembus.interconnect.traffic import ANY_FRAGMENT, SessionWatch, SessionWish, Traffic
from tandembus.message import Message
from tandembus.namespace.cached_traffic import CachedTraffic
from tandembus.namespace.partitioned_sessions import SessionLine
from tandembus.namespace.partitioning import (
    PartitionSettings,
    fragment_of_key,
    key_of_batch,
    partition_key_of,
    split_by_fragment,
    transaction_key_of,
    via_key_of_batch,
)
from tandembus.namespace.receive_cache import Later, call_later

TRY_FOR_S: Final = 60.0
"""For so long a send goes from fragment to fragment; whoever sent it waits no longer."""

_ONE_FRAGMENT: Final = "A transaction on a partitioned entity can settle only messages of its own partition."


def may_go_elsewhere(error: BusError) -> bool:
    """Whether another fragment may take what this one did not: it is out, full or busy, or nobody knows."""
    return isinstance(error, (StoreUnavailable, OperationTimeout, QuotaExceeded, ServerBusy))


def worse_of(before: BusError | None, error: BusError) -> BusError:
    """What is said of a send that nobody took. Once it may have been stored somewhere, a later refusal does not make
    that undone."""
    return before if isinstance(before, OutcomeUnknown) else error


@final
class RoutedSend(SendReply):
    """A send without a key, on its way to the fragment that takes it."""

    def __init__(self, traffic: PartitionedTraffic, operation: SendOperation) -> None:
        self.traffic: Final = traffic
        self.operation: Final = operation
        self.tried: i64 = 0
        """Bits of the fragments that did not take it."""
        self.failed_at: float = 0.0
        self.error: BusError | None = None
        """Why nobody has taken it so far."""

    def sent(self, operation: SendOperation, error: BusError | None) -> None:
        if error is not None:
            self.error = worse_of(self.error, error)
            if may_go_elsewhere(error) and not self._is_late():
                try:
                    self.traffic.send_on(self)
                    return
                except BusError as last:
                    self.error = last
            error = self.error
        self.operation.reply.sent(self.operation, error)

    def _is_late(self) -> bool:
        now = self.traffic.clock.monotonic()
        if self.failed_at == 0.0:
            self.failed_at = now
        return now - self.failed_at >= TRY_FOR_S


@final
class SplitSend(SendReply):
    """A batch whose messages belong to several fragments: one answer, when all parts have theirs."""

    def __init__(self, operation: SendOperation, part_count: i64) -> None:
        self.operation: Final = operation
        self.left: i64 = part_count
        self.error: BusError | None = None

    def sent(self, operation: SendOperation, error: BusError | None) -> None:
        if error is not None and self.error is None:
            self.error = error
        self.left -= 1
        if self.left == 0:
            self.operation.reply.sent(self.operation, self.error)


@final
class PartitionedTraffic(CachedTraffic):
    def __init__(
        self,
        fragments: list[Traffic],
        settings: PartitionSettings,
        clock: Clock,
        later: Later = call_later,
        first_turn: i64 = 0,
        order: list[int] | None = None,
    ) -> None:
        """`order`: the fragments in the order in which they take turns. `first_turn`: the place in it of the first send
        without a key. If it were the same in each front end and each life, an entity that is seldom used would fill
        that fragment only."""
        super().__init__(fragments, settings, clock, later)
        self._order: Final = order if order is not None else list(range(len(fragments)))
        self._turn: i64 = first_turn
        self._line: Final = SessionLine(fragments, later)

    def failure(self) -> BusError | None:
        """Only when none of the fragments takes anything."""
        for traffic in self.fragments:
            if not traffic.is_out():
                return None
        return self.fragments[-1].failure()

    def is_limited(self) -> bool:
        """Whether any of the fragments is out."""
        for traffic in self.fragments:
            if traffic.is_out():
                return True
        return False

    # Sending.

    def send(self, operation: SendOperation) -> None:
        messages = operation.messages
        key: str | None
        if operation.is_via:
            key = via_key_of_batch(messages, self.settings)
        elif len(messages) == 1:
            key = partition_key_of(messages[0], self.settings)
        else:
            key = key_of_batch(messages, self.settings)
            if key is None and self.settings.requires_duplicate_detection:
                self._send_split(operation)
                return
        if key is None:
            self.send_on(RoutedSend(self, operation))
        else:
            self.fragments[fragment_of_key(key)].send(operation)

    def send_on(self, routed: RoutedSend) -> None:
        """To the next fragment in turn that takes it. Raises when none does: why the last one did not, unless nobody
        knows whether an earlier one did."""
        operation = routed.operation
        while True:
            index = self.next_turn(routed.tried)
            if index < 0:
                raise routed.error if routed.error is not None else self._all_out()
            routed.tried |= 1 << index
            if routed.error is not None:
                _forget_numbers(operation.messages)
            try:
                self.fragments[index].send(
                    SendOperation(
                        operation.messages, operation.size_bytes, routed, operation.delivery_id, operation.is_via
                    )
                )
                return
            except BusError as refusal:
                routed.error = worse_of(routed.error, refusal)
                if not may_go_elsewhere(refusal):
                    raise routed.error from None

    def next_turn(self, tried: i64) -> i64:
        """The fragment whose turn it is, of those that are up and were not tried; -1: there is none."""
        count: i64 = len(self.fragments)
        passed: i64 = 0
        while passed < count:
            place = (self._turn + passed) % count
            index: i64 = self._order[place]
            if tried & (1 << index) == 0 and not self.fragments[index].is_out():
                self._turn = (place + 1) % count
                return index
            passed += 1
        return -1

    def _all_out(self) -> BusError:
        error = self.failure()
        return anew(error) if error is not None else FragmentUnavailable("No partition of the entity can be reached.")

    def _send_split(self, operation: SendOperation) -> None:
        """Part by part, each to its fragment. What is stored although another part is not is no loss and no duplicate:
        the sender sends all of it again, and what came before is recognised."""
        parts = split_by_fragment(operation.messages)
        if len(parts) == 1:
            for only in parts:
                self.fragments[only].send(operation)
            return
        self.check_parts(parts)
        split = SplitSend(operation, len(parts))
        is_first = True
        for index, messages in parts.items():
            part = SendOperation(messages, _size_of(messages), split, operation.delivery_id)
            try:
                self.fragments[index].send(part)
            except BusError as refusal:
                if is_first:
                    raise
                split.sent(part, refusal)
            is_first = False

    def check_parts(self, parts: dict[int, list[Message]]) -> None:
        """Raises where one of these fragments is known to be out, before any of them is sent its part."""
        for index in parts:
            error = self.fragments[index].failure()
            if isinstance(error, (ServerBusy, StoreFull)):
                raise anew(error)
            if error is not None:
                raise unavailable(index, str(error))

    # Transactions: all in one fragment.

    def transaction_key(self, operation: SendOperation) -> str | None:
        if operation.is_via:
            return via_key_of_batch(operation.messages, self.settings)
        return transaction_key_of(operation.messages, self.settings)

    def transaction_index(self, operation: SendOperation) -> i64:
        """What only passes through may go with whatever else is in the transaction, unless it has a key for it."""
        key = self.transaction_key(operation)
        if key is None:
            return ANY_FRAGMENT
        return self.fragments[fragment_of_key(key)].transaction_index(operation)

    def discharge(self, operation: TransactionOperation) -> None:
        index = _index_of(operation.settlements, operation.index)
        for part in operation.others:
            index = _index_of(part.operation.settlements, index)
        if index == ANY_FRAGMENT:
            index = self.next_turn(0)
        if index < 0 or index >= len(self.fragments):
            raise self._all_out()
        for part in operation.others:
            other = part.traffic
            assert isinstance(other, PartitionedTraffic)
            part.traffic = other.fragments[index]
        self.fragments[index].discharge(operation)

    # Sessions: those with a name live in its fragment.

    def wish_session(self, wish: SessionWish) -> None:
        name = wish.session_id
        if name is None:
            self._line.wish(wish)
        else:
            self.fragments[self.settings.index_of(name)].wish_session(wish)

    def give_up_session(self, wish: SessionWish) -> None:
        name = wish.session_id
        if name is None:
            self._line.give_up(wish)
        else:
            self.fragments[self.settings.index_of(name)].give_up_session(wish)

    def watch_sessions(self, watch: SessionWatch) -> None:
        for traffic in self.fragments:
            traffic.watch_sessions(watch)


def _index_of(settlements: list[TransactionSettlement], index: i64) -> i64:
    """The fragment of all of them, or this one where there are none."""
    for settlement in settlements:
        if index == ANY_FRAGMENT:
            index = settlement.lock.index
        if settlement.lock.index != index:
            raise InvalidOperation(_ONE_FRAGMENT)
    return index


def _forget_numbers(messages: list[Message]) -> None:
    """Those that another fragment gave them and that came to nothing."""
    for message in messages:
        message.number = 0


def _size_of(messages: list[Message]) -> i64:
    size: i64 = 0
    for message in messages:
        size += message.wire_size
    return size
