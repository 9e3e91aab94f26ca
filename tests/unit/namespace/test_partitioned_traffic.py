"""Sending to many fragments: in turn, pinned by a key, around those that are out."""

from __future__ import annotations

from collections import Counter

import pytest

from tandembus.amqp.encoding.sections import data_section, message_annotations_section, properties_section
from tandembus.broker.locks import COMPLETE, MessageLock
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.broker.transactions import CallbackTransactionReply, TransactionOperation, TransactionSettlement
from tandembus.errors import (
    BusError,
    FragmentUnavailable,
    InvalidOperation,
    MessageLockLost,
    OperationTimeout,
    QuotaExceeded,
    StoreFull,
    StoreUnavailable,
)
from tandembus.interconnect.traffic import ANY_FRAGMENT
from tandembus.message import Message, parse_message
from tandembus.namespace.partitioning import fragment_of_key
from tandembus.store.memory import Fault
from tests.covers import covers
from tests.unit.broker.one_queue import PING, Answer, small
from tests.unit.namespace.partitioned_queue import PartitionedQueue, keyed


def detecting(requires_session: bool = False) -> PartitionedQueue:
    return PartitionedQueue(
        small(window_messages=100, block_size=64, duplicate_window_ms=60_000, requires_session=requires_session)
    )


def key_in(index: int, but: str = "") -> str:
    """A key that lands in this fragment."""
    return next(key for number in range(1000) if fragment_of_key(key := f"key-{number}") == index and key != but)


# In turn.


@covers("P5")
@pytest.mark.parametrize("count", [1, 15, 16, 17, 100, 1000])
async def test_messages_without_a_key_are_spread_so_that_counts_differ_by_one_at_most(count: int) -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*[str(number) for number in range(count)])
        assert sum(queue.counts()) == count
        assert max(queue.counts()) - min(queue.counts()) <= 1


@covers("P5", "P27")
async def test_a_batch_without_a_key_is_one_step_and_goes_whole_to_one_fragment() -> None:
    async with PartitionedQueue() as queue:
        for batch in range(16):
            queue.stage(*[keyed(f"{batch}-{number}") for number in range(5)])
        await queue.quiet()
        assert queue.counts() == [5] * 16


@covers("P5", "N10")
async def test_a_ping_takes_its_turn_and_is_not_kept() -> None:
    async with PartitionedQueue() as queue:
        answers = [queue.stage(keyed("ping", content_type=PING)) for _ in range(3)]
        await queue.send(*[str(number) for number in range(13)])
        assert all(answer.is_accepted for answer in answers)
        assert queue.counts() == [0] * 3 + [1] * 13


@covers("P14", "N10")
async def test_a_ping_with_a_session_is_refused_when_a_send_of_that_session_would_be() -> None:
    async with PartitionedQueue() as queue:
        await queue.fail(1)
        with pytest.raises(StoreUnavailable):
            queue.stage(keyed("ping", session_id=key_in(3), content_type=PING))
        answer = queue.stage(keyed("ping", session_id=key_in(2), content_type=PING))
        await queue.quiet()
        assert answer.is_accepted


# Keys.


@covers("P5", "P10")
@pytest.mark.parametrize("is_session", [False, True])
async def test_the_same_key_always_lands_in_the_same_fragment(is_session: bool) -> None:
    async with PartitionedQueue() as queue:
        for key in ("a", "b", "c"):
            partition_key, session_id = (None, key) if is_session else (key, None)
            await queue.send(*[keyed(f"{key}{number}", partition_key, session_id) for number in range(5)])
        expected = Counter(int(fragment_of_key(key)) for key in ("a", "b", "c") for _ in range(5))
        assert queue.counts() == [expected[index] for index in range(16)]


@covers("P10", "M8")
async def test_a_repeated_message_id_is_dropped_wherever_it_lands() -> None:
    async with detecting() as queue:
        await queue.send(*[keyed(f"{number}", message_id=f"id-{number % 20}") for number in range(100)])
        assert sum(queue.counts()) == 20


@covers("P10", "M8")
@pytest.mark.parametrize("is_session", [False, True])
async def test_one_message_id_under_many_keys_is_no_duplicate_whichever_fragments_they_share(is_session: bool) -> None:
    keys = [f"key-{number}" for number in range(40)]
    async with detecting() as queue:
        for again in ("", "again "):
            pairs = [(None, key) if is_session else (key, None) for key in keys]
            await queue.send(*[keyed(again + (one or other or ""), one, other, "same") for one, other in pairs])
        assert sorted(await queue.peek()) == sorted(keys)


@covers("P10", "M8")
async def test_a_message_id_without_a_key_differs_from_the_same_id_under_a_key() -> None:
    """Both land in one fragment: the second key is the id itself."""
    keys = [None, "same", key_in(int(fragment_of_key("same")))]
    async with detecting() as queue:
        for again in ("", " again"):
            await queue.send(*[keyed(f"{key}{again}", partition_key=key, message_id="same") for key in keys])
        assert sorted(await queue.peek()) == sorted(str(key) for key in keys)


@covers("P10", "M8")
async def test_key_and_message_id_are_not_taken_for_a_longer_key_or_a_longer_id() -> None:
    whole = "a-key-and-an-id"
    parts = [(whole[:at], whole[at:]) for at in range(1, len(whole))]
    async with detecting() as queue:
        await queue.send_to(3, *[keyed(key, partition_key=key, message_id=message_id) for key, message_id in parts])
        assert queue.counts()[3] == len(parts)


# Batches.


@covers("P27")
async def test_a_batch_with_a_key_goes_whole_to_its_fragment() -> None:
    async with PartitionedQueue() as queue:
        answer = queue.stage(*[keyed(str(number), partition_key="a") for number in range(4)])
        await queue.quiet()
        assert answer.is_accepted
        assert queue.counts()[int(fragment_of_key("a"))] == 4


@covers("P27")
@pytest.mark.parametrize("detects", [False, True])
async def test_a_batch_with_different_keys_is_refused_and_nothing_is_stored(detects: bool) -> None:
    async with detecting() if detects else PartitionedQueue() as queue:
        with pytest.raises(InvalidOperation):
            queue.stage(keyed("a", partition_key="a"), keyed("b", partition_key="b"))
        with pytest.raises(InvalidOperation):
            queue.stage(keyed("a", session_id="a"), keyed("b"))
        await queue.quiet()
        assert sum(queue.counts()) == 0


@covers("P27")
async def test_a_batch_of_different_message_ids_is_split_and_answered_once() -> None:
    async with detecting() as queue:
        answer = queue.stage(*[keyed(f"m{number}") for number in range(50)])
        await queue.quiet()
        assert answer.is_accepted
        assert sum(queue.counts()) == 50
        for index, fragment in enumerate(queue.fragments):
            expected = sum(1 for number in range(50) if fragment_of_key(f"m{number}") == index)
            assert int(fragment.main.live_count) == expected


@covers("P27")
async def test_a_batch_of_which_one_part_fails_is_refused_and_its_repetition_adds_only_what_was_missing() -> None:
    async with detecting() as queue:
        batch = [keyed(f"m{number}") for number in range(50)]
        disk = queue.disks[1]
        disk.faults[disk.commit_count + 1] = Fault.UNKNOWN_LOST
        answer = queue.stage(*batch)
        await queue.quiet()
        assert isinstance(answer.error, StoreUnavailable)
        await queue.heal(1)
        assert 0 < sum(queue.counts()) < 50
        again = queue.stage(*[keyed(f"m{number}") for number in range(50)])
        await queue.quiet()
        assert again.is_accepted
        assert sorted(await queue.peek()) == sorted(f"m{number}" for number in range(50))


@covers("P14", "P15", "P27")
@pytest.mark.parametrize("why", [StoreUnavailable("The store failed."), OperationTimeout("The store hangs.")])
async def test_a_batch_for_a_fragment_that_is_known_to_be_out_is_refused_before_anything_is_stored(
    why: BusError,
) -> None:
    async with detecting() as queue:
        silent = queue.fragments[3]
        silent.failure = why
        refusal = r"Fragment 3 is unavailable, and nothing was changed\. Try again"
        batch = [keyed(f"m{number}") for number in range(50)]
        with pytest.raises(FragmentUnavailable, match=refusal):
            queue.stage(*batch)
        with pytest.raises(FragmentUnavailable, match=refusal):
            await queue.requests.schedule(batch, 5_000)
        silent.failure = None
        await queue.quiet()
        assert sum(queue.counts()) == 0


# Outages.


@covers("P3", "P13")
async def test_without_a_key_a_send_succeeds_while_any_fragment_is_up() -> None:
    async with PartitionedQueue(broker_count=16) as queue:
        for down in range(15):
            await queue.fail(down)
            await queue.send(*[f"{down}-{number}" for number in range(20)])
        up = queue.counts()[15]
        assert up >= 20
        await queue.fail(15)
        assert isinstance(queue.traffic.failure(), StoreUnavailable)
        with pytest.raises(StoreUnavailable):
            queue.stage(keyed("nobody"))


@covers("P13")
async def test_what_a_failed_commit_held_is_stored_elsewhere() -> None:
    async with PartitionedQueue(broker_count=4) as queue:
        disk = queue.disks[2]
        disk.faults[disk.commit_count + 1] = Fault.UNKNOWN_LOST
        queue.is_down[2] = True
        answers = [queue.stage(keyed(str(number))) for number in range(64)]
        await queue.quiet()
        assert all(answer.is_accepted for answer in answers)
        assert sorted(await queue.peek(), key=int) == [str(number) for number in range(64)]
        await queue.heal(2)
        assert sum(queue.counts()) == 64


@covers("P5", "P13")
async def test_the_fragments_that_are_up_share_evenly_what_one_that_is_out_cannot_take() -> None:
    async with PartitionedQueue(broker_count=16) as queue:
        await queue.fail(5)
        await queue.send(*[str(number) for number in range(150)])
        counts = queue.counts()
        del counts[5]
        assert counts == [10] * 15


@covers("P14", "P20")
async def test_with_a_key_only_the_share_of_the_lost_fragments_fails_and_nothing_is_moved() -> None:
    async with PartitionedQueue(broker_count=16) as queue:
        await queue.fail(5)
        refused = []
        for number in range(800):
            try:
                queue.stage(keyed(str(number), partition_key=f"k{number}"))
            except StoreUnavailable:
                refused.append(number)
        await queue.quiet()
        assert StoreUnavailable.retryable
        assert refused == [number for number in range(800) if fragment_of_key(f"k{number}") == 5]
        assert 30 < len(refused) < 70
        await queue.heal(5)
        assert queue.counts()[5] == 0


@covers("P8", "P13")
async def test_a_full_fragment_is_passed_over_and_refuses_what_is_pinned_to_it() -> None:
    async with PartitionedQueue(small(max_size_bytes=2000, window_messages=100, block_size=64)) as queue:
        await queue.send(*[keyed(f"fill-{number}", partition_key=key_in(4), padding=300) for number in range(4)])
        with pytest.raises(QuotaExceeded):
            queue.stage(keyed("more", partition_key=key_in(4), padding=900))
        before = queue.counts()[4]
        await queue.send(*[keyed(f"any-{number}", padding=900) for number in range(15)])
        assert queue.counts()[4] == before
        assert sum(queue.counts()) == before + 15


@covers("M13", "P13")
async def test_a_full_disk_is_passed_over() -> None:
    async with PartitionedQueue() as queue:
        disk = queue.disks[0]
        disk.faults[disk.commit_count + 1] = Fault.FULL
        answers = [queue.stage(keyed(str(number))) for number in range(16)]
        await queue.quiet()
        assert all(answer.is_accepted for answer in answers)
        assert [count > 0 for count in queue.counts()] == [index % 2 == 1 for index in range(16)]
        with pytest.raises(StoreFull):
            queue.stage(keyed("pinned", partition_key=key_in(2)))


@covers("P13")
async def test_a_refusal_of_the_message_itself_is_no_reason_to_try_elsewhere() -> None:
    async with PartitionedQueue(small(requires_session=True)) as queue:
        with pytest.raises(InvalidOperation):
            queue.stage(keyed("no session"))


@covers("P3", "P19")
async def test_the_entity_is_limited_while_any_fragment_is_out_and_fails_when_all_are() -> None:
    async with PartitionedQueue() as queue:
        assert not queue.traffic.is_limited()
        await queue.fail(0)
        assert queue.traffic.is_limited()
        assert queue.traffic.failure() is None
        await queue.fail(1)
        assert queue.traffic.failure() is not None
        await queue.heal(0)
        await queue.heal(1)
        assert not queue.traffic.is_limited()


# Settling.


@covers("P6", "P26")
async def test_a_settlement_goes_to_the_fragment_that_gave_the_lock() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*[str(number) for number in range(16)])
        receiver = queue.receiver()
        await receiver.take(16)
        assert {int(lock.index) for lock in receiver.locks} == set(range(16))
        for lock in receiver.locks:
            queue.traffic.check_lock(lock)
            assert await _settled(queue, lock) is None
            with pytest.raises(MessageLockLost):
                queue.traffic.check_lock(lock)
        assert sum(queue.counts()) == 0


async def _settled(queue: PartitionedQueue, lock: MessageLock) -> BusError | None:
    answer = queue.settle(lock, COMPLETE)
    await queue.quiet()
    return answer.error


@pytest.mark.parametrize("token", [bytes(16), b"\xff" * 16, b"\x00\x10" + bytes(14), b""])
async def test_a_token_that_nobody_gave_is_a_lost_lock(token: bytes) -> None:
    async with PartitionedQueue() as queue:
        lock = MessageLock(token, 0, 1, 0.0, 0, 0)
        with pytest.raises(MessageLockLost):
            queue.traffic.settle(lock, COMPLETE, None)


# Transactions.


def send_in_transaction(*messages: Message, is_via: bool = False) -> SendOperation:
    size = sum(int(one.wire_size) for one in messages)
    return SendOperation(list(messages), size, CallbackSendReply(lambda *_: None), -1, is_via)


@covers("P16")
async def test_a_transaction_is_carried_out_in_the_fragment_of_its_key() -> None:
    async with PartitionedQueue() as queue:
        sends = [send_in_transaction(keyed(str(number), partition_key="a")) for number in range(3)]
        indices = {int(queue.traffic.transaction_index(send)) for send in sends}
        assert indices == {int(fragment_of_key("a"))}
        assert queue.traffic.transaction_key(sends[0]) == "a"
        answer = Answer()
        operation = TransactionOperation(sends, [], CallbackTransactionReply(lambda _, error: answer.give(error)))
        (operation.index,) = indices
        queue.traffic.discharge(operation)
        await queue.quiet()
        assert answer.is_accepted
        assert queue.counts()[int(fragment_of_key("a"))] == 3


@covers("P16")
async def test_what_has_no_key_can_be_in_no_transaction_but_what_only_passes_through_can() -> None:
    async with PartitionedQueue() as queue:
        with pytest.raises(InvalidOperation):
            queue.traffic.transaction_index(send_in_transaction(keyed("a")))
        with pytest.raises(InvalidOperation):
            queue.traffic.transaction_index(
                send_in_transaction(keyed("a", partition_key="a"), keyed("b", partition_key="b"))
            )
        assert queue.traffic.transaction_index(send_in_transaction(keyed("a"), is_via=True)) == ANY_FRAGMENT


def via(body: str, key: str | None) -> Message:
    annotations = message_annotations_section({"x-opt-via-partition-key": key}) if key is not None else b""
    return parse_message(annotations + properties_section(body) + data_section(body.encode()))


@covers("P16", "P27")
@pytest.mark.parametrize("other", ["b", None])
async def test_a_batch_that_passes_through_has_one_key_for_it(other: str | None) -> None:
    async with PartitionedQueue() as queue:
        same = send_in_transaction(via("1", "a"), via("2", "a"), is_via=True)
        assert queue.traffic.transaction_key(same) == "a"
        assert queue.traffic.transaction_index(same) == fragment_of_key("a")
        for keys in (("a", other), (other, "a")):
            mixed = send_in_transaction(*[via("m", key) for key in keys], is_via=True)
            for refuse in (queue.traffic.send, queue.traffic.transaction_key, queue.traffic.transaction_index):
                with pytest.raises(InvalidOperation):
                    refuse(mixed)
        assert sum(queue.counts()) == 0


@covers("P16")
async def test_a_settlement_in_another_fragment_is_refused_and_nothing_is_carried_out() -> None:
    async with PartitionedQueue() as queue:
        await queue.send_to(1, "one")
        await queue.send_to(2, "two")
        receiver = queue.receiver()
        await receiver.take(2)
        settlements = [TransactionSettlement(lock, COMPLETE) for lock in receiver.locks]
        operation = TransactionOperation([], settlements, CallbackTransactionReply(lambda *_: None))
        operation.index = 1
        with pytest.raises(InvalidOperation):
            queue.traffic.discharge(operation)
        await queue.quiet()
        assert sum(queue.counts()) == 2
        for lock in receiver.locks:
            assert await _settled(queue, lock) is None


@covers("P16", "M11")
async def test_a_settlement_decides_the_fragment_of_what_only_passes_through() -> None:
    async with PartitionedQueue() as queue:
        await queue.send_to(7, "one")
        receiver = queue.receiver()
        await receiver.take(1)
        answer = Answer()
        operation = TransactionOperation(
            [send_in_transaction(keyed("on"), is_via=True)],
            [TransactionSettlement(receiver.locks[0], COMPLETE)],
            CallbackTransactionReply(lambda _, error: answer.give(error)),
        )
        operation.index = ANY_FRAGMENT
        queue.traffic.discharge(operation)
        await queue.quiet()
        assert answer.is_accepted
        assert [int(one.transfer.live_count) for one in queue.fragments] == [0] * 7 + [1] + [0] * 8
        assert sum(queue.counts()) == 0
