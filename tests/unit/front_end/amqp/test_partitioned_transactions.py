"""What may be part of a transaction on a partitioned entity: parts of one fragment, by one key."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tandembus.amqp.encoding.sections import data_section, message_annotations_section
from tandembus.broker.locks import COMPLETE, MessageLock
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.broker.transactions import CallbackTransactionReply, TransactionSettlement
from tandembus.broker.transfer_destination import set_destination
from tandembus.clock import ManualClock
from tandembus.errors import BusError, InvalidOperation
from tandembus.front_end.amqp.transactions import (
    Transaction,
    TransactionLimits,
    TransactionMemory,
    TransactionParty,
    Transactions,
)
from tandembus.interconnect.traffic import Traffic
from tandembus.large_messages import LargeMemory
from tandembus.message import Message, parse_message
from tandembus.namespace.partitioning import fragment_of_key
from tests.covers import covers
from tests.unit.broker.one_queue import body_of, small
from tests.unit.namespace.partitioned_queue import PartitionedQueue, keyed

SAME_FRAGMENT = ("key-1", "key-5")


class Work:
    """One transaction on one entity, as a link gathers it."""

    def __init__(self, traffic: Traffic, session_id: str | None = None) -> None:
        limits = TransactionLimits(max_operations=100, max_bytes=100_000, max_open=10, timeout_s=60.0)
        self.transactions = Transactions(limits, TransactionMemory(1 << 20, LargeMemory()), ManualClock())
        self.transaction: Transaction = self.transactions.declare(self)
        self.outcomes: list[BusError | None] = []
        self._party = TransactionParty(traffic, _allowed, _held, session_id)

    def send(self, *messages: Message, is_via: bool = False) -> None:
        size = sum(int(one.wire_size) for one in messages)
        operation = SendOperation(list(messages), size, CallbackSendReply(lambda *_: None), -1, is_via)
        self.transaction.send(self._party, operation)

    def complete(self, lock: MessageLock) -> None:
        self.transaction.settle(self._party, TransactionSettlement(lock, COMPLETE))

    def discharge(self) -> None:
        traffic = self.transaction.traffic
        assert traffic is not None
        reply = CallbackTransactionReply(lambda _operation, error: self.outcomes.append(error))
        traffic.discharge(self.transaction.operation(reply))


def _allowed() -> None:
    return


def _held() -> Callable[[], None]:
    return _allowed


async def locked(queue: PartitionedQueue, count: int) -> dict[str, MessageLock]:
    """By the body of each message."""
    receiver = queue.receiver()
    await receiver.take(count)
    return {body_of(message): lock for message, lock in zip(receiver.messages, receiver.locks, strict=True)}


@covers("P16")
async def test_sends_and_settlements_of_one_key_are_one_commit_of_its_fragment() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(keyed("old", "a"))
        work = Work(queue.traffic)
        work.complete((await locked(queue, 1))["old"])
        work.send(keyed("one", "a"))
        work.send(keyed("two", "a"), keyed("three", "a"))
        work.discharge()
        await queue.quiet()
        assert work.outcomes == [None]
        assert await queue.peek() == ["one", "two", "three"]
        assert queue.counts()[fragment_of_key("a")] == 3


@covers("P16")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([], [keyed("one")]),
        ([keyed("one", "a")], [keyed("two")]),
        ([keyed("one", "a")], [keyed("two", "b")]),
        ([keyed("one", SAME_FRAGMENT[0])], [keyed("two", SAME_FRAGMENT[1])]),
        ([], [keyed("one", "a"), keyed("two", "b")]),
        ([keyed("one", session_id="a")], [keyed("two", session_id="b")]),
    ],
    ids=["no key", "none after one", "another key", "another key of the same fragment", "a batch of two", "sessions"],
)
async def test_no_key_or_another_key_is_refused(first: list[Message], second: list[Message]) -> None:
    async with PartitionedQueue() as queue:
        work = Work(queue.traffic)
        if first:
            work.send(*first)
        with pytest.raises(InvalidOperation):
            work.send(*second)


@covers("P16", "P10")
async def test_a_message_id_is_a_key_only_where_duplicates_are_looked_for() -> None:
    async with PartitionedQueue() as queue:
        with pytest.raises(InvalidOperation):
            Work(queue.traffic).send(keyed("one", message_id="m"))
    async with PartitionedQueue(small(duplicate_window_ms=60_000)) as queue:
        work = Work(queue.traffic)
        work.send(keyed("one", message_id="m"))
        with pytest.raises(InvalidOperation):
            work.send(keyed("two", message_id="another"))


@covers("P16")
async def test_a_settlement_in_another_fragment_is_refused_whichever_comes_first() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(keyed("a", "a"), keyed("b", "b"))
        locks = await locked(queue, 2)
        work = Work(queue.traffic)
        work.complete(locks["a"])
        with pytest.raises(InvalidOperation):
            work.complete(locks["b"])
        with pytest.raises(InvalidOperation):
            work.send(keyed("new", "b"))
        other = Work(queue.traffic)
        other.send(keyed("new", "b"))
        with pytest.raises(InvalidOperation):
            other.complete(locks["a"])
        other.complete(locks["b"])


@covers("P16")
async def test_a_session_that_is_settled_in_is_the_key_of_the_transaction() -> None:
    one, other = SAME_FRAGMENT
    async with PartitionedQueue(small(requires_session=True)) as queue:
        lock = MessageLock(int(fragment_of_key(one)).to_bytes(2, "big") + bytes(14), 0, 1, 0.0, 1, 0)
        work = Work(queue.traffic, session_id=one)
        work.complete(lock)
        with pytest.raises(InvalidOperation):
            work.send(keyed("new", session_id=other))
        work.send(keyed("new", session_id=one))


@covers("P16", "P17")
async def test_what_only_passes_through_goes_along_with_the_rest() -> None:
    async with PartitionedQueue() as queue:
        passing = keyed("passing")
        set_destination(passing, "elsewhere")
        await queue.send(keyed("old", "a"))
        lock = (await locked(queue, 1))["old"]
        work = Work(queue.traffic)
        work.send(passing, is_via=True)
        work.complete(lock)
        with pytest.raises(InvalidOperation):
            work.send(keyed("new", "b"))
        work.discharge()
        await queue.quiet()
        assert work.outcomes == [None]
        assert queue.fragments[fragment_of_key("a")].transfer.live_count == 1


@covers("P16", "P17")
@pytest.mark.parametrize("keys", [(None, None), ("a", "b"), SAME_FRAGMENT], ids=str)
async def test_what_only_passes_through_needs_one_via_key_where_nothing_else_says_the_fragment(
    keys: tuple[str | None, str | None],
) -> None:
    async with PartitionedQueue() as queue:
        work = Work(queue.traffic)
        for key in keys:
            work.send(passing(key), is_via=True)
        with pytest.raises(InvalidOperation):
            work.transaction.choose_fragment()


@covers("P16", "P17")
async def test_the_via_key_says_the_fragment_unless_a_settlement_says_another() -> None:
    async with PartitionedQueue() as queue:
        work = Work(queue.traffic)
        work.send(passing("b"), is_via=True)
        work.send(passing(None), is_via=True)
        work.transaction.choose_fragment()
        work.discharge()
        await queue.quiet()
        assert work.outcomes == [None]
        assert queue.fragments[fragment_of_key("b")].transfer.live_count == 2
        await queue.send(keyed("old", "a"))
        other = Work(queue.traffic)
        other.send(passing("b"), is_via=True)
        other.complete((await locked(queue, 1))["old"])
        with pytest.raises(InvalidOperation):
            other.transaction.choose_fragment()


def passing(key: str | None) -> Message:
    annotations: dict[str, object] = {} if key is None else {"x-opt-via-partition-key": key}
    message = parse_message(message_annotations_section(annotations) + data_section(b"passing"))
    set_destination(message, "elsewhere")
    return message


@covers("P16")
async def test_nothing_of_this_matters_on_a_plain_entity() -> None:
    async with PartitionedQueue(fragment_count=1) as queue:
        work = Work(queue.locals()[0])
        work.send(keyed("one"), keyed("two", "a"))
        work.send(keyed("three", "b"))
        work.discharge()
        await queue.quiet()
        assert work.outcomes == [None]
        assert queue.counts() == [3]
